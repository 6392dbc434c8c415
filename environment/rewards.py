"""Named reward functions. RT and M are 100 x/x0: runtime and memory traffic in percent of the start graph's."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable

from taso_ext import Cost


@dataclasses.dataclass(frozen=True)
class Transition:
    """What a reward may look at.

    Attributes:
      initial, before, after: costs of the start graph and of the graphs before and after the step.
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


@dataclasses.dataclass(frozen=True)
class Reward:
    """A reward function and how often it looks at the cost.

    Attributes:
      function: from a transition to a number; percent for all built-in ones.
      every: the cost is measured every this many steps and when the episode ends.
    """

    name: str
    function: Callable[[Transition], float]
    every: int = 1

    def measures(self, step: int, done: bool) -> bool:
        return done or step % self.every == 0


def runtime_percent(cost: Cost, initial: Cost) -> float:
    return 100.0 * cost.ms / initial.ms if initial.ms > 0 else 100.0


def memory_percent(cost: Cost, initial: Cost) -> float:
    return 100.0 * cost.memory_bytes / initial.memory_bytes if initial.memory_bytes > 0 else 100.0


def incremental(t: Transition) -> float:
    """RT before minus RT after."""
    return runtime_percent(t.before, t.initial) - runtime_percent(t.after, t.initial)


def combined(alpha: float, beta: float) -> Callable[[Transition], float]:
    """Weighted saving of runtime and memory traffic; the published weights are 0.8 and 0.2."""

    def function(t: Transition) -> float:
        memory = memory_percent(t.before, t.initial) - memory_percent(t.after, t.initial)
        return alpha * incremental(t) + beta * memory

    return function


def new_runtime(t: Transition) -> float:
    return -runtime_percent(t.after, t.initial)


def final(t: Transition) -> float:
    """The whole saving when the episode ends, nothing before."""
    return 100.0 - runtime_percent(t.after, t.initial) if t.done else 0.0


def percent_every(every: int) -> Callable[[Transition], float]:
    """The saving since the last measurement every `every` steps, a small constant between (X-RLflow)."""

    def function(t: Transition) -> float:
        if not t.done and t.step % every:
            return 0.1
        return runtime_percent(t.last_measured, t.initial) - runtime_percent(t.after, t.initial)

    return function


def log_ratio(t: Transition) -> float:
    """100 ln(before / after): adds up over an episode to 100 ln(start / end), whatever the path."""
    return 100.0 * math.log(t.before.ms / t.after.ms) if t.before.ms > 0 and t.after.ms > 0 else 0.0


_REWARDS: dict[str, Reward] = {
    reward.name: reward
    for reward in (
        Reward("log_ratio", log_ratio),
        Reward("incremental", incremental),
        Reward("combined", combined(0.8, 0.2)),
        Reward("new_runtime", new_runtime),
        Reward("final", final),
        Reward("percent", percent_every(5), every=5),
    )
}


def names() -> list[str]:
    return list(_REWARDS)


def register(reward: Reward) -> None:
    """Makes a reward available by its name. Raises ValueError when the name is taken."""
    if reward.name in _REWARDS:
        raise ValueError(f"there already is a reward named {reward.name!r}; choose another name")
    _REWARDS[reward.name] = reward


def find(reward: str | Reward) -> Reward:
    """The reward of a name.

    Raises:
      ValueError: for an unknown name; suggests the nearest one.
    """
    if isinstance(reward, Reward):
        return reward
    if reward in _REWARDS:
        return _REWARDS[reward]
    near = difflib.get_close_matches(reward, _REWARDS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(f"no reward is called {reward!r}{hint} Choose one of {', '.join(_REWARDS)}.")
