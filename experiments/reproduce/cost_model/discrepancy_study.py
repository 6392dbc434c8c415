"""Run times of a zoo graph, and of graphs that rewriting makes of it, predicted by `measured:<device>` and measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

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
"""Whose units these are, whichever table asks for them."""
MOST_MATCHES = 4096
PROGRAM = 2
"""Of what a unit says."""
TOGETHER = 4
"""Graphs that are measured in one interleaved run: as many fit into memory."""

_RATIO = "of_yardstick"
"""Key of a stored result: the time of a graph over that of the reference kernel."""


@dataclass(frozen=True)
class Rewrites:
    """How many graphs of rewriting are measured, and how well.

    Attributes:
      random: graphs of random rewriting.
      rules: whether rules are applied wherever they apply, and wherever they do in the first part of the graph.
    """

    random: int
    rules: bool
    effort: Effort


QUICK = Effort(resolution=None, pairs=3, sessions=1, control=False)
SCALES = {
    "smoke": Rewrites(4, False, QUICK),
    "full": Rewrites(60, True, Effort(resolution=0.007, pairs=400, seconds=60, sessions=3, control=False)),
}
TIMINGS = {"smoke": 1, "full": 3}
"""Of each kernel, at least: a price is their mean, and one timing is off by what its neighbours did just then."""
LOOKS = {
    "smoke": [QUICK],
    "full": 3 * [Effort(resolution=None, pairs=200, seconds=20, sessions=2, control=False)],
}
"""At the zoo's graph itself, at different times."""


RANDOM = "random"
EARLY = 0.25
"""Part of a graph that counts as its first: the first stage of a ResNet, three layers of BERT."""


@dataclass(frozen=True)
class Rewritten:
    """
    Attributes:
      how: `RANDOM`, or the name of the rule that was applied wherever it applies, with `, early` in the first part.
    """

    state: State
    how: str
    steps: int


def at_random(start: State, count: int, seed: int) -> Iterator[Rewritten]:
    """Distinct graphs, each up to as many steps from the start as that has nodes: a legal rule, then a location."""
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
    """For each rule that applies to the start: the graph in which it has been applied until it applies no longer.

    Args:
      names: of the rules.
      most_steps: some rules never end.
    """
    met = {start.hash}
    for rule in np.unique(start.legal_actions()[:, 0]).tolist():
        state = start.copy()
        actions = exhaust(state, rule, most_steps)
        if state.hash not in met and affordable(start.cost, state.cost):
            met.add(state.hash)
            yield Rewritten(state, names[rule], len(actions))


def early(start: State, names: list[str], most_steps: int = MOST_STEPS) -> Iterator[Rewritten]:
    """The same where rules apply in the first part of the graph only, for those that apply elsewhere too.

    What pays where activations are large may cost where they are small.
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
    """One graph of the zoo and those that rewriting makes of it; what is finished is not measured again."""

    def __init__(
        self, name: str, rules: RuleSet, costs: Measured, scale: str, seed: int, progress: ProgressDisplay
    ) -> None:
        self.name = name
        self._rules, self._costs, self._seed, self._progress = rules, costs, seed, progress
        self._scale_name, self._scale = scale, SCALES[scale]
        self._kernels = KernelPrices(costs.prices, costs.runtime, costs.clock)
        self._measured_with: Record = {"setting": str(setting_of(costs.runtime)), "feeds": TIMED_ON}

    def kernels(self) -> list[str]:
        """Signatures of the prices that its predictions are made of; measures what is not finished."""
        return list(dict.fromkeys(key for unit in self._units for key in unit["kernels"]))

    def time_kernels(self, timings: int) -> None:
        """Times once more those that have been timed less often, or never: units may be older than the database."""
        known = self._kernels.prices
        if rare := [key for key in self.kernels() if (price := known.get(key)) is None or price.timings < timings]:
            with self._progress.stage(f"{self.name}: kernels, time {timings}", len(rare)) as bar:
                for done, key in enumerate(rare, 1):
                    weights_mb, kernel = split_key(key)
                    self._kernels.price(kernel, weights_mb, anew=True)
                    bar.update(done)

    def record(self) -> Record:
        """What is predicted, by the prices as they are now, and what was measured. All kernels must have been timed.

        Returns:
          "graph"; "summed_ms", of one inference of the zoo's graph by its kernels' prices; "points", for each graph
          made of it: "how" it was made and in how many "steps", its "measured" ratio to the zoo's graph with its
          "half_width", and its ratios by the "fast" and the "full" model; "timings", of every kernel.
        """
        units = self._units
        return {
            "graph": self.name,
            "summed_ms": self._ms(units[0], units[0]["full"]),
            "points": [self._predicted(unit, point) for unit in units for point in unit["points"]],
            "timings": [self._kernels.prices[key].timings for key in self.kernels()],
        }

    @cached_property
    def _units(self) -> list[Record]:
        return [self._once("", self._whole), self._once("-early", self._early)]

    def look(self, number: int) -> float:
        """Milliseconds of one inference of the zoo's graph, in the unit of kernels' prices: of those that are known."""
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
        """What a bill comes to."""
        prices = self._kernels.prices
        return math.fsum(count * prices[unit["kernels"][int(number)]].ms for number, count in bill.items())

    def _once(self, kind: str, make: Callable[[State], list[Rewritten]]) -> Record:
        settings: Record = {"scale": asdict(self._scale), "rules": self._rules.fingerprint, "seed": self._seed}
        settings |= {"program": PROGRAM, "appraisals": OPERATOR_COSTS, **self._measured_with}
        unit = f"{self.name}{kind}-{self._scale_name}"
        part = unit_path(TABLE, unit, settings).with_suffix(".part")
        record = once(TABLE, unit, settings, lambda: self._measured(make, f"{self.name}{kind}", part))
        part.unlink(missing_ok=True)
        return record

    def _whole(self, start: State) -> list[Rewritten]:
        made = list(at_random(start, self._scale.random, self._seed))
        return made + (list(everywhere(start, self._rules.names)) if self._scale.rules else [])

    def _early(self, start: State) -> list[Rewritten]:
        return list(early(start, self._rules.names)) if self._scale.rules else []

    def _measured(self, make: Callable[[State], list[Rewritten]], title: str, part: Path) -> Record:
        """A unit; what is measured of it is in `part` until it is finished, and goes on from there."""
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
        """The measured ratios of some graphs."""
        found = measure(
            Variant("start", self._costs.runtime, model.export_checked(model.graph)),
            [Variant(each.how, self._costs.runtime, model.export_checked(each.state.graph)) for each in batch],
            self._scale.effort,
        )
        ratios = [each.ratio for each in found.candidates]
        return [{"measured": ratio.value, "half_width": ratio.half_width} for ratio in ratios]


def of_rules(record: Record) -> list[Record]:
    """The points of a study that one rule has made, without those of random rewriting."""
    return [point for point in record["points"] if point["how"] != RANDOM]


def records(found: Sequence[MeasuredGraph], timings: int) -> list[Record]:
    """The records of studies whose kernels have been timed a number of times, each time all others after it.

    A neighbour that keeps the machine busy for some minutes is then in one of a kernel's timings, not in all.
    """
    for number in range(1, timings + 1):
        for study in found:
            study.time_kernels(number)
    return [study.record() for study in found]
