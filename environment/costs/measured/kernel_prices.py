"""Prices of kernels, which are measured once and kept in a database."""

from __future__ import annotations

from environment.costs.limits import NoisyClock
from environment.costs.measured.benchmark import time_kernel, time_reference_kernel
from environment.costs.measured.kernel import Kernel
from environment.costs.prices.price_list import Price, PriceList, UnrecordedError
from environment.runtimes import OnnxRuntime

NOISY = 0.05
"""Half the width of an interval, as a fraction of its value, above which a warning is given: few rewrites gain more."""


class KernelPrices:
    """Prices by kernel and by the size of the weights of its graph, which decides whether caches hold the weights.

    Args:
      prices: the price list of the runtime's setting.
      runtime: the runtime that measures unknown kernels; None measures nothing.
      clock: the warning of imprecise prices.
    """

    def __init__(self, prices: PriceList, runtime: OnnxRuntime | None, clock: NoisyClock | None = None) -> None:
        self.prices, self._runtime = prices, runtime
        self._clock = clock or NoisyClock(f"measured:{prices.setting.device}")

    @property
    def measures(self) -> bool:
        """Whether an unknown kernel is measured; otherwise it is an error."""
        return self._runtime is not None

    def price(self, kernel: Kernel, weights_mb: int, *, anew: bool = False) -> Price:
        """Returns the price of one run of a kernel.

        Args:
          weights_mb: size of the weights of the kernel's graph.
          anew: whether a known kernel is measured again; its price becomes the mean of all its timings.
        Raises:
          UnrecordedError: the kernel has no price, and nothing is measured.
          ModelError: the kernel cannot be run alone.
        """
        if not anew and (known := self.known(kernel, weights_mb)) is not None:
            return known
        if self._runtime is None:
            raise UnrecordedError(self._missing(kernel))
        with self.prices.turn():
            if not anew and (known := self.known(kernel, weights_mb)) is not None:  # another process measured it
                return known
            return self._timed(kernel, weights_mb, self._runtime)

    def known(self, kernel: Kernel, weights_mb: int) -> Price | None:
        """Returns the recorded price of one run, or None."""
        return self.prices.get(price_key(kernel, weights_mb))

    def _timed(self, kernel: Kernel, weights_mb: int, runtime: OnnxRuntime) -> Price:
        found = time_kernel(kernel, weights_mb, runtime, self._reference_ms(runtime))
        kept = self.prices.put(price_key(kernel, weights_mb), found)
        if kept.spread > NOISY:
            self._clock.warn(
                f"The clock was too noisy: the price of {kernel.description} is sure to ±{100 * kept.spread:.2g} % "
                f"only, and ±{100 * NOISY:.2g} % is the least to go by. `rlflow costs record --again` times it once "
                f"more, and prices become the means of all their timings."
            )
        return kept

    def _reference_ms(self, runtime: OnnxRuntime) -> float:
        """Returns the price of the reference kernel, which is measured once for each setting."""
        known = self.prices.reference_ms
        return self.prices.keep_reference_ms(time_reference_kernel(runtime)) if known is None else known

    def _missing(self, kernel: Kernel) -> str:
        device = self.prices.setting.device
        return (
            f"{self.prices.place} has no price of {kernel.description}, and a replay measures nothing. Record it "
            f"where the others were: run the same command with --costs measured:{device} there, or `rlflow costs "
            f"record` with more --walks, and then `rlflow costs export`. A runtime of another version, or a processor "
            f"of another kind, may make other kernels of a model than were recorded ({self.prices.setting})."
        )


def price_key(kernel: Kernel, weights_mb: int) -> str:
    """Returns the signature under which a price list keeps a kernel's price."""
    return f"{weights_mb} {kernel.signature}"


def split_key(key: str) -> tuple[int, Kernel]:
    """Returns (megabytes of weights of its graph, kernel) of a signature: the inverse of `price_key`."""
    weights_mb, _, signature = key.partition(" ")
    return int(weights_mb), Kernel.of_signature(signature)
