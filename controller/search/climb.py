"""`climb`: a search whose only judge is the clock. Graphs are timed on the device, interleaved with the best so far.

The first graphs to be timed are those that quick searches propose under many cost models: no cost model knows the
machine, but one of them often leads to a graph that is fast there. The searches begin at the model, and at what one
rule makes of it until it applies nowhere: putting every product of a network into another form, for example, pays only
with the rewrites that this allows. Then the climb looks around the fastest graph: what if a rule's rewrites are left
out, or a rule is applied at all places that look alike, once or several times? Graphs that are faster by more than
their interval are combined as long as the combination is faster still. Graphs of several times the work are not timed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from controller.interface import ProgressCallback
from controller.search.native import ALPHA
from controller.search.passes import PassesController, exhaust
from controller.search.replayed import Actions, Found, Search, SearchLimits, StopCause, StopReason
from environment.costs.limits import Recent, affordable
from environment.inputs import Feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from environment.substitution.omission import leave_out
from taso_ext import CostModel, ModelError, OnnxModel, RuleSet, State, search_taso
from taso_ext.onnx_io.checked_model import CheckedModel

RANKING = "rtx2070"
"""The roofline preset of the climb's states; it tells apart the places at which a rule does different work."""
MOST_TIMES = 3
"""Largest number of times that a rule is applied at one place. Groups of convolutions, for example, merge in pairs."""
FLOPS_PER_BYTE = 13.0
"""Operations that a core computes while it reads one byte from memory."""
WORTH_TIMING_WELL = 1.03
"""A candidate is dropped if its ratio in a first, short measurement is greater than this."""
TOGETHER = 3
"""Number of candidates that are timed in one interleaved run and share its samples of the best graph."""
PROCESSORS = ("xeon",)
"""The roofline presets that describe processors; graphs for these are timed first on a processor."""
PROPOSALS = 1000
"""Number of graphs that the search for a proposal expands, and of passes that it tries."""
OWN_SHARE = 0.25
"""Largest part of the time that the searches under the environment's own costs may take, as these may be measured."""
QUICK = Effort(resolution=None, pairs=2, sessions=1, control=False)
WELL = Effort(resolution=0.01, pairs=24, sessions=2, control=False)
SECONDS = 300.0
"""Default limit of time."""


@dataclass(frozen=True)
class Candidate:
    """A rewritten graph and the actions that lead to it from the start.

    All candidates share the locations of the start's state, so that actions of one can be replayed on another.
    """

    state: State
    actions: tuple[tuple[int, int], ...]

    def replay(self, actions: Iterable[tuple[int, int]]) -> Candidate:
        """Returns the candidate to which those actions lead from here that are legal when their turn comes."""
        state, taken = self.state.copy(), list(self.actions)
        for rule, location in actions:
            if state.location_mask()[rule, location]:
                state.step(rule, location)
                taken.append((rule, location))
        return Candidate(state, tuple(taken))


