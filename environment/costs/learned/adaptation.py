"""Predicted prices on this machine: a model of shipped prices, adapted by kernels that were timed here.

Between machines and runtimes, kernels of one family of operators become faster or slower by about one factor. At most
`REFERENCES` kernels that span the features are timed once on a new machine. Whatever else has been timed here counts
too. The factor of a family is the mean of what was found, as a logarithm, drawn towards the mean of all families, as a
normal prior does (James and Stein 1961). Then the model is fitted anew to the shipped prices, by these factors, and to
the prices of this machine. How wide intervals are is shipped too: finding it out takes four fits more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from environment.costs.learned.features import estimate, family_of, features
from environment.costs.learned.prior import Prior, Timed, shipped_prior
from environment.costs.learned.regressor import Model, Regressor, Rows, Trees, Values, left_out_errors
from environment.costs.learned.work import FAMILIES
from environment.costs.limits import NoisyClock
from environment.costs.measured.kernel_prices import KernelPrices, known_reference_ms
from environment.costs.prices.price_list import Price, PriceList
from environment.runtimes import OnnxRuntime

REFERENCES = 64
"""Most kernels that are timed on a new machine: 30 seconds."""
_LONGEST = 20.0
"""Kernels that take more than this multiple of the reference kernel's time are not chosen: they take long to time."""
_DRAWN = 4.0
"""A family's factor is drawn to that of all families as if this many timings had found the latter."""
_OWN_WEIGHT = 3.0
"""Weight of a price of this machine in the model, where a shipped one weighs 1."""
_KEPT_ERRORS = 1000
"""Most errors that a prior keeps of those that its intervals are calibrated by."""
_LEAST_RATIO = 1e-6
"""Least time of a kernel as a ratio to the reference kernel: some take less than the clock can tell."""


class Predictions:
    """Predicts the prices of kernels on this machine; the first prediction adapts the shipped prices to it.

    Args:
      prices: the price list of the runtime's setting, which keeps the timings of the kernels that adapt.
      runtime: the runtime that times them.
      clock: the warning of imprecise prices.
    """

    def __init__(self, prices: PriceList, runtime: OnnxRuntime, clock: NoisyClock | None = None) -> None:
        self._prices, self._runtime, self._clock = prices, runtime, clock

    def predict(self, keys: Sequence[str]) -> list[Price]:
        """See `Predictor.predict`.

        Raises:
          DatabaseError: the shipped prices cannot be read.
        """
        return self._predictor.predict(keys) if keys else []

    @cached_property
    def _predictor(self) -> Predictor:
        missing = missing_references(self._prices)
        known_reference_ms(self._prices, self._runtime)
        timed = KernelPrices(self._prices, self._runtime, self._clock)
        for key in missing:
            timed.of(key)
        return Predictor(self._prices)


class Predictor:
    """Predicts the prices of kernels in one setting.

    Args:
      prices: the price list of the setting; its prices as they are now are used, and later ones are not.
      prior: the prices of another machine, or of this one at another time.
    """

    def __init__(self, prices: PriceList, prior: Prior | None = None) -> None:
        self._prior = prior or shipped_prior()
        reference_ms = prices.reference_ms
        if reference_ms is None:
            raise ValueError("expected a price list whose reference kernel has been timed")
        self._reference_ms = reference_ms
        self._regressor = _adapted(self._prior, {key: price.ms / reference_ms for key, price in prices.items()})

    def predict(self, keys: Sequence[str]) -> list[Price]:
        """Returns the predicted prices of kernels, given as the signatures of their prices; `timings` is 0."""
        if not keys:
            return []
        rows = features(list(keys))
        value, half_width = self._regressor.predict(rows)
        ms = np.exp(value + estimate(rows)) * self._reference_ms
        return [Price(float(each), float(spread), 0) for each, spread in zip(ms, half_width, strict=True)]


def missing_references(prices: PriceList, prior: Prior | None = None) -> list[str]:
    """Returns the signatures of the kernels to time before prices are predicted.

    It is empty if the shipped prices are of this very setting.
    """
    prior = prior or shipped_prior()
    if prices.setting == prior.setting:
        return []
    return [key for key in references(prior) if prices.get(key) is None]


@cache
def references(prior: Prior, most: int = REFERENCES) -> tuple[str, ...]:
    """Returns the signatures of kernels that span the features of a prior, each the farthest from those before it."""
    quick = [each for each in prior.kernels if each.ratio <= _LONGEST]
    rows, first = _rows(quick)
    scaled = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-3)
    chosen = [int(np.argmin(((scaled - scaled.mean(axis=0)) ** 2).sum(axis=1)))]
    distance = np.full(len(first), np.inf)
    while len(chosen) < min(most, len(first)):
        distance = np.minimum(distance, ((scaled - scaled[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(distance.argmax()))
    return tuple(quick[place].key for place in chosen)


def _adapted(prior: Prior, own: dict[str, float]) -> Regressor:
    """Returns the model of a prior, adapted to the times of kernels here, given as ratios to the reference kernel."""
    errors = np.array(prior.errors)
    if not own:
        return Regressor(_unadapted(prior), errors)
    own_rows = features(list(own))
    own_values = np.log(np.maximum(list(own.values()), _LEAST_RATIO)) - estimate(own_rows)
    predicted, _ = _unadapted(prior).predict(own_rows)
    factors = family_factors(family_of(own_rows), own_values - predicted)
    rows, values = _rows([each for each in prior.kernels if each.key not in own])
    values = values + factors[family_of(rows)]
    model = Trees.fit(
        np.concatenate([rows, own_rows]),
        np.concatenate([values, own_values]),
        np.concatenate([np.ones(len(rows)), np.full(len(own), _OWN_WEIGHT)]),
    )
    return Regressor(model, errors)


def errors_of(kernels: Sequence[Timed]) -> tuple[float, ...]:
    """Returns the errors of a prior with such kernels, see `Prior`.

    Raises:
      ValueError: they are of one family of networks only.
    """
    rows, values = _rows(kernels)
    errors = left_out_errors(rows, values, [each.families for each in kernels], np.ones(len(rows)))
    ranks = np.linspace(0, len(errors) - 1, min(_KEPT_ERRORS, len(errors)))
    return tuple(errors[np.round(ranks).astype(int)].tolist())


def family_factors(families: npt.NDArray[np.intp], residuals: Values) -> Values:
    """Returns the logarithm of each family's factor [len(FAMILIES)].

    Args:
      families: the family of each timed kernel [n].
      residuals: logarithm of its time here over the predicted one [n].
    """
    count = np.bincount(families, minlength=len(FAMILIES))
    total = np.bincount(families, residuals, minlength=len(FAMILIES))
    overall = residuals.sum() / (len(residuals) + _DRAWN)
    factors: Values = (total + _DRAWN * overall) / (count + _DRAWN)
    return factors


@cache
def _unadapted(prior: Prior) -> Model:
    rows, values = _rows(prior.kernels)
    return Trees.fit(rows, values, np.ones(len(rows)))


def _rows(kernels: Sequence[Timed]) -> tuple[Rows, Values]:
    """Returns the features [n, f] of kernels, and the logarithms of their times over what the formula says [n]."""
    rows = features([each.key for each in kernels])
    return rows, np.log(np.maximum([each.ratio for each in kernels], _LEAST_RATIO)) - estimate(rows)
