"""Measured costs without a clock: kernels get made-up prices, the rest is real."""

from __future__ import annotations

import gc
import hashlib
import math
import sqlite3
import weakref
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from environment import GraphSubstitutionEnv, rewards, zoo
from environment.costs.interface import Priced
from environment.costs.limits import UnpricedWarning
from environment.costs.measured import cost_model as measured
from environment.costs.measured import operator_costs
from environment.costs.measured.cost_model import Measured, MeasuredPrices, Recorded
from environment.costs.measured.operator_costs import DISTANCE, neighbourhood
from environment.costs.measured.ort_kernels import lower
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.price_list import OPERATOR_COSTS, OperatorCost, Price, PriceList, UnrecordedError
from environment.costs.prices.settings import Setting
from environment.policies.random import RandomAgent
from environment.rewards import Transition
from environment.runtimes import OnnxRuntime, UnavailableError
from taso_ext import OnnxModel, RuleSet, State, UnpricedError
from taso_ext.onnx_io.checked_model import CheckedModel
from tests.environment.costs.fake_kernels import KernelClock, price_without_a_clock

RUNTIME = OnnxRuntime()
NAMES = ["squeezenet1.1-tiny", "bert-base-tiny", "inception-v3-tiny", "nasrnn-tiny"]
over_models = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> KernelClock:
    return price_without_a_clock(monkeypatch)


def prices(path: Path) -> PriceList:
    return PriceDatabase(path / "prices.sqlite").setting(Setting("cpu", "made up", "onnxruntime", "1", 1))


def random_step(state: State, rng: np.random.Generator) -> None:
    actions = state.legal_actions()
    rule = rng.choice(np.unique(actions[:, 0]))
    state.step(*rng.choice(actions[actions[:, 0] == rule]).tolist())


@over_models
def test_the_fast_model_follows_the_full_one(name: str, clock: KernelClock, tmp_path: Path) -> None:
    model = OnnxModel.load(zoo.build(name))
    costs = MeasuredPrices(model, RUNTIME, prices(tmp_path))
    state = State(model.graph, RuleSet.default(), costs.native, 0)
    rng, differences = np.random.default_rng(2), []
    for _ in range(8):
        full = costs.full(state.graph)
        differences.append(abs(state.cost.ms / full.ms - 1))
        assert abs(state.cost.kernel_launches - full.kernel_launches) <= 0.05 * full.kernel_launches + 2
        random_step(state, rng)
    assert differences[0] < 0.02
    assert np.median(differences) < 0.02
    assert max(differences) < 0.06


@over_models
def test_every_kernel_belongs_to_an_operator(name: str) -> None:
    model = OnnxModel.load(zoo.build(name))
    sketch = model.sketch(model.graph)
    placed = lower(sketch.model, RUNTIME)
    assert placed
    assert {each.value for each in placed} <= sketch.computed_by.keys()
    assert set(sketch.computed_by.values()) == set(range(model.graph.num_runtime_nodes))


def test_a_neighbourhood_that_reaches_everything_is_the_whole(tmp_path: Path) -> None:
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
    sketch = model.sketch(model.graph)
    some = next(iter(sketch.computed_by))
    part = neighbourhood(sketch.model, [some], 1000)
    kernels = [sorted(each.kernel.signature for each in lower(m, RUNTIME)) for m in (sketch.model, part)]
    assert kernels[0] == kernels[1]


@pytest.mark.parametrize("name", ["bert-base-tiny", "resnext50-tiny", "transformer-transducer-tiny"])
def test_a_neighbourhood_in_a_part_is_that_in_the_whole(name: str) -> None:
    env = GraphSubstitutionEnv(name, max_steps=10)
    observation, _ = env.reset(seed=0)
    for _ in range(6):
        observation, *_ = env.step(RandomAgent(1)(observation))
    graph, rng = env.state.graph, np.random.default_rng(0)
    near = rng.choice(graph.num_runtime_nodes, 3, replace=False).tolist()
    found = []
    for sketch in (env.model.sketch(graph), env.model.sketch(graph, near, DISTANCE)):
        wanted = [value for value, position in sketch.computed_by.items() if position in near]
        part = neighbourhood(sketch.model, wanted, DISTANCE)
        placed = [each for each in lower(part, RUNTIME, sketch.shared) if each.value in wanted]
        found.append(sorted((sketch.computed_by[each.value], each.kernel.signature, each.nbytes) for each in placed))
    assert found[0] == found[1]
    assert found[0]


