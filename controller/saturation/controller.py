"""`saturation`: equality saturation as a controller, which goes to the extracted graph in one step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from controller.interface import ProgressCallback
from controller.records import is_improvement
from controller.saturation.config import SaturationConfig
from controller.saturation.exploration import Stop
from controller.saturation.saturate import Saturated, Saturation, require_egglog
from controller.search.portfolio import rooflines
from controller.search.replayed import DEFAULT_LIMITS, Found, Search, SearchLimits, StopCause, StopReason
from environment.counting import count
from taso_ext import CostModel, Graph, RuleSet, State, UnpricedError
from taso_ext.graph_json import graph_from_json, graph_to_json

CAUSES = {
    Stop.SATURATED: StopCause.EXHAUSTED,
    Stop.ROUNDS: StopCause.BUDGET,
    Stop.NODES: StopCause.BUDGET,
    Stop.TIME: StopCause.TIME,
}


class SaturationController(Search):
    """Equality saturation: it explores an e-graph, extracts the cheapest graph and makes it a waypoint to go to.

    No single rewrites lead to many of the extracted graphs, because the engine leaves an operator alone whose result
    something else reads, where an e-graph keeps both forms. The waypoint is one step of the episode. A search may go on
    from there.

    Measured costs price no operator alone, as extraction needs it. Under these, a graph is extracted by each roofline,
    and the one that the measured costs like best is taken.

    Source: Yang et al. 2021, "Equality Saturation for Tensor Graph Superoptimization".
    """

    name: ClassVar[str] = "saturation"

    def __init__(
        self,
        config: SaturationConfig = SaturationConfig(),  # noqa: B008 - it is frozen
        limits: SearchLimits = DEFAULT_LIMITS,
        guides: Sequence[CostModel] | None = None,
        then: Search | None = None,
    ) -> None:
        """
        Args:
          config: limits of the exploration and of the extraction.
          limits: of these, the limit of time holds for both together.
          guides: the cost models by which graphs are extracted if an operator alone has no price; they share the time
            of extraction. None: all rooflines.
          then: the search that goes on from the extracted graph; None: none does.
        Raises:
          MissingEgglogError: egglog is not installed.
        """
        require_egglog()
        super().__init__(limits)
        self._config, self._then = config.within(limits.seconds), then
        self._guides = list(guides) if guides is not None else rooflines("cpu")
        self._rules: RuleSet | None = None
        self._costs: CostModel | None = None

    @property
    def total(self) -> int:
        """The number of rounds, and one more for the extraction."""
        return self._config.rounds + 1

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        """Saturates the present graph of `world`, the real environment, and adds what is found to its waypoints."""
        env = world.unwrapped
        self._rules, self._costs = env.rules, env.cost_model
        super().train(world, seed=seed, on_progress=on_progress)

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """See `Search.find`."""
        assert self._rules is not None and self._costs is not None, "train has set them"
        end = time.monotonic() + (self._limits.seconds or float("inf"))
        saturation = Saturation(state.graph, self._rules, self._config, on_progress)
        guides = self._guides if self._costs.looks_around else [self._costs]
        seconds = min(self._config.extraction_seconds, max(end - time.monotonic(), 0.0)) / len(guides)
        found = [saturation.cheapest(guide, seconds) for guide in guides]
        count(cost_evaluations=sum(each.terms for each in found))
        taken, cost_ms = None, state.cost.ms
        for each in found:
            if each.graph.hash == state.hash:
                continue
            try:
                priced_ms = each.graph.cost(self._costs).ms
            except UnpricedError:
                continue
            count(cost_evaluations=1)
            if is_improvement(priced_ms, cost_ms):
                taken, cost_ms = each, priced_ms
        best, actions = state, []
        if taken is not None:
            best = state.copy()
            actions = [(best.waypoint_rule, best.waypoints.add(as_stored(taken.graph)))]
            best.step(*actions[0])
        known_ms = None if self._costs.looks_around or self._then is not None else found[0].bound_ms or None
        stop = StopReason(CAUSES[saturation.explored.stop], about=about(taken or found[0]), bound_ms=known_ms)
        if self._then is None:
            return Found(actions, best.cost.ms, stop)
        further = self._then.find(best, seed, None)
        return Found([*actions, *further.actions], further.cost_ms, stop)


def as_stored(graph: Graph) -> Graph:
    """Returns a graph as it comes back from a file; stateful operators are numbered by their places there."""
    return graph_from_json(graph_to_json(graph))


def about(found: Saturated) -> str:
    """Returns what was explored and how good the extracted graph is, in words."""
    explored = found.explored
    bound = 100 * (1 - found.bound_ms / found.initial_cost_ms) if found.initial_cost_ms else 0.0
    best = "the cheapest of all its graphs" if found.is_optimal else f"none of its graphs saves more than {bound:.1f} %"
    return (
        f"e-graph of {explored.nodes:,} nodes after {explored.rounds} rounds ({explored.stop}), {found.terms:,} terms "
        f"to choose from, extracted in {found.extraction_seconds:.1f} s: {best} by {found.costs}"
        + "".join(f"; rule '{name}' has no pattern: {why}" for name, why in explored.inexpressible.items())
    )
