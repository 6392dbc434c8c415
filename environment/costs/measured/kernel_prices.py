"""Prices of kernels, which are measured once and kept in a database, or predicted until then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from environment.costs.limits import NoisyClock
from environment.costs.measured.benchmark import time_kernel, time_reference_kernel
from environment.costs.measured.kernel import Kernel
from environment.costs.prices.price_list import Price, PriceList, UnrecordedError
from environment.costs.resampling import Factors, single_spread
from environment.runtimes import OnnxRuntime
from taso_ext.errors import CrashError, UnpricedError

NOISY = 0.05
"""Half the width of an interval, as a fraction of its value, above which a warning is given: few rewrites gain more."""


class Predicts(Protocol):
    """A prediction of prices, such as `environment.costs.learned.adaptation.Predictor`."""

    def predict(self, keys: Sequence[str]) -> list[Price]:
        """Returns the predicted prices of kernels, given as the signatures of their prices; `timings` is 0."""


class KernelPrices:
    """Prices by kernel and by the size of the weights of its graph, which decides whether caches hold the weights.

    A predicted price stays as it is until the kernel is timed, and is never written to the database.

    Args:
      prices: the price list of the runtime's setting.
      runtime: the runtime that measures kernels; None measures nothing.
      clock: the warning of imprecise prices.
      predictor: predicts the prices of kernels that were not timed; None: they are timed, or are an error.
      factors: what each price is multiplied by, by its signature; 1 for all others.

    Attributes:
      timed: number of timings that this object has made.
    """

    def __init__(
        self,
        prices: PriceList,
        runtime: OnnxRuntime | None,
        clock: NoisyClock | None = None,
        predictor: Predicts | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self.prices, self._runtime, self._predictor, self._factors = prices, runtime, predictor, factors or {}
        self._clock = clock or NoisyClock(f"measured:{prices.setting.device}")
        self._predicted: dict[str, Price] = {}
        self.timed = 0

    @property
    def predicts(self) -> bool:
        """Whether the price of an unknown kernel is predicted."""
        return self._predictor is not None

    @property
    def keeps_operators(self) -> bool:
        """Whether new operator costs are kept in the database: a replay does not write to it."""
        return self._runtime is not None

    def price(self, kernel: Kernel, weights_mb: int, *, anew: bool = False) -> Price:
        """Returns the price of one run of a kernel.

        Args:
          weights_mb: size of the weights of the kernel's graph.
          anew: whether the kernel is timed even if it has a price; its price becomes the mean of all its timings.
        Raises:
          UnrecordedError: the kernel has no price, and nothing is measured or predicted.
          ModelError: the kernel cannot be run alone.
          UnpricedError: the runtime has crashed when it was to be timed.
        """
        key = price_key(kernel, weights_mb)
        if not anew and (found := self._at_hand(key)) is not None:
            return found
        if self._runtime is None:
            raise UnrecordedError(self._missing(kernel))
        with self.prices.turn():
            if not anew and (known := self.known(kernel, weights_mb)) is not None:  # another process measured it
                return known
            return self._timed(kernel, weights_mb, self._runtime)

    def of(self, key: str) -> Price:
        """Returns the price of one run of a kernel, given the signature of its price; see `price`."""
        found = self._at_hand(key)
        if found is None:
            weights_mb, kernel = split_key(key)
            found = self.price(kernel, weights_mb)
        return found

    def factors(self, key: str) -> Factors:
        """Returns the distribution of a single timing of a kernel, given the signature of its price."""
        price = self.of(key)
        timings = self.prices.timings(key) if price.timings > 1 else ()
        return Factors.of(timings, single_spread(price.spread, price.timings))

    def known(self, kernel: Kernel, weights_mb: int) -> Price | None:
        """Returns the recorded price of one run, or None."""
        return self.prices.get(price_key(kernel, weights_mb))

    def has(self, keys: Collection[str]) -> bool:
        """Returns whether all kernels, given as the signatures of their prices, have prices without new timings."""
        return self.predicts or all(self.prices.get(key) is not None for key in keys)

    def foresee(self, keys: Collection[str]) -> None:
        """Predicts the prices of several kernels at once, which takes less time than one after the other."""
        if self._predictor is not None:
            new = [key for key in dict.fromkeys(keys) if key not in self._predicted and self.prices.get(key) is None]
            self._predicted |= dict(zip(new, self._predictor.predict(new), strict=True))

    def _at_hand(self, key: str) -> Price | None:
        """Returns the predicted price if there is one, or else the recorded one; None if there is neither.

        A predicted price stays although another process may time the kernel, so that no graph changes its cost.
        """
        found = self._predicted.get(key) or self.prices.get(key)
        if found is None:
            self.foresee([key])
            found = self._predicted.get(key)
        if found is None or key not in self._factors:
            return found
        return replace(found, ms=self._factors[key] * found.ms)

    def _timed(self, kernel: Kernel, weights_mb: int, runtime: OnnxRuntime) -> Price:
        try:
            found = time_kernel(kernel, weights_mb, runtime, known_reference_ms(self.prices, runtime))
        except CrashError as error:
            raise UnpricedError(f"{kernel.description} cannot be timed: {error}") from error
        self.timed += 1
        self._predicted.pop(price_key(kernel, weights_mb), None)
        kept = self.prices.put(price_key(kernel, weights_mb), found)
        if kept.spread > NOISY:
            self._clock.warn(
                f"The clock was too noisy: the price of {kernel.description} is sure to ±{100 * kept.spread:.2g} % "
                f"only, and ±{100 * NOISY:.2g} % is the least to go by. `rlflow costs record --again` times it once "
                f"more, and prices become the means of all their timings."
            )
        return kept

    def _missing(self, kernel: Kernel) -> str:
        device = self.prices.setting.device
        return (
            f"{self.prices.place} has no price of {kernel.description}, and a replay measures nothing. Record it "
            f"where the others were: run the same command with --costs measured:{device} there, or `rlflow costs "
            f"record` with more --walks, and then `rlflow costs export`. A runtime of another version, or a processor "
            f"of another kind, may make other kernels of a model than were recorded ({self.prices.setting})."
        )


def known_reference_ms(prices: PriceList, runtime: OnnxRuntime) -> float:
    """Returns the price of the reference kernel, which is measured once for each setting."""
    known = prices.reference_ms
    return prices.keep_reference_ms(time_reference_kernel(runtime)) if known is None else known


def price_key(kernel: Kernel, weights_mb: int) -> str:
    """Returns the signature under which a price list keeps a kernel's price."""
    return f"{weights_mb} {kernel.signature}"


def split_key(key: str) -> tuple[int, Kernel]:
    """Returns (megabytes of weights of its graph, kernel) of a signature: the inverse of `price_key`."""
    weights_mb, _, signature = key.partition(" ")
    return int(weights_mb), Kernel.of_signature(signature)
