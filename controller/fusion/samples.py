"""What advantages are learned from: configurations of training graphs with the exact advantage of every decision.

The advantage of a decision is the cost with it flipped minus the cost without, while all others stay (Local advantage
functions, f(y_v = k; rest)). Configurations come from Gibbs sampling, p(y_v = k | rest) ∝ exp(-cost / T), from a random
start; after each sweep all advantages of the configuration that was reached are priced. One chain runs at each
temperature: hot chains see many plans, and cold ones those that a search meets. This module imports no TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.interface import StoredControllerError
from environment.counting import count
from environment.fusion import RANDOM, FusionGraph
from taso_ext import FusionPlan
from taso_ext.files import UNREADABLE_ARRAYS, write_arrays

FORMAT_VERSION = 1
TOP_SHARE = 0.1
"""The share of samples that matter: those with the largest absolute advantages."""


class SamplesError(StoredControllerError):
    """A file of samples is damaged or belongs to another graph."""


@dataclass(frozen=True, eq=False)
class Samples:
    """F configurations of one graph with n configurable tensors.

    Attributes:
      configurations: uint8 [F, n].
      advantages_ms: float64 [F, n].
      queries: prices that it took to make them.
    """

    configurations: np.ndarray
    advantages_ms: np.ndarray
    queries: int

    @property
    def scale_ms(self) -> float:
        """σ, the median absolute advantage of the graph; the mean where more than half of all advantages are 0."""
        sizes = np.abs(self.advantages_ms)
        return float(np.median(sizes) or sizes.mean() or 1.0)

    @property
    def is_top(self) -> np.ndarray:
        """Which samples are in the top decile of the graph by absolute advantage: bool [F, n]."""
        sizes = np.abs(self.advantages_ms)
        top: np.ndarray = sizes >= np.quantile(sizes, 1 - TOP_SHARE)
        return top

    def write(self, path: str | os.PathLike[str], graph: FusionGraph) -> None:
        """Writes a shard; the file is whole or absent."""
        arrays = {
            "format_version": np.array(FORMAT_VERSION),
            "graph": np.array([len(graph.problem), len(graph.links), len(graph.configurable)]),
            "configurations": np.packbits(self.configurations, axis=1),
            "advantages_ms": self.advantages_ms,
            "queries": np.array(self.queries),
        }
        write_arrays(path, arrays, compress=True)

    @classmethod
    def read(cls, path: str | os.PathLike[str], graph: FusionGraph) -> Samples:
        """Reads a shard.

        Raises:
          SamplesError: it is damaged, of another format, or of another graph.
        """
        expected = [len(graph.problem), len(graph.links), len(graph.configurable)]
        try:
            with np.load(path) as arrays:
                version, sizes = int(arrays["format_version"]), arrays["graph"].tolist()
                bits = np.unpackbits(arrays["configurations"], axis=1)[:, : len(graph.configurable)]
                samples = cls(bits, arrays["advantages_ms"], int(arrays["queries"]))
        except UNREADABLE_ARRAYS as error:
            raise SamplesError(
                f"{os.fspath(path)} holds no samples ({type(error).__name__}: {error}). Delete it, and they are "
                "collected again."
            ) from error
        if version != FORMAT_VERSION or sizes != expected:
            raise SamplesError(
                f"{os.fspath(path)} holds samples of format {version} for a graph of {sizes} tensors, edges and "
                f"decisions; expected format {FORMAT_VERSION} and {expected}. Delete it, and they are collected again."
            )
        return samples


TEMPERATURES = (1.0, 0.1)


def collect(graph: FusionGraph, frames: int, *, temperatures: Sequence[float] = TEMPERATURES, seed: int = 0) -> Samples:
    """Collects configurations by Gibbs sampling, each with all exact advantages.

    Args:
      frames: number of configurations F, shared by the chains in turn; there is one sweep before each.
      temperatures: T of each chain, as a multiple of the median absolute advantage at the start.
    Raises:
      ValueError: there are fewer frames than chains, or a temperature is not positive.
    """
    if frames < len(temperatures) or not temperatures or min(temperatures) <= 0:
        raise ValueError(
            f"expected positive temperatures and a frame for each, got {list(temperatures)} and {frames} frames"
        )
    before = graph.problem.queries
    plans = [FusionPlan(graph.problem, graph.start(RANDOM, seed)) for _ in temperatures]
    first = np.abs(plans[0].deltas_ms(graph.configurable))
    unit_ms = float(np.median(first[first > 0])) if first.any() else 1.0
    configurations, advantages = [], []
    for frame in range(frames):
        chain = frame % len(plans)
        plans[chain].gibbs(1, temperatures[chain] * unit_ms, seed * 1_000_003 + frame)
        configurations.append(plans[chain].configuration()[graph.configurable])
        advantages.append(plans[chain].deltas_ms(graph.configurable))
    queries = graph.problem.queries - before
    count(cost_evaluations=queries)
    return Samples(np.stack(configurations), np.stack(advantages), queries)
