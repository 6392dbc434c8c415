"""The built-in rewards.

RT and M are the run time and the memory traffic in percent of the start graph's: 100 x/x0.
"""

from __future__ import annotations

import math

from environment.costs.interface import Cost, counted_ms
from environment.rewards.interface import Reward, Transition


def runtime_percent(cost: Cost, initial: Cost) -> float:
    """Returns RT, the run time in percent of the start graph's."""
    return 100.0 * cost.ms / initial.ms if initial.ms > 0 else 100.0


def memory_percent(cost: Cost, initial: Cost) -> float:
    """Returns M, the memory traffic in percent of the start graph's."""
    return 100.0 * cost.memory_bytes / initial.memory_bytes if initial.memory_bytes > 0 else 100.0


def _saving(t: Transition) -> float:
    return runtime_percent(t.before, t.initial) - runtime_percent(t.after, t.initial)


def log_ratio() -> Reward:
    """Returns the reward 100 ln(RT before / RT after); its sum over an episode is 100 ln(start / end) on every path."""

    def function(t: Transition) -> float:
        initial = t.initial.ms
        return 100.0 * math.log(counted_ms(t.before.ms, initial) / counted_ms(t.after.ms, initial)) if initial else 0.0

    return Reward("log_ratio", function, telescopes=True, is_log_ratio=True)


def incremental() -> Reward:
    """Returns the reward (RT before - RT after)."""
    return Reward("incremental", _saving, telescopes=True)


def combined(alpha: float = 0.8, beta: float = 0.2) -> Reward:
    """Returns the reward alpha (RT before - RT after) + beta (M before - M after).

    Source: RLFlow, R1 (0.8 and 0.2; its R3 and R4 are 0.1 and 0.9, 0.5 and 0.5).
    """

    def function(t: Transition) -> float:
        memory = memory_percent(t.before, t.initial) - memory_percent(t.after, t.initial)
        return alpha * _saving(t) + beta * memory

    return Reward("combined", function, telescopes=True)


def new_runtime() -> Reward:
    """Returns the reward -RT after."""
    return Reward("new_runtime", lambda t: -runtime_percent(t.after, t.initial))


def final() -> Reward:
    """Returns the reward that is the whole saving at the end of the episode, and 0 before; only the end is measured."""

    def function(t: Transition) -> float:
        return 100.0 - runtime_percent(t.after, t.initial) if t.done else 0.0

    return Reward("final", function, every=None)


def percent(every: int = 5, bonus: float = 0.1) -> Reward:
    """Returns the reward (RT last measured - RT after) every `every` steps and at the end, and `bonus` in between.

    Source: X-RLflow, with N = 5 and 0.1.
    """
    if every < 1:
        raise ValueError(f"'every' is a number of steps, at least 1, got {every}")

    def function(t: Transition) -> float:
        if not t.done and t.step % every:
            return bonus
        return runtime_percent(t.last_measured, t.initial) - runtime_percent(t.after, t.initial)

    return Reward("percent", function, every, telescopes=every == 1)
