"""Which episodes teach at every step of training, and how often each of them counts; functions of the seed alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def bootstrap_counts(members: int, scene: int, rows: np.ndarray, seed: int) -> np.ndarray:
    """How often episodes `rows` of a scene count for each member: float32 [n, members].

    One member sees all of them once. Of several, each has drawn its own with replacement: Poisson(1) of each.
    """
    if members == 1:
        return np.ones((len(rows), 1), np.float32)
    drawn = [np.random.default_rng([seed, scene, int(row)]).poisson(1.0, members) for row in rows]
    return np.array(drawn, np.float32)


class Schedule:
    """Which episodes every step is taught by: shuffled passes over all, each pass a function of (seed, pass).

    Args:
      sizes: episodes of every scene.
      batch: episodes of a step, fewer where a scene has fewer; what is left of a scene is filled up from its beginning.
      seed: of the order.
    """

    def __init__(self, sizes: Sequence[int], batch: int, seed: int) -> None:
        self._sizes, self._batch, self._seed = list(sizes), batch, seed
        self._steps_of_pass = sum(math.ceil(size / batch) for size in self._sizes)
        self._passes: dict[int, list[tuple[int, np.ndarray]]] = {}

    def batch(self, step: int) -> tuple[int, np.ndarray]:
        """(scene, rows) of a step."""
        number, place = divmod(step, self._steps_of_pass)
        if number not in self._passes:
            self._passes = {number: self._shuffled(number)}
        return self._passes[number][place]

    def _shuffled(self, number: int) -> list[tuple[int, np.ndarray]]:
        rng = np.random.default_rng([self._seed, number])
        batches = []
        for scene, size in enumerate(self._sizes):
            order, width = rng.permutation(size), min(self._batch, size)
            for begin in range(0, size, self._batch):
                batches.append((scene, order[np.arange(begin, begin + width) % size]))
        return [batches[i] for i in rng.permutation(len(batches))]
