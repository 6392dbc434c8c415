"""Bad input ends with one clear paragraph, exit status 2, and no file left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from environment import zoo
from experiments.cli import main
from tests import commands

VALID = "squeezenet1.1-tiny"
OTHER_REWARD = ("--set", "dream.telescoping=false", "--set")
ON_PAPER = ("--costs", "roofline:xeon")
"""Costs for which no kernel is timed."""


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts below `tmp_path` everything that a command could leave behind, the default run directory included."""
    monkeypatch.chdir(tmp_path)
    yield


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    return commands.failure(capsys, "optimise", *arguments)


def save_invalid(path: Path) -> None:
    value = helper.make_tensor_value_info
    node = helper.make_node("Relu", ["nowhere"], ["y"])
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])])
    onnx.save(helper.make_model(graph), path)


def save_symbolic(path: Path) -> None:
    model = zoo.build(VALID)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, path)


def save_truncated(path: Path) -> None:
    data = zoo.build(VALID).SerializeToString()
    path.write_bytes(data[: len(data) // 2])


BAD_MODELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("This is not a model.\n" * 50), "not an ONNX model"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "truncated": (save_truncated, "truncated"),
    "directory": (lambda path: path.mkdir(), "directory"),
    "invalid": (save_invalid, "onnx.checker"),
    "symbolic": (save_symbolic, "batch"),
    "missing": (lambda path: None, "does not exist"),
}


@pytest.mark.parametrize("kind", BAD_MODELS)
def test_a_bad_model_is_explained(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, expected = BAD_MODELS[kind]
    make(tmp_path / "model.onnx")
    message = failure(capsys, "model.onnx", "-o", "out.onnx")
    assert expected in message and "model.onnx" in message


def test_symbolic_dimensions_name_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_symbolic(tmp_path / "model.onnx")
    assert "--dim batch=" in failure(capsys, "model.onnx", "-o", "out.onnx")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["squeezenet1.1-tini", "-o", "out.onnx"], "squeezenet1.1-tiny"),
        ([VALID, "-o", "out.onnx", "--controller", "gredy"], "greedy"),
        ([VALID, "-o", "out.onnx", "--preset", "demmo"], "demo"),
        ([VALID, "-o", "out.onnx", "--set", "ppo.updatse=3"], "updates"),
        ([VALID, "-o", "out.onnx", "--set", "world_model.encoder.latnet=3"], "latent"),
        ([VALID, "-o", "out.onnx", "--set", "ppo.updates=0"], "at least 1"),
        ([VALID, "-o", "out.onnx", "--costs", "roofline:rtx2080"], "rtx2070"),
        ([VALID, "-o", "out.onnx", "--costs", "endtoend:gpu"], "cpu here"),
        ([VALID, "-o", "out.onnx", "--costs", "endtoend"], "endtoend:cpu"),
        ([VALID, "-o", "out.onnx", "--set", "environment.reward=combind:alpha=1"], "combined"),
        ([VALID, "-o", "out.onnx", "--set", "environment.reward=combined:alhpa=1"], "alpha"),
        ([VALID, "-o", "out.onnx", "--set", "environment.reward=combined:alpha=much"], "much"),
        ([VALID, "-o", "out.onnx", "--set", "environment.reward=no_rewards:mine"], "PYTHONPATH"),
        ([VALID, "-o", "out.onnx", *OTHER_REWARD, "environment.reward=percent:every=0"], "at least 1"),
        ([VALID, "-o", "out.onnx", *OTHER_REWARD, "environment.reward=fianl"], "final"),
        ([VALID, "-o", "out.onnx", "--world", "dreem"], "dream"),
        ([VALID, "-o", "out.onnx", "--clean", "ful"], "full"),
        ([VALID, "-o", "out.onnx", "--device", "gpu"], "cpu"),
        ([VALID, "-o", "out.onnx", "--skip", "fold-add-into-cnov"], "fold-add-into-conv"),
        ([VALID, "-o", "out.onnx", "--only", "fold-*", "--skip", "fold-*"], "no rule is left"),
        ([VALID, "-o", "out.onnx", "--dim", "batch"], "name=value"),
        ([VALID, "-o", "out.onnx", "--dim", "batch=9", "--dim", "batch=10"], "binds 'batch' to"),
        ([VALID, "-o", "out.onnx", "--seed", "many"], "many"),
        ([VALID, "-o", "out.onnx", "--rules", "none.rules"], "none.rules"),
        ([VALID, "-o", "out.onnx", "--inputs", "none.npz"], "none.npz"),
        ([VALID, "-o", "out.onnx", "--controller", "taso", "--alpha", "0.5"], "alpha"),
        ([VALID, "-o", "."], "directory"),
        ([VALID, "-o", "/proc/rlflow/out.onnx"], "/proc"),
        ([VALID, "-o", "out.onnx", "--run-dir", "/proc/rlflow"], "/proc"),
        ([VALID], "-o"),
        ([VALID, "-o", "out.onnx", "--frobnicate"], "frobnicate"),
    ],
)
def test_bad_arguments_are_explained(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in failure(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["explain", VALID, "--rule", "fold-add-into-cnov"], "fold-add-into-conv"),
        (["explain", VALID, "--rule", "fold-add-into-conv", "--at", "Conv_1"], "no operator 'Conv_1'"),
        (["explain", VALID], "--rule"),
        (["optimise", VALID, VALID, "-o", "out"], "Two models would be written to out/"),
        (["optimise", VALID, "nasrnn-tiny", "-o", "out", "--run-dir", "run"], "--run-dir is for one model"),
        (["check", VALID, "none.onnx"], "none.onnx"),
    ],
)
def test_bad_arguments_of_other_commands_are_explained(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in commands.failure(capsys, *arguments)


def test_an_existing_output_needs_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.onnx").write_text("precious")
    assert "--force" in failure(capsys, VALID, "-o", "out.onnx", "--controller", "greedy")


def test_the_model_itself_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(zoo.build(VALID), tmp_path / "model.onnx")
    os.link(tmp_path / "model.onnx", tmp_path / "same.onnx")
    assert "never overwritten" in failure(capsys, "model.onnx", "-o", "same.onnx", "--force")


@pytest.mark.parametrize("output", ["w.bin", "hard-link", "symbolic-link"])
def test_a_file_that_the_model_reads_is_never_overwritten(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save_model(
        zoo.build(VALID), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    before = (tmp_path / "w.bin").read_bytes()
    os.link(tmp_path / "w.bin", tmp_path / "hard-link")
    (tmp_path / "symbolic-link").symlink_to("w.bin")
    assert "never overwritten" in failure(capsys, "m.onnx", "-o", output, "--force")
    assert (tmp_path / "w.bin").read_bytes() == before


def test_the_weights_of_a_large_result_do_not_replace_those_of_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They go to the file `out.onnx.data`."""
    onnx.save_model(
        zoo.build(VALID), tmp_path / "m.onnx", save_as_external_data=True, location="out.onnx.data", size_threshold=0
    )
    assert "never overwritten" in failure(capsys, "m.onnx", "-o", "out.onnx")


def test_only_regular_files_are_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder.onnx").mkdir()
    for output, kind in (("/dev/null", "a device"), ("pipe", "a FIFO"), ("folder.onnx", "a directory")):
        assert kind in failure(capsys, VALID, "-o", output, "--force")


@pytest.mark.parametrize("output", ["n" * 300, f"{'n' * 300}/out.onnx", f"{'n' * 252}"])
def test_names_that_are_too_long_are_refused_before_any_work(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "too long" in failure(capsys, VALID, "-o", output)


def test_the_longest_name_is_written(tmp_path: Path) -> None:
    output = tmp_path / ("n" * 250)
    assert (
        main(["optimise", VALID, *ON_PAPER, "--controller", "greedy", "-o", str(output), "--set", "measure.pairs=2"])
        == 0
    )
    assert onnx.load(output).graph.node


def test_a_full_disk_is_one_paragraph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    arguments = ["--controller", "greedy", "-o", "out.onnx", "--set", "measure.pairs=2"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main(["optimise", VALID, *ON_PAPER, *arguments]) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error.strip().splitlines()[-1] and "Traceback" not in error
    assert not list(tmp_path.rglob("*.tmp")) and not (tmp_path / "out.onnx").exists()
    assert main(["optimise", VALID, *ON_PAPER, *arguments]) == 0


def test_another_configuration_in_one_run_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [VALID, *ON_PAPER, "--controller", "greedy", "--run-dir", "run", "--set", "measure.pairs=2"]
    assert main(["optimise", *common, "-o", "out.onnx"]) == 0
    capsys.readouterr()
    assert "seed" in failure(capsys, *common, "-o", "other.onnx", "--seed", "5")


def test_inputs_that_do_not_fit_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "inputs.npz", nonsense=np.zeros(3, np.float32))
    message = failure(capsys, VALID, "-o", "out.onnx", "--controller", "taso", "--inputs", "inputs.npz")
    assert "nonsense" in message


def test_inputs_that_are_no_numbers_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (given,) = zoo.build(VALID).graph.input
    sizes = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    np.savez(tmp_path / "inputs.npz", **{given.name: np.full(sizes, np.nan, np.float32)})
    assert "holds NaN" in failure(capsys, VALID, "-o", "out.onnx", "--inputs", "inputs.npz")


def test_damaged_inputs_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "inputs.npz").write_bytes(b"PK is how it should begin")
    assert "inputs.npz" in failure(capsys, VALID, *ON_PAPER, "-o", "out.onnx", "--inputs", "inputs.npz")


def test_pickled_objects_are_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
            return Path.touch, (tmp_path / "touched",)  # type: ignore[return-value]  # what unpickling would call

    np.savez(tmp_path / "inputs.npz", x=np.array([Hostile()], object))
    assert "inputs.npz" in failure(capsys, VALID, *ON_PAPER, "-o", "out.onnx", "--inputs", "inputs.npz")
    assert not (tmp_path / "touched").exists()


def test_a_single_array_is_no_file_of_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "inputs.npy", np.zeros(3, np.float32))
    assert "Expected an npz file" in failure(capsys, VALID, *ON_PAPER, "-o", "out.onnx", "--inputs", "inputs.npy")


def test_play_that_rewrites_nothing_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    settings = "collect.noop_probability=1", "collect.episodes=4"
    status = main(
        ["optimise", VALID, *ON_PAPER, "-o", "out.onnx", *(part for each in settings for part in ("--set", each))]
    )
    error = capsys.readouterr().err
    assert status == 2 and "hold no rewrite to learn from" in error and "Traceback" not in error


def test_a_broken_rule_file_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my.rules").write_text("rule broken\n  source y = Relu(x\n")
    assert "my.rules" in failure(capsys, VALID, "-o", "out.onnx", "--rules", "my.rules")


@pytest.mark.parametrize(
    "body", ["float('nan')", *(pytest.param(body, marks=pytest.mark.full) for body in ("'much'", "1 / 0"))]
)
def test_a_reward_of_ones_own_that_is_no_number(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nonsense_rewards.py").write_text(f"def mine(transition):\n    return {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    arguments = [*OTHER_REWARD, "environment.reward=nonsense_rewards:mine", "--controller", "greedy"]
    status = main(["optimise", VALID, *ON_PAPER, "-o", "out.onnx", *arguments])
    error = capsys.readouterr().err
    message = error.strip().splitlines()[-1]
    assert status == 2 and "Traceback" not in error
    assert "'nonsense_rewards:mine'" in message and "at step 1" in message and "costs: start" in message
    assert not (tmp_path / "out.onnx").exists()


def test_a_training_that_comes_to_infinity_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reward is finite, but its square is not."""
    (tmp_path / "huge_rewards.py").write_text("def mine(transition):\n    return 1e30\n")
    monkeypatch.syspath_prepend(tmp_path)
    small = ("ppo_real.updates=1", "ppo_real.batch=2", "ppo_real.horizon=2", "policy.torso=[8]")
    small += ("world_model.encoder.rounds=1", "world_model.encoder.hidden=8", "world_model.encoder.latent=4")
    settings = [part for setting in small for part in ("--set", setting)]
    arguments = [*OTHER_REWARD, "environment.reward=huge_rewards:mine", "--world", "real", "--run-dir", "run"]
    status = main(["optimise", VALID, *ON_PAPER, "-o", "out.onnx", *arguments, *settings])
    error = capsys.readouterr().err
    assert status == 2 and "Traceback" not in error
    assert "return_scale = inf" in error.splitlines()[-1] and "ppo's update 1" in error.splitlines()[-1]
    assert not (tmp_path / "out.onnx").exists() and not (tmp_path / "run/checkpoints/controller").exists()


@pytest.mark.parametrize("arguments", [["zoo"], ["optimise", VALID, "-o", "out.onnx"]])
def test_a_clone_that_is_not_compiled_says_how_to_compile_it(arguments: list[str]) -> None:
    absent = "import sys; sys.modules['taso_ext._core'] = None"
    code = f"{absent}; from experiments.cli import main; sys.exit(main({arguments}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stdout == ""
    assert done.stderr.startswith("rlflow: RLFlow's engine is not compiled here") and "make install" in done.stderr
