"""Run times of a zoo graph, and of graphs that rewriting makes of it, predicted by `measured:<device>` and measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from controller.search.native import MOST_MATCHES
from controller.search.passes import MOST_STEPS, exhaust
from environment import zoo
from environment.costs.limits import affordable
from environment.costs.measured.benchmark import measure_beside, usual_ms
from environment.costs.measured.cost_model import Measured
from environment.costs.measured.kernel_prices import KernelPrices, split_key
from environment.costs.prices.price_list import OPERATOR_COSTS
from environment.costs.prices.settings import setting_of
from environment.inputs import TIMED_ON, input_specs, timing_feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.policies.random import random_step
from experiments.executors.units import Record, once, unit_path
from experiments.runs.progress import ProgressDisplay
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State
from taso_ext.files import write_text

TABLE = "discrepancy"
"""The table whose folder keeps the units, whichever table asks for them."""
PROGRAM = 2
"""Version of a unit's contents: units of other versions are not read."""
TOGETHER = 4
"""Number of graphs that are measured in one interleaved run: as many as fit into memory."""

_RATIO = "of_yardstick"
"""Key of a stored result: the time of a graph over that of the reference kernel."""


@dataclass(frozen=True)
class Rewrites:
    """The rewritten graphs that are measured, and the effort.

    Each rule is also applied alone: wherever it applies, and wherever it does in the first part of the graph.

    Attributes:
      random: the number of graphs of random rewriting.
      effort: the effort of each measurement.
    """

    random: int
    effort: Effort


QUICK = Effort(resolution=None, pairs=3, sessions=1, control=False)
SCALES = {
    "smoke": Rewrites(4, QUICK),
    "full": Rewrites(60, Effort(resolution=0.007, pairs=400, seconds=60, sessions=3, control=False)),
}
TIMINGS = {"smoke": 1, "full": 3}
"""Smallest number of timings of each kernel. A price is their mean, because other users of the machine distort a single
timing."""
LOOKS = {
    "smoke": [QUICK],
    "full": 3 * [Effort(resolution=None, pairs=200, seconds=20, sessions=2, control=False)],
}
"""Efforts of the measurements of the zoo's graph itself, which are made at different times."""


RANDOM = "random"
EARLY = 0.25
"""Fraction of a graph that counts as its first part: the first stage of a ResNet, three layers of BERT."""


@dataclass(frozen=True)
class Rewritten:
    """A graph that rewriting has made.

    Attributes:
      state: the graph with its legal rewrites.
      how: `RANDOM`, or the name of the rule that was applied wherever it applies; with `, early` if it was applied in
        the first part only.
      steps: the number of rewrites that were applied.
    """

    state: State
    how: str
    steps: int


def at_random(start: State, count: int, seed: int) -> Iterator[Rewritten]:
    """Yields distinct graphs of random rewriting, `count` of them unless 20 tries for each are not enough.

    Each is at most as many steps from the start as the start graph has nodes. A step draws a legal rule, then one of
    its locations. Graphs that are too large to be run are left out.
    """
    rng = np.random.default_rng(seed)
    met, most_steps = {start.hash}, len(start.graph.nodes())
    found = 0
    for _ in range(20 * count):
        steps = int(rng.integers(1, most_steps + 1))
        state, taken = start.copy(), 0
        while taken < steps and random_step(state, rng):
            taken += 1
        if state.hash in met or not affordable(start.cost, state.cost):
            continue
        met.add(state.hash)
        found += 1
        yield Rewritten(state, RANDOM, taken)
        if found == count:
            return


def everywhere(start: State, names: list[str], most_steps: int = MOST_STEPS) -> Iterator[Rewritten]:
    """Yields for each rule that applies to the start the graph in which it was applied until it no longer applies.

    Args:
      names: the names of all rules.
      most_steps: the limit of applications, because some rules never end.
    """
    met = {start.hash}
    for rule in np.unique(start.legal_actions()[:, 0]).tolist():
        state = start.copy()
        actions = exhaust(state, rule, most_steps)
        if state.hash not in met and affordable(start.cost, state.cost):
            met.add(state.hash)
            yield Rewritten(state, names[rule], len(actions))


