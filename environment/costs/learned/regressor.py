"""Regression of kernels' times on their features, with intervals that hold for networks that were never seen.

A kind of model (`Trees`, `Boosting`, `Networks`) predicts by how much the formula of `features` is wrong, as a
logarithm, and says by how much its members disagree. The disagreement becomes an interval by conformal calibration
(Papadopoulos et al. 2002; Lei et al. 2018): each family of networks is predicted by a model that was fitted without it,
and the intervals are made as wide as these errors require. `rlflow reproduce learned` compares the kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]
"""Features [n, f]."""
Values = npt.NDArray[np.float64]
"""One number for each kernel [n]."""

LEVEL = 0.95
"""Probability of the intervals of prices."""
_FLOOR = 0.05
"""Deviation that is added to the disagreement of members: timings of one kernel differ by about so much."""
_FOLDS = 4
"""Number of parts into which families of networks are put to calibrate the intervals."""


class Model(Protocol):
    """A regression that has been fitted."""

    def predict(self, rows: Rows) -> tuple[Values, Values]:
        """Returns the predicted values [n], and the standard deviation of the members' predictions [n]."""


Fit = Callable[[Rows, Values, Values], Model]
"""Fits a model to features [n, f], values [n] and the weights of the kernels [n]."""


class Trees:
    """Extremely randomised trees (Geurts et al. 2006), kept as arrays, so that one kernel takes microseconds.

    Attributes:
      NUMBER: number of trees: with more the error falls no further.
    """

    NUMBER = 64

    def __init__(self, trees: Sequence[Any]) -> None:
        """Takes the fitted trees of scikit-learn."""
        sizes = [each.node_count for each in trees]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._roots = starts
        self._feature = np.concatenate([each.feature for each in trees])
        self._threshold = np.concatenate([each.threshold for each in trees])
        children = [
            np.stack([each.children_left, each.children_right], axis=1) + start
            for each, start in zip(trees, starts, strict=True)
        ]
        self._children = np.concatenate(children)
        self._value = np.concatenate([each.value[:, 0, 0] for each in trees])

    @classmethod
    def fit(cls, rows: Rows, values: Values, weights: Values) -> Trees:
        """Fits the trees; see `Fit`."""
        from sklearn.ensemble import ExtraTreesRegressor  # a second to import, and only predictions need it

        forest = ExtraTreesRegressor(cls.NUMBER, min_samples_leaf=1, max_features=0.5, random_state=0)
        forest.fit(rows, values, weights)
        return cls([each.tree_ for each in forest.estimators_])

    def predict(self, rows: Rows) -> tuple[Values, Values]:
        at = np.broadcast_to(self._roots, (len(rows), len(self._roots))).copy()
        numbers = np.arange(len(rows))[:, None]
        while (inner := self._feature[at] >= 0).any():
            right = rows[numbers, np.maximum(self._feature[at], 0)] > self._threshold[at]
            at = np.where(inner, self._children[at, right.astype(np.intp)], at)
        found = self._value[at]
        return found.mean(axis=1), found.std(axis=1)


class _Bag:
    """Several models, each fitted to a resample of the kernels."""

    def __init__(self, members: Sequence[Any], scale: Callable[[Rows], Rows] = lambda rows: rows) -> None:
        self._members, self._scale = members, scale

    def predict(self, rows: Rows) -> tuple[Values, Values]:
        found = np.array([each.predict(self._scale(rows)) for each in self._members])
        return found.mean(axis=0), found.std(axis=0)


_MEMBERS = 3


def _resamples(count: int) -> list[npt.NDArray[np.intp]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, count, count) for _ in range(_MEMBERS)]


