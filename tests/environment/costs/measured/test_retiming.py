"""Only those kernels are timed again that make the difference of two graphs unsure."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from environment import zoo
from environment.costs.measured import kernel_prices, retiming
from environment.costs.measured.cost_model import MeasuredPrices
from environment.costs.measured.kernel import Kernel
from environment.costs.measured.kernel_prices import price_key
from environment.costs.measured.retiming import SURE, difference, retime
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.price_list import Price
from environment.costs.prices.settings import setting_of
from environment.runtimes import OnnxRuntime
from taso_ext import Graph, OnnxModel, RuleSet, State
from taso_ext.errors import CrashError
from tests.environment.costs.fake_kernels import price_without_a_clock


class Case:
    """A model, one of its rewrites, and a clock whose answers are as sure as `spread` says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spread, self.timed = 0.2, list[str]()
        known = price_without_a_clock(monkeypatch)

        self.crashes: set[str] = set()

        def time_kernel(kernel: Kernel, weights_mb: float, *_: object) -> Price:
            if price_key(kernel, int(weights_mb)) in self.crashes:
                raise CrashError("the runtime has crashed")
            self.timed.append(price_key(kernel, int(weights_mb)))
            return Price(known(kernel, weights_mb, OnnxRuntime()).ms, self.spread)

        monkeypatch.setattr(kernel_prices, "time_kernel", time_kernel)
        model = OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
        list_ = PriceDatabase(folder / "prices.sqlite").setting(setting_of(OnnxRuntime()))
        self.prices = MeasuredPrices(model, OnnxRuntime(), list_)
        state = State(model.graph, RuleSet.default(), self.prices.native)
        rule, location = state.legal_actions()[0].tolist()
        state.step(rule, location)
        self.start, self.other = model.graph, state.graph
        bills = [self.prices.fast_bill(each) for each in (self.start, self.other)]
        self.apart = {key for key in bills[0] | bills[1] if bills[0][key] != bills[1][key]}
        self.alike = set(bills[0] | bills[1]) - self.apart
        self.timed.clear()

    def retime(self, to: Graph | None = None) -> int:
        return retime(self.prices, self.start, to or self.other, seconds=60)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(tmp_path, monkeypatch)


def test_what_both_graphs_run_is_not_timed(case: Case) -> None:
    assert case.apart and case.alike
    count = case.retime()
    assert count == len(case.timed) > 0
    assert set(case.timed) <= case.apart


def test_it_ends_when_the_difference_is_sure(case: Case) -> None:
    value, before = difference(case.prices, case.start, case.other)
    case.retime()
    same, after = difference(case.prices, case.start, case.other)
    assert after <= SURE < before
    assert same == pytest.approx(value)  # this clock always answers the same
    assert not case.retime()
    totals = [case.prices.full(each).ms for each in (case.start, case.other)]
    assert same == pytest.approx(1 - totals[1] / totals[0], abs=1e-6)


def test_kernels_that_are_sure_are_left_alone(case: Case) -> None:
    case.spread = 0.0
    first = sorted(case.apart)[0]
    weights_mb, kernel = kernel_prices.split_key(first)
    for _ in range(1000):
        case.prices.kernels.price(kernel, weights_mb, anew=True)
    case.timed.clear()
    case.retime()
    assert set(case.timed) <= case.apart - {first}


def test_the_most_doubtful_is_timed_first_and_all_in_turn(case: Case) -> None:
    case.retime()
    counts = Counter(case.timed)
    first_pass = case.timed[: len(counts)]
    assert max(Counter(first_pass).values()) == 1


def test_a_kernel_that_cannot_be_timed_keeps_its_price(case: Case) -> None:
    first = retiming._doubtful(case.prices, case.start, case.other)[0]
    before = case.prices.kernels.of(first)
    case.crashes.add(first)
    assert case.retime() == len(case.timed) > 0
    assert first not in case.timed and case.prices.kernels.of(first) == before


def test_a_graph_does_not_differ_from_itself(case: Case) -> None:
    assert difference(case.prices, case.start, case.start) == (0.0, 0.0)
    assert not case.retime(case.start) and not case.timed


def test_time_is_kept_to(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 1000, 7))
    monkeypatch.setattr(retiming.time, "monotonic", lambda: float(next(ticks)))
    told: list[float] = []
    assert retime(case.prices, case.start, case.other, seconds=20, on_timed=told.append) == 3
    assert told == [7, 14, 21]