def early(start: State, names: list[str], most_steps: int = MOST_STEPS) -> Iterator[Rewritten]:
    """Yields graphs as `everywhere` does, with rules applied in the first part only; skips rules that apply only there.

    A rewrite that pays where activations are large may cost time where they are small.
    """
    met = {start.hash}
    end = int(EARLY * len(start.graph.nodes()))
    for rule in np.unique(start.legal_actions()[:, 0]).tolist():
        places = np.flatnonzero(start.location_mask()[rule])
        if (places < end).all():
            continue
        state, steps = start.copy(), 0
        while steps < most_steps and len(places := np.flatnonzero(state.location_mask()[rule][:end])):
            state.step(rule, int(places[0]))
            steps += 1
        if state.hash not in met and affordable(start.cost, state.cost):
            met.add(state.hash)
            yield Rewritten(state, f"{names[rule]}, early", steps)


class MeasuredGraph:
    """A graph of the zoo and the graphs that rewriting makes of it; finished ones are not measured again."""

    def __init__(
        self, name: str, rules: RuleSet, costs: Measured, scale: str, seed: int, progress: ProgressDisplay
    ) -> None:
        self.name = name
        self._rules, self._costs, self._seed, self._progress = rules, costs, seed, progress
        self._scale_name, self._scale = scale, SCALES[scale]
        self._kernels = KernelPrices(costs.prices, costs.runtime, costs.clock)
        self._measured_with: Record = {"setting": str(setting_of(costs.runtime)), "feeds": TIMED_ON}

    def kernels(self) -> list[str]:
        """Returns the signatures of the prices that the predictions need; measures what is not finished."""
        return list(dict.fromkeys(key for unit in self._units for key in unit["kernels"]))

    def time_kernels(self, timings: int) -> None:
        """Times each kernel once more that was timed fewer than `timings` times.

        It may never have been timed: units may be older than the database.
        """
        known = self._kernels.prices
        if rare := [key for key in self.kernels() if (price := known.get(key)) is None or price.timings < timings]:
            with self._progress.stage(f"{self.name}: kernels, time {timings}", len(rare)) as bar:
                for done, key in enumerate(rare, 1):
                    weights_mb, kernel = split_key(key)
                    self._kernels.price(kernel, weights_mb, anew=True)
                    bar.update(done)

    def record(self) -> Record:
        """Returns the predictions, by the present prices, and the measurements. All kernels must have been timed.

        Returns:
          "graph", its name; "summed_ms", the sum of the prices of its kernels; "points", for each graph made of it
          "how" it was made and in how many "steps", its "measured" ratio to the zoo's graph with the "half_width" of
          the interval, and its ratios by the "fast" and the "full" model; "timings", how often each kernel was timed.
        """
        units = self._units
        return {
            "graph": self.name,
            "summed_ms": self._ms(units[0], units[0]["full"]),
            "points": [self._predicted(unit, point) for unit in units for point in unit["points"]],
            "timings": [self._kernels.of(key).timings for key in self.kernels()],
        }

    @cached_property
    def _units(self) -> list[Record]:
        return [self._once("", self._whole), self._once("-early", self._early)]

    def look(self, number: int) -> float:
        """Returns the measured time of one inference of the zoo's graph, in the milliseconds of kernel prices.

        The reference kernel must have been timed before, which happens when any kernel is priced.

        Args:
          number: the index of the effort in `LOOKS`.
        """
        effort = LOOKS[self._scale_name][number]
        settings: Record = {"effort": asdict(effort), **self._measured_with}
        unit = f"{self.name}-look{number}-{self._scale_name}"
        of_reference: float = once(TABLE, unit, settings, lambda: self._beside_reference(effort))[_RATIO]
        reference_ms = self._kernels.prices.reference_ms
        assert reference_ms is not None, "kernels have been priced"
        return of_reference * usual_ms(reference_ms)

    def _beside_reference(self, effort: Effort) -> Record:
        model = OnnxModel.load(zoo.build(self.name))
        detached = model.export_checked(model.graph)
        feeds = timing_feeds(input_specs(detached), np.random.default_rng(self._seed))
        timing = measure_beside(detached, self._costs.runtime, effort, feeds)
        return {_RATIO: timing.ratio.value, "half_width": timing.ratio.half_width}

    def _predicted(self, unit: Record, point: Record) -> Record:
        ratios = {model: self._ms(unit, point[model]) / self._ms(unit, unit[model]) for model in ("fast", "full")}
        return point | ratios

    def _ms(self, unit: Record, bill: Mapping[str, int]) -> float:
        """Returns the sum of the prices in a bill.

        Args:
          bill: the runs of each kernel, by the kernel's number in the unit.
        """
        kernels = self._kernels
        return math.fsum(count * kernels.of(unit["kernels"][int(number)]).ms for number, count in bill.items())

    def _once(self, kind: str, make: Callable[[State], list[Rewritten]]) -> Record:
        settings: Record = {"scale": asdict(self._scale), "rules": self._rules.fingerprint, "seed": self._seed}
        settings |= {"program": PROGRAM, "appraisals": OPERATOR_COSTS, **self._measured_with}
        unit = f"{self.name}{kind}-{self._scale_name}"
        part = unit_path(TABLE, unit, settings).with_suffix(".part")
        record = once(TABLE, unit, settings, lambda: self._measured(make, f"{self.name}{kind}", part))
        part.unlink(missing_ok=True)
        return record

    def _whole(self, start: State) -> list[Rewritten]:
        at_once = everywhere(start, self._rules.names)
        return [*at_random(start, self._scale.random, self._seed), *at_once]

    def _early(self, start: State) -> list[Rewritten]:
        return list(early(start, self._rules.names))

    def _measured(self, make: Callable[[State], list[Rewritten]], title: str, part: Path) -> Record:
        """Measures a unit and returns its record.

        The file `part` keeps the measurements until the unit is finished; an interrupted run goes on from there.
        """
        model = OnnxModel.load(zoo.build(self.name))
        costs = self._costs.of(model)
        start = State(model.graph, self._rules, CostModel.roofline("rtx2070"), MOST_MATCHES)
        made = make(start)
        stored: Record = (
            json.loads(part.read_text(encoding="utf-8")) if part.is_file() else {"points": [], "kernels": []}
        )
        points, numbers = stored["points"], {key: number for number, key in enumerate(stored["kernels"])}

        def bills(graph: Graph) -> Record:
            billed = {"fast": costs.fast_bill(graph), "full": costs.full_bill(graph)}
            return {
                model: {str(numbers.setdefault(key, len(numbers))): count for key, count in sorted(bill.items())}
                for model, bill in billed.items()
            }

        of_start = bills(model.graph)
        with self._progress.stage(f"{title}: measure", len(made)) as bar:
            for begin in range(len(points), len(made), TOGETHER):
                batch = made[begin : begin + TOGETHER]
                for each, record in zip(batch, self._ratios(model, batch), strict=True):
                    points.append(record | {"how": each.how, "steps": each.steps} | bills(each.state.graph))
                write_text(part, json.dumps({"points": points, "kernels": list(numbers)}))
                bar.update(len(points))
        return {"graph": self.name, **of_start, "points": points, "kernels": list(numbers)}

    def _ratios(self, model: OnnxModel, batch: Sequence[Rewritten]) -> list[Record]:
        """Measures the run times of some graphs as ratios to the start graph's."""
        found = measure(
            Variant("start", self._costs.runtime, model.export_checked(model.graph)),
            [Variant(each.how, self._costs.runtime, model.export_checked(each.state.graph)) for each in batch],
            self._scale.effort,
        )
        ratios = [each.ratio for each in found.candidates]
        return [{"measured": ratio.value, "half_width": ratio.half_width} for ratio in ratios]


def of_rules(record: Record) -> list[Record]:
    """Returns the points of a study that single rules have made, without those of random rewriting."""
    return [point for point in record["points"] if point["how"] != RANDOM]


def records(found: Sequence[MeasuredGraph], timings: int) -> list[Record]:
    """Times the kernels of all studies until each has been timed `timings` times, and returns the studies' records.

    All kernels are timed once before any is timed again. So another user who keeps the machine busy for some minutes
    distorts one timing of a kernel, not all of them.
    """
    for number in range(1, timings + 1):
        for study in found:
            study.time_kernels(number)
    return [study.record() for study in found]
