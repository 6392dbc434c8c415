"""Linear probes: frozen linear heads that show what can be read from a latent.

They are fitted on real latents of training data and then applied to predicted ones. If a probe reads as much from a
predicted latent, the prediction has kept what matters of the graph, whatever its distance in latent space is. The sums
of least squares are added up batch by batch, which scikit-learn's `Ridge` cannot do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from environment.costs.interface import counted_ms
from worldmodel.accuracy import metrics
from worldmodel.data.episodes import EpisodeBuffer

if TYPE_CHECKING:  # plots of components must not import TensorFlow
    from worldmodel.world_model import WorldModel


@dataclass(frozen=True, eq=False)
class Components:
    """The first principal components of rows, the best linear code of their width in least squares.

    scikit-learn's `PCA` needs all rows at once and its `IncrementalPCA` is approximate. These lines are exact and save
    a dependency of 30 MB.

    Attributes:
      mean: float64 [D].
      axes: float64 [width, D], orthonormal; fewer if D is smaller than the width.
      explained: float64 [width], the components' shares of the variance.
    """

    mean: np.ndarray
    axes: np.ndarray
    explained: np.ndarray

    @classmethod
    def fit(cls, batches: Iterable[np.ndarray], width: int) -> Components:
        """Fits the components to all rows [n, D] of all batches, numbers or bits; only sums over them are kept.

        Raises:
          ValueError: if there is no row.
        """
        count, total, products = 0, None, None
        for batch in batches:
            rows = np.asarray(batch, np.float32 if batch.dtype == bool else float)  # counts of bits are exact in both
            count += len(rows)
            sums, product = rows.sum(axis=0, dtype=float), rows.T @ rows
            total = sums if total is None else total + sums
            products = product.astype(float) if products is None else products + product
        if total is None or products is None or not count:
            raise ValueError("principal components need at least one row; collect training episodes")
        mean = total / count
        variances, axes = np.linalg.eigh(products / count - np.outer(mean, mean))
        variances = np.maximum(variances[::-1], 0.0)
        return cls(mean, axes.T[::-1][:width], variances[:width] / max(variances.sum(), np.finfo(float).tiny))

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Returns rows [..., D] as points [..., width]."""
        points: np.ndarray = (rows - self.mean) @ self.axes.T
        return points

    def restored(self, rows: np.ndarray) -> np.ndarray:
        """Returns what the components keep of rows [..., D], in the same shape."""
        kept: np.ndarray = self.project(rows) @ self.axes + self.mean
        return kept


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """A linear head: targets ≈ [z, 1] · weights, with weights float64 [Z + 1, D]."""

    weights: np.ndarray

    @classmethod
    def fit(cls, batches: Iterable[tuple[np.ndarray, np.ndarray]], *, ridge: float = 1e-5) -> LinearProbe:
        """Fits the weights by least squares over all rows of all batches.

        Args:
          batches: (z [n, Z], targets [n, D]), any number of rows each; only sums over them are kept.
          ridge: penalty on squared weights, in units of the latents' mean square per row; the constant has none.
        Raises:
          ValueError: if there is no row.
        """
        products = responses = None
        rows = 0
        for z, targets in batches:
            inputs = _with_constant(z)
            gram, response = inputs.T @ inputs, inputs.T @ np.asarray(targets, float)
            products = gram if products is None else products + gram
            responses = response if responses is None else responses + response
            rows += len(z)
        if products is None or responses is None or not rows:
            raise ValueError("a probe needs at least one latent to be fitted on; collect training episodes")
        penalty = ridge * np.trace(products[:-1, :-1]) / max(len(products) - 1, 1)
        regularised = products + penalty * np.diag(np.append(np.ones(len(products) - 1), 0.0))
        return cls(np.linalg.lstsq(regularised, responses, rcond=None)[0])

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Reads latents: [n, Z] to [n, D]."""
        read: np.ndarray = _with_constant(z) @ self.weights
        return read


def _with_constant(z: np.ndarray) -> np.ndarray:
    return np.pad(np.asarray(z, float), [(0, 0), (0, 1)], constant_values=1.0)


@dataclass(frozen=True)
class Probes:
    """The frozen heads of one world model.

    Attributes:
      cost: reads 100 · ln(cost / cost of the start graph): percent.
      bits: reads each bit of the action table as ±1; a bit is set if the reading is positive.
      components: the principal components of the bits, as many as a latent has numbers.
      rules: int [A], the rule of each bit.
    """

    cost: LinearProbe
    bits: LinearProbe
    components: Components
    rules: np.ndarray

    @classmethod
    def of(cls, world_model: WorldModel, training: EpisodeBuffer) -> Probes:
        """Returns probes fitted on all states of training episodes, weighted by how often they are visited."""
        latents = [_latents(world_model, training, index) for index in range(len(training))]
        costs = [log_cost_percent(training, np.full(len(z), i), np.arange(len(z))) for i, z in enumerate(latents)]
        table = world_model.table
        bits = [
            np.stack([table.mask(episode.legal_actions(t))[:-1] for t in range(len(z))])
            for episode, z in zip(training, latents, strict=True)
        ]
        cost = LinearProbe.fit((z, cost[:, np.newaxis]) for z, cost in zip(latents, costs, strict=True))
        of_bits = LinearProbe.fit((z, set_bits * 2.0 - 1.0) for z, set_bits in zip(latents, bits, strict=True))
        return cls(cost, of_bits, Components.fit(bits, world_model.latent_size), table.rules[:-1])

    def read_cost(self, z: np.ndarray) -> np.ndarray:
        """Reads costs from latents: [n, Z] to percent [n]."""
        percent: np.ndarray = self.cost(z)[:, 0]
        return percent

    def read_bits(self, z: np.ndarray) -> np.ndarray:
        """Reads bits from latents: [n, Z] to bool [n, A]."""
        return self.bits(z) > 0.0

    def read_counts(self, z: np.ndarray) -> np.ndarray:
        """Reads the number of legal sites of every rule, see `metrics.sites_per_rule`: [n, Z] to int [n, R].

        Least squares are linear in the targets, so a separate head for a rule's count would read the sum of what the
        heads of its bits read.
        """
        counts = metrics.sums_per_rule((self.bits(z) + 1.0) / 2.0, self.rules)
        return np.rint(np.maximum(counts, 0.0)).astype(int)


def _latents(world_model: WorldModel, buffer: EpisodeBuffer, index: int) -> np.ndarray:
    hashes = buffer[index].hashes
    known = world_model.encode({graph_hash: buffer.graphs[graph_hash] for graph_hash in hashes})
    return np.stack([known[graph_hash] for graph_hash in hashes])


def log_cost_percent(buffer: EpisodeBuffer, episodes: np.ndarray, depths: np.ndarray) -> np.ndarray:
    """Returns 100 · ln(cost / cost of the start graph) of states: float64 [n].

    Args:
      episodes, depths: int [n], the episode and the depth of each state.
    """
    costs = [
        (buffer[e].cost_ms[d], buffer[e].cost_ms[0]) for e, d in zip(episodes.tolist(), depths.tolist(), strict=True)
    ]
    return np.array([100.0 * np.log(counted_ms(ms, initial_ms) / initial_ms) for ms, initial_ms in costs])
