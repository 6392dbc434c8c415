"""`rlflow sweep`: its folder, what is done again, what fails, and bad input."""

from __future__ import annotations

import datetime
import errno
import json
import os
import platform
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

import experiments
from environment.costs.prices.settings import processor
from experiments.cli import main
from experiments.config.run import load_config
from experiments.config.tree import as_mapping
from experiments.errors import DamagedRun, UserError
from experiments.executors.local import LocalExecutor
from experiments.executors.units import Record
from experiments.pipeline.loading.load import find_model
from experiments.runs.progress import SilentProgress
from experiments.sweeps.over import Axis
from experiments.sweeps.point import FIGURES, Point
from experiments.sweeps.sweep import Sweep
from tests.commands import failure

MODEL = "squeezenet1.1-tiny"
AXES = ["--over", "dream.temperature=0,1", "--over", "seed=0..1"]
SETTINGS = ["--set", "costs=roofline:rtx2070", "--set", "device=cpu"]


def onnx_bytes(name: str) -> bytes:
    """Returns the ONNX file of a network of the zoo."""
    content: bytes = find_model(name).build().SerializeToString()
    return content


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Points that are done, by a record that takes no time; a temperature of 9 fails."""
    found: list[dict[str, Any]] = []

    def record(point: Point, progress: Any) -> Record:
        found.append(dict(point.values))
        if point.values["dream.temperature"] == 9:
            raise FloatingPointError("training came to NaN")
        score = point.config.dream.temperature + point.config.seed
        figures = dict.fromkeys(FIGURES, score)
        facts = {"settings": as_mapping(point.config), "fingerprint": dict(point.fingerprint), "figures": figures}
        return {"point": dict(point.values), **facts}

    monkeypatch.setattr(Point, "record", record)
    return found


def test_every_point_is_done_once_and_more_are_added(
    done: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", MODEL, *AXES, *SETTINGS]) == 0
    assert done == [{"dream.temperature": t, "seed": s} for s in (0, 1) for t in (0, 1)], "a seed's points are a lane"
    (folder,) = Path("runs/sweeps").iterdir()
    assert folder.name.startswith(f"{MODEL}-demo-") and len(list((folder / "points").iterdir())) == 4
    assert main(["sweep", MODEL, "--over", "dream.temperature=1,2", "--over", "seed=0,1", *SETTINGS]) == 0
    assert len(done) == 6 and len(list((folder / "points").iterdir())) == 6
    printed = capsys.readouterr()
    assert "| 2 | 2 | 2.50 |" in printed.out and "`dream.temperature`" in printed.out
    assert "dream.temperature=2, seed=1" in printed.err, "finished points are shown at once"
    stored = json.loads((folder / "sweep.json").read_text())
    assert stored["over"] == ["dream.temperature=0,1", "seed=0..1", "dream.temperature=1,2", "seed=0,1"]
    assert {"table.csv", "table.md", "README.md", "figure.png"} <= {path.name for path in folder.iterdir()}
    assert f"6 units of {datetime.date.today().isoformat()} on {processor('cpu')}" in (folder / "README.md").read_text()
    assert "Points are runs on " in (folder / "README.md").read_text()


def test_units_of_other_rewards_are_said(done: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    said = "Where the reward is combined, `dream`, `dream_at_1` and `gap` are sums of rewards, and `real` is of time."
    for reward in ("log_ratio", "combined"):
        assert main(["sweep", MODEL, *AXES, *SETTINGS, "--set", f"environment.reward={reward}", "-o", reward]) == 0
        assert (said in capsys.readouterr().out) == (reward == "combined")


def test_a_failed_point_is_said_and_tried_again(done: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", MODEL, "--over", "dream.temperature=9,1,2", *SETTINGS, "-o", "mine"]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert "Failed: dream.temperature=9: training came to NaN" in printed
    assert "1 of 3 points have failed. The same command tries them again." in printed
    assert len(done) == 3 and main(command) == 1 and len(done) == 4


def test_settings_that_no_point_reads_are_named(done: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", MODEL, *AXES, *SETTINGS, "--set", "mcts.games=3", "--set", "ppo.epochs=2"]) == 0
    said = capsys.readouterr().err
    assert "--set mcts.games has no effect: the controller 'ppo' in the world 'dream' does not read it." in said


def test_a_full_disk_ends_a_sweep(
    done: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No other point could be kept."""
    command = ["sweep", MODEL, *AXES, *SETTINGS, "-o", "mine"]

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("experiments.sweeps.sweep.keep", full)
        assert main(command) == 2
    said = capsys.readouterr().err
    assert "a file cannot be written or read" in said and "No space left on device" in said and "Traceback" not in said
    assert len(done) == 1 and main(command) == 0 and len(done) == 5


