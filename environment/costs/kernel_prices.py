"""Prices of kernels: measured once, kept in a database."""

from __future__ import annotations

from environment.costs.kernel import Kernel
from environment.costs.kernel_timing import time_kernel, time_yardstick
from environment.costs.price_database import DatabaseError, Price, PriceList
from environment.runtimes import OnnxRuntime


class KernelPrices:
    """What kernels cost among weights of some total size, which decides where those are read from.

    Args:
      prices: of the runtime's setting.
      weights_mb: of the graph that the kernels belong to.
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
        if (known := self.known(kernel)) is None:
            if self._runtime is None:
                raise DatabaseError(self._missing(kernel))
            weights_mb, signature = self._key(kernel)
            yardstick_ms = self._yardstick_ms(self._runtime)
            self._prices.put(signature, time_kernel(kernel, weights_mb, self._runtime, yardstick_ms))
            known = self.known(kernel)  # another process may have been faster
            assert known is not None
        return known

    def known(self, kernel: Kernel) -> Price | None:
        """Of one run, if it has been recorded."""
        _, signature = self._key(kernel)
        if (found := self._known.get(signature) or self._prices.get(signature)) is not None:
            self._known[signature] = found
        return found

    def _yardstick_ms(self, runtime: OnnxRuntime) -> float:
        """What the yardstick costs: measured once for each setting."""
        known = self._prices.yardstick_ms
        return self._prices.keep_yardstick(time_yardstick(runtime)) if known is None else known

    def _key(self, kernel: Kernel) -> tuple[int, str]:
        """Among how many megabytes of weights it runs, and what its price is kept under: see `split_key`."""
        reads_weights = any(operand is not None and operand.is_weight for operand in kernel.operands)
        weights_mb = self._weights_mb if reads_weights else 0
        return weights_mb, f"{weights_mb} {kernel.signature}"

    def _missing(self, kernel: Kernel) -> str:
        device = self._prices.setting.device
        return (
            f"{self._prices.place} has no price of {kernel.description}, and a replay measures nothing. Record it "
            f"where the others were: run the same command with --costs measured:{device} there, or `rlflow costs "
            f"record` with more --walks, and then `rlflow costs export`. A runtime of another version, or a processor "
            f"of another kind, may make other kernels of a model than were recorded ({self._prices.setting})."
        )


def split_key(key: str) -> tuple[int, Kernel]:
    """Among how many megabytes of weights a recorded kernel ran (0: it reads none), and which kernel it is."""
    weights_mb, _, signature = key.partition(" ")
    return int(weights_mb), Kernel.of_signature(signature)
