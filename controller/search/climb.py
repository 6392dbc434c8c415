"""A hill climb by measured time: candidates are timed on this machine, interleaved with the best graph so far.

There are three kinds of candidates: a rule applied at all places that look alike, once or several times; a rule applied
until it applies nowhere; and, in the first round, the best graph of a TASO search under each analytic cost model.
Candidates that are faster by more than their interval are combined as long as the combination is faster still. Of the
first kind, those that change the most work are measured first. Graphs of several times the work are not measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.interface import ProgressCallback
from controller.search.native import ALPHA, MOST_MATCHES
from controller.search.passes import exhaust
from controller.search.replayed import Found, Search, SearchLimits, StopCause, StopReason
from environment.costs.limits import affordable
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, measure
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from taso_ext import CostModel, OnnxModel, RuleSet, State, search_taso

RANKING = "rtx2070"
"""The roofline preset of the climb's states; it tells apart the places at which a rule does different work."""
MOST_TIMES = 3
"""Largest number of times that a rule is applied at one place. Groups of convolutions, for example, merge in pairs."""
FLOPS_PER_BYTE = 13.0
"""Operations that a core computes while it reads one byte from memory."""
WORTH_MEASURING_WELL = 1.03
"""A candidate is dropped if its ratio in a first, short measurement is greater than this."""


@dataclass(frozen=True)
class ClimbLimits:
    """The limits of a climb, and the effort of its measurements.

    Attributes:
      rounds: number of rounds of candidates around the best graph.
      budget: number of graphs that each TASO search expands.
      seconds: time after which no other candidate is measured; 0 means no limit.
      pairs, sessions: effort of measuring a candidate that the first, short measurement has not dropped.
    """

    rounds: int
    budget: int
    seconds: float
    pairs: int
    sessions: int


@dataclass(frozen=True)
class Candidate:
    """A rewritten graph and the actions that lead to it from the start.

    All candidates share the locations of the start's state, so that actions of one can be replayed on another.
    """

    state: State
    actions: tuple[tuple[int, int], ...]


class MeasuredClimb(Search):
    """A search that climbs from a model's graph by measuring; see the module.

    Its result depends on the machine and its load. It is not registered under a name, because it needs the model with
    the weights that it runs.

    Args:
      model: the model whose graph is rewritten.
      rules: the rule set of the search.
      runtime: the runtime that runs the candidates.
      limits: see `ClimbLimits`.
    """

    name: ClassVar[str] = "measured-climb"

    def __init__(self, model: OnnxModel, rules: RuleSet, runtime: OnnxRuntime, limits: ClimbLimits) -> None:
        super().__init__(SearchLimits(limits.budget, limits.seconds))
        self._model, self._rules, self._runtime, self._climb_limits = model, rules, runtime, limits
        self._measured: set[str] = set()
        self._deadline = float("inf")

    @property
    def tried(self) -> int:
        """Number of candidates that were measured."""
        return len(self._measured)

    def start(self) -> State:
        """Returns the state to climb from: the model's graph under the cost model that ranks places."""
        return self._state(RANKING)

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """Climbs without random draws; see `Search.find`. The returned cost is that of the cost model of `state`."""
        self._measured.clear()
        self._deadline = time.monotonic() + (self._climb_limits.seconds or float("inf"))
        best, cause = Candidate(state, ()), StopCause.BUDGET
        for number in range(self._climb_limits.rounds):
            better = self._round(best, searches=number == 0)
            if on_progress:
                on_progress(number + 1, self._climb_limits.rounds, {"best_cost_ms": better.state.cost.ms})
            is_top, best = better.state.hash == best.state.hash, better
            if is_top or self._is_late():
                cause = StopCause.TIME if self._is_late() else StopCause.LOCAL_OPTIMUM
                break
        return Found(list(best.actions), best.state.cost.ms, StopReason(cause))

    def compare(self, reference: State, candidate: State, effort: Effort) -> Timing:
        """Measures a candidate against a reference, interleaved."""
        return measure(
            Variant("base", self._runtime, self._model.export_checked(reference.graph)),
            [Variant("candidate", self._runtime, self._model.export_checked(candidate.graph))],
            effort,
        )

    def replay(self, base: Candidate, actions: Iterable[tuple[int, int]]) -> Candidate:
        """Returns the candidate to which those actions lead from `base` that are legal when their turn comes."""
        state, taken = base.state.copy(), list(base.actions)
        for rule, location in actions:
            if state.location_mask()[rule, location]:
                state.step(rule, location)
                taken.append((rule, location))
        return Candidate(state, tuple(taken))

    def _state(self, device: str) -> State:
        return State(self._model.graph, self._rules, CostModel.roofline(device), MOST_MATCHES)

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _round(self, base: Candidate, *, searches: bool) -> Candidate:
        """Returns the fastest graph that one candidate or several together make of `base`, or else `base`."""
        candidates = {c.state.hash: c for c in (*(self._searched(base) if searches else ()), *self._neighbours(base))}
        faster = []
        for candidate in candidates.values():
            if self._is_late():
                break
            if candidate.state.hash in self._measured or not affordable(base.state.cost, candidate.state.cost):
                continue
            self._measured.add(candidate.state.hash)
            if self._ratio(base, candidate, pairs=2, sessions=1).value > WORTH_MEASURING_WELL:
                continue
            found = self._ratio(base, candidate)
            if found.high < 1:
                faster.append((found.value, candidate))
        best = base
        for _, candidate in sorted(faster, key=lambda pair: pair[0]):
            joined = self.replay(best, candidate.actions[len(base.actions) :])
            if best is base or self._ratio(best, joined).high < 1:
                best = joined
        return best

    def _ratio(self, reference: Candidate, candidate: Candidate, pairs: int = 0, sessions: int = 0) -> Estimate:
        limits = self._climb_limits
        effort = Effort(
            resolution=None, pairs=pairs or limits.pairs, sessions=sessions or limits.sessions, control=False
        )
        return self.compare(reference.state, candidate.state, effort).ratio

    def _searched(self, start: Candidate) -> Iterator[Candidate]:
        for device in CostModel.devices():
            yield self.replay(start, search_taso(self._state(device), ALPHA, self._climb_limits.budget).actions)

    def _neighbours(self, base: Candidate) -> Iterator[Candidate]:
        for rule in np.unique(base.state.legal_actions()[:, 0]).tolist():
            state = base.state.copy()
            actions = exhaust(state, rule)
            yield Candidate(state, (*base.actions, *actions))
        for rule, places in _alike(base.state):
            for times in range(1, MOST_TIMES + 1):
                yield self.replay(base, [(rule, place) for place in places] * times)


def _alike(state: State) -> Iterator[tuple[int, list[int]]]:
    """Yields rules with locations at which they match operators of equal work, with the same predicted change of cost.

    Locations whose operators do the most work come first, because most can be gained there.
    """
    rules, locations, costs_ms = state.candidates()
    if not len(rules):
        return
    change = np.round(costs_ms / state.cost.ms - 1, 9)
    logarithms = state.candidate_features(len(rules), one_hot_rules=False)[1:, -2:]  # of FLOPs and bytes, over 20
    kinds, group = np.unique(np.column_stack([rules, change, logarithms]), axis=0, return_inverse=True)
    work = np.bincount(group.reshape(-1), np.expm1(20.0 * logarithms) @ [1.0, FLOPS_PER_BYTE])
    for index in np.argsort(-work, kind="stable"):
        yield int(kinds[index, 0]), locations[group.reshape(-1) == index].tolist()
