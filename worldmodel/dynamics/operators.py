"""What a graph saves, as a sum over its operators together with those near them.

What rewrites make of a graph is known, so a dream that the engine follows knows the graph of each of its states, and
only what it costs has to be learned. A kernel's time depends on its operator and, where kernels are fused, on the
operators beside it. So each operator has a weight by itself, another one together with its neighbours, and a small one
together with theirs. Operators that no episode has met, or that none has changed, count by their FLOPs, bytes and
kernel launches, which have a weight each. What a graph saves is the sum of the weights. They are fitted by ridge
regression to the costs of the states that were visited, without training. Whichever way leads to a graph, it is worth
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, hstack
from scipy.sparse.linalg import lsqr

SCALES = (1.0, 1.0, 0.3)
"""Sizes of an operator's weights with what is 0, 1 and 2 operators away."""
DISTANCE = len(SCALES) - 1
PENALTY = 0.1
"""Of the square of a weight, in percent of the start graph's cost, beside the squared error of one state."""
FREE = 100.0
"""Size of the constant, so that it has hardly a penalty."""
STEPS = 300
"""Steps of the solver at most (Paige & Saunders 1982, "LSQR")."""


class OperatorWeights(NamedTuple):
    """What operators save in one start graph, in percent of its cost where z holds costs, else in units of rewards.

    Attributes:
      signatures: uint64 [K], of operators with those near them (`taso_ext.Graph.neighbourhood_signatures`), at
        distances from 0 to `DISTANCE`.
      weights: float32 [K], theirs, up to a constant of all graphs.
      per_total: float64 [3], the weights of a FLOP, a byte and a kernel launch (`taso_ext.Cost`).
    """

    signatures: np.ndarray
    weights: np.ndarray
    per_total: np.ndarray

    @classmethod
    def none(cls) -> OperatorWeights:
        """Returns the weights of a graph of which nothing was learned."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.float32), np.zeros(3))

    @property
    def known(self) -> bool:
        """Whether anything was learned."""
        return len(self.signatures) > 0


class Weighed(NamedTuple):
    """A graph of which it is known what it saves.

    Attributes:
      signatures: uint64 [N] for each distance, of its operators.
      totals: float64 [3], its FLOPs, bytes and kernel launches.
      saved: what it saves.
    """

    signatures: list[np.ndarray]
    totals: np.ndarray
    saved: float


def fitted(graphs: Sequence[Weighed]) -> OperatorWeights:
    """Returns the weights that explain what graphs save; the first of them is the start graph."""
    parts = [_counts([graph.signatures[distance] for graph in graphs]) for distance in range(len(SCALES))]
    names = np.concatenate([names for names, _ in parts])
    scales = np.repeat(SCALES, [len(names) for names, _ in parts])
    counts = [scale * counts for scale, (_, counts) in zip(SCALES, parts, strict=True)]
    totals = np.stack([graph.totals for graph in graphs])
    shares = np.maximum(totals[0], 1.0) / 100.0  # so that each is in percent of the start graph's
    features = hstack([*counts, csr_matrix(totals / shares), csr_matrix(np.full((len(graphs), 1), FREE))]).tocsr()
    saved = np.array([graph.saved for graph in graphs])
    found = lsqr(features, saved, damp=np.sqrt(PENALTY), iter_lim=STEPS)[0]
    of_operators, of_totals = found[: len(names)], found[len(names) : -1]
    return OperatorWeights(names, (scales * of_operators).astype(np.float32), of_totals / shares)


def _counts(graphs: Sequence[np.ndarray]) -> tuple[np.ndarray, csr_matrix]:
    """Returns the signatures [K] that not all graphs have alike, and how many operators of each graph have each."""
    names, columns = np.unique(np.concatenate(graphs), return_inverse=True)
    rows = np.repeat(np.arange(len(graphs)), [len(graph) for graph in graphs])
    counts = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(graphs), len(names)))  # it adds up repeats
    varies = np.flatnonzero(counts.max(axis=0).toarray()[0] != counts.min(axis=0).toarray()[0])
    return names[varies], counts[:, varies]
