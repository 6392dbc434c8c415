"""How far `measured:<device>` is from the run times of whole graphs, and whether it knows what a rewrite does to them.

rlflow reproduce discrepancy

The first figures are of the zoo's graphs as they are: the sum of their kernels' prices, times one factor fitted on all
other graphs. The others are of graphs that rewriting makes of each: at random, and by one rule wherever it applies.
Their ratio to the start is predicted, by the full model and by the fast one, and measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from environment import zoo
from environment.correlation import spearman
from environment.costs.measured import Measured, MeasuredPrices
from environment.effort import Effort
from environment.timing import Variant, measure
from experiments.progress import ProgressDisplay
from experiments.reproduce import graphs
from experiments.reproduce.agreement import left_out_scales, signs_right
from experiments.reproduce.rewritten import Rewritten, at_random, everywhere
from experiments.reproduce.tables import Table
from experiments.reproduce.units import Record, once
from experiments.warnings_noted import warnings_noted
from taso_ext import CostModel, OnnxModel, RuleSet, State

MOST_MATCHES = 4096
BEYOND = 0.02
"""Ratios that differ from 1 by less say nothing of the sign."""
TOGETHER = 4
"""Graphs that are measured in one interleaved run: as many fit into memory."""

COLUMNS = {
    "graph": "cleaned in full",
    "measured_ms": "one inference",
    "summed_ms": "the sum of its kernels' prices",
    "error": "of the sum times a factor fitted on all other graphs [%]",
    "graphs": "rewritten graphs that were measured",
    "noise": "median half-width of the intervals of their measured ratios [%]",
    "spread": "standard deviation of their measured ratios [%]",
    "fast": "rank correlation of their predicted and measured ratios (Spearman), fast model",
    "full": "the same, full model",
    "differ": f"how many of them differ from the start by over {BEYOND:.0%}",
    "fast_signs": "for how many of these the fast model has the sign right [%]",
    "full_signs": "the same, full model",
}
FORMATS = {
    "measured_ms": ".2f",
    "summed_ms": ".2f",
    "error": "+.1f",
    "noise": ".2f",
    "spread": ".1f",
    "fast": ".3f",
    "full": ".3f",
    "fast_signs": ".0f",
    "full_signs": ".0f",
}


@dataclass(frozen=True)
class Scale:
    """How many graphs are measured, and how well."""

    random: int
    rules: bool
    effort: Effort


SCALES = {
    "smoke": Scale(4, False, Effort(resolution=None, pairs=3, sessions=1, control=False)),
    "full": Scale(60, True, Effort(resolution=0.004, pairs=200, seconds=30, sessions=3, control=False)),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside those of all tables."""
    graphs.add_option(parser)
    parser.add_argument("--device", default="cpu", help="where to measure (cpu)")
    parser.add_argument("--threads", type=int, default=1, help="of ONNX Runtime (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the random rewriting (0)")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Measures each graph and what is made of it; finished graphs are not measured again."""
    names = graphs.chosen(options.graphs)
    rules, costs, scale = RuleSet.default(), Measured(options.device, threads=options.threads), SCALES[options.scale]
    label = costs.runtime.label
    settings = {"scale": asdict(scale), "rules": rules.fingerprint, "runtime": label, "seed": options.seed}
    records: list[Record] = []
    with warnings_noted(progress), progress.stage("measure", total=len(names)) as bar:
        for name in names:
            study = Study(name, rules, costs, scale, options.seed)
            records.append(once("discrepancy", f"{name}-{options.scale}", settings, study.run))
            bar.update(len(records))
    return Table(
        "discrepancy",
        f"What measured:{options.device} predicts, against what is measured",
        COLUMNS,
        FORMATS,
        _rows(records),
        options.command_line,
        f"{label}. Mean absolute error {_mean_error(records):.1f} %.",
    )


def _rows(records: Sequence[Record]) -> list[Record]:
    errors = _errors(records)
    return [_row(record, error) for record, error in zip(records, errors, strict=True)]


def _errors(records: Sequence[Record]) -> list[float]:
    """Percent."""
    summed, measured = ([record[key] for record in records] for key in ("summed_ms", "measured_ms"))
    scaled = np.array(summed) * left_out_scales(summed, measured)
    errors: list[float] = (100 * (scaled / np.array(measured) - 1)).tolist()
    return errors


def _mean_error(records: Sequence[Record]) -> float:
    return float(np.mean(np.abs(_errors(records))))


def _row(record: Record, error: float) -> Record:
    points = record["points"]
    measured, fast, full = (np.array([point[key] for point in points]) for key in ("measured", "fast", "full"))
    (fast_right, differ), (full_right, _) = (signs_right(side, measured, BEYOND) for side in (fast, full))
    return {
        "graph": record["graph"],
        "measured_ms": record["measured_ms"],
        "summed_ms": record["summed_ms"],
        "error": error,
        "graphs": len(points),
        "noise": 100 * float(np.median([point["half_width"] for point in points])),
        "spread": 100 * float(np.std(measured)),
        "fast": spearman(fast, measured),
        "full": spearman(full, measured),
        "differ": differ,
        "fast_signs": 100 * fast_right / differ if differ else "–",
        "full_signs": 100 * full_right / differ if differ else "–",
    }


class Study:
    """One graph of the zoo and those that rewriting makes of it."""

    def __init__(self, name: str, rules: RuleSet, costs: Measured, scale: Scale, seed: int) -> None:
        self._name, self._rules, self._costs, self._scale, self._seed = name, rules, costs, scale, seed

    def run(self) -> Record:
        """What was predicted and measured."""
        model = OnnxModel.load(zoo.build(self._name))
        costs = MeasuredPrices(model, self._costs.runtime, self._costs.prices, clock=self._costs.clock)
        start = State(model.graph, self._rules, CostModel.roofline("rtx2070"), MOST_MATCHES)
        made = list(at_random(start, self._scale.random, self._seed))
        if self._scale.rules:
            made += everywhere(start, self._rules.names)
        summed_ms, fast_ms = costs.full(model.graph).ms, model.graph.cost(costs.native).ms
        points: list[Record] = []
        measured_ms: list[float] = []
        for begin in range(0, len(made), TOGETHER):
            batch = made[begin : begin + TOGETHER]
            found, ms = self._measured(model, batch)
            measured_ms.append(ms)
            for each, record in zip(batch, found, strict=True):
                graph = each.state.graph
                record |= {"fast": graph.cost(costs.native).ms / fast_ms, "full": costs.full(graph).ms / summed_ms}
                points.append(record | {"how": each.how, "steps": each.steps})
        return {
            "graph": self._name,
            "measured_ms": float(np.median(measured_ms)),
            "summed_ms": summed_ms,
            "points": points,
        }

    def _measured(self, model: OnnxModel, batch: Sequence[Rewritten]) -> tuple[list[Record], float]:
        """The measured ratios of some graphs, and the milliseconds of the start."""
        found = measure(
            Variant("start", self._costs.runtime, model.export_detached(model.graph)),
            [Variant(each.how, self._costs.runtime, model.export_detached(each.state.graph)) for each in batch],
            self._scale.effort,
        )
        ratios = [each.ratio for each in found.candidates]
        records: list[Record] = [{"measured": ratio.value, "half_width": ratio.half_width} for ratio in ratios]
        return records, found.reference.ms.value