def fit_boosting(rows: Rows, values: Values, weights: Values) -> Model:
    """Fits gradient-boosted trees (Friedman 2001) on histograms to the absolute error; see `Fit`."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    members = []
    for number, chosen in enumerate(_resamples(len(rows))):
        member = HistGradientBoostingRegressor(
            loss="absolute_error", max_iter=150, learning_rate=0.1, min_samples_leaf=8, random_state=number
        )
        members.append(member.fit(rows[chosen], values[chosen], weights[chosen]))
    return _Bag(members)


def fit_networks(rows: Rows, values: Values, weights: Values) -> Model:
    """Fits networks with two hidden layers; see `Fit`."""
    from sklearn.neural_network import MLPRegressor

    mean, deviation = rows.mean(axis=0), rows.std(axis=0) + 1e-3
    chance = weights / weights.sum()
    rng = np.random.default_rng(0)
    members = []
    for number in range(_MEMBERS):
        chosen = rng.choice(len(rows), len(rows), p=chance)
        member = MLPRegressor(
            hidden_layer_sizes=(64, 64), alpha=1e-3, max_iter=200, early_stopping=True, random_state=number
        )
        members.append(member.fit((rows[chosen] - mean) / deviation, values[chosen]))
    return _Bag(members, lambda rows: np.asarray((rows - mean) / deviation, np.float32))


KINDS: dict[str, Fit] = {"trees": Trees.fit, "boosting": fit_boosting, "networks": fit_networks}
"""The kinds of models that `rlflow reproduce learned` compares."""


@dataclass(frozen=True)
class Regressor:
    """A fitted model with calibrated intervals.

    Attributes:
      model: the model.
      errors: sorted errors [m] of kernels of left-out families, see `left_out_errors`.
    """

    model: Model
    errors: Values

    def predict(self, rows: Rows, level: float = LEVEL) -> tuple[Values, Values]:
        """Returns the predicted values [n], and half the widths of their intervals of probability `level` [n]."""
        value, deviation = self.model.predict(rows)
        return value, self.factor(level) * (deviation + _FLOOR)

    def factor(self, level: float) -> float:
        """Returns the half width of the interval of probability `level`, as a multiple of a stated deviation."""
        place = min(int(np.ceil(level * (len(self.errors) + 1))), len(self.errors)) - 1
        return float(self.errors[place])


def fit(
    rows: Rows,
    values: Values,
    groups: Sequence[frozenset[int]],
    *,
    weights: Values | None = None,
    kind: Fit = Trees.fit,
) -> Regressor:
    """Fits a model and calibrates its intervals.

    Args:
      rows, values: features [n, f] and values [n] of the kernels.
      groups: for each kernel the numbers of the families of networks that run it; those that no family runs are never
        left out.
      weights: how much each kernel counts [n]; None: all the same.
      kind: fits the model.
    """
    weights = np.ones(len(rows)) if weights is None else weights
    return Regressor(kind(rows, values, weights), left_out_errors(rows, values, groups, weights, kind))


def left_out_errors(
    rows: Rows, values: Values, groups: Sequence[frozenset[int]], weights: Values, kind: Fit = Trees.fit
) -> Values:
    """Returns the errors of each family's kernels, predicted by a model that was fitted without it; sorted.

    They are multiples of the deviation that was stated. For the arguments see `fit`.

    Raises:
      ValueError: there is only one family.
    """
    found = []
    for part in parts(groups, _FOLDS):
        out = np.array([bool(each & part) for each in groups])
        if out.any() and not out.all():
            value, deviation = kind(rows[~out], values[~out], weights[~out]).predict(rows[out])
            found.append(np.abs(values[out] - value) / (deviation + _FLOOR))
    if not found:
        raise ValueError("intervals cannot be calibrated: expected kernels of at least two families of networks")
    return np.sort(np.concatenate(found))


def parts(groups: Sequence[frozenset[int]], most: int) -> list[frozenset[int]]:
    """Returns families of networks in at most `most` parts of about equally many kernels."""
    counts = {family: sum(family in each for each in groups) for family in sorted(frozenset().union(*groups))}
    chosen: list[set[int]] = [set() for _ in range(min(most, len(counts)))]
    sizes = [0] * len(chosen)
    for family in sorted(counts, key=lambda each: -counts[each]):
        smallest = sizes.index(min(sizes))
        chosen[smallest].add(family)
        sizes[smallest] += counts[family]
    return [frozenset(each) for each in chosen]
