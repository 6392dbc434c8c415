"""Prices of kernels that no clock has measured."""

from __future__ import annotations

import hashlib

from environment.costs.kernel import Kernel
from environment.costs.price_database import Price
from environment.runtimes import OnnxRuntime


class KernelClock:
    """Prices kernels by their signatures, and counts."""

    def __init__(self) -> None:
        self.timed: list[str] = []

    def __call__(self, kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, yardstick_ms: float) -> Price:
        self.timed.append(kernel.signature)
        digest = hashlib.sha256(kernel.signature.encode()).digest()
        return Price(0.5 + digest[0] / 256, 0.01, 3)
