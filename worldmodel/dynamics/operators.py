"""What a graph saves, as a sum over its operators together with those near them.

What rewrites make of a graph is known, so a dream that the engine follows knows the graph of each of its states, and
only what it costs has to be learned. A kernel's time depends on its operator and, where kernels are fused, on the
operators beside it. So each operator has a weight together with its neighbours, and small ones by itself and together
with theirs. Operators that no episode has met, or that none has changed, count by their FLOPs, bytes and kernel
launches, which have a weight each. What a graph saves is the sum of the weights. They are fitted by ridge regression to
the costs of the states that were visited, without training. Whichever way leads to a graph, it is worth the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, hstack
from scipy.sparse.linalg import lsqr

SCALES = (0.3, 1.0, 0.3)
"""Sizes of an operator's weights with what is 0, 1 and 2 operators away."""
DISTANCE = len(SCALES) - 1
PENALTY = 0.1
"""Of the square of a weight, in percent of the start graph's cost, beside the squared error of one state."""
STEPS = 600
"""Steps of the solver at most (Paige & Saunders 1982, "LSQR"); with half of them, it is not there yet."""


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
    parts = [_changes([graph.signatures[distance] for graph in graphs]) for distance in range(len(SCALES))]
    names = np.concatenate([names for names, _ in parts])
    scales = np.repeat(SCALES, [len(names) for names, _ in parts])
    changes = [scale * changes for scale, (_, changes) in zip(SCALES, parts, strict=True)]
    totals = np.stack([graph.totals for graph in graphs])
    shares = np.maximum(totals[0], 1.0) / 100.0  # so that each is in percent of the start graph's
    features = hstack([*changes, csr_matrix((totals - totals[0]) / shares)]).tocsr()
    saved = np.array([graph.saved for graph in graphs])
    found = lsqr(features, saved - saved[0], damp=np.sqrt(PENALTY), iter_lim=STEPS)[0]
    of_operators, of_totals = np.split(found, [len(names)])
    return OperatorWeights(names, (scales * of_operators).astype(np.float32), of_totals / shares)


def _changes(graphs: Sequence[np.ndarray]) -> tuple[np.ndarray, csr_matrix]:
    """Returns the signatures [K] that not all graphs have alike, and how many more of each they have than the first."""
    names, columns = np.unique(np.concatenate(graphs), return_inverse=True)
    rows = np.repeat(np.arange(len(graphs)), [len(graph) for graph in graphs])
    counts = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(graphs), len(names)))  # it adds up repeats
    changes = counts - csr_matrix(np.ones((len(graphs), 1))) @ counts[0]
    changes.eliminate_zeros()
    varies = np.unique(changes.indices)
    return names[varies], changes[:, varies]