@pytest.mark.parametrize("distance", range(4))
def test_a_neighbourhood_computes_its_shapes_itself(distance: int) -> None:
    """Arbitrary numbers would be no shape. PyTorch exports a Swin transformer with such detours through floats."""
    text = """
      <ir_version: 10, opset_import: ["" : 21]>
      g (float[2, 3, 40] x) => (float[2, 120] y) <int64 first = {0}, int64[1] zero = {0}, int64[1] rest = {-1}> {
        a = Relu(x)  s = Shape(a)  b = Gather(s, first)  f = Cast<to: int = 1>(b)  h = Mul(f, f)  g = Div(h, f)
        c = Cast<to: int = 7>(g)  d = Unsqueeze(c, zero)  t = Concat<axis = 0>(d, rest)  u = Reshape(a, t)  y = Relu(u)
      }
    """
    part = neighbourhood(CheckedModel.from_proto(onnx.parser.parse_model(text)), ["u"], distance)
    assert "Shape" in [node.op_type for node in part.skeleton.graph.node]
    assert [value.name for value in part.skeleton.graph.input] == ["x" if distance else "a"]
    assert "Reshape" in [each.kernel.op_type for each in lower(part, OnnxRuntime(level="disabled"))]


@over_models
def test_a_neighbourhood_of_any_size_runs(name: str) -> None:
    model = OnnxModel.load(zoo.build(name))
    sketch = model.sketch(model.graph)
    for value in list(sketch.computed_by)[::5]:
        sizes = []
        for distance in (0, 2):
            part = neighbourhood(sketch.model, [value], distance)
            inside = {result for node in part.skeleton.graph.node for result in node.output}
            assert value in inside
            assert {each.value for each in lower(part, RUNTIME, sketch.shared)} <= inside
            sizes.append(len(part.skeleton.graph.node))
        assert sizes[0] < sizes[1] <= len(sketch.model.skeleton.graph.node)


def test_a_recorded_database_needs_no_clock(clock: KernelClock, tmp_path: Path) -> None:
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
    recorded = model.graph.cost(MeasuredPrices(model, RUNTIME, prices(tmp_path)).native)
    timed = len(clock.timed)
    assert timed > 5
    again = MeasuredPrices(model, RUNTIME, prices(tmp_path), replay=True)
    assert model.graph.cost(again.native).ms == recorded.ms
    assert again.full(model.graph).ms == pytest.approx(recorded.ms, rel=0.02)
    assert len(clock.timed) == timed


