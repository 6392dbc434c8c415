"""How sure a reward is, from how sure the costs are that it was computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from environment.costs.interface import MeasuredCost, Priced
from environment.rewards.interface import Reward, Transition

_MOST = 0.99
"""No run time is moved to 0 or below."""


def reward_noise(reward: Reward, transition: Transition, prices: Mapping[str, Priced], rule_name: str) -> float:
    """Half the width of the 95 % interval of a reward, in its own unit.

    Each measurement is moved to both ends of its interval, wherever in the transition it stands, and the changes of the
    reward are added as those of independent errors are: a graph that was priced once and stands there twice cancels.
    The start graph has no error, as run times are ratios to its own. Exactly 0 for costs without noise.

    Args:
      prices: what `before`, `after` and `last_measured` of the transition were taken from.
    Raises:
      RewardError: see `Reward.earned`.
    """
    variance = 0.0
    for priced in {id(each): each for each in prices.values() if each.noise > 0}.values():
        ends = []
        for sign in (1, -1):
            moved = MeasuredCost.timed(priced.cost.ms * (1 + sign * min(priced.noise, _MOST)), priced.cost)
            fields = {name: moved for name, each in prices.items() if each is priced}
            changed = replace(transition, **fields)  # type: ignore[arg-type]  # only its costs are
            ends.append(reward.earned(changed, rule_name))
        variance += ((ends[0] - ends[1]) / 2) ** 2
    return math.sqrt(variance)