def test_points_of_a_model_that_has_changed_are_left_out(
    done: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The path of a model is the same after another export; nothing of the two is averaged."""
    Path("mine.onnx").write_bytes(onnx_bytes("squeezenet1.1-tiny"))
    command = ["sweep", "mine.onnx", "--over", "seed=0..2", "--over", "dream.temperature=1", *SETTINGS, "-o", "mine"]
    assert main(command) == 0
    Path("mine.onnx").write_bytes(onnx_bytes("resnet18-tiny"))
    assert main([*command[:3], "seed=0..1", *command[4:]]) == 0
    assert len(done) == 5 and len(list(Path("mine/points").iterdir())) == 5
    capsys.readouterr()
    assert main(["sweep", "show", "mine", "--x", "dream.temperature", "--figures", "real"]) == 0
    printed = capsys.readouterr().out
    assert "3 older points are left out, because the model file" in printed and "| 1 | 2 | 1.50 |" in printed
    assert "The last of them were made by `rlflow sweep mine.onnx --over seed=0..1" in printed


def test_a_setting_of_integers_is_drawn_from_integers() -> None:
    axes = [Axis.parsed("ppo.updates=uniform(10,100)"), Axis.parsed("ppo.learning_rate=loguniform(1e-4,1e-2)")]
    found = [point.config.ppo for point in Sweep.of(MODEL, "demo", [*SETTINGS[1::2]], axes, draws=5).points]
    assert len({each.updates for each in found}) == 5 and all(10 <= each.updates <= 100 for each in found)
    assert all(1e-4 <= each.learning_rate <= 1e-2 for each in found)


def test_points_that_came_with_the_source_are_found_by_their_effect(tmp_path: Path) -> None:
    (point,) = Sweep.of(MODEL, "demo", [*SETTINGS[1::2]], [Axis("seed", (3,))]).points
    stored = as_mapping(point.config)
    stored["saturation"] = {"matches": 1_000}  # it had another default then
    del stored["max_growth"]  # it was not there yet
    record = {"point": {"seed": 3}, "settings": stored, "fingerprint": dict(point.fingerprint), "figures": {"best": 1}}
    other = {**record, "settings": {**stored, "opset": "keep"}}
    committed = tmp_path / "committed"
    committed.mkdir()
    for name, each in {"a": other, "b": record}.items():
        (committed / f"{name}.json").write_text(json.dumps(each))
    shown: list[Record] = []
    sweep = Sweep.of(MODEL, "demo", [*SETTINGS[1::2]], [Axis("seed", (3,))], committed=committed)
    assert not sweep.run(LocalExecutor("sweep", 1, SilentProgress()), lambda _, found: shown.append(found), [])
    assert shown == [record]


def test_a_finished_sweep_is_shown_in_other_ways(
    done: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", MODEL, *AXES, *SETTINGS, "-o", "mine"]) == 0
    capsys.readouterr()
    assert main(["sweep", "show", "mine", "--figures", "gap", "--x", "seed"]) == 0
    printed = capsys.readouterr().out
    assert "# Sweep of seed" in printed and "| series | seed | seeds | gap |" in printed and len(done) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([MODEL], "Nothing varies"),
        ([MODEL, "--over", "dream.temprature=0,1"], "Did you mean 'dream.temperature'"),
        ([MODEL, "--over", "dream.temperature=warm,1"], "dream.temperature"),
        ([MODEL, "--over", "dream=1,2"], "dream"),
        ([MODEL, "--over", "seed=4..0"], "holds no value"),
        ([MODEL, "--over", "seed=0..4", "--base", "demmo"], "demo"),
        (["squeezenet1.1-tini", "--over", "seed=0..4"], "squeezenet1.1-tiny"),
        ([MODEL, "bert-base", "--over", "seed=0..4"], "expects one model, but 2 came"),
        ([MODEL, "--over", "seed=0..4", "--processes", "0"], "processes"),
        ([MODEL, "--over", "x=uniform(0,1)", "--draws", "0"], "draws"),
        (["show"], "expects one folder"),
        ([MODEL, *AXES, *SETTINGS, "--figures", "reel"], "Did you mean 'real'"),
        ([MODEL, *AXES, *SETTINGS, "--x", "sead"], "Did you mean 'seed'"),
        ([MODEL, *AXES, *SETTINGS, "--reference", "7"], "No point has dream.temperature=7"),
        ([MODEL, *AXES, "--set", "costs=roofline:nope"], "no cost model is called 'roofline:nope'"),
        (["missing.onnx", *AXES], "missing.onnx"),
        (
            [MODEL, "--over", "ppo.epochs=1,2", "--over", "controller=ppo,mcts"],
            "would be the same run, because mcts does not",
        ),
        (
            [MODEL, "--over", "ppo.epochs=1,2", "--set", "controller=mcts"],
            "--over ppo.epochs has no effect: the controller 'mcts' in the world 'real' does not read it",
        ),
        ([MODEL, "--over", "search.alpha=1,1.1"], "--over search.alpha has no effect: the controller 'ppo'"),
        ([MODEL, "--over", "max_growth=1,2"], "--over max_growth has no effect: a point learns and plays"),
        ([MODEL, "--over", "verify.num_inputs=2,3"], "--over verify.num_inputs has no effect"),
        ([MODEL, "--over", "collect.processes=1,2"], "--over collect.processes has no effect"),
        ([MODEL, "--over", "measure.pairs=8,16", *SETTINGS], "--over measure.pairs has no effect"),
        ([MODEL, *AXES, "--draws", "5"], "nothing for --draws to say"),
        ([MODEL, *AXES, *SETTINGS, "--figures", ","], "--figures expects names and commas"),
        ([MODEL, "--over", "dream=1", "--over", "dream.temperature=0,1"], "is a section of settings"),
        ([MODEL, *AXES, "--set", "seed=3"], "--over varies seed, which --set gives the value 3"),
        (
            [MODEL, *AXES, "--set", "dream={temperature=0}"],
            "varies dream.temperature, which --set gives",
        ),
        (["show", "nowhere"], "holds no sweep"),
        (
            ["show", "nowhere", "--over", "seed=0", "--base", "demo", "-o", "."],
            "--over, --base, --output have",
        ),
        (["show", "nowhere", "--draws", "10"], "--draws has no effect on rlflow sweep show"),
        (["show", "nowhere", "--processes", "2"], "--processes has no effect"),
    ],
)
def test_bad_input_is_one_paragraph(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in failure(capsys, "sweep", *arguments)
    assert not Path("runs").exists()


def test_axes_are_checked_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("experiments.sweeps.sweep.load", lambda *_: pytest.fail("loading may take half a minute"))
    assert "has no effect" in failure(capsys, "sweep", MODEL, "--over", "max_growth=1,2")
    measured = ("--set", "costs=measured:cpu", "--processes", "2")
    assert "points measure times" in failure(capsys, "sweep", MODEL, *AXES, *measured)
    with pytest.raises(pytest.fail.Exception):
        main(["sweep", MODEL, *AXES])


def test_a_folder_of_another_base_is_refused(done: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", MODEL, *AXES, *SETTINGS, "-o", "mine"]) == 0
    capsys.readouterr()
    more = ["-o", "mine", "--set", "ppo.epochs=7"]
    assert "base.ppo.epochs was" in failure(capsys, "sweep", MODEL, *AXES, *SETTINGS, *more)
    assert "model was" in failure(capsys, "sweep", "resnet18-tiny", *AXES, *SETTINGS, "-o", "mine")
    Path("full").mkdir()
    Path("full/of-something").write_text("else")
    assert "exists and holds no sweep" in failure(capsys, "sweep", MODEL, *AXES, *SETTINGS, "-o", "full")
    damaged = next(Path("mine/points").iterdir())
    damaged.write_text('{"point": ')
    assert f"{damaged} is damaged" in failure(capsys, "sweep", "show", "mine")


def test_a_damaged_file_of_a_sweep_costs_no_point(
    done: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", MODEL, *AXES, *SETTINGS, "-o", "mine"]
    assert main(command) == 0
    Path("mine/sweep.json").write_text("{")
    capsys.readouterr()
    assert "Remove this file alone" in failure(capsys, *command)
    Path("mine/sweep.json").unlink()
    assert main(command) == 0 and len(done) == 4, "nothing is done again"


def test_two_commands_do_not_work_in_one_folder(capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "import time; from pathlib import Path; from experiments.runs.directory import hold\n"
        f"hold(Path({str(Path('mine').absolute())!r})); print('held', flush=True); time.sleep(600)"
    )
    root = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=root) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            message = failure(capsys, "sweep", MODEL, *AXES, *SETTINGS, "-o", "mine")
        finally:
            holder.kill()
    assert f"in use by process {holder.pid}" in message and "another folder with -o" in message


@pytest.mark.parametrize(
    ("folder", "said"),
    [("/proc/foo", "Cannot write into /proc"), ("file", "file is a file"), ("file/x/y", "file is a")],
)
def test_a_folder_that_cannot_be_made_is_refused(folder: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("mine")
    message = failure(capsys, "sweep", MODEL, *AXES, *SETTINGS, "-o", folder)
    assert said in message and "directory that you can write" in message


def test_a_sweep_that_was_killed_while_it_began_is_taken_up(done: list[dict[str, Any]]) -> None:
    Path("mine").mkdir()
    killed = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    host = f"{zlib.crc32(platform.node().encode()):08x}"
    left = Path(f"mine/.rlflow-{host}-{killed.stdout.strip()}-0123456789ab.tmp")
    left.write_text('{"model": ')
    assert main(["sweep", MODEL, *AXES, *SETTINGS, "-o", "mine"]) == 0
    assert len(done) == 4 and not left.exists()


def test_of_two_sweeps_that_begin_together_the_second_sees_the_base_of_the_first(done: list[dict[str, Any]]) -> None:
    first, second = (
        Sweep.of(MODEL, "demo", [*SETTINGS[1::2], *more], [Axis("dream.temperature", (0, 1))], folder=Path("mine"))
        for more in ([], ["ppo.epochs=7"])
    )
    executor = LocalExecutor("sweep", 1, SilentProgress())
    assert not first.run(executor, lambda *_: None, []) and len(done) == 2
    with pytest.raises(UserError, match=r"another base: base\.ppo\.epochs was"):
        second.run(executor, lambda *_: None, [])


def test_points_share_the_world_model_of_a_seed_alone() -> None:
    def lane(*changes: str, **options: Any) -> str:
        return Point(MODEL, {}, load_config("demo", options, changes), {}, Path()).lane

    usual = lane(controller="ppo")
    assert usual == lane("dream.temperature=2", "ppo.epochs=7", "recollect.rounds=2", controller="ppo") != ""
    predicted = lane("dream.legality=predicted", controller="ppo")
    warm = lane("dream.legality=predicted", "dream.temperature=2", controller="ppo")
    assert predicted == warm != usual, "which learns what operators save too"
    assert usual != lane("seed=1", controller="ppo") and usual != lane("collect.episodes=7", controller="ppo")
    assert lane(controller="taso") == lane("world=real", controller="ppo") == ""


@pytest.mark.full
@pytest.mark.usefixtures("untraced")
def test_a_sweep_trains_one_world_model_a_seed_and_dreams_at_two_temperatures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from experiments.reproduce.search.plays import SMALL

    small = [part for setting in (*SMALL, "evaluate.climb_seconds=0") for part in ("--set", setting)]
    assert main(["sweep", MODEL, *AXES, *SETTINGS, *small, "-o", "mine"]) == 0
    assert len(list(Path("mine/models").iterdir())) == 2 and len(list(Path("mine/runs").iterdir())) == 4
    figures = [json.loads(path.read_text())["figures"] for path in Path("mine/points").iterdir()]
    assert all(each[name] is not None for each in figures for name in ("real", "dream", "dream_at_1", "gap", "best"))
    point = next(Path("mine/runs").iterdir())
    for command in ("validate", "report"):
        assert "is a point of a sweep" in failure(capsys, command, str(point))
    little = ["--set", "measure.pairs=2", "--set", "evaluate.sampled_episodes=1", "-o", "out.onnx"]
    assert main(["optimise", MODEL, "--from", str(point), *little]) == 0
    run = experiments.load(point, round=0)
    assert run.first.path.parent.name == "models"
    assert run.dream.rollout(run.controller.policy, batch=2, horizon=2, seed=0).reward.shape == (2, 2)
    shutil.rmtree("mine/models")
    with pytest.raises(DamagedRun, match="shares its first world model with others"):
        experiments.load(point)
