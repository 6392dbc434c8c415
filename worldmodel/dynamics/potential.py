"""A potential: what a graph saves, as a sum over the rewrites that are legal and past in it.

A network that predicts the reward of every step adds up its mistakes, and whoever acts in a dream goes where they are
in its favour. What a state saves is no such sum: it is one number, and a mistake in it counts once. It is fitted to the
costs of the states that were visited, without training, and linear in the bits of the state (`data.past` says which
there are). Where a policy was lured to, it is right as soon as it has been there.

The weight of a bit is that of its rule plus a part of its own, which ridge regression holds small: what was never seen
at a site is taken from the other sites of its rule.
"""

from __future__ import annotations

import numpy as np

from worldmodel.data.actions import ActionTable
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer

MOST_STATES = 10_000
"""States that are fitted; of more, as many are taken evenly."""
PENALTY = 0.3
"""Of the square of a rule's weight, in percent of the start graph's cost, beside the squared error of one state."""
OWN = 0.3
"""Size of a bit's own part beside the weight of its rule."""
KINDS_OF_BITS = 2
"""Legal and past."""


def fitted(part: EpisodeBuffer, table: ActionTable) -> tuple[np.ndarray, np.ndarray]:
    """Returns by how much each bit changes what a graph saves, in percent of the cost of the start graph.

    Args:
      part: episodes of one start graph; their rewards are differences of costs.
      table: its A actions.
    Returns:
      Of actions: float32 [A + 1, 2], for the bits "legal" and "past"; 0 for everywhere-actions and NO-OP. Of rules:
      float32 [R + 1, 2], without the parts of sites; 0 for rules that have no action.
    """
    of_actions = np.zeros((table.num_actions + 1, KINDS_OF_BITS), np.float32)
    of_rules = np.zeros((table.num_rules + 1, KINDS_OF_BITS), np.float32)
    single = np.flatnonzero(~table.is_everywhere[:-1])
    rules, group = np.unique(table.rules[single], return_inverse=True)
    bits, saved = _states(part, table, single)
    columns = np.arange(KINDS_OF_BITS * len(single))
    of_rule = np.zeros((len(columns), KINDS_OF_BITS * len(rules)), np.float32)
    of_rule[columns, np.concatenate([group + kind * len(rules) for kind in range(KINDS_OF_BITS)])] = 1.0
    together, own = np.split(_ridge(np.concatenate([bits @ of_rule, OWN * bits], axis=1), saved), [of_rule.shape[1]])
    of_actions[single] = (of_rule @ together + OWN * own).reshape(KINDS_OF_BITS, -1).T
    of_rules[rules] = together.reshape(KINDS_OF_BITS, -1).T
    return of_actions, of_rules


def _states(part: EpisodeBuffer, table: ActionTable, single: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct states of episodes: their bits float32 [n, 2 · actions], and what they save [n]."""
    data, states = EpisodeData(part, table), []
    for row, episode in enumerate(part):
        whole = data.trajectory([row])
        bits = np.concatenate([each[:, 0, single] for each in (whole.legal, whole.past)], axis=1)
        saved = 100.0 * (1.0 - episode.seen_ms / episode.seen_ms[0])
        states.append((np.packbits(bits, axis=1), saved[: len(bits)]))
    packed, saved = (np.concatenate(column) for column in zip(*states, strict=True))
    _, first = np.unique(packed, axis=0, return_index=True)
    kept = np.sort(first)[:: 1 + len(first) // MOST_STATES]
    bits = np.unpackbits(packed[kept], axis=1, count=KINDS_OF_BITS * len(single))
    return bits.astype(np.float32), saved[kept]


def _ridge(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns the weights [p] of features [n, p] for targets [n], beside a constant that has no penalty."""
    features = features - features.mean(axis=0)
    targets = targets - targets.mean()
    fewer = features.T if features.shape[0] > features.shape[1] else features
    gram = (fewer @ fewer.T).astype(float) + PENALTY * np.eye(len(fewer))
    weights: np.ndarray = (
        np.linalg.solve(gram, fewer @ targets) if fewer is not features else features.T @ np.linalg.solve(gram, targets)
    )
    return weights
