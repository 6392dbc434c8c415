"""Prices of kernels: measured once, kept in a database."""

from __future__ import annotations

from environment.costs.kernel import Kernel
from environment.costs.kernel_timing import YARDSTICK, time_kernel, time_yardstick
from environment.costs.price_database import DatabaseError, Price, PriceList
from environment.runtimes import OnnxRuntime


class KernelPrices:
    """What kernels cost among weights of some total size, which decides where those are read from.

    Args:
      prices: of the runtime's setting.
      weights_mb: of the model that the kernels belong to.
      runtime: None to measure nothing.
    """

    def __init__(self, prices: PriceList, weights_mb: int, runtime: OnnxRuntime | None) -> None:
        self._prices, self._weights_mb, self._runtime = prices, weights_mb, runtime
        self._known: dict[str, Price] = {}

    def price(self, kernel: Kernel) -> Price:
        """Of one run.

        Raises:
          DatabaseError: it has not been recorded, and nothing is measured.
          ModelError: it cannot be run alone.
        """
        reads_weights = any(operand is not None and operand.is_weight for operand in kernel.operands)
        weights_mb = self._weights_mb if reads_weights else 0
        signature = f"{weights_mb} {kernel.signature}"
        if (known := self._known.get(signature) or self._prices.get(signature)) is None:
            if self._runtime is None:
                raise DatabaseError(f"{self._prices.place} has no price of {kernel.op_type}: {kernel.signature}.")
            self._prices.put(
                signature, time_kernel(kernel, weights_mb, self._runtime, self._yardstick_ms(self._runtime))
            )
            known = self._prices.get(signature)  # another process may have been faster
            assert known is not None
        self._known[signature] = known
        return known

    def _yardstick_ms(self, runtime: OnnxRuntime) -> float:
        """What the yardstick costs: measured once for each setting."""
        signature = f"yardstick {YARDSTICK.signature}"
        if self._prices.get(signature) is None:
            self._prices.put(signature, time_yardstick(runtime))
        price = self._prices.get(signature)
        assert price is not None
        return price.ms
