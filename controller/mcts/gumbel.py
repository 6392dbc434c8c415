"""The mathematics of Gumbel AlphaZero, for the K legal actions of one state.

    n(a)  simulations through an action           π  prior policy
    q(a)  mean value of these simulations         v  the network's value of the state
    g(a)  Gumbel noise of the root                σ  a monotone map from values to logits

Source: Danihelka et al. 2022, "Policy improvement by planning with Gumbel".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np


def sweeps(simulations: int, considered: int) -> Iterator[int]:
    """Yields the number of actions that each sweep of sequential halving simulates once.

    The simulations are shared among ⌈log₂ m⌉ phases. The first phase considers m actions, and each later one the better
    half of those of the phase before, down to 2. Every action of a phase is simulated equally often, at least once. If
    that leaves simulations over, the last phase goes on; if they run out, the last sweep is shorter.

    Args:
      simulations: n ≥ 1.
      considered: m ≥ 1.
    Source: Karnin et al. 2013; Danihelka et al. 2022, figure 1 and section 3.3.
    """
    phases = max(1, math.ceil(math.log2(considered)))
    left, width = simulations, considered
    while left:
        for _ in range(max(1, simulations // (phases * width))):
            yield min(width, left)
            left -= min(width, left)
            if not left:
                return
        width = max(min(2, considered), width // 2)


def mixed_value(value: float, log_prior: np.ndarray, q: np.ndarray, visits: np.ndarray) -> float:
    """Returns v_mix: the network's value, mixed with the values of the visited actions, weighted by the prior.

    Source: equation 33.
    """
    total = visits.sum()
    if not total:
        return value
    visited = visits > 0
    weights = np.exp(log_prior[visited] - log_prior[visited].max())
    return float((value + total * (weights @ q[visited]) / weights.sum()) / (1 + total))


def completed_q(value: float, log_prior: np.ndarray, q: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """Returns the values of all actions [K]; those that were not visited have `mixed_value` (equation 10)."""
    return np.where(visits > 0, q, mixed_value(value, log_prior, q, visits))


def improved_logits(
    value: float, log_prior: np.ndarray, q: np.ndarray, visits: np.ndarray, *, c_visit: float, c_scale: float
) -> np.ndarray:
    """Returns log π + σ(completed q) [K], the logits of a policy that is at least as good as π (equations 8 and 11).

    Args:
      value, q: in the unit in which differences of 1 are large.
    """
    scale = (c_visit + visits.max()) * c_scale
    return log_prior + scale * completed_q(value, log_prior, q, visits)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities of logits [K]."""
    weights = np.exp(logits - logits.max())
    result: np.ndarray = weights / weights.sum()
    return result


def inner_choice(improved: np.ndarray, visits: np.ndarray) -> int:
    """Returns the action below the root whose share of the visits is farthest below its improved logits' probability.

    Source: equation 14.
    """
    return int((softmax(improved) - visits / (1 + visits.sum())).argmax())
