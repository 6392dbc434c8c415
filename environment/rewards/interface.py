"""What a reward is: a function of a transition, and how often it looks at the cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from environment.costs.interface import Cost
from taso_ext.errors import one_paragraph


class RewardError(ValueError):
    """A reward function returned no finite number, or failed."""


@dataclass(frozen=True)
class Transition:
    """What a reward may look at.

    Attributes:
      initial, before, after: costs of the start graph and of the graphs before and after the step. Where the cost model
        measures and the reward did not look, the cost last measured stands for that of the graph.
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
"""A pure function: where costs are noisy it is also asked what it would have been for costs a little different."""


@dataclass(frozen=True)
class Reward:
    """A reward function and how often it looks at the cost.

    Attributes:
      name: as errors call it.
      function: from a transition to a number; percent of the start graph's cost for all built-in ones.
      every: the cost is measured every this many steps and when the episode ends; None: only then.
      telescopes: whether it is a difference of costs, so that a loop of rewrites earns nothing.
    """

    name: str
    function: RewardFunction
    every: int | None = 1
    telescopes: bool = False

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise ValueError(f"the reward {self.name!r} must measure every 1 or more steps, got every={self.every}")

    @property
    def period(self) -> int:
        """N where the cost is measured every N > 1 steps, else 0."""
        return self.every if self.every is not None and self.every > 1 else 0

    def measures(self, step: int, done: bool) -> bool:
        """Whether the cost is looked at in this step."""
        return done or (self.every is not None and step % self.every == 0)

    def earned(self, transition: Transition, rule_name: str) -> float:
        """What a step earns.

        Args:
          rule_name: of the rewrite that was made, for errors.
        Raises:
          RewardError: the function failed, or what it returned is no finite number.
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
