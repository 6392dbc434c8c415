"""Every cost model keeps one interface, is found by its name, and serves the environment."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from environment import Candidates, GraphSubstitutionEnv, Padded, zoo
from environment.costs import registry as cost_models
from environment.costs.end_to_end import EndToEnd
from environment.costs.interface import Costs, MeasuredCost, ModelCosts, Priced
from environment.runtimes import UnavailableError, available_devices
from taso_ext import CostModel, OnnxModel, RuleSet, State
from tests.environment.costs.fake_kernels import price_without_a_clock
from tests.environment.costs.timed_graphs import fake_costs

MODEL = "squeezenet1.1-tiny"


def make(name: str) -> Costs:
    """Returns a cost model by name; one that measures does so on a fake machine."""
    return fake_costs() if name.startswith("endtoend") else cost_models.find(name)


@pytest.fixture(autouse=True)
def fake_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    price_without_a_clock(monkeypatch)


@pytest.fixture(params=["roofline:rtx2070", "roofline:xeon", "measured:cpu", "learned:cpu", "endtoend:cpu"])
def costs(request: pytest.FixtureRequest) -> Costs:
    return make(request.param)


def test_every_name_is_found_and_says_its_name() -> None:
    assert cost_models.names() == [
        *(f"roofline:{device}" for device in CostModel.devices()),
        *(f"measured:{device}" for device in available_devices() if device != "tensorrt"),
        *(f"learned:{device}" for device in available_devices() if device != "tensorrt"),
        *(f"endtoend:{device}" for device in available_devices()),
    ]
    for name in cost_models.names():
        found = cost_models.find(name)
        assert found.name == name and isinstance(found, Costs) and cost_models.find(found) is found


def test_the_interface(costs: Costs) -> None:
    model = OnnxModel.load(GraphSubstitutionEnv(MODEL).model.source.to_proto())
    prices = costs.of(model)
    assert isinstance(prices, ModelCosts)
    state = State(model.graph, RuleSet.default(), prices.native)
    priced = prices.price(state)
    assert isinstance(priced, Priced) and priced.cost.ms > 0 and priced.noise < 0.5  # prices may be predicted
    predicted = model.graph.cost(prices.native)
    for count in ("flops", "memory_bytes", "kernel_launches"):
        assert getattr(priced.cost, count) == getattr(predicted, count) > 0


def test_a_native_model_is_the_roofline_of_its_name() -> None:
    env = GraphSubstitutionEnv(MODEL, costs=CostModel.roofline("k80"))
    assert env.costs.name == "roofline:k80"
    assert env.initial_cost.ms == GraphSubstitutionEnv(MODEL, costs="roofline:k80").initial_cost.ms


@pytest.mark.parametrize(
    ("name", "error", "expected"),
    [
        ("roofline:rtx2080", ValueError, "did you mean 'roofline:rtx2070'"),
        ("rooflin:xeon", ValueError, "did you mean 'roofline:xeon'"),
        ("endtend:cpu", ValueError, "did you mean 'endtoend:cpu'"),
        ("endtoend", ValueError, "did you mean 'endtoend:cpu'"),
        ("roofline:", ValueError, "roofline:h200"),
        ("", ValueError, "no cost model"),
        ("endtoend:gpu", UnavailableError, "cpu here"),
        ("endtoend:cuda", UnavailableError, "pip install"),
        ("measured:tensorrt", UnavailableError, "--costs endtoend:tensorrt"),
        (3, ValueError, "expected the name of a cost model"),
    ],
)
def test_what_is_not_there_is_explained(name: str, error: type[Exception], expected: str) -> None:
    if name == "endtoend:cuda" and "cuda" in available_devices():
        pytest.skip("here it is")
    with pytest.raises(error, match=expected) as raised:
        GraphSubstitutionEnv(MODEL, costs=name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("reward", ["log_ratio", "percent:every=2"])
def test_passes_the_environment_checker(costs: Costs, reward: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*obs.*")
        check_env(GraphSubstitutionEnv(MODEL, costs=costs, reward=reward), skip_render_check=True)


@pytest.mark.parametrize("name", [name for name in cost_models.names() if name.startswith("endtoend")])
def test_passes_the_environment_checker_on_a_real_device(name: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*obs.*")
        warnings.filterwarnings("ignore", message=".*too noisy.*")
        costs = EndToEnd(name.partition(":")[2], effort=fake_costs().effort)
        check_env(GraphSubstitutionEnv(MODEL, costs=costs), skip_render_check=True)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*")
def test_wrappers_pass_it_on(costs: Costs) -> None:
    env = GraphSubstitutionEnv(MODEL, costs=costs, reward="percent")
    for wrapped in (Candidates(env, 16, candidate_costs=True), Padded(env)):
        check_env(wrapped, skip_render_check=True)
        observation, _ = wrapped.reset(seed=0)
        assert observation["globals"].shape == (4,)


def test_what_rewrites_are_predicted_to_cost_is_native(costs: Costs) -> None:
    """The prediction is exact unless the cost of an operator depends on its neighbours; then it is an estimate."""
    env = GraphSubstitutionEnv(MODEL, costs=costs)
    exact = 0.2 if costs.name.startswith(("measured", "learned")) else 1e-9
    env.reset(seed=0)
    for _ in range(3):
        rules, locations, costs_ms = env.candidates()
        taken = np.random.default_rng(0).integers(len(rules))
        env.step([rules[taken], locations[taken]])
        assert env.state.cost.ms == pytest.approx(costs_ms[taken], rel=exact)
        assert env.state.graph.cost(env.cost_model).ms == pytest.approx(env.state.cost.ms, rel=1e-9)


def test_a_cost_model_of_a_users_own() -> None:
    """Any object with the interface will do, also for a reward that looks at every second graph only."""

    class Launches:
        name = "launches:here"
        native = CostModel.roofline("xeon")
        is_free = False

        def of(self, model: OnnxModel) -> Launches:
            return self

        def price(self, state: State) -> Priced:
            cost = MeasuredCost.timed(float(state.cost.kernel_launches), state.cost)
            return Priced(cost, {state.hash: 0.02 * cost.ms})

    assert isinstance(Launches(), Costs) and isinstance(Launches().of(OnnxModel.load(zoo.build(MODEL))), ModelCosts)
    env = GraphSubstitutionEnv(MODEL, costs=Launches(), reward="percent:every=2,bonus=0.25", max_steps=4)
    _, info = env.reset(seed=0)
    start = info["cost_ms"]
    assert start == info["kernel_launches"] and info["cost_noise"] == pytest.approx(0.02)
    _, reward, *_, info = env.step(env.legal_actions()[0])
    assert (reward, info["reward_noise"], info["cost_is_fresh"]) == (0.25, 0, False)
    _, reward, *_, info = env.step(env.legal_actions()[0])
    assert info["cost_ms"] == info["kernel_launches"] and info["cost_is_fresh"] and info["reward_noise"] > 0
    assert reward == pytest.approx(100 * (start - info["cost_ms"]) / start)


def test_whole_graphs_can_be_timed_a_fixed_number_of_times() -> None:
    costs = cost_models.find("endtoend:cpu:pairs=4,noise=resampled")
    assert isinstance(costs, EndToEnd) and costs.noise == "resampled"
    assert (costs.effort.pairs, costs.effort.resolution, costs.effort.seconds) == (4, None, 0.0)
    for text in ("1", "many", "2.5", "-3"):
        with pytest.raises(ValueError, match=r"'pairs' must be a whole number of timings, at least 2, got"):
            cost_models.find(f"endtoend:cpu:pairs={text}")
    with pytest.raises(ValueError, match="has no parameter 'pairs': it takes noise"):
        cost_models.find("measured:cpu:pairs=4")
