"""The controller `saturation`: its waypoint is played, kept and replayed, from Python and by commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

import controller
from controller.evaluation import play_episode
from controller.saturation.config import SaturationConfig
from controller.saturation.controller import SaturationController
from controller.saturation.saturate import Saturated, Saturation
from controller.search.native import TasoController
from controller.search.replayed import SearchLimits
from environment import GraphSubstitutionEnv, zoo
from environment.verification import verify
from experiments.cli import main
from experiments.pipeline.loading.replay import graphs_along
from experiments.pipeline.stored import StoredRun
from taso_ext import CostModel, RuleSet
from tests.commands import failure

SMALL = SaturationConfig(nodes=1_500, rounds=4, extraction_seconds=4)
MODEL = "squeezenet1.1-tiny"
"""Its best graph is found in a second; greedy search finds next to nothing there."""


def saturated(env: GraphSubstitutionEnv, **settings: Any) -> SaturationController:
    """Returns a trained controller."""
    made = SaturationController(SMALL, **settings)
    env.reset(seed=0)
    made.train(env)
    return made


def test_the_episode_goes_to_the_extracted_graph_in_one_step() -> None:
    env = GraphSubstitutionEnv(MODEL)
    made = saturated(env)
    record = play_episode(env, made, seed=0, deterministic=True, kind="deterministic")
    assert record.best_actions == ((env.waypoint_rule, 0),)
    assert record.action_names[0] == "waypoint"
    greedy = play_episode(env, controller.make("greedy"), seed=0, deterministic=True, kind="deterministic")
    assert record.improvement > greedy.improvement + 0.2
    assert verify(env.model.source, env.model.export_checked(env.replay(record.best_actions))).equal
    stop = made.stop_reason
    assert stop is not None and "by roofline:rtx2070" in str(stop)
    assert stop.bound_ms == pytest.approx(record.best_cost_ms), "it is the cheapest graph of its e-graph"


def test_a_rule_that_has_no_pattern_is_named_in_the_reason_why_it_stopped() -> None:
    rules = RuleSet.parse("rule odd\n  var x: float[...]; z: float[...]\n  source y = Relu(x)\n  target y = Tanh(x)")
    made = saturated(GraphSubstitutionEnv(MODEL, rules=rules))
    assert made.actions == []
    assert str(made.stop_reason).endswith("rule 'odd' has no pattern: no operator of its source reads z")


def test_a_search_goes_on_from_the_extracted_graph() -> None:
    env = GraphSubstitutionEnv(MODEL)
    alone, further = saturated(env), saturated(env, then=TasoController(limits=SearchLimits(budget=300)))
    ends = [play_episode(env, each, seed=0, deterministic=True, kind="deterministic") for each in (alone, further)]
    assert further.actions is not None and alone.actions is not None
    assert further.actions[: len(alone.actions)] == alone.actions
    assert ends[1].improvement >= ends[0].improvement
    assert further.stop_reason is not None and further.stop_reason.bound_ms is None, "it may have left the e-graph"


def test_what_it_saves_plays_in_another_environment_of_the_model(tmp_path: Path) -> None:
    made = saturated(GraphSubstitutionEnv(MODEL))
    made.save(tmp_path / "saturation.json")
    env = GraphSubstitutionEnv(MODEL)
    env.waypoints.add(env.model.graph)  # so that the number is another one there
    loaded = SaturationController(SMALL)
    loaded.load(tmp_path / "saturation.json")
    record = play_episode(env, loaded, seed=0, deterministic=True, kind="deterministic")
    assert record.best_actions == ((env.waypoint_rule, 1),)
    assert record.improvement > 0.05


def test_costs_that_look_around_choose_among_what_rooflines_extract(price_of_bytes: CostModel) -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    made = saturated(env, guides=[CostModel.roofline("xeon"), CostModel.roofline("rtx2070")])
    state = env.state.copy()
    made._costs = price_of_bytes
    found = made.find(state, 0, None)
    assert found.cost_ms <= state.cost.ms
    assert len(env.waypoints) <= 3


@pytest.fixture
def price_of_bytes() -> CostModel:
    """A cost model that prices operators of whole graphs only."""
    import numpy as np

    def price(graph: Any, places: list[int]) -> np.ndarray:
        return np.ones((len(places), 3))

    return CostModel.learned("ones", "xeon", price, np.empty(0, np.uint64), np.empty((0, 3)), 21)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": 0}, "nodes is 0; expected 1 or more"),
        ({"k_multi": -1}, "k_multi is -1; expected 0 or more"),
        ({"extraction_seconds": float("nan")}, "extraction_seconds is nan"),
        ({"then": "ppo"}, "expected a search that goes on"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SaturationConfig(**settings)


def test_exploration_has_half_of_a_limit_of_time_at_most() -> None:
    assert SaturationConfig().within(10).seconds == 5
    assert SaturationConfig(seconds=1).within(10).seconds == 1
    assert SaturationConfig(seconds=0).within(10).seconds == 5
    assert SaturationConfig().within(0) == SaturationConfig()


def test_extraction_has_what_exploration_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    cheapest = Saturation.cheapest

    def noted(self: Saturation, costs: CostModel, extraction_seconds: float) -> Saturated:
        given.append(extraction_seconds)
        return cheapest(self, costs, 0.0)

    monkeypatch.setattr(Saturation, "cheapest", noted)
    config = SaturationConfig(nodes=200, extraction_seconds=1000)
    for seconds in (0, 600, 0.001):
        env = GraphSubstitutionEnv(MODEL)
        env.reset(seed=0)
        SaturationController(config, SearchLimits(seconds=seconds)).train(env)
    unlimited, most, nothing = given
    assert unlimited == 1000
    assert 300 < most < 600
    assert nothing == 0


SETTINGS = (
    "--set",
    "saturation.nodes=1500",
    "--set",
    "saturation.rounds=4",
    "--set",
    "saturation.extraction_seconds=4",
)


COMMAND = (
    *("optimise", MODEL, "-o", "out.onnx", "--controller", "saturation", "--costs", "roofline:rtx2070"),
    *(*SETTINGS, "--run-dir", "run", "--set", "measure.pairs=2"),
)


def test_a_run_writes_its_result_and_later_commands_replay_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*COMMAND]) == 0
    first = Path("out.onnx").read_bytes()
    assert len(onnx.load("out.onnx").graph.node) > 0
    capsys.readouterr()
    Path("run/DONE").unlink()
    assert main([*COMMAND, "--force"]) == 0  # the evaluation is finished: the waypoint comes from the directory
    assert "Resuming" in capsys.readouterr().err
    assert Path("out.onnx").read_bytes() == first
    assert main(["validate", "run"]) == 0
    assert "As recorded" in capsys.readouterr().out
    run = StoredRun("run")
    model, rules = run.model_and_rules()
    log = json.loads(Path("run/actions.json").read_text(encoding="utf-8"))["actions"]
    actions = [(each["rule"], each["location"]) for each in log]
    *_, last = graphs_along(model, actions, rules, run.config)
    assert last.hash == json.loads(Path("run/result.json").read_text(encoding="utf-8"))["graph_hash"]


def test_a_damaged_waypoint_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*COMMAND]) == 0
    Path("run/checkpoints/waypoints.json").write_text('[{"nodes": 3}]', encoding="utf-8")
    assert "waypoints.json" in failure(capsys, "validate", "run")


def test_dimensions_on_which_the_extracted_graph_depends_are_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = zoo.build(MODEL)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, "model.onnx")
    command = ["optimise", "model.onnx", "-o", "out.onnx", "--controller", "saturation", "--dim", "batch=1"]
    assert main([*command, "--costs", "roofline:rtx2070", *SETTINGS, "--set", "measure.pairs=2"]) == 0
    assert "'batch' is fixed to 1 in OUT" in capsys.readouterr().out
