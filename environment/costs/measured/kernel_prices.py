"""Prices of kernels: measured once, kept in a database."""

from __future__ import annotations

from environment.costs.limits import NoisyClock
from environment.costs.measured.benchmark import time_kernel, time_reference_kernel
from environment.costs.measured.kernel import Kernel
from environment.costs.prices.price_list import Price, PriceList, UnrecordedError
from environment.runtimes import OnnxRuntime

NOISY = 0.05
"""Half the width of an interval, as a part of its value, that is warned of: few rewrites change a graph by more."""


class KernelPrices:
    """What kernels cost, by how much their graphs read of weights: that decides where those are read from.

    Args:
      prices: of the runtime's setting.
      runtime: None to measure nothing.
      clock: what warns of prices that are not sure.
    """

    def __init__(self, prices: PriceList, runtime: OnnxRuntime | None, clock: NoisyClock | None = None) -> None:
        self.prices, self._runtime = prices, runtime
        self._clock = clock or NoisyClock(f"measured:{prices.setting.device}")

    @property
    def measures(self) -> bool:
        """Whether what is not known is measured, rather than an error."""
        return self._runtime is not None

    def price(self, kernel: Kernel, weights_mb: int, *, anew: bool = False) -> Price:
        """Of one run.

        Args:
          anew: measured even if it is known; its price becomes the mean of all its timings.
        Raises:
          UnrecordedError: it is not known, and nothing is measured.
          ModelError: it cannot be run alone.
        """
        if not anew and (known := self.known(kernel, weights_mb)) is not None:
            return known
        if self._runtime is None:
            raise UnrecordedError(self._missing(kernel))
        with self.prices.turn():
            if not anew and (known := self.known(kernel, weights_mb)) is not None:  # to another process, meanwhile
                return known
            return self._timed(kernel, weights_mb, self._runtime)

    def known(self, kernel: Kernel, weights_mb: int) -> Price | None:
        """Of one run, if it has been recorded."""
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
        """What the reference kernel costs: measured once for each setting."""
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
    """The signature of a kernel's price in a list."""
    return f"{weights_mb} {kernel.signature}"


def split_key(key: str) -> tuple[int, Kernel]:
    """Among how many megabytes of weights a recorded kernel ran, and which kernel it is."""
    weights_mb, _, signature = key.partition(" ")
    return int(weights_mb), Kernel.of_signature(signature)
