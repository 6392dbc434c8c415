"""The way of a climb: which graphs race, in which order, and when it moves to one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Protocol

from controller.search.journal import Journal, JournalError, as_actions
from controller.search.portfolio import (
    Actions,
    Candidate,
    Move,
    Positions,
    alike_places,
    by_place,
    by_rule,
    forms,
    halves,
    priced,
    searches,
    without,
)
from controller.search.replayed import SearchLimits, StopCause
from environment.costs.limits import affordable
from environment.measurement.effort import ClockError
from environment.measurement.racing import Outcome, Rule
from environment.measurement.stopwatch import Stopwatch
from environment.statistics.sequential import Verdict
from taso_ext import CostModel, ModelError, State

RULE = Rule()
"""The rule by which graphs race."""
TOGETHER = 3
"""Number of candidates that race together and share the samples of the best graph."""
SEARCH_SHARE = 0.125
"""Largest part of the time that one search for a proposal may take, as its prices may have to be measured."""
SORTED_SHARE = 0.02
"""Part of the time for which graphs are made before those made so far race, in the order of their predicted costs."""
RECALLED = 3
"""Number of graphs that were not faster and of which parts are timed, those that came nearest first."""
PATIENCE = 4
"""How many times as many samples a race may take at the end, when nothing else is left to try."""
NEAR = 1.3
"""Largest ratio of such a graph: parts of what takes much longer are sought elsewhere."""


@dataclass(frozen=True)
class Best:
    """The fastest graph so far.

    Attributes:
      candidate: the graph.
      ratio: its time over that of the start graph: the product of the ratios of all moves that led to it.
      elapsed_s: seconds of the climb until it was found.
      timed: number of graphs that were timed until then.
    """

    candidate: Candidate
    ratio: float = 1.0
    elapsed_s: float = 0.0
    timed: int = 0


class Ground(Protocol):
    """What a climb stands on: a machine that races graphs, and the states in which searches begin."""

    @property
    def limits(self) -> SearchLimits:
        """The limits of the climb."""

    @property
    def guides(self) -> Sequence[CostModel]:
        """The cost models under which searches propose graphs."""

    @property
    def given(self) -> Sequence[Actions]:
        """Plans from elsewhere, whose graphs race first."""

    @property
    def bills(self) -> Mapping[str, str | None]:
        """The names of the kernels of graphs, by graph, as far as they were found out."""

    def state(self, costs: CostModel, num_locations: int) -> State:
        """Returns the start graph's state under some costs."""

    def compare(self, reference: State, candidates: Sequence[State], patience: int = 1) -> list[Outcome]:
        """Returns the outcome of a race; see `ClimbController.compare`."""

    def require_device(self, base: State) -> None:
        """Raises UnavailableError if a graph that has run before does not run any more."""

    def is_asked_to_end(self) -> bool:
        """Returns whether the climb is to end with the best graph so far."""