def test_nothing_of_a_graph_that_is_too_large_is_measured(
    clock: KernelClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
    monkeypatch.setattr("environment.costs.limits.MOST_WORK", 0.9)
    with pytest.raises(UnpricedError, match="too large to measure"):
        model.graph.cost(MeasuredPrices(model, RUNTIME, prices(tmp_path)).native)
    assert not clock.timed


def test_which_graphs_are_too_large_does_not_depend_on_what_was_met(
    clock: KernelClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An episode must be played again as it was, in a process that has met other graphs."""
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))

    def refused(costs: MeasuredPrices) -> list[int]:
        start = State(model.graph, RuleSet.default(), costs.native)
        found = []
        for number, (rule, location) in enumerate(start.legal_actions().tolist()):
            try:
                start.copy().step(rule, location)
            except UnpricedError:
                found.append(number)
        return found

    met = MeasuredPrices(model, RUNTIME, prices(tmp_path))
    assert not refused(met), "all of them are met, and all operators have prices"
    monkeypatch.setattr("environment.costs.limits.MOST_WORK", 1.02)
    (tmp_path / "empty").mkdir()
    fresh, knowing = (MeasuredPrices(model, RUNTIME, prices(path)) for path in (tmp_path / "empty", tmp_path))
    number = len(State(model.graph, RuleSet.default(), fresh.native).legal_actions())
    assert 0 < len(refused(fresh)) < number and refused(fresh) == refused(knowing)


def test_a_price_that_was_not_recorded_is_an_error_in_a_replay(clock: KernelClock, tmp_path: Path) -> None:
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
    costs = MeasuredPrices(model, RUNTIME, prices(tmp_path), replay=True)
    with pytest.raises(UnrecordedError, match="no price of"):
        model.graph.cost(costs.native)
    assert not clock.timed


def test_prices_of_a_device_that_is_not_here_are_replayed_as_far_as_they_were_met(
    clock: KernelClock, tmp_path: Path
) -> None:
    model, rules, path = OnnxModel.load(zoo.build("squeezenet1.1-tiny")), RuleSet.default(), tmp_path / "cuda.sqlite"
    here = Setting("cpu", "made up", "onnxruntime", "1", 1)
    recorded = MeasuredPrices(model, RUNTIME, PriceDatabase(path).setting(here))
    met = walked_ms(State(model.graph, rules, recorded.native), 3)
    here_too = State(model.graph, rules, recorded.native)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("update setting set device = 'cuda'")
    replayed = Recorded(path).of(model)
    start = State(model.graph, rules, replayed.native)
    assert replayed.native.name == "measured:cuda"
    found, expected = replayed.price(start), recorded.price(here_too)
    assert (found.cost.ms, found.errors) == (expected.cost.ms, expected.errors) and 0 < found.noise < 0.1
    assert walked_ms(start, 3) == met
    with pytest.raises(UnrecordedError, match="which kernels cuda would run"):
        walked_ms(start, 50)
    with pytest.raises(UnavailableError, match="the device is missing"):
        replayed.full(model.graph)


def test_an_episode_ends_where_recorded_prices_do(clock: KernelClock, tmp_path: Path) -> None:
    """It is truncated, and the rewrite is not made; a strict environment raises the error."""
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
    model.graph.cost(MeasuredPrices(model, RUNTIME, prices(tmp_path)).native)
    costs = Recorded(tmp_path / "prices.sqlite")
    env, strict = (GraphSubstitutionEnv(model, costs=costs, strict=each) for each in (False, True))
    made = cut_short = 0
    with pytest.warns(UnpricedWarning, match="has no price of .* said once") as caught:
        for action in env.legal_actions():
            _, before = env.reset(seed=0)
            _, reward, terminated, truncated, info = env.step(action)
            if info["rule_name"] != "unpriced":
                made += 1
                continue
            cut_short += 1
            assert (reward, terminated, truncated) == (0, False, True)
            assert (info["graph_hash"], info["cost_ms"]) == (before["graph_hash"], before["cost_ms"])
            strict.reset(seed=0)
            with pytest.raises(UnrecordedError, match="has no price of"):
                strict.step(action)
    assert made and cut_short and len(caught) == 1


def test_an_episode_cannot_start_from_what_has_no_price(clock: KernelClock, tmp_path: Path) -> None:
    prices(tmp_path)
    with pytest.raises(UnrecordedError, match="has no price of"):
        GraphSubstitutionEnv("squeezenet1.1-tiny", costs=Recorded(tmp_path / "prices.sqlite"))


def walked_ms(start: State, steps: int) -> list[float]:
    """Returns the costs of the graphs on a random walk, in milliseconds."""
    state, rng, found = start.copy(), np.random.default_rng(0), [start.cost.ms]
    for _ in range(steps):
        random_step(state, rng)
        found.append(state.cost.ms)
    return found


def test_kernels_are_timed_once(clock: KernelClock, tmp_path: Path) -> None:
    model = OnnxModel.load(zoo.build("bert-base-tiny"))
    for _ in range(2):
        costs = MeasuredPrices(model, RUNTIME, prices(tmp_path))
        model.graph.cost(costs.native)
        costs.full(model.graph)
    assert len(clock.timed) == len(set(clock.timed))


def test_what_other_processes_have_said_counts(clock: KernelClock, tmp_path: Path) -> None:
    """A process takes over the cost of an operator that another process has kept."""
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
    mine = MeasuredPrices(model, RUNTIME, prices(tmp_path))  # has read the empty database
    theirs = prices(tmp_path)
    names = model.graph.neighbourhood_signatures(model.opset).tolist()
    theirs.put("0 made up", Price(1000.0, 0.0))
    theirs.put_operator_costs({names[0]: OperatorCost({"0 made up": 2}, 5.0)})
    here, there = (model.graph.cost(each.native) for each in (mine, MeasuredPrices(model, RUNTIME, prices(tmp_path))))
    assert here.ms == there.ms > 2000


def test_models_share_what_is_known_of_operators(clock: KernelClock, tmp_path: Path) -> None:
    costs = Measured(database=tmp_path / "prices.sqlite")
    model, again = (OnnxModel.load(zoo.build("squeezenet1.1-tiny")) for _ in range(2))
    first = costs.of(model)
    assert costs.of(again) is first
    costs._models = measured.Recent(1)
    second = costs.of(again)
    assert second is not first
    model.graph.cost(first.native)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_costs, "lower", lambda *_: pytest.fail("lowered"))
        assert again.graph.cost(second.native).ms == model.graph.cost(first.native).ms


def test_a_new_timing_changes_what_graphs_cost(clock: KernelClock, tmp_path: Path) -> None:
    """Whoever opens the database afterwards sees it, because operators are kept as kernels, not as milliseconds."""
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
    before = model.graph.cost(MeasuredPrices(model, RUNTIME, prices(tmp_path)).native)
    for key, price in list(prices(tmp_path).items()):
        prices(tmp_path).put(key, Price(9 * price.ms, price.spread))
    after = model.graph.cost(MeasuredPrices(model, RUNTIME, prices(tmp_path)).native)
    assert after.ms == pytest.approx(3 * before.ms)
    assert (after.memory_bytes, after.kernel_launches) == (before.memory_bytes, before.kernel_launches)


def test_old_models_are_forgotten(clock: KernelClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is known of them is freed as well: nothing in the engine may hold it."""
    monkeypatch.setattr(measured, "_MOST_MODELS", 1)
    costs = Measured(database=tmp_path / "prices.sqlite")
    model, other = (OnnxModel.load(zoo.build(name)) for name in ("squeezenet1.1-tiny", "nasrnn-tiny"))
    state = State(model.graph, RuleSet.default(), costs.of(model).native)
    costs.of(model).price(state)
    first = weakref.ref(costs.of(model))
    costs.of(other)
    assert len(costs._models) == 1
    del state
    gc.collect()
    assert first() is None


def test_levels_have_prices_of_their_own(clock: KernelClock, tmp_path: Path) -> None:
    """A graph has other kernels at each level."""
    model, path = OnnxModel.load(zoo.build("squeezenet1.1-tiny")), tmp_path / "prices.sqlite"
    launches = {}
    for level in ("disabled", "all"):
        costs = Measured(level=level, database=path).of(model)
        launches[level] = model.graph.cost(costs.native).kernel_launches
    assert launches["disabled"] != launches["all"]
    with PriceDatabase(path) as database:
        assert {setting.level for setting in database.settings()} == {"disabled", "all"}


class TestNoise:
    """The error of a kernel's price stands in every run of it, in every graph."""

    @pytest.fixture
    def model(self) -> OnnxModel:
        return OnnxModel.load(zoo.build("squeezenet1.1-tiny"))

    @pytest.fixture
    def costs(self, model: OnnxModel, clock: KernelClock, tmp_path: Path) -> MeasuredPrices:
        return MeasuredPrices(model, RUNTIME, prices(tmp_path))

    @over_models
    def test_runs_of_one_kernel_err_together(self, name: str, clock: KernelClock, tmp_path: Path) -> None:
        model = OnnxModel.load(zoo.build(name))
        costs = MeasuredPrices(model, RUNTIME, prices(tmp_path))
        priced = costs.price(State(model.graph, RuleSet.default(), costs.native))
        known, runs = costs.kernels.prices, Counter[str]()
        for signature in model.graph.neighbourhood_signatures(model.opset).tolist():
            runs.update(known.operator_costs[signature].kernels)
        assert max(runs.values()) > 1, "nothing runs twice, so nothing was tested"
        errors_ms = {key: price.ms * price.spread for key, price in known.items()}
        expected = {key: count * errors_ms[key] for key, count in runs.items()}
        assert priced.errors == pytest.approx(expected)
        assert priced.noise == pytest.approx(math.hypot(*expected.values()) / priced.cost.ms)

    def test_equal_graphs_have_one_price(self, model: OnnxModel, costs: MeasuredPrices) -> None:
        start = State(model.graph, RuleSet.default(), costs.native)
        state = start.copy()
        priced = [costs.price(state)]
        for _ in range(3):
            state.step(*state.legal_actions()[0].tolist())
            priced.append(costs.price(state))
        for each in reversed(priced[:-1]):
            state.undo()
            assert costs.price(state) is each
        assert costs.price(start) is priced[0]

    def test_what_two_graphs_share_does_not_blur_their_difference(
        self, model: OnnxModel, costs: MeasuredPrices
    ) -> None:
        """Only kernels that one of them runs more often count."""
        before = State(model.graph, RuleSet.default(), costs.native)
        old, found = costs.price(before), []
        for rule, location in before.legal_actions().tolist():
            after = before.copy()
            after.step(rule, location)
            new = costs.price(after)
            changed = {key: new.errors.get(key, 0) - old.errors.get(key, 0) for key in new.errors | old.errors}
            differ = [each for each in changed.values() if abs(each) > 1e-12]
            noise = reward_noise("incremental", old, new)
            # The unit, the start graph's time, also has an error, which hardly shows in a small difference.
            scale, unit = 100 / old.cost.ms, abs(old.cost.ms - new.cost.ms) / old.cost.ms * 100 * old.noise
            assert abs(noise - scale * math.hypot(*differ)) <= 1.01 * unit + 100 * old.noise**3
            found.append((noise, 100 * math.hypot(old.noise, new.noise)))
        assert np.median([noise / apart for noise, apart in found]) < 0.7

    def test_rewards_of_an_environment(self, clock: KernelClock, tmp_path: Path) -> None:
        costs = Measured(database=tmp_path / "prices.sqlite")
        env = GraphSubstitutionEnv("squeezenet1.1-tiny", costs=costs, max_steps=5)
        _, info = env.reset(seed=0)
        assert info["cost_noise"] > 0 == info["reward_noise"]
        noises = []
        for _ in range(3):
            *_, info = env.step(env.legal_actions()[-1])
            noises.append(info["reward_noise"])
        *_, info = env.step([env.num_rules, 0])
        assert info["reward_noise"] == 0 < max(noises), "NO-OP changes nothing"


def reward_noise(reward: str, old: Priced, new: Priced) -> float:
    """Returns the noise of the reward of a first step."""
    transition = Transition(old.cost, old.cost, new.cost, old.cost, step=1, done=False)
    prices = {"initial": old, "before": old, "after": new, "last_measured": old}
    return rewards.reward_noise(rewards.find(reward), transition, prices, "")


def test_what_decides_the_costs_of_operators_has_a_version() -> None:
    """If this fails, raise OPERATOR_COSTS, as databases hold costs found in another way; then correct the digest."""
    digest = hashlib.sha256(f"{operator_costs.DISTANCE} {operator_costs._WHOLE}".encode())
    for name in ("bert-base-tiny", "squeezenet1.1-tiny"):
        graph = OnnxModel.load(zoo.build(name)).graph
        digest.update(np.unique(graph.neighbourhood_signatures(17)).astype("<u8").tobytes())
    assert (OPERATOR_COSTS, digest.hexdigest()[:16]) == (2, "eeaa6428ef5914a8")
