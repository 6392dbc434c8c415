"""Equality saturation from a graph to the cheapest equal one: explore, extract, build.

The engine decides where a rule applies and what graphs cost; egglog holds the e-graph; HiGHS extracts. The package
`egglog` is the extra `saturation`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Mapping

from controller.interface import ProgressCallback
from controller.saturation.choices import choices_of
from controller.saturation.config import ExplorationLimits
from controller.saturation.egraph import Program
from controller.saturation.exploration import Exploration, Explored
from controller.saturation.extraction import extract
from controller.saturation.graph import graph_of
from controller.saturation.selection import greedy, initial
from environment.measurement.memory import peak_bytes, restart_peak
from environment.runtimes.interface import UnavailableError
from taso_ext import CostModel, Graph, RuleSet

USUAL_LIMITS = ExplorationLimits()
EXTRACTION_SECONDS = 60.0


class MissingEgglogError(UnavailableError):
    """The e-graph library is not installed; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Saturated:
    """The cheapest graph that was found, and what it took.

    Attributes:
      graph: the graph; the start graph itself if none is cheaper.
      costs: the name of the cost model.
      cost_ms, initial_cost_ms: what it and the start graph cost.
      bound_ms: no graph of the e-graph costs less; 0 if extraction did not learn it.
      explored: the exploration.
      classes, terms: equivalence classes and operators that extraction chose from, at run time alone.
      extraction_seconds: time of pricing, extraction and building.
      memory_bytes: how much the process grew at most; in one that has freed memory before, less than was needed.
    """

    graph: Graph
    costs: str
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


class Saturation:
    """The e-graph of a graph after its exploration, from which graphs are extracted.

    Attributes:
      explored: what the exploration did.
    """

    def __init__(
        self, graph: Graph, rules: RuleSet, limits: ExplorationLimits, on_progress: ProgressCallback | None = None
    ) -> None:
        """Explores; see `saturate`."""
        require_egglog()
        restart_peak()
        self._before, self._graph, self._total = peak_bytes(), graph, limits.rounds + 1
        self._report = on_progress or (lambda done, total, metrics: None)
        self._program = Program(graph)
        exploration = Exploration(self._program, rules, limits)
        self.explored = exploration.run(lambda done, size: self._report(done, self._total, {"e_nodes": size}))
        self._classes = self._program.classes()

    def cheapest(self, costs: CostModel, extraction_seconds: float) -> Saturated:
        """Returns the cheapest graph by some costs; see `saturate`."""
        start, graph, vocabulary = time.monotonic(), self._graph, self._program.vocabulary
        initial_ms = graph.cost(costs).ms
        choices = choices_of(graph, self._classes, vocabulary, costs)
        self._extracting({"e_nodes": self.explored.nodes})
        extracted = extract(
            choices,
            [initial(choices, graph, self._classes, vocabulary), greedy(choices)],
            extraction_seconds,
            lambda cost_ms: self._extracting({"best_percent": 100 * (1 - cost_ms / initial_ms)}),
        )
        found = graph_of(graph, self._classes, vocabulary, choices, extracted.selection)
        cost_ms = found.cost(costs).ms
        if cost_ms >= initial_ms:
            found, cost_ms = graph, initial_ms
        return Saturated(
            graph=found,
            costs=costs.name,
            cost_ms=cost_ms,
            initial_cost_ms=initial_ms,
            bound_ms=min(extracted.bound_ms, cost_ms),
            explored=self.explored,
            classes=len(choices.members),
            terms=len(choices.terms),
            extraction_seconds=time.monotonic() - start,
            memory_bytes=peak_bytes() - self._before,
        )

    def _extracting(self, metrics: Mapping[str, float]) -> None:
        self._report(self._total - 1, self._total, metrics)


def saturate(
    graph: Graph,
    rules: RuleSet,
    costs: CostModel,
    *,
    limits: ExplorationLimits = USUAL_LIMITS,
    extraction_seconds: float = EXTRACTION_SECONDS,
    on_progress: ProgressCallback | None = None,
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
      on_progress: called after each round, and with each better graph of the extraction, which counts as one more.
    Raises:
      MissingEgglogError: egglog is not installed.
      UnpricedError: the start graph has no price.
    Source: Yang et al. 2021, "Equality Saturation for Tensor Graph Superoptimization".
    """
    return Saturation(graph, rules, limits, on_progress).cheapest(costs, extraction_seconds)
