"""The interface of rewards: a function of a transition, how often it needs the cost, and the noise of its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import numpy.typing as npt

from environment.costs.interface import Cost, MeasuredCost, Priced
from taso_ext.errors import one_paragraph


class RewardError(ValueError):
    """A reward function returned no finite number, or failed."""


@dataclass(frozen=True)
class Transition:
    """The values from which a reward is computed.

    Attributes:
      initial, before, after: costs of the start graph and of the graphs before and after the step. If the cost model
        measures and the reward did not need the cost, the last measured cost stands for that of the graph.
      last_measured: cost at the last step that the reward measured (the start graph's at first).
      step: 1 for the first step of an episode.
      done: whether the episode ends with this step, by termination or truncation.
    """

    initial: Cost
    before: Cost
    after: Cost
    last_measured: Cost
    step: int
    done: bool


RewardFunction = Callable[[Transition], float]
"""A pure function: for noisy costs it is also called with costs that differ a little."""


@dataclass(frozen=True)
class Reward:
    """A reward function and how often it needs the cost.

    Attributes:
      name: name in errors.
      function: maps a transition to a number, which is in percent of the start graph's cost for all built-in rewards.
      every: number of steps after which the cost is measured; it is also measured when the episode ends. None measures
        only at the end.
      telescopes: whether the reward is a difference of costs, so that a loop of rewrites gains nothing.
      is_log_ratio: whether the reward is 100 · ln(run time before / after) at every step.
    """

    name: str
    function: RewardFunction
    every: int | None = 1
    telescopes: bool = False
    is_log_ratio: bool = False

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise ValueError(f"the reward {self.name!r} must measure every 1 or more steps, got every={self.every}")

    @property
    def period(self) -> int:
        """N if the cost is measured every N > 1 steps, else 0."""
        return self.every if self.every is not None and self.every > 1 else 0

    def measures(self, step: int, done: bool) -> bool:
        """Returns whether the cost is measured in this step."""
        return done or (self.every is not None and step % self.every == 0)

    def earned(self, transition: Transition, rule_name: str) -> float:
        """Returns the reward of a step.

        Args:
          rule_name: rule of the rewrite, for errors.
        Raises:
          RewardError: the function failed or did not return a finite number.
        """
        try:
            value = self.function(transition)
        except Exception as error:  # a user's own function may raise anything
            raise self._error(
                f"raised {type(error).__name__}: {one_paragraph(error)}", transition, rule_name
            ) from error
        if not isinstance(value, Real) or not _is_finite(value):
            kind = "" if isinstance(value, Real) else f" ({type(value).__name__})"
            raise self._error(f"returned {one_paragraph(repr(value), 80)}{kind}", transition, rule_name)
        return float(value)

    def _error(self, what: str, t: Transition, rule_name: str) -> RewardError:
        return RewardError(
            f"the reward {self.name!r} {what} at step {t.step} (rule {rule_name!r}; costs: start {t.initial.ms:.6g} ms,"
            f" before {t.before.ms:.6g} ms, after {t.after.ms:.6g} ms, last measured {t.last_measured.ms:.6g} ms). "
            "Expected a finite number for every transition: correct the function, or choose another reward."
        )


def _is_finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond float64
        return False


_MOST = 0.99
"""Largest fraction by which a run time is moved, so that it stays positive."""
_ROUNDING = 1e-12
"""Variances below this fraction of the largest are rounding errors of zero."""


def reward_noise(reward: Reward, transition: Transition, prices: Mapping[str, Priced], rule_name: str) -> float:
    """Returns half the width of the 95 % interval of a reward, in the reward's unit; exactly 0 for exact costs.

    Costs that rest on the same measurements share their errors: a kernel that two graphs run equally often hardly blurs
    their difference. All costs of the transition are therefore moved together, to both ends of each principal axis of
    their joint error. The resulting changes of the reward are added as independent errors.

    Args:
      prices: prices of the transition's costs by attribute name (`initial`, `before`, `after`, `last_measured`); costs
        that are left out have no noise.
    Raises:
      RewardError: see `Reward.earned`.
    """
    unsure = list({id(each): each for each in prices.values() if each.noise > 0}.values())
    places = [[name for name, each in prices.items() if each is priced] for priced in unsure]

    def earned(moves: npt.NDArray[np.float64]) -> float:
        fields: dict[str, MeasuredCost] = {}
        for priced, names, move in zip(unsure, places, moves.tolist(), strict=True):
            fields |= dict.fromkeys(names, MeasuredCost.timed(priced.cost.ms * (1 + move), priced.cost))
        return reward.earned(replace(transition, **fields), rule_name)  # type: ignore[arg-type]  # only its costs are

    return math.hypot(*((earned(axis) - earned(-axis)) / 2 for axis in _principal_axes(unsure)))


def _principal_axes(prices: Sequence[Priced]) -> npt.NDArray[np.float64]:
    """Returns independent errors [axes, prices] that add up to those of all costs, as fractions of the costs."""
    if not prices:
        return np.zeros((0, 0))
    variances, axes = np.linalg.eigh([[_covariance(one, other) for other in prices] for one in prices])
    real = variances > _ROUNDING * variances.max()
    found: npt.NDArray[np.float64] = (axes[:, real] * np.sqrt(variances[real])).T
    return found * np.minimum(1.0, _MOST / np.abs(found).max(axis=1, keepdims=True))


def _covariance(one: Priced, other: Priced) -> float:
    """Returns the covariance of two costs' errors, as fractions of the costs, in half widths of 95 % intervals."""
    common = sum(error_ms * other.errors.get(name, 0.0) for name, error_ms in one.errors.items())
    return common / (one.cost.ms * other.cost.ms)
