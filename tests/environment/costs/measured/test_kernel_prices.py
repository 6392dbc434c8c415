"""Prices of kernels are measured in turns, are means of all timings, and cause a warning if they are unsure."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from onnx import TensorProto

from environment.costs.limits import NoisyClock, NoisyClockWarning
from environment.costs.measured import kernel_prices
from environment.costs.measured.kernel import Kernel, Operand
from environment.costs.measured.kernel_prices import NOISY, KernelPrices, price_key, split_key
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.price_list import Price, PriceList, UnrecordedError
from environment.costs.prices.settings import Setting
from environment.runtimes import OnnxRuntime

RUNTIME = OnnxRuntime()
HERE = Setting("cpu", "made up", "onnxruntime", "1", 1)
X = Operand(TensorProto.FLOAT, (4, 4))
RELU = Kernel("", "Relu", 14, "{}", (X,), (True,))
MATMUL = Kernel("", "MatMul", 13, "{}", (X, Operand(TensorProto.FLOAT, (4, 4), True)), (True,))
SURE, UNSURE = 0.01, 0.2


class Clock:
    """A clock that gives the next prices the given spreads, and notes what it timed."""

    def __init__(self, *spreads: float) -> None:
        self.spreads = list(spreads)
        self.timed: list[tuple[str, float]] = []

    def __call__(self, kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, *_: object) -> Price:
        self.timed.append((kernel.op_type, weights_mb))
        return Price(float(len(self.timed)), self.spreads.pop(0))


@pytest.fixture
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PriceList:
    monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: 1.0)
    return PriceDatabase(tmp_path / "prices.sqlite").setting(HERE)


def timed_by(monkeypatch: pytest.MonkeyPatch, *spreads: float) -> Clock:
    clock = Clock(*spreads)
    monkeypatch.setattr(kernel_prices, "time_kernel", clock)
    return clock


def test_a_kernel_is_timed_once_among_weights_of_each_size(prices: PriceList, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = timed_by(monkeypatch, *[SURE] * 4)
    kernels = KernelPrices(prices, RUNTIME)
    for _ in range(2):
        for weights_mb in (4, 8):
            kernels.price(RELU, weights_mb)
            kernels.price(MATMUL, weights_mb)
    assert clock.timed == [("Relu", 4), ("MatMul", 4), ("Relu", 8), ("MatMul", 8)]
    assert split_key(price_key(MATMUL, 8)) == (8, MATMUL) and split_key(price_key(RELU, 8)) == (8, RELU)


def test_a_kernel_that_is_timed_anew_has_the_mean_price(prices: PriceList, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_by(monkeypatch, SURE, SURE)
    kernels = KernelPrices(prices, RUNTIME)
    assert kernels.price(RELU, 4).ms == 1.0
    assert kernels.price(RELU, 4, anew=True).ms == kernels.price(RELU, 4).ms == pytest.approx(2**0.5)


def test_a_replay_times_nothing(prices: PriceList, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = timed_by(monkeypatch)
    kernels = KernelPrices(prices, None)
    for anew in (False, True):
        with pytest.raises(UnrecordedError, match="no price of Relu"):
            kernels.price(RELU, 4, anew=anew)
    assert not clock.timed and not kernels.timed and not kernels.keeps_operators


def test_an_unsure_price_is_warned_of_once(prices: PriceList, monkeypatch: pytest.MonkeyPatch) -> None:
    """All models together warn once."""
    timed_by(monkeypatch, SURE, UNSURE, UNSURE)
    assert SURE < NOISY < UNSURE
    clock = NoisyClock("measured:cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KernelPrices(prices, RUNTIME, clock).price(RELU, 4)
    with pytest.warns(NoisyClockWarning, match=r"measured:cpu: .* too noisy: .* MatMul.* ±20 % .*--again") as caught:
        for weights_mb in (4, 8):
            KernelPrices(prices, RUNTIME, clock).price(MATMUL, weights_mb)
    assert len(caught) == 1


def test_what_another_process_has_timed_meanwhile_is_not_timed_again(
    prices: PriceList, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process had the turn before."""
    clock = timed_by(monkeypatch)
    other = PriceDatabase(prices.place).setting(HERE)
    known = Price(7.0, SURE)

    @contextmanager
    def turn() -> Iterator[None]:
        other.put(price_key(RELU, 4), known)
        yield

    monkeypatch.setattr(prices, "turn", turn)
    assert KernelPrices(prices, RUNTIME).price(RELU, 4) == known
    assert not clock.timed


def test_kernel_and_reference_kernel_are_timed_in_one_turn(prices: PriceList, monkeypatch: pytest.MonkeyPatch) -> None:
    had: list[str] = []

    @contextmanager
    def turn() -> Iterator[None]:
        had.append("begin")
        yield
        had.append("end")

    monkeypatch.setattr(prices, "turn", turn)
    monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: had.append("reference kernel") or 1.0)
    monkeypatch.setattr(kernel_prices, "time_kernel", lambda *_: had.append("kernel") or Price(1.0, SURE))
    kernels = KernelPrices(prices, RUNTIME)
    for _ in range(2):
        kernels.price(RELU, 4)
    assert had == ["begin", "reference kernel", "kernel", "end"]
