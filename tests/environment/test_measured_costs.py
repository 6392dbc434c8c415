"""Measured costs without a clock: kernels get made-up prices, the rest is real."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fake_kernels import KernelClock, price_without_a_clock

from environment import zoo
from environment.costs.lowering import lower
from environment.costs.measured import MeasuredPrices, Recorded
from environment.costs.neighbourhood import neighbourhood
from environment.costs.price_database import DatabaseError, PriceDatabase, PriceList, Setting
from environment.runtimes import OnnxRuntime
from taso_ext import CostModel, OnnxModel, RuleSet, State

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
    part = neighbourhood(sketch.model, [some], 1000, sketch.types)
    kernels = [sorted(each.kernel.signature for each in lower(m, RUNTIME)) for m in (sketch.model, part)]
    assert kernels[0] == kernels[1]


@over_models
def test_a_neighbourhood_of_any_size_runs(name: str) -> None:
    model = OnnxModel.load(zoo.build(name))
    sketch = model.sketch(model.graph)
    for value in list(sketch.computed_by)[::5]:
        sizes = []
        for distance in (0, 2):
            part = neighbourhood(sketch.model, [value], distance, sketch.types)
            inside = {result for node in part.skeleton.graph.node for result in node.output}
            assert value in inside
            assert {each.value for each in lower(part, RUNTIME, sketch.model)} <= inside
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
    costs = MeasuredPrices(model, RUNTIME, prices(tmp_path))
    monkeypatch.setattr("environment.affordable.MOST_WORK", 0.9)
    foretold = State(model.graph, RuleSet.default(), costs.native)
    assert foretold.cost.ms == pytest.approx(model.graph.cost(CostModel.roofline("xeon")).ms)
    assert all(0 < ms < np.inf for ms in walked_ms(foretold, 5)) and not clock.timed
    monkeypatch.setattr("environment.affordable.MOST_WORK", 1.5)
    assert model.graph.cost(costs.native).ms == pytest.approx(costs.full(model.graph).ms, rel=0.02)
    measured, timed = prices(tmp_path).num_appraisals, len(clock.timed)
    monkeypatch.setattr("environment.affordable.MOST_WORK", 0.9)
    assert walked_ms(foretold, 5) and len(clock.timed) == timed, "the model itself is known, what rewriting adds is not"
    assert prices(tmp_path).num_appraisals == measured, "what is foretold is not kept"


def test_a_price_that_was_not_recorded_is_an_error_in_a_replay(clock: KernelClock, tmp_path: Path) -> None:
    model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
    costs = MeasuredPrices(model, RUNTIME, prices(tmp_path), replay=True)
    with pytest.raises(DatabaseError, match="no price of"):
        model.graph.cost(costs.native)
    assert not clock.timed


def test_prices_of_a_device_that_is_not_here_are_replayed_as_far_as_they_were_met(
    clock: KernelClock, tmp_path: Path
) -> None:
    model, rules, path = OnnxModel.load(zoo.build("squeezenet1.1-tiny")), RuleSet.default(), tmp_path / "cuda.sqlite"
    here = Setting("cpu", "made up", "onnxruntime", "1", 1)
    recorded = MeasuredPrices(model, RUNTIME, PriceDatabase(path).setting(here))
    met = walked_ms(State(model.graph, rules, recorded.native), 3)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("update setting set device = 'cuda'")
    replayed = Recorded(path).of(model)
    start = State(model.graph, rules, replayed.native)
    assert replayed.native.name == "measured:cuda"
    assert 0 < replayed.price(start).noise < 0.1
    assert walked_ms(start, 3) == met
    with pytest.raises(DatabaseError, match="which kernels cuda would run"):
        walked_ms(start, 50)


def walked_ms(start: State, steps: int) -> list[float]:
    """The costs of the graphs on a random walk."""
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
