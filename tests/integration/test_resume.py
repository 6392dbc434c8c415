"""A run with a world model: the dream stays a dream, and whatever interrupts the run, its result is the same."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from experiments.pipeline.learning import collect
from experiments.runs.rounds import best_round
from tests.integration.tiny_run import RECOLLECT, arguments, run_to_the_end

pytestmark = pytest.mark.xdist_group("resume")  # one worker: the uninterrupted run is made once

ROOT = Path(__file__).parents[2]


def interrupting(title: str, done: int) -> Callable[[str, int], None]:
    def on_update(current: str, current_done: int) -> None:
        if (current, current_done) == (title, done):
            raise KeyboardInterrupt

    return on_update


def trace_of(output: Path) -> dict[str, Any]:
    """Everything of a run that may not depend on interruptions or the clock."""
    run = output.with_suffix(".run")
    result = json.loads((run / "result.json").read_text())
    for clocked in ("measured", "final_timings", "stage_seconds", "peak_memory_bytes"):
        del result[clocked]
    names = ["metrics.jsonl", "actions.json", *(f"checkpoints/{name}.json" for name in ("evaluation", "training"))]
    return {"result": result, "output": output.read_bytes(), **{name: (run / name).read_text() for name in names}}


@pytest.fixture(scope="module", autouse=True)
def small_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(collect, "POLICY_EPISODES_PER_SHARD", 4)
        yield


def test_a_run_with_a_world_model_is_complete(uninterrupted: Path) -> None:
    run = uninterrupted.with_suffix(".run")
    pictures = {path.name for path in (run / "plots").iterdir()}
    assert pictures == {"cost.png", "improvements.png", "world-model.png", "returns.png"}
    result = json.loads((run / "result.json").read_text())
    assert [source[:3] for source in result["improvements"]] == ["(a)", "(b)", "(c)", "(d)"]
    assert list(result["episodes"].values()) == [66, 1, 2, 3]
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    counts = Counter(record["stage"] for record in logged)
    round_0 = {"collect": 60, "encoder": 6, "mdn-rnn": 6, "controller": 4, "evaluate": 6}
    round_1 = {"recollect-1": 6, "mdn-rnn-1": 4, "controller-1": 4}
    assert counts == {**round_0, **round_1}
    assert {"load", "accuracy-1", "exploit-1", *round_0, *round_1} <= set(result["stage_seconds"])
    assert [(row["round"], row["episodes"]) for row in result["rounds"]] == [(0, 54), (1, 60)]
    found = max(record["improvement_percent"] for record in logged if record["stage"].startswith(("col", "recol")))
    assert result["improvements"]["(a) random collection and recollection"] == pytest.approx(found)
    report = (run / "report.md").read_text()
    assert report.count("\n| 0 | 54 |") == report.count("\n| 1 | 60 |") == 1
    from experiments.reports.accuracy_study import AccuracyStudy

    study, played = AccuracyStudy.load(run), best_round([row["plans"] for row in result["rounds"]])
    assert (len(study.training), len(study.held_out)) == ((54, 60)[played], 6)
    assert set(study.losses()) == {"Encoder", "MDN-RNN", *(["MDN-RNN, round 1"] if played else [])}


def assert_same_trace(output: Path, expected: Path) -> None:
    got = trace_of(output)
    for part, value in trace_of(expected).items():
        assert got[part] == value, f"{part} differs"


UNTRACED = "import sys; from tests import tracing; from experiments.cli import main\n"
UNTRACED += "with tracing.untraced(): main(sys.argv[1:])"


POINTS = [
    ("train the encoder", 5),
    ("train the MDN-RNN", 5),
    ("train ppo", 3),
    ("recollect episodes, round 1", 5),
    ("train ppo, round 1", 3),
    ("compare dream and reality, round 1", 1),
    ("play real episodes", 2),
    ("measure end to end", 1),
]


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("points", [POINTS[3:8:4], pytest.param(POINTS, marks=pytest.mark.full)], ids=["some", "all"])
def test_neither_kills_nor_interruptions_change_the_result(
    points: list[tuple[str, int]], uninterrupted: Path, tmp_path: Path
) -> None:
    """Which also shows that one seed gives one result."""
    output = tmp_path / "out.onnx"
    log = output.with_suffix(".run") / "metrics.jsonl"
    command = [sys.executable, "-c", UNTRACED, *arguments(output, *RECOLLECT)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: log.is_file() and '"encoder"' in log.read_text(), process)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    for title, done in points:
        with pytest.raises(KeyboardInterrupt):
            run_to_the_end(output, interrupting(title, done), *RECOLLECT)
        assert not output.exists()
    run_to_the_end(output, lambda title, done: None, *RECOLLECT)
    assert_same_trace(output, uninterrupted)


@pytest.mark.usefixtures("untraced")
def test_an_interrupted_collection_goes_on(uninterrupted: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    for title, done in (("collect random episodes", 50), ("train the encoder", 0)):
        with pytest.raises(KeyboardInterrupt):
            run_to_the_end(output, interrupting(title, done), *RECOLLECT)
    episodes = [run.with_suffix(".run") / "checkpoints" / "episodes" for run in (output, uninterrupted)]
    stored, expected = ({path.name: path.read_bytes() for path in each.iterdir()} for each in episodes)
    assert stored == expected


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    while not condition():
        assert process.poll() is None, "the run ended before it could be stopped"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.full)]
)
def test_signals_end_with_a_hint_and_a_resumable_run(sent: signal.Signals, status: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "experiments.cli", "optimise", "bert-base-tiny", "-o", str(tmp_path / "out.onnx")]
    command += ["--controller", "random", "--run-dir", str(run), "--set", "evaluate.sampled_episodes=100000"]
    command += ["--costs", "roofline:xeon"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        wait_until((run / "metrics.jsonl").is_file, process)
        process.send_signal(sent)
        error = process.communicate()[1]
    assert process.returncode == status
    assert "same command resumes" in error.splitlines()[-1] and "Traceback" not in error
    assert (run / "config.json").is_file() and not (run / "DONE").exists()


@pytest.mark.parametrize(("times", "status"), [(1, 0), pytest.param(2, 130, marks=pytest.mark.full)])
def test_the_first_ctrl_c_ends_a_climb_with_a_result_and_the_second_one_stops_it(
    times: int, status: int, tmp_path: Path
) -> None:
    run, output = tmp_path / "run", tmp_path / "out.onnx"
    command = [sys.executable, "-m", "experiments.cli", "optimise", "bert-base-tiny", "-o", str(output)]
    command += ["--controller", "climb", "--time", "3600", "--run-dir", str(run), "--set", "measure.pairs=2"]
    command += ["--costs", "roofline:xeon"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        wait_until((run / "metrics.jsonl").is_file, process)  # a first graph was timed
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        error = ""
        while "Ctrl-C again" not in error:
            line = process.stderr.readline()
            assert line, error
            error += line
        if times == 2:  # not before the first one was heard: two that wait are one
            process.send_signal(signal.SIGINT)
        error += process.communicate()[1]
    assert process.returncode == status, error
    assert "Ctrl-C again stops the command" in error and "Traceback" not in error
    assert output.is_file() == (run / "DONE").is_file() == (times == 1)


def test_a_killed_climb_goes_on_from_its_journal_and_a_damaged_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, output = tmp_path / "run", tmp_path / "out.onnx"
    journal = run / "checkpoints/climb.jsonl"
    arguments = ["optimise", "squeezenet1.1-tiny", "-o", str(output), "--controller", "climb", "--run-dir", str(run)]
    arguments += ["--time", "3600", "--budget", "6", "--set", "measure.pairs=2"]
    with subprocess.Popen([sys.executable, "-m", "experiments.cli", *arguments], cwd=ROOT) as process:
        wait_until(lambda: journal.is_file() and '"timed"' in journal.read_text(), process)
        process.kill()
    before = journal.read_text().splitlines()
    assert main(arguments) == 0
    after = journal.read_text().splitlines()
    assert after[: len(before) - 1] == before[:-1], "at most the last line was unfinished"
    timed = [line["graph"] for line in map(json.loads, after) if line["kind"] == "timed"]
    assert len(timed) == len(set(timed)) >= 6
    (run / "DONE").unlink()
    for stage in ("stages.json", "checkpoints/controller", "checkpoints/evaluation.json"):
        (run / stage).unlink()
    journal.write_text("\n".join(["no json", *after]) + "\n")
    assert main([*arguments, "--force"]) == 2
    error = capsys.readouterr().err
    assert "climb.jsonl is damaged: line 1" in error and "--restart" in error and "Traceback" not in error
    assert main([*arguments, "--force", "--restart"]) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_python_swallowed_stops_the_run_at_the_next_step() -> None:
    from experiments.runs.signals import Interrupted, listening, raise_if_received

    class Swallows:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with listening():
        raise_if_received()
        Swallows()
        with pytest.raises(Interrupted, match="SIGTERM"):
            raise_if_received()
    raise_if_received()  # what follows is not interrupted
    with listening():
        raise_if_received()  # and neither is a new command


def test_an_error_that_a_signal_has_caused_is_an_interruption() -> None:
    """As when it arrives while a native library is being imported."""
    from experiments.runs.signals import Interrupted, listening

    with pytest.raises(Interrupted, match="SIGINT"), listening():
        try:
            signal.raise_signal(signal.SIGINT)
        except Interrupted:
            raise ImportError("initialization failed") from None
    with pytest.raises(ImportError, match="missing"), listening():
        raise ImportError("missing")


@pytest.mark.full
@pytest.mark.usefixtures("untraced")
def test_ppo_trains_in_the_real_environment_too(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    run_to_the_end(output, lambda title, done: None, "--world", "real")
    result = json.loads((output.with_suffix(".run") / "result.json").read_text())
    assert result["world"] == "real"
    assert [source[:3] for source in result["improvements"]] == ["(a)", "(b)", "(c)", "(d)"]
    best = json.loads((output.with_suffix(".run") / "checkpoints" / "best_in_training.json").read_text())
    trained = 100 * (1 - min(best["costs_ms"]) / best["costs_ms"][0])
    assert result["improvements"]["(a) training in the real environment"] == pytest.approx(trained)
    assert not (output.with_suffix(".run") / "checkpoints" / "world_model").exists()


def test_ctrl_c_before_the_command_begins_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments import cli

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_parser", interrupted)
    assert cli.main(["zoo"]) == 130
    assert capsys.readouterr().err.splitlines() == [
        "rlflow: stopped by SIGINT. The same command resumes where this one stopped."
    ]
