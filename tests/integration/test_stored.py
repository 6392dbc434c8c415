"""`experiments.load` gives the parts of a run back; its controller plays the recorded episode again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import experiments
from controller.evaluation import Evaluation, play_episode
from experiments.cli import main
from experiments.errors import UserError
from experiments.pipeline.stored import StoredRun
from experiments.runs.rounds import best_round
from tests import tracing
from tests.integration.tiny_run import arguments

OF_DREAMERS = (
    *("mpc.plans=8", "mpc.elites=2", "mpc.iterations=1", "mpc.horizon=4", "mpc.replan=4"),
    *("cmaes.generations=2", "cmaes.population=4"),
)
"""Settings with which a planner and an evolution take seconds."""

pytestmark = pytest.mark.xdist_group("resume")  # one worker: the run with a world model is made once


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def assert_plays_its_record(run: StoredRun) -> None:
    """Checks that the controller reaches the recorded deterministic episode, to the last bit of every cost."""
    recorded = Evaluation.load(run.path / "checkpoints/evaluation.json").deterministic
    played = play_episode(run.env, run.controller, seed=run.seed("evaluate"), kind="deterministic", deterministic=True)
    assert played == recorded


def test_a_run_in_the_dream_gives_all_its_parts(uninterrupted: Path) -> None:
    path = uninterrupted.with_suffix(".run")
    before = contents(path)
    run = experiments.load(path)
    rounds = json.loads((path / "result.json").read_text())["rounds"]
    assert (run.config.controller, run.round) == ("ppo", best_round([row["plans"] for row in rounds]))
    assert_plays_its_record(run)
    played = run.dream.rollout(run.controller.policy, batch=3, horizon=2, seed=0)
    assert played.alive.shape == (2, 3) and run.dream.num_actions == run.world_model.table.num_actions
    other = experiments.load(path, round=1 - run.round)
    assert other.controller is not run.controller and other.round == 1 - run.round
    assert contents(path) == before, "it is only read"
    with pytest.raises(UserError, match="rounds 0 to 1, but round 2"):
        experiments.load(path, round=2)


@pytest.mark.full
def test_a_run_in_the_real_environment_has_no_world_model(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    with tracing.untraced():
        assert main(arguments(output, "--world", "real")) == 0
    run = experiments.load(output.with_suffix(".run"))
    assert_plays_its_record(run)
    for part in ("world_model", "dream"):
        with pytest.raises(UserError, match="has no world model"):
            getattr(run, part)


@pytest.mark.full
@pytest.mark.parametrize("controller", ["mpc", "cmaes"])
def test_a_run_with_a_world_model_plays_its_record_and_is_played_from(controller: str, tmp_path: Path) -> None:
    output, again = tmp_path / "out.onnx", tmp_path / "again.onnx"
    few = [part for setting in OF_DREAMERS for part in ("--set", setting)]
    with tracing.untraced():
        assert main(arguments(output, "--controller", controller, *few)) == 0
        run = experiments.load(output.with_suffix(".run"))
        before = contents(run.path)
        assert_plays_its_record(run)
        assert contents(run.path) == before, "it is only read"
        playing = ["-o", str(again), "--run-dir", str(tmp_path / "again"), "--from", str(run.path)]
        little = ["--set", "measure.pairs=2", "--set", "evaluate.sampled_episodes=2"]
        assert main(["optimise", "squeezenet1.1-tiny", *playing, *little]) == 0
    first, second = (Evaluation.load(path / "checkpoints/evaluation.json") for path in (run.path, tmp_path / "again"))
    assert first.deterministic == second.deterministic
    playing_run = experiments.load(tmp_path / "again")
    assert playing_run.env is not None
    for part in ("world_model", "dream", "controller"):
        with pytest.raises(UserError, match="plays the controller of another run"):
            getattr(playing_run, part)


@pytest.mark.parametrize("controller", ["greedy", "taso", "random"])
def test_a_search_replays_its_plan_without_tensorflow(
    controller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    output = tmp_path / "out.onnx"
    assert main(arguments(output, "--controller", controller, "--set", "search.budget=10")) == 0
    run = experiments.load(output.with_suffix(".run"))
    assert_plays_its_record(run)
    (run.path / "stages.json").write_text("{}")
    with pytest.raises(UserError, match="its search is not finished"):
        experiments.load(run.path).controller  # noqa: B018  # the property raises


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run directory"):
        experiments.load(tmp_path)
