"""Which graphs are small enough to be run."""

from __future__ import annotations

from environment.costs.interface import Cost

MOST_WORK = 4.0
"""Graphs with more than this multiple of the start's operations, or of the memory moved, are not run.

All groups of ResNet-50's convolutions by Winograd merged into one would have 4.8 GB of weights."""


def affordable(start: Cost, cost: Cost) -> bool:
    """Whether a graph is small enough to be run, by its cost and that of the graph that rewriting started from."""
    return cost.flops <= MOST_WORK * start.flops and cost.memory_bytes <= MOST_WORK * start.memory_bytes
