"""The best result that is known of a graph, whoever found it."""

from __future__ import annotations

from environment import GraphSubstitutionEnv
from experiments.reproduce.units import Record
from taso_ext import search_taso

ALPHA = 1.05
COUNTS_FROM_PERCENT = 1.0
"""Graphs that nobody could improve by this much say little about a model of improvements."""


def search_best(env: GraphSubstitutionEnv, budget: int) -> Record:
    """Improvement of what TASO's search finds, in percent of the start graph's cost."""
    env.reset()
    found = search_taso(env.state, ALPHA, budget)
    return {"best_percent": 100.0 * (1.0 - found.cost_ms / env.initial_cost.ms), "stop_reason": found.stop_reason}
