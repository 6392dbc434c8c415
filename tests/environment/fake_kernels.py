"""Prices of kernels that no clock has measured."""

from __future__ import annotations

import hashlib
import math

from environment.costs.kernel import Kernel
from environment.costs.price_database import Price
from environment.runtimes import OnnxRuntime


class KernelClock:
    """Prices kernels by what they read, and a little by their signatures; counts."""

    def __init__(self) -> None:
        self.timed: list[str] = []

    def __call__(self, kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, yardstick_ms: float) -> Price:
        self.timed.append(kernel.signature)
        digest = hashlib.sha256(kernel.signature.encode()).digest()
        elements = sum(math.prod(operand.dims) for operand in kernel.operands if operand is not None)
        return Price((1 + elements / 1000) * (1 + digest[0] / 2560), 0.01, 3)
