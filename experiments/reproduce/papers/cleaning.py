"""The papers' figures against the graph as the basic clean-up leaves it, which folds nothing.

Improvements are against the graph that is cleaned in full. The papers do not say how far theirs are cleaned, so that
their tables have a second column.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from environment import GraphSubstitutionEnv
from experiments.executors.units import Record
from experiments.reproduce.search.plays import PRICES

BASIC = {"basic": "the same mean against the graph as `--clean basic` leaves it [%]"}
"""The column that `with_basic` fills; it belongs behind the gain and its interval."""


def with_basic(rows: Iterable[Record], costs: str = PRICES) -> list[Record]:
    """Returns rows with their `gain` against the basic graph too.

    Args:
      rows: with `graph`, a name in the zoo, and `gain`, an improvement of its cleaned graph [%].
      costs: what the gain is of.
    """
    return [{**row, "basic": against_basic(row["graph"], float(row["gain"]), costs)} for row in rows]


def against_basic(graph: str, gain: float, costs: str = PRICES) -> float:
    """Returns an improvement [%] of the graph that is cleaned in full as one of the graph with the basic clean-up."""
    return 100 * (1 - (1 - gain / 100) * _cleaned_share(graph, costs))


@cache
def _cleaned_share(graph: str, costs: str) -> float:
    """Returns the cost of a graph that is cleaned in full, over that with the basic clean-up."""
    full, basic = (GraphSubstitutionEnv(graph, clean=clean, costs=costs).initial_cost.ms for clean in ("full", "basic"))
    return full / basic
