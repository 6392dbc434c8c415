"""Measured costs whose kernel prices are predicted until something depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from environment import zoo
from environment.costs.measured.cost_model import Learned, Measured, MeasuredPrices
from environment.costs.measured.operator_classes import MEMBERS, OperatorClasses
from environment.costs.measured.retiming import difference, retime
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.price_list import OperatorCost, Price, PriceList
from environment.costs.prices.settings import Setting
from environment.policies.random import random_step
from environment.runtimes import OnnxRuntime
from taso_ext import OnnxModel, RuleSet, State
from tests.environment.costs.fake_kernels import KernelClock, price_without_a_clock

RUNTIME = OnnxRuntime()
MODEL = "squeezenet1.1-tiny"


class Oracle:
    """Predicts 1 ms for every kernel, and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def predict(self, keys: Sequence[str]) -> list[Price]:
        self.asked += keys
        return [Price(1.0, 0.3, 0) for _ in keys]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> KernelClock:
    return price_without_a_clock(monkeypatch)


@pytest.fixture
def model() -> OnnxModel:
    return OnnxModel.load(zoo.build(MODEL))


def prices(path: Path) -> PriceList:
    return PriceDatabase(path / "prices.sqlite").setting(Setting("cpu", "made up", "onnxruntime", "1", 1))


def test_nothing_is_timed_and_no_prediction_is_stored(model: OnnxModel, clock: KernelClock, tmp_path: Path) -> None:
    costs = MeasuredPrices(model, RUNTIME, prices(tmp_path), predictor=Oracle())
    state = State(model.graph, RuleSet.default(), costs.native)
    assert state.cost.ms == pytest.approx(state.cost.kernel_launches)
    assert costs.price(state).noise > 0
    assert not clock.timed and not len(prices(tmp_path)) and prices(tmp_path).num_operator_costs > 0
    oracle = Oracle()
    again = MeasuredPrices(model, RUNTIME, prices(tmp_path), predictor=oracle)
    assert model.graph.cost(again.native).ms == state.cost.ms, "operators are known, and predicted at once"
    assert len(oracle.asked) == len(set(oracle.asked))


def test_without_predictions_the_same_database_is_timed(model: OnnxModel, clock: KernelClock, tmp_path: Path) -> None:
    model.graph.cost(MeasuredPrices(model, RUNTIME, prices(tmp_path), predictor=Oracle()).native)
    timed = MeasuredPrices(model, RUNTIME, prices(tmp_path))
    model.graph.cost(timed.native)
    assert len(clock.timed) == len(set(clock.timed)) == timed.kernels.timed > 0
    assert len(prices(tmp_path)) == len(clock.timed)


def test_retiming_times_what_differs_and_keeps_other_predictions(
    model: OnnxModel, clock: KernelClock, tmp_path: Path
) -> None:
    costs = MeasuredPrices(model, RUNTIME, prices(tmp_path), predictor=Oracle())
    state, rng = State(model.graph, RuleSet.default(), costs.native), np.random.default_rng(1)
    start_ms = state.cost.ms
    while costs.fast_bill(state.graph) == costs.fast_bill(model.graph):
        assert random_step(state, rng)
    before, after = costs.fast_bill(model.graph), costs.fast_bill(state.graph)
    apart = {key for key in before | after if before[key] != after[key]}
    timed = retime(costs, model.graph, state.graph, seconds=60)
    assert 0 < timed == len(clock.timed) and len(prices(tmp_path)) <= len(apart)
    assert difference(costs, model.graph, state.graph)[1] < 0.05
    assert model.graph.cost(costs.native).ms == start_ms, "a graph does not change its cost"
    anew = MeasuredPrices(model, RUNTIME, prices(tmp_path), predictor=Oracle())
    assert anew.kernels.of(next(iter(apart & {key for key, _ in prices(tmp_path).items()}))).timings >= 1


def test_a_kernel_that_another_process_times_keeps_its_price_here(
    model: OnnxModel, clock: KernelClock, tmp_path: Path
) -> None:
    costs = MeasuredPrices(model, RUNTIME, prices(tmp_path), predictor=Oracle())
    model.graph.cost(costs.native)
    key = next(iter(costs.fast_bill(model.graph)))
    prices(tmp_path).put(key, Price(7.0, 0.01))
    assert costs.kernels.of(key) == Price(1.0, 0.3, 0)
    assert MeasuredPrices(model, RUNTIME, prices(tmp_path), predictor=Oracle()).kernels.of(key).ms == 7.0


@pytest.mark.parametrize("name", [MODEL, "bert-l2-h128"])
def test_known_classes_of_operators_are_not_lowered_again(name: str, clock: KernelClock, tmp_path: Path) -> None:
    """The costs stay near those of the full model, whatever the runtime fuses: costs that are expected and costs that
    are found do not mix, which made differences of up to 13 %."""
    model = OnnxModel.load(zoo.build(name))
    costs = MeasuredPrices(model, RUNTIME, prices(tmp_path), predictor=Oracle())
    differences, steps = [], 0
    for seed in range(3):
        state, rng = State(model.graph, RuleSet.default(), costs.native), np.random.default_rng([2, seed])
        for _ in range(8):
            differences.append(abs(state.cost.ms / costs.full(state.graph).ms - 1))
            steps += bool(random_step(state, rng, 0.3))
    assert costs.lowerings <= steps + 1
    assert np.median(differences) < 0.02 and max(differences) < 0.05


def test_a_class_is_trusted_once_enough_members_agree_and_none_differs(model: OnnxModel) -> None:
    classes = OperatorClasses(model.opset)
    one, other = OperatorCost({"a": 1}, 1.0), OperatorCost({"b": 1}, 1.0)

    def named(number: int) -> dict[int, list[int]]:
        """Returns the names of an operator that is like the others only up to distance 0."""
        return {distance: [number if distance else 0] for distance in MEMBERS}

    for number in range(1, MEMBERS[0] + 1):
        assert classes.expected(named(99), 0) is None
        classes.add(named(number), 0, one)
    assert classes.expected(named(99), 0) == one
    classes.add(named(MEMBERS[0] + 1), 0, other)
    assert classes.expected(named(99), 0) is None, "they differ"
    assert classes.expected(named(1), 0) == one, "a larger distance decides"


def test_learned_never_times_and_measured_may(tmp_path: Path) -> None:
    assert not Learned(database=tmp_path / "a.sqlite").times and Measured(database=tmp_path / "a.sqlite").times
    assert Measured(database=tmp_path / "a.sqlite", predict=False).predictions is None
