"""Equality saturation from a graph to the cheapest equal one: explore, extract, build.

The engine decides where a rule applies and what graphs cost; egglog holds the e-graph; HiGHS extracts. The package
`egglog` is the extra `saturation`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Callable

from controller.saturation.choices import choices_of
from controller.saturation.egraph import Program
from controller.saturation.exploration import Exploration, ExplorationLimits, Explored
from controller.saturation.extraction import extract
from controller.saturation.graph import graph_of
from controller.saturation.selection import greedy, initial
from environment.measurement.memory import peak_bytes, restart_peak
from taso_ext import CostModel, Graph, RuleSet

USUAL_LIMITS = ExplorationLimits()
EXTRACTION_SECONDS = 60.0


class MissingEgglogError(ImportError):
    """The e-graph library is not installed; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Saturated:
    """The cheapest graph that was found, and what it took.

    Attributes:
      graph: the graph; the start graph itself if none is cheaper.
      cost_ms, initial_cost_ms: what it and the start graph cost.
      bound_ms: no graph of the e-graph costs less; 0 if extraction did not learn it.
      explored: the exploration.
      classes, terms: equivalence classes and operators that extraction chose from, at run time alone.
      extraction_seconds: time of pricing, extraction and building.
      memory_bytes: how much the process grew at most; in one that has freed memory before, less than was needed.
    """

    graph: Graph
    cost_ms: float
    initial_cost_ms: float
    bound_ms: float
    explored: Explored
    classes: int
    terms: int
    extraction_seconds: float
    memory_bytes: int

    @property
    def improvement(self) -> float:
        """1 - cost / initial cost."""
        return 1 - self.cost_ms / self.initial_cost_ms if self.initial_cost_ms else 0.0

    @property
    def is_optimal(self) -> bool:
        """Whether no graph of the e-graph costs less."""
        return self.bound_ms >= self.cost_ms * (1 - 1e-6)


def require_egglog() -> None:
    """Raises MissingEgglogError if egglog cannot be imported."""
    if importlib.util.find_spec("egglog") is None:
        raise MissingEgglogError(
            "Equality saturation needs the package egglog, which is not installed. Install it with: "
            "pip install 'rlflow[saturation]'"
        )


def saturate(
    graph: Graph,
    rules: RuleSet,
    costs: CostModel,
    *,
    limits: ExplorationLimits = USUAL_LIMITS,
    extraction_seconds: float = EXTRACTION_SECONDS,
    on_progress: Callable[[str], None] | None = None,
) -> Saturated:
    """Returns the cheapest graph among those that rules make of a graph, as far as limits allow.

    Args:
      graph: the start graph.
      rules: the rules.
      costs: prices of graphs. Extraction is exact where an operator costs the same wherever it stands, apart from
        pointwise operators that are fused into their producers; that holds for rooflines. What is returned is priced
        as a whole.
      limits: of the exploration.
      extraction_seconds: time of the integer programs; 0: the greedy method alone.
      on_progress: called with what has been done, in a few words.
    Raises:
      MissingEgglogError: egglog is not installed.
      UnpricedError: the start graph has no price.
    Source: Yang et al. 2021, "Equality Saturation for Tensor Graph Superoptimization".
    """
    require_egglog()
    say = on_progress or (lambda _: None)
    restart_peak()
    before = peak_bytes()
    initial_ms = graph.cost(costs).ms
    program = Program(graph)
    explored = Exploration(program, rules, limits).run(lambda rounds, size: say(f"round {rounds}: {size:,} e-nodes"))
    start = time.monotonic()
    classes = program.classes()
    choices = choices_of(graph, classes, program.vocabulary, costs)
    firsts = [initial(choices, graph, classes, program.vocabulary), greedy(choices)]
    extracted = extract(
        choices, firsts, extraction_seconds, lambda cost: say(f"extraction: {100 * (1 - cost / initial_ms):.2f} %")
    )
    found = graph_of(graph, classes, program.vocabulary, choices, extracted.selection)
    cost_ms = found.cost(costs).ms
    if cost_ms >= initial_ms:
        found, cost_ms = graph, initial_ms
    return Saturated(
        graph=found,
        cost_ms=cost_ms,
        initial_cost_ms=initial_ms,
        bound_ms=min(extracted.bound_ms, cost_ms),
        explored=explored,
        classes=len(choices.members),
        terms=len(choices.terms),
        extraction_seconds=time.monotonic() - start,
        memory_bytes=peak_bytes() - before,
    )