class Ascent:
    """A climb in progress.

    Attributes:
      best: the fastest graph so far.
    """

    def __init__(
        self,
        ground: Ground,
        start: Candidate,
        own: State,
        journal: Journal,
        watch: Stopwatch,
        on_moved: Callable[[Best], object],
        report: Callable[[], object],
    ) -> None:
        """
        Args:
          own: the start graph's state under the environment's own costs.
          journal: what was done before; whatever is done is added.
          watch: measures the time of the climb, that of earlier commands included.
          on_moved: called with every graph that the climb moves to.
          report: called after each race.
        """
        self._ground, self._start, self._own, self._journal, self._watch = ground, start, own, journal, watch
        self._limits, self._on_moved, self._report = ground.limits, on_moved, report
        self.best = self._recalled()

    def _recalled(self) -> Best:
        """Returns the best graph of the journal, or else the start."""
        line = self._journal.best
        if line is None:
            return Best(self._start)
        found = self._start.replay(as_actions(line["actions"]))
        if found.state.hash != line["graph"]:
            raise JournalError(f"the actions of its best graph lead to {found.state.hash} and not to {line['graph']}")
        return Best(found, line["ratio"], line["elapsed_s"], line["timed"])

    def run(self) -> StopCause:
        """Climbs until nothing helps or a limit is reached, and returns the cause.

        Raises:
          UnavailableError, ClockError: see `ClimbController.train`.
        """
        self._race(Move(actions, from_start=True) for actions in self._ground.given)
        self._race(self._sorted(Move(actions, from_start=True) for actions in self._proposals()))
        while (cause := self._limit_reached()) is None:
            before = self.best
            while self._shortened(by_rule) or self._shortened(lambda plan: by_place(self._start.state, plan)):
                pass
            self._race_parts()
            base, like = self.best.candidate, self._ground.state(self._ground.guides[0], self._own.num_locations)
            self._race(self._sorted(Move(actions[len(base.actions) :]) for actions in self._forms(base, like)))
            self._race(Move(actions) for actions in alike_places(self.best.candidate))
            if self.best is before:
                self._race_pooled()
            if self.best is before:
                self._race_longer()
            if self.best is before:
                return self._limit_reached() or StopCause.LOCAL_OPTIMUM
        return cause

    def _limit_reached(self) -> StopCause | None:
        if self._ground.is_asked_to_end():
            return StopCause.INTERRUPTED
        if len(self._journal.timed) >= self._limits.budget:
            return StopCause.BUDGET
        over = self._limits.seconds and self._watch.elapsed() >= self._limits.seconds
        return StopCause.TIME if over else None

    def _race(self, moves: Iterable[Move]) -> None:
        """Makes all moves that are surely faster, one after the other."""
        waiting, rest = deque[Move](), iter(moves)
        while self._limit_reached() is None:
            batch: list[tuple[Move, Candidate]] = []
            for move in chain(_popped(waiting), rest):
                candidate = move.of(self._start, self.best.candidate)
                if all(candidate.state.hash != other.state.hash for _, other in batch) and self._is_new(candidate):
                    batch.append((move, candidate))
                if len(batch) == TOGETHER or self._limit_reached():
                    break
            if not batch:
                return
            winners = self._raced([candidate for _, candidate in batch])
            if winners:  # what is not slower than the old one may also help the new one
                waiting.extend(move for move, each in batch if not move.from_start and self._may_help(each, winners[0]))

    def _may_help(self, candidate: Candidate, winner: Candidate) -> bool:
        """Returns whether a graph that raced with the winner was not found to be no faster than the old best graph."""
        line = self._journal.timed.get(candidate.state.hash)
        return candidate is not winner and line is not None and line["verdict"] != Verdict.NOT_FASTER

    def _raced(self, candidates: Sequence[Candidate], patience: int = 1) -> list[Candidate]:
        """Times some graphs and moves to the fastest one that is faster; returns those that are, the fastest first."""
        base, before = self.best, self._watch.elapsed()
        faster: list[tuple[float, Candidate]] = []
        for candidate, outcome in self._outcomes(base.candidate, candidates, patience):
            if not outcome.pairs:
                continue  # the time was up before it ran
            self._journal.add(
                "timed",
                self._watch.elapsed(),
                graph=candidate.state.hash,
                actions=candidate.actions,
                base=base.candidate.state.hash,
                base_ratio=base.ratio,
                verdict=str(outcome.verdict),
                ratio=outcome.ratio.value,
                low=outcome.ratio.low,
                high=outcome.ratio.high,
                pairs=outcome.pairs,
                sessions=outcome.sessions,
                patience=patience,
                bill=self._ground.bills.get(candidate.state.hash),
            )
            if outcome.verdict is Verdict.FASTER:
                faster.append((outcome.ratio.value, candidate))
        if self._watch.elapsed() <= before:
            raise ClockError(
                "The wall clock does not go forward: graphs were timed, and no time has passed by it. Mend the clock "
                "of this machine and repeat the command; what was timed is kept."
            )
        faster.sort(key=lambda pair: pair[0])
        if faster:
            self._move_to(faster[0][1], base.ratio * faster[0][0])
        self._report()
        return [candidate for _, candidate in faster]

    def _move_to(self, candidate: Candidate, ratio: float) -> None:
        self.best = Best(candidate, ratio, self._watch.elapsed(), len(self._journal.timed))
        fields = {
            "graph": candidate.state.hash,
            "actions": candidate.actions,
            "ratio": ratio,
            "timed": len(self._journal.timed),
        }
        self._journal.add("best", self.best.elapsed_s, **fields)
        self._on_moved(self.best)

    def _outcomes(
        self, base: Candidate, candidates: Sequence[Candidate], patience: int
    ) -> Iterator[tuple[Candidate, Outcome]]:
        """Yields the outcomes of those candidates that can be run.

        Raises:
          UnavailableError: the runtime no longer runs the base either.
        """
        try:
            found = self._ground.compare(base.state, [candidate.state for candidate in candidates], patience)
            yield from zip(candidates, found, strict=True)
        except ModelError as error:
            if len(candidates) > 1:
                for each in candidates:
                    yield from self._outcomes(base, [each], patience)
                return
            self._ground.require_device(base.state)
            self._journal.add("refused", self._watch.elapsed(), graph=candidates[0].state.hash, reason=str(error))

    def _is_new(self, candidate: Candidate) -> bool:
        """Returns whether a graph was not timed before and is small enough to be run."""
        state = candidate.state
        if state.hash in (self._start.state.hash, self.best.candidate.state.hash) or self._journal.knows(state.hash):
            return False
        return affordable(self._start.state.cost, state.cost)

    def _proposals(self) -> Iterator[Actions]:
        """Yields the best graphs of searches under all guides, from other forms, and under the environment's costs.

        The environment's own costs come last, because these searches may take long: what they meet may have to be
        measured.
        """
        first, *others = [self._ground.state(guide, self._own.num_locations) for guide in self._ground.guides]
        yield from self._searched("guide 0", first)
        yield from self._forms(self._start, first)
        for number, state in enumerate(others, 1):
            yield from self._searched(f"guide {number}", state)
        yield from self._searched("own", self._own)

    def _searched(self, source: str, state: State) -> Iterator[Actions]:
        for name, search in searches(state, SEARCH_SHARE * self._limits.seconds):
            yield self._once(f"{source}: {name}", search)

    def _forms(self, base: Candidate, like: State) -> Iterator[Actions]:
        for actions in forms(base, like):
            yield (*base.actions, *actions)

    def _once(self, source: str, search: Callable[[], Actions]) -> Actions:
        """Returns what a search has proposed, from the journal if it was done before."""
        found = self._journal.proposed(source)
        if found is None:
            found = search()
            self._journal.add("proposed", self._watch.elapsed(), source=source, actions=found)
        return found

    def _sorted(self, moves: Iterable[Move]) -> Iterator[Move]:
        """Yields moves in the order of the predicted costs of their graphs, as far as they are made in time."""
        made: list[tuple[float, Move]] = []
        until = self._watch.elapsed() + SORTED_SHARE * self._limits.seconds
        for move in moves:
            made.append((priced(move.of(self._start, self.best.candidate).state, self._ground.guides[0]), move))
            if self._watch.elapsed() >= until:
                yield from _in_order(made)
                made, until = [], self._watch.elapsed() + SORTED_SHARE * self._limits.seconds
        yield from _in_order(made)

    def _shortened(self, grouped: Callable[[Actions], list[Positions]]) -> bool:
        """Leaves groups of rewrites out of the best plan by halving; returns whether that made it faster."""
        before, plan = self.best, self.best.candidate.actions
        if not plan or self._limit_reached():
            return False
        self._race_halves(grouped(plan), lambda omitted: self._start.replay(without(self._start.state, plan, omitted)))
        return self.best is not before

    def _race_parts(self) -> None:
        """Times graphs that were not faster, and parts of them, on top of the best graph."""
        timed = self._journal.timed.values()
        lost = [line for line in timed if line["verdict"] != Verdict.FASTER and self._ratio(line) < NEAR]
        for line in sorted(lost, key=self._ratio)[:RECALLED]:
            plan = as_actions(line["actions"])
            groups = by_rule(plan)
            if len(groups) == 1:
                groups = by_place(self._start.state, plan)
            self._race([Move(plan)])
            self._race_halves(groups, partial(self._on_top, plan, groups))

    def _race_pooled(self) -> None:
        """Times together what has seemed to pay a little on top of the best graph.

        Gains too small for a race to tell add up to one that it can. Which of them are real is left to chance at first:
        the race of the whole is a fresh one, and what does not help is left out afterwards.
        """
        base = self.best.candidate
        lines = [line for line in self._journal.timed.values() if line["base"] == base.state.hash]
        seemed = sorted((line for line in lines if line["ratio"] < 1 - RULE.margin), key=self._ratio)
        plans = [as_actions(line["actions"]) for line in seemed]
        steps = [plan[len(base.actions) :] if plan[: len(base.actions)] == base.actions else plan for plan in plans]
        counts = {len(steps) // part for part in (1, 2, 4)} - {0, 1}
        self._race(Move(tuple(chain(*steps[:count]))) for count in sorted(counts, reverse=True))

    def _race_longer(self) -> None:
        """Times again what was undecided beside the best graph, what came nearest first, with more samples."""
        base = self.best.candidate.state.hash
        open_ = [
            line
            for line in self._journal.timed.values()
            if line["base"] == base and line["verdict"] == Verdict.UNDECIDED and line.get("patience", 1) == 1
        ]
        worth = sorted((line for line in open_ if line["ratio"] < 1 - RULE.worth), key=self._ratio)
        for lines in _batches(worth):
            if self.best.candidate.state.hash != base or self._limit_reached():
                return
            self._raced([self._start.replay(as_actions(line["actions"])) for line in lines], patience=PATIENCE)

    def _on_top(self, plan: Actions, groups: Sequence[Positions], kept: Sequence[Positions]) -> Candidate:
        """Returns what some groups of a plan's rewrites make of the best graph."""
        omitted = [group for group in groups if group not in kept]
        return self.best.candidate.replay(without(self._start.state, plan, omitted))

    def _race_halves(self, groups: Sequence[Positions], made: Callable[[Sequence[Positions]], Candidate]) -> None:
        """Times what halves of some groups make, then halves of these, until one is faster.

        A half that makes hardly a difference is not halved again.
        """
        before, level = self.best, halves(groups)
        while level and self.best is before and not self._limit_reached():
            following: list[Sequence[Positions]] = []
            for parts in _batches(level):
                candidates = [made(part) for part in parts]
                fresh = {each.state.hash: each for each in candidates if self._is_new(each)}
                if fresh:
                    self._raced(list(fresh.values()))
                if self.best is not before or self._limit_reached():
                    return
                for part, candidate in zip(parts, candidates, strict=True):
                    line = self._journal.timed.get(candidate.state.hash)
                    if line is not None and abs(self._ratio(line) - 1) > RULE.worth:
                        following += halves(part)
            level = following

    def _ratio(self, line: dict[str, Any]) -> float:
        """Returns the time of a graph that was timed over that of the best graph."""
        return float(line["ratio"] * line["base_ratio"] / self.best.ratio)


def _popped(waiting: deque[Move]) -> Iterator[Move]:
    while waiting:
        yield waiting.popleft()


def _in_order(made: list[tuple[float, Move]]) -> Iterator[Move]:
    yield from (move for _, move in sorted(made, key=lambda pair: pair[0]))


def _batches(level: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(level), TOGETHER):
        yield level[begin : begin + TOGETHER]
