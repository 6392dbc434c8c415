"""`climb`: a search whose only judge is the clock. Graphs race on the device against the best graph so far.

The first graphs to race are those that quick searches propose under many cost models, and what one rule makes of the
model wherever it applies; those that a cheap prediction calls the fastest come first. Then parts of them race, which
are found by halving: rewrites are grouped by rule or by alike places, and of what remains of a plan without half of its
groups, only what is neither faster nor equally fast is halved again. Last, the climb looks around the fastest graph.
It moves to a graph as soon as that is surely faster, and goes on from there until nothing helps.

Graphs that run the same kernels take the same time, and only one of them is timed. Everything is written into a
journal, so that a climb that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from controller.interface import ProgressCallback
from controller.search.ascent import RULE, SEARCH_SHARE, TOGETHER, Ascent, Best
from controller.search.journal import Journal
from controller.search.portfolio import Actions, Candidate, rooflines
from controller.search.replayed import Found, Search, SearchLimits, StopReason
from environment.costs.limits import Recent
from environment.costs.measured.ort_kernels import lower
from environment.inputs import Feeds, input_specs, timing_feeds
from environment.measurement.racing import Outcome, race
from environment.measurement.stopwatch import Stopwatch
from environment.measurement.timing import Variant
from environment.runtimes import OnnxRuntime, UnavailableError
from environment.runtimes.onnx_runtime import kernel_devices
from taso_ext import CostModel, ModelError, OnnxModel, RuleSet, State
from taso_ext.onnx_io.checked_model import CheckedModel

RANKING = "rtx2070"
"""The roofline preset of the climb's states; it tells apart the places at which a rule does different work."""
RACE_SHARE = 0.05
"""Largest part of the time that one heat may take: a noisy machine leaves more undecided, but not everything."""
SECONDS = 300.0
"""Default limit of time."""
REPORT_S = 2.0
"""Shortest time between two reports of progress within a race."""
LONGEST_STEP_S = 600.0
"""Steps of the clock of more than this are jumps, unless the limits of time allow a search to take as long."""


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
        *,
        guides: Sequence[CostModel] | None = None,
        given: Sequence[Actions] = (),
        journal: Path | None = None,
        on_faster: Callable[[Best], object] = lambda best: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
          runtime: the runtime that runs the graphs; None means one thread of the CPU.
          limits: the time after which no other graph is timed, and the budget of graphs to time; the other limits do
            not apply. None means `SECONDS`.
          feeds: arrays by input name to time with; None means random ones.
          is_asked_to_end: returns whether the climb is to end with the best graph so far; asked between samples.
          guides: the cost models under which searches propose graphs, beside the environment's own. The first one
            predicts which graphs are timed first. None means all rooflines.
          given: plans from elsewhere; their graphs race first.
          journal: the file of the journal; None keeps it in memory.
          on_faster: called with every graph that the climb moves to.
          now: returns wall-clock seconds.
        """
        super().__init__(limits or SearchLimits(seconds=SECONDS))
        self._runtime, self._feeds, self.is_asked_to_end = runtime or OnnxRuntime(), feeds, is_asked_to_end
        self.guides: Sequence[CostModel] = list(guides) if guides is not None else rooflines(self._runtime.device)
        self.given: Sequence[Actions] = [tuple(plan) for plan in given]
        self._journal_path, self._on_faster, self._now = journal, on_faster, now
        self._model: OnnxModel | None = None
        self._rules: RuleSet | None = None
        self._seed = 0
        self._begin_anew(None)

    def _begin_anew(self, on_progress: ProgressCallback | None) -> None:
        self._exports: Recent[CheckedModel] = Recent(TOGETHER + 1)
        self.bills: dict[str, str | None] = {}
        self._journal, self._watch = Journal(None, {}), Stopwatch(now=self._now)
        self._on_progress, self._reported_s, self._ratio = on_progress, -math.inf, 1.0

    @property
    def limits(self) -> SearchLimits:
        """The limits of the climb."""
        return self._limits

    @property
    def timed(self) -> int:
        """Number of graphs that were timed against a better one, those of earlier commands included."""
        return len(self._journal.timed)

    @property
    def total(self) -> int:
        """The limit of time in seconds; of graphs to time if there is none."""
        return round(self._limits.seconds) or self._limits.budget

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        """Climbs from the start graph of `world`, the real environment.

        Raises:
          JournalError: the journal is damaged or belongs to something else.
          UnavailableError: the device has disappeared; what was timed is in the journal.
          ClockError: the clock stands still or runs backwards; the same holds.
        """
        env = world.unwrapped
        self._model, self._rules = env.model, env.rules
        super().train(world, seed=seed, on_progress=on_progress)

    def find(self, state: State, seed: int, on_progress: ProgressCallback | None) -> Found:
        """Climbs; see `Search.find`. The seed is that of the races; the cost is that of the ranking cost model."""
        self._seed = seed
        assert self._rules is not None, "train has set it"
        self._begin_anew(on_progress)
        identity = {"graph": state.hash, "rules": self._rules.fingerprint, "runtime": self._runtime.label}
        self._journal = Journal(self._journal_path, identity)
        longest_s = max(LONGEST_STEP_S, 2 * SEARCH_SHARE * self._limits.seconds)
        self._watch = Stopwatch(self._journal.elapsed_s, longest_step_s=longest_s, now=self._now)
        start = self.start(state.num_locations)
        ascent = Ascent(self, start, state, self._journal, self._watch, self._moved, self._report_at_once)
        self._ratio = ascent.best.ratio
        cause = ascent.run()
        best = ascent.best.candidate
        return Found(list(best.actions), best.state.cost.ms, StopReason(cause))

    def start(self, num_locations: int) -> Candidate:
        """Returns the start graph under the cost model that ranks places."""
        return Candidate(self.state(CostModel.roofline(RANKING), num_locations), ())

    def compare(self, reference: State, candidates: Sequence[State], patience: int = 1) -> list[Outcome]:
        """Returns the outcome of a race of graphs against a reference.

        Args:
          patience: how many times the usual samples and time the race may take.

        Raises:
          ModelError: a graph cannot be written, or the runtime cannot run it.
        """
        models = [self._exported(state) for state in (reference, *candidates)]
        variants = [Variant(str(number), self._runtime, model) for number, model in enumerate(models)]
        return race(
            variants[0],
            variants[1:],
            replace(RULE, seed=self._seed, pairs=patience * RULE.pairs),
            feeds=self._feeds,
            seconds=self._race_seconds(patience),
            ends_with_leader=True,
            is_same=lambda candidate: self._is_same(reference, candidates[candidate]),
            on_round=self._report,
            is_asked_to_end=self.is_asked_to_end,
            now=self._watch.elapsed,
        )

    def bill(self, state: State) -> str | None:
        """Returns a name of the kernels that the runtime makes of a graph; None if that cannot be found out."""
        if state.hash not in self.bills:
            self.bills[state.hash] = self._found_bill(state)
        return self.bills[state.hash]

    def _found_bill(self, state: State) -> str | None:
        if self._runtime.device not in kernel_devices():
            return None
        assert self._model is not None
        try:
            placed = lower(self._model.sketch(state.graph).model, self._runtime)
        except ModelError:
            return None
        kernels = Counter(repr(each.kernel) for each in placed)
        return hashlib.sha256(repr(sorted(kernels.items())).encode()).hexdigest()[:32]

    def _is_same(self, reference: State, state: State) -> bool:
        """Returns whether a graph runs the same kernels as the reference or as one that was not faster."""
        known = {self.bill(reference), *self._journal.bills}
        return self.bill(state) in known - {None}

    def _exported(self, state: State) -> CheckedModel:
        """Returns a graph as a model; the last ones are kept, because the best one is timed again and again."""
        assert self._model is not None
        model = self._model
        return self._exports.get(state.hash, lambda: model.export_checked(state.graph))

    def state(self, costs: CostModel, num_locations: int) -> State:
        """Returns the start graph's state under some costs."""
        assert self._model is not None and self._rules is not None, "train has set them"
        return State(self._model.graph, self._rules, costs, num_locations, self._model.waypoints)

    def _race_seconds(self, patience: int) -> float:
        """Returns the limit of time of each heat of the next race."""
        if not self._limits.seconds:
            return math.inf
        left = self._limits.seconds - self._watch.elapsed()
        return max(min(patience * RACE_SHARE * self._limits.seconds, left), 0.0)

    def _moved(self, best: Best) -> None:
        self._ratio = best.ratio
        self._on_faster(best)

    def _report_at_once(self) -> None:
        self._reported_s = -math.inf
        self._report()

    def _report(self) -> None:
        elapsed = self._watch.elapsed()
        if self._on_progress is None or elapsed - self._reported_s < REPORT_S:
            return
        self._reported_s = elapsed
        figures = {"best_percent": 100 * (1 - self._ratio), "timed": float(self.timed)}
        done = elapsed if self._limits.seconds else self.timed
        self._on_progress(min(round(done), self.total), self.total, figures)

    def require_device(self, base: State) -> None:
        """Checks that a graph that was timed before still runs.

        Raises:
          UnavailableError: it does not.
        """
        if not self._journal.timed:
            return  # perhaps the runtime could never run it
        try:
            model = self._exported(base)
            feeds = self._feeds or timing_feeds(input_specs(model), np.random.default_rng(RULE.seed))
            self._runtime.open(model, feeds).run()
        except (ModelError, UnavailableError) as error:
            raise UnavailableError(
                f"{self._runtime.label} no longer runs a graph that it has run before: {error} Its device may be gone, "
                f"or in use by others. What was timed is kept: repeat the command once the device works again."
            ) from error
