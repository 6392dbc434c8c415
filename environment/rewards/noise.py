"""How sure a reward is, from how sure the costs are that it was computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from environment.costs.interface import MeasuredCost, Priced
from environment.rewards.interface import Reward, Transition

_MOST = 0.99
"""No run time is moved to 0 or below."""
_ROUNDING = 1e-12
"""Of the greatest variance; smaller ones are what rounding leaves of none."""


def reward_noise(reward: Reward, transition: Transition, prices: Mapping[str, Priced], rule_name: str) -> float:
    """Half the width of the 95 % interval of a reward, in its own unit.

    Costs that rest on the same measurements are wrong together: a kernel that two graphs run equally often hardly blurs
    their difference. So all costs are moved together, wherever they stand in the transition, to both ends of each
    principal axis of their joint error, and the changes of the reward are added as those of independent errors are.
    Exactly 0 for costs without noise.

    Args:
      prices: what costs of the transition were taken from, by its attributes `initial`, `before`, `after` and
        `last_measured`; those left out have no noise.
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
    """[axes, prices]: independent errors that together make those of all costs, each as a part of the cost."""
    if not prices:
        return np.zeros((0, 0))
    variances, axes = np.linalg.eigh([[_covariance(one, other) for other in prices] for one in prices])
    real = variances > _ROUNDING * variances.max()
    found: npt.NDArray[np.float64] = (axes[:, real] * np.sqrt(variances[real])).T
    return found * np.minimum(1.0, _MOST / np.abs(found).max(axis=1, keepdims=True))


def _covariance(one: Priced, other: Priced) -> float:
    """Of two costs' errors, as parts of the costs, in half widths of 95 % intervals."""
    common = sum(error_ms * other.errors.get(name, 0.0) for name, error_ms in one.errors.items())
    return common / (one.cost.ms * other.cost.ms)
