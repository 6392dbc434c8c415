"""Prices of kernels that no clock has measured."""

from __future__ import annotations

import hashlib
import math

import pytest

from environment.costs.measured import kernel_prices
from environment.costs.measured.kernel import Kernel
from environment.costs.prices.price_list import Price
from environment.runtimes import OnnxRuntime


class KernelClock:
    """A clock that prices kernels by what they read, and a little by their signatures, and notes the calls."""

    def __init__(self) -> None:
        self.timed: list[str] = []

    def __call__(self, kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, *_: object) -> Price:
        self.timed.append(kernel.signature)
        digest = hashlib.sha256(kernel.signature.encode()).digest()
        elements = sum(math.prod(operand.dims) for operand in kernel.operands if operand is not None)
        return Price((1 + elements / 1000) * (1 + digest[0] / 2560), 0.01)


def price_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> KernelClock:
    """Makes a new `KernelClock` price all kernels, and returns it."""
    clock = KernelClock()
    monkeypatch.setattr(kernel_prices, "time_kernel", clock)
    monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: 1.0)
    return clock
