"""Which graphs to time when few can be. Numbers alone."""

from __future__ import annotations

import numpy as np

from environment.costs.corrected.posterior import Values


def expected_best(possible: Values, most: int, known: float = 0.0) -> list[int]:
    """Returns the batch of graphs whose best one is expected to gain most, one after the other, the best one first.

    A graph counts only if it may be better where the others of the batch are not. This takes a gain, disagreement about
    its price, and distance from the others: equal graphs err together. The batch ends when nothing more is expected.

    Args:
      possible: joint draws of the times of graphs, as fractions of the start graph's [g, draws].
      most: size of the batch.
      known: the largest gain that is already known, as a fraction.
    """
    gain = np.maximum(1 - possible, 0)
    best = np.full(possible.shape[1], max(known, 0.0))
    chosen: list[int] = []
    while len(chosen) < min(most, len(gain)):
        added = np.maximum(gain - best, 0).mean(axis=1)
        if not added.max():
            break
        chosen.append(int(added.argmax()))
        best = np.maximum(best, gain[chosen[-1]])
    return chosen