class ClimbController(Search):
    """A search that climbs from a model's graph by the clock; see the module.

    Its result depends on the machine and its load. `train` takes the real environment, which has the model with the
    weights that are run.
    """

    name: ClassVar[str] = "climb"
    clocked: ClassVar[bool] = True

    def __init__(
        self,
        runtime: OnnxRuntime | None = None,
        limits: SearchLimits | None = None,
        feeds: Feeds | None = None,
        is_asked_to_end: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
          runtime: the runtime that runs the graphs; None means one thread of the CPU.
          limits: the time after which no other graph is timed, and the budget of graphs to time; the other limits do
            not apply. None means `SECONDS`.
          feeds: arrays by input name to time with; None means random ones.
          is_asked_to_end: returns whether the climb is to end with the best graph so far; asked between measurements.
        """
        super().__init__(limits or SearchLimits(seconds=SECONDS))
        self._runtime, self._feeds, self._is_asked_to_end = runtime or OnnxRuntime(), feeds, is_asked_to_end
        self._model: OnnxModel | None = None
        self._rules: RuleSet | None = None
        self._timed: set[str] = set()
        self._exports: Recent[CheckedModel] = Recent(TOGETHER + 1)
        self._begin, self._best_ratio = 0.0, 1.0
        self._on_progress: ProgressCallback | None = None

    @property
    def timed(self) -> int:
        """Number of graphs that were timed against a better one."""
        return len(self._timed)

    @property
    def total(self) -> int:
        """The limit of time in seconds; of graphs to time if there is none."""
        return round(self._limits.seconds) or self._limits.budget

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        """Climbs from the start graph of `world`, the real environment."""
        env = world.unwrapped
        self._model, self._rules = env.model, env.rules
        super().train(world, seed=seed, on_progress=on_progress)

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """Climbs without random draws; see `Search.find`. The returned cost is that of the ranking cost model."""
        self._timed.clear()
        self._exports = Recent(TOGETHER + 1)
        self._begin, self._best_ratio, self._on_progress = time.monotonic(), 1.0, on_progress
        start = self.start(state.num_locations)
        best = self._climbed(start, self._proposals(start, state))
        while (cause := self._limit_reached()) is None:
            better = self._climbed(best, self._neighbours(best))
            if better is best:
                cause = self._limit_reached() or StopCause.LOCAL_OPTIMUM
                break
            best = better
        return Found(list(best.actions), best.state.cost.ms, StopReason(cause))

    def start(self, num_locations: int) -> Candidate:
        """Returns the start graph under the cost model that ranks places."""
        return Candidate(self._state(RANKING, num_locations), ())

    def compare(self, reference: State, candidates: Sequence[State], effort: Effort) -> list[Estimate]:
        """Returns the time of each candidate over that of the reference, from one interleaved run.

        Raises:
          ModelError: a graph cannot be written, or the runtime cannot run it.
        """
        variants = [
            Variant(str(number), self._runtime, self._exported(state))
            for number, state in enumerate([reference, *candidates])
        ]
        return [each.ratio for each in measure(variants[0], variants[1:], effort, feeds=self._feeds).candidates]

    def _exported(self, state: State) -> CheckedModel:
        """Returns a graph as a model; the last ones are kept, because most are timed twice."""
        assert self._model is not None
        model = self._model
        return self._exports.get(state.hash, lambda: model.export_checked(state.graph))

    def _state(self, device: str, num_locations: int) -> State:
        assert self._model is not None and self._rules is not None, "train has set them"
        return State(self._model.graph, self._rules, CostModel.roofline(device), num_locations)

    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _limit_reached(self) -> StopCause | None:
        if self._is_asked_to_end():
            return StopCause.INTERRUPTED
        if self.timed >= self._limits.budget:
            return StopCause.BUDGET
        return StopCause.TIME if self._limits.seconds and self._elapsed() > self._limits.seconds else None

    def _report(self) -> None:
        if self._on_progress:
            figures = {"best_percent": 100 * (1 - self._best_ratio), "timed": float(self.timed)}
            done = self._elapsed() if self._limits.seconds else self.timed
            self._on_progress(min(round(done), self.total), self.total, figures)

    def _climbed(self, base: Candidate, candidates: Iterable[Candidate]) -> Candidate:
        """Returns the fastest graph that one candidate or several together make of `base`, or else `base` itself."""
        faster: list[tuple[float, Candidate]] = []
        for batch in _batches(self._worth_timing(base, candidates), TOGETHER):
            if self._limit_reached():
                break
            self._timed.update(candidate.state.hash for candidate in batch)
            quick = self._ratios(base, batch, QUICK)
            promising = [each for each, ratio in quick if ratio.value <= WORTH_TIMING_WELL]
            well = self._ratios(base, promising, WELL) if promising else []
            faster += [(ratio.value, each) for each, ratio in well if ratio.high < 1]
            self._report()
        best = base
        for value, candidate in sorted(faster, key=lambda pair: pair[0]):
            if best is base:
                best, self._best_ratio = candidate, self._best_ratio * value
                continue
            if candidate.actions[: len(base.actions)] != base.actions or self._limit_reached():
                continue  # what remains of a plan cannot be added to another one
            joined = best.replay(candidate.actions[len(base.actions) :])
            if joined.state.hash in self._timed:
                continue
            self._timed.add(joined.state.hash)
            for _, ratio in self._ratios(best, [joined], WELL):
                if ratio.high < 1:
                    best, self._best_ratio = joined, self._best_ratio * ratio.value
            self._report()
        return best

    def _worth_timing(self, base: Candidate, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """Yields candidates that were not timed before and are small enough to be run."""
        seen = {base.state.hash}
        for candidate in candidates:
            known = candidate.state.hash in seen or candidate.state.hash in self._timed
            if not known and affordable(base.state.cost, candidate.state.cost):
                seen.add(candidate.state.hash)
                yield candidate

    def _ratios(
        self, base: Candidate, candidates: Sequence[Candidate], effort: Effort
    ) -> list[tuple[Candidate, Estimate]]:
        """Returns the ratios of those candidates that can be run."""
        try:
            found = self.compare(base.state, [candidate.state for candidate in candidates], effort)
            return list(zip(candidates, found, strict=True))
        except ModelError:
            alone = [[candidate] for candidate in candidates] if len(candidates) > 1 else []
            return [pair for each in alone for pair in self._ratios(base, each, effort)]

    def _proposals(self, start: Candidate, own: State) -> Iterator[Candidate]:
        """Yields the best graphs of searches under every roofline, from other forms, and under the own costs.

        The environment's own costs come last, because these searches may take long: what they meet may have to be
        measured.
        """
        seconds, locations = OWN_SHARE * self._limits.seconds / 2, own.num_locations
        kin, *others = self._devices()
        yield from self._searched(start, self._state(kin, locations), seconds)
        yield from self._forms(start)
        for device in others:
            yield from self._searched(start, self._state(device, locations), seconds)
        yield from self._searched(start, own, seconds)

    def _devices(self) -> list[str]:
        """Returns the presets of rooflines; those that are of the same kind as the runtime's device come first."""
        alike = [device for device in CostModel.devices() if (device in PROCESSORS) == (self._runtime.device == "cpu")]
        return list(dict.fromkeys([*alike, *CostModel.devices()]))

    def _forms(self, base: Candidate) -> Iterator[Candidate]:
        """Yields what each rule makes of `base` until it applies nowhere, and what a quick search makes of that."""
        priced = self._state(self._devices()[0], base.state.num_locations)
        for action in base.actions:
            priced.step(*action)
        for rule in np.unique(base.state.legal_actions()[:, 0]).tolist():
            state, ranked = base.state.copy(), priced.copy()
            actions: Actions = exhaust(state, rule)
            form = Candidate(state, (*base.actions, *actions))
            for action in actions:
                ranked.step(*action)
            yield form.replay(search_taso(ranked, ALPHA, PROPOSALS).actions)
            yield form

    def _searched(self, start: Candidate, state: State, seconds: float) -> Iterator[Candidate]:
        passes = PassesController(SearchLimits(PROPOSALS, seconds)).find(state.copy(), 0, None)
        searched = search_taso(state.copy(), ALPHA, PROPOSALS, seconds=seconds)
        for actions in (passes.actions, searched.actions):
            yield start.replay(actions)

    def _neighbours(self, base: Candidate) -> Iterator[Candidate]:
        start = self.start(base.state.num_locations)
        for rule in dict.fromkeys(rule for rule, _ in base.actions):
            places = [position for position, action in enumerate(base.actions) if action[0] == rule]
            yield start.replay(leave_out(start.state, base.actions, places))
        yield from self._forms(base)
        for rule, alike in _alike(base.state):
            for times in range(1, MOST_TIMES + 1):
                yield base.replay([(rule, place) for place in alike] * times)


def _batches(candidates: Iterable[Candidate], size: int) -> Iterator[list[Candidate]]:
    iterator = iter(candidates)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


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
