"""Tests of tests/gpu/run.sh on the CPU: its commands are known to the command line, and its steps really run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from environment import zoo
from environment.runtimes import available_devices
from experiments.cli import build_parser
from experiments.reproduce.other_devices import MACHINE, SHOWN
from tests.commands import contents, read_table
from tests.gpu.collect import PLACED

SCRIPT = Path(__file__).parent / "run.sh"
TABLES = ["never-slower", "end-to-end", "baselines", "steptime"]
GRAPH = "squeezenet1.1-tiny"
TIME_IS_UP = 75


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the steps in an empty folder, with a TensorFlow that cannot be imported."""
    monkeypatch.chdir(tmp_path)
    missing = tmp_path / "missing/tensorflow/__init__.py"
    missing.parent.mkdir(parents=True)
    missing.write_text("raise ImportError('a step that trains nothing imports TensorFlow')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "missing"))
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def run(*arguments: str, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    found = subprocess.run([SCRIPT, *arguments], env={**os.environ, **variables}, capture_output=True, text=True)
    assert found.returncode == status, found.stderr
    return found


def commands(*arguments: str) -> list[list[str]]:
    """Returns the commands that a dry run shows, and checks that it does nothing."""
    before = contents()
    found = [shlex.split(line) for line in run(*arguments, "--dry-run").stderr.splitlines()]
    assert contents() == before
    return found


@pytest.mark.parametrize("more", [(), ("--smoke",)], ids=["full", "smoke"])
@pytest.mark.parametrize("step", ["prices", "papers", "validate", "place", *TABLES])
def test_the_command_line_knows_every_command(step: str, more: tuple[str, ...]) -> None:
    found = commands(step, *more)
    assert found and all(command[:3] == [sys.executable, "-m", "experiments.cli"] for command in found)
    for command in found:
        options = vars(build_parser().parse_args(command[3:]))
        graphs = options.get("graphs") or options.get("models") or {options.get("model") or GRAPH}
        assert set(graphs) <= {*zoo.names(), GRAPH}, command
        assert options["command"] == "costs" or "cuda" in f"{options.get('device')} {options.get('devices')}"
    tiny = [name for command in found for name in command if "-tiny" in name]
    assert bool(tiny) == bool(more)


def test_every_table_with_a_column_for_the_gpu_has_its_step() -> None:
    assert set(TABLES) == set(SHOWN)


def test_a_table_is_made_graph_by_graph_and_then_whole() -> None:
    found = commands("never-slower", "resnet18", "resnet50")
    graphs = [build_parser().parse_args(command[3:]).graphs for command in found]
    assert graphs == [["resnet18"], ["resnet50"], ["resnet18", "resnet50"]]


def test_tensorrt_is_not_asked_for_prices() -> None:
    found = commands("papers", "--device", "tensorrt")
    assert len(found) == 4 and not [command for command in found if "measured:tensorrt" in command]


def test_an_agent_plays_beside_the_searches() -> None:
    assert {command[command.index("--controller") + 1] for command in commands("papers")} == {"taso", "best-of-n"}


def test_the_runs_that_papers_makes_are_validated() -> None:
    made = {command[command.index("--run-dir") + 1] for command in commands("papers")}
    assert {command[4] for command in commands("validate")} == made and len(made) == 6


def test_what_trains_is_not_carried() -> None:
    (download,) = commands("wheels", "--device", "cuda")
    text = " ".join(download)
    assert "onnxruntime-gpu~=" in text and "onnx~=" in text and "pybind11~=" in text
    assert (
        "tensorflow" not in text and "sonnet" not in text and "graph-nets" not in text and "onnxruntime~=" not in text
    )


@pytest.mark.parametrize("arguments", [(), ("nosuch",), ("prices", "--nosuch"), ("prices", "--minutes", "some")])
def test_bad_arguments_show_the_usage(arguments: tuple[str, ...]) -> None:
    assert "run.sh STEP [--device" in run(*arguments, status=2).stderr


def test_a_step_whose_time_is_up_says_so() -> None:
    found = run("steptime", "--device", "cpu", "--smoke", "--minutes", "0", GRAPH, status=TIME_IS_UP)
    assert f"the time is up at {GRAPH}" in found.stderr
    assert not Path("runs/gpu/cpu-smoke/steptime").exists()


@pytest.mark.skipif("cuda" in available_devices(), reason="here it is")
def test_a_device_that_is_not_here_is_one_sentence() -> None:
    assert "'cuda' is not available" in run("machine", status=2).stderr


def carried(parts: Path) -> None:
    """Makes the two parts of an archive with one wheel, and their checksums."""
    wheel = Path("build/gpu/wheels/a-1.whl")
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(bytes(20_000))
    parts.mkdir()
    make = (
        "tar -cf - wheels | split -b 15000 -d - parts/part- && rm -r wheels && cd parts && sha256sum part-* >SHA256SUMS"
    )
    subprocess.run(["bash", "-euc", make], cwd="build/gpu", check=True)
    assert len(list(parts.glob("part-*"))) == 3


def test_parts_are_joined_only_if_all_are_whole() -> None:
    parts = Path("build/gpu/parts")
    carried(parts)
    second = (parts / "part-01").read_bytes()
    for damage in (second[:-1], None):
        (parts / "part-01").unlink()
        if damage is not None:
            (parts / "part-01").write_bytes(damage)
        found = run("install", status=2)
        assert "part-01" in found.stderr and "Carry those named above again" in found.stderr
        assert not Path("build/gpu/wheels").exists()
        (parts / "part-01").write_bytes(second)
    run("install", status=1, BASE="false")  # joins, and ends at the environment
    assert Path("build/gpu/wheels/a-1.whl").read_bytes() == bytes(20_000)


def test_a_step_goes_on_after_a_failure_and_is_collected() -> None:
    failed = run("steptime", "--device", "cpu", "--smoke", "nosuch", GRAPH, status=1)
    assert "failed: nosuch" in failed.stderr
    made = Path("runs/gpu/cpu-smoke")
    assert {row["graph"] for row in read_table("steptime", made / "steptime")} == {GRAPH}
    run("collect", "--device", "cpu", "--smoke")
    folder = made / "collected/steptime/cpu"
    facts = json.loads((folder / MACHINE).read_text(encoding="utf-8"))
    assert facts["device"] == "cpu" and facts["command"].startswith("rlflow reproduce steptime")
    assert facts["environment"]["NVIDIA_TF32_OVERRIDE"] == "0"
    with tarfile.open(made / "results.tar.gz") as archive:
        assert set(archive.getnames()) == {str(folder / name) for name in ("table.csv", "table.md", MACHINE)}


def test_the_tables_of_the_cpu_are_not_overwritten() -> None:
    assert "rlflow reproduce NAME" in run("collect", "--device", "cpu", status=2).stderr


@pytest.mark.full
def test_every_step_runs_without_tensorflow() -> None:
    for step in ("machine", "prices", "papers", "validate", "place", *TABLES, "collect"):
        run(step, "--device", "cpu", "--smoke", GRAPH)
    collected = Path("runs/gpu/cpu-smoke/collected")
    assert {path.name for path in collected.iterdir()} == {*TABLES, f"{GRAPH}-demo", PLACED}
    placed = json.loads((collected / PLACED / f"cpu/{GRAPH}.json").read_text(encoding="utf-8"))
    assert placed["equal"] and placed["devices"] == ["cpu:0", "cpu:1"] and placed["timing"] is not None
    assert (collected / "never-slower/cpu/prices.sqlite").is_file()
    assert {path.name for path in (collected / f"{GRAPH}-demo/cpu").iterdir()} == {
        *("roofline.json", "measured.json", "roofline-validated.json", "measured-validated.json", MACHINE)
    }
    facts = json.loads((collected / f"{GRAPH}-demo/cpu" / MACHINE).read_text(encoding="utf-8"))
    measured, roofline = facts["commands"]
    assert "--costs measured:cpu" in measured and "--costs roofline:rtx2070" in roofline
