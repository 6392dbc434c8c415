"""How many timings of whole graphs a controller needs to come near the fastest graph that any of them finds.

rlflow reproduce sample-efficiency
rlflow reproduce sample-efficiency nasrnn --rows climb,taso --seeds 0,1
rlflow reproduce sample-efficiency nasrnn --costs endtoend

Each run begins with the shipped prices, adapted to this machine by the clock (at most 64 kernels), and nothing that
another run has timed. What learns and what searches find graphs by predicted prices, with as many seconds for a search
as a climb has; the cheapest of them race against the model. A climb has no other judge than the clock. The ratio of
each result comes from a last measurement, which decides nothing.

By `--costs endtoend`, what learns and what searches times at most 64 whole graphs in batches before its race, and
prices agree with these timings; they count too.

Figures of each graph show gains against timings and against seconds: a climb moves while it times graphs, and all
others have their gain at the end of their race. What they have found before has costs by the prices alone, of which no
record says what they are by the clock, so that there is no finer course of them.

On BERT-Tiny, the rows of a seed take 1 (climb, TASO), 6 (random play, PPO on the engine), 10 (PPO in dreams) and 14
minutes (`mcts`); graphs whose kernels take longer to time need more.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.config.run import load_config
from experiments.errors import UserError
from experiments.executors.units import Record
from experiments.reproduce.options import (
    add_device,
    add_graphs,
    add_seeds,
    chosen_graphs,
    chosen_seeds,
    named,
    run_units,
)
from experiments.reproduce.search.anytime import MOST_TIMED, reached
from experiments.reproduce.search.default_runs import DefaultRun, ratio_of
from experiments.reproduce.search.plays import SMALL
from experiments.reproduce.table import OVER_SEEDS, UNDEFINED, WHOLE, Table, interval_of_seeds, of_seeds
from experiments.runs.progress import ProgressDisplay

GRAPHS = ("minilm-l6", "bert-l2-h128", "nasrnn", "resnet18", "inception-v3")
SEEDS = "0,1,2,3,4"
NEAR = 0.95
"""Share of the largest known gain of a graph that a run has to reach."""
WORTH = 0.01
"""A graph does not count if the largest known gain is below this."""
SECONDS = 300
COSTS = {
    "measured": ("measured", "predicted from the shipped prices"),
    "endtoend": (f"endtoend:timings={MOST_TIMED}", "predicted, and corrected by timings of whole graphs in batches"),
}
"""The kinds of costs that there are on every device: with their parameters, and what they are."""
_ALONE = "evaluate.climb_seconds=0"
"""No climb goes on from what a controller has found."""


@dataclass(frozen=True)
class Row:
    """A way to find a graph.

    Attributes:
      preset, settings: as for `--preset` and `--set`.
    """

    preset: str
    settings: tuple[str, ...] = ()

    @property
    def learns(self) -> bool:
        """Whether it learns."""
        return bool(load_config(self.preset, {}, self.settings).learns_in)


ROWS: Mapping[str, Row] = {
    "ppo-dream": Row("demo", ("controller=ppo", "world=dream", _ALONE)),
    "ppo-real": Row("demo", ("controller=ppo", "world=real", _ALONE)),
    "mcts-real": Row("demo", ("controller=mcts", "world=real", _ALONE)),
    "taso": Row("auto", ("controller=taso", "search.budget=50000")),
    "random": Row("auto", ("controller=best-of-n", "search.budget=1000000")),
    "climb": Row("auto"),
}
"""The rows by name."""
DREAM = "ppo-dream"
"""The row that is to need the fewest timings, and at most `MOST_TIMED`."""

COLUMNS = {
    "graph": "as the zoo builds it",
    "row": "the controller, and the world that it learns in",
    "seeds": "runs",
    "gain": "time that the result saves, mean of the seeds [% of the model's time]",
    **OVER_SEEDS,
    "near": f"runs that reach {NEAR:.0%} of the largest gain of all runs",
    "timings": "whole graphs that these runs have timed until they were there, mean",
    "fewest": "95 % interval of this mean, lower end",
    "most": "upper end",
    "timed": "whole graphs that all runs have timed in all, mean",
    "kernels": "timings of kernels of these runs, those that adapt the shipped prices included, mean: all of a run. A "
    "race begins when all are done; a climb's journal does not say when it times kernels, so that it may need fewer",
    "all_kernels": "timings of kernels of all runs, mean",
    "real_steps": "steps of the exact engine, mean",
    "dreamed_steps": "steps in dreams, mean",
    "evaluations": "graphs that were priced, mean",
    "minutes": "for everything, mean",
}
FORMATS = {
    **dict.fromkeys(("gain", "low", "high", "IQM", "minutes"), ".1f"),
    **dict.fromkeys(
        ("timings", "fewest", "most", "timed", "kernels", "all_kernels", "real_steps", "dreamed_steps", "evaluations"),
        ",.0f",
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    add_device(parser)
    add_seeds(parser, SEEDS)
    parser.add_argument(
        "--costs", default=next(iter(COSTS)), metavar="KIND", help=f"{' or '.join(COSTS)}, on the device (%(default)s)"
    )
    parser.add_argument("--rows", metavar="A,B,…", help=f"rows of the table (all: {', '.join(ROWS)})")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Optimises each graph in each way with each seed; finished runs are not done again."""
    names, rows = chosen_graphs(options, GRAPHS, GRAPHS[:1]), list(named(options.rows, ROWS, "row"))
    seeds, costs = chosen_seeds(options, SEEDS), chosen_costs(options)
    runs = [
        (row, run_of(row, name, options.scale, options.device, seed, costs))
        for name in names
        for row in rows
        for seed in seeds
    ]
    found = run_units([run.unit for _, run in runs], options, progress, measures=True, times_tensorflow=False)
    records = [{**record, "row": row} for (row, _), record in zip(runs, found, strict=True)]
    table = list(rows_of(records))
    return Table(
        f"Timings that controllers need on {options.device}",
        COLUMNS,
        FORMATS,
        table,
        options.command_line,
        f"{costs}:{options.device}, {COSTS[costs][1]}; {SECONDS} s for each search at full scale.",
        finding(table),
        figures={
            f"{name}-{axis}": partial(_draw, name, axis, [each for each in records if each["graph"] == name])
            for name in dict.fromkeys(record["graph"] for record in records)
            for axis in AXES
        },
    )


def chosen_costs(options: argparse.Namespace) -> str:
    """Returns the kind of costs.

    Raises:
      UserError: it is not in `COSTS`.
    """
    if options.costs not in COSTS:
        raise UserError(
            f"--costs expects {' or '.join(COSTS)}, got '{options.costs}'. The device, {options.device} here, is that "
            "of --device."
        )
    return str(options.costs)


def run_of(row: str, model: str, scale: str, device: str, seed: int, costs: str = "measured") -> DefaultRun:
    """Returns the run of one row on one graph with one seed."""
    way = ROWS[row]
    changes = way.settings if way.learns else (*way.settings, f"search.seconds={SECONDS}")
    if scale == "smoke":
        rough = ("measure.resolution=0.5",) if costs == "endtoend" else ()
        changes = (*way.settings, *(SMALL if way.learns else ()), *rough)
    of_device = COSTS[costs][0]
    return DefaultRun(model, scale, device, seed, False, row, way.preset, changes, from_prior=True, costs=of_device)


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields a row for each way on each graph."""
    for graph in dict.fromkeys(record["graph"] for record in records):
        of_graph = [record for record in records if record["graph"] == graph]
        enough = NEAR * max(map(gain_of, of_graph))
        for row in dict.fromkeys(record["row"] for record in of_graph):
            same = [record for record in of_graph if record["row"] == row]
            there = [record for record in same if gain_of(record) >= enough]
            until = [timings_until(record, enough) for record in there]
            ends = interval_of_seeds(until, least=0.0) if until else (UNDEFINED,) * 3
            gains = [100 * gain_of(record) for record in same]
            yield {
                "graph": graph,
                "row": row,
                "seeds": len(same),
                **of_seeds("gain", gains, largest=WHOLE),
                "near": len(there),
                **dict(zip(("timings", "fewest", "most"), ends, strict=True)),
                "timed": _mean(same, "end_to_end_timings"),
                "kernels": _mean(there, "kernel_timings") if there else UNDEFINED,
                "all_kernels": _mean(same, "kernel_timings"),
                **{key: _mean(same, key) for key in ("real_steps", "dreamed_steps")},
                "evaluations": _mean(same, "cost_evaluations"),
                "minutes": sum(float(record["minutes"]) for record in same) / len(same),
            }


def gain_of(record: Record) -> float:
    """Returns the share of the model's time that the result of a run saves."""
    return 1.0 - ratio_of(record)


def timings_until(record: Record, gain: float) -> int:
    """Returns how many whole graphs a run had timed when it had found a gain that it has reached in the end.

    The race of the cheapest graphs, at the end of every run but a climb, counts as a whole. A climb measures its gains
    itself; if it thought less of them than the last measurement, all its timings count.
    """
    found = reached(record["curve"], 1.0 - gain) if record["curve"] else None
    return int(record["counts"]["end_to_end_timings"]) if found is None else found[1]


def _mean(records: Sequence[Record], key: str) -> float:
    return sum(float(record["counts"][key]) for record in records) / len(records)


def finding(rows: Sequence[Record]) -> str:
    """Returns who needs the fewest timings on each graph with something to gain, and what the dream needs beside it."""
    sentences, few, first, judged = [], [], [], 0
    dreams = any(row["row"] == DREAM for row in rows)
    for graph in dict.fromkeys(row["graph"] for row in rows):
        here = [row for row in rows if row["graph"] == graph]
        near = [row for row in here if row["near"] == row["seeds"]]
        if max(row["gain"] for row in here) < 100 * WORTH:
            sentences.append(f"{graph}: nothing to gain.")
            continue
        judged += 1
        dream = next((row for row in near if row["row"] == DREAM), None)
        if near:
            least = min(row["timings"] for row in near)
            rows_there = [row["row"] for row in near if row["timings"] == least]
            fewest = _with_interval(dream) if DREAM in rows_there and dream is not None else f"{least:.0f}"
            found = f"{graph}: {' and '.join(rows_there)} with {fewest} timings"
        else:
            found = f"{graph}: none comes near with every seed"
        if dream is not None:
            sentences.append(f"{found}{f'; {DREAM} needs {_with_interval(dream)}' * (dream['timings'] > least)}.")
            few += [graph] * (dream["timings"] <= MOST_TIMED)
            first += [graph] * (len(here) > 1 and _needs_fewest(dream, [row for row in near if row is not dream]))
        else:
            sentences.append(f"{found}{f'; {DREAM} does not' * (dreams and bool(near))}.")
    both = [graph for graph in few if graph in first]
    named = f" ({', '.join(both)})" if both else ""
    verdict = f"Without the row {DREAM}, nothing is said of what a dream buys."
    if dreams:
        verdict = (
            f"{DREAM} comes near with every seed after at most {MOST_TIMED} timings on {len(few)} of {judged} graphs, "
            f"and after fewer than every other row beyond the intervals on {len(first)}. Both hold on {len(both)} of "
            f"{judged} graphs{named}; elsewhere the dream buys nothing that is seen."
        )
    heading = "Fewest timings among the rows that come near the largest gain with every seed."
    return f"{heading} {' '.join(sentences)} {verdict}"


def _with_interval(row: Record) -> str:
    ends = "" if row["most"] == UNDEFINED else f" [{row['fewest']:.0f}, {row['most']:.0f}]"
    return f"{row['timings']:.0f}{ends}"


def _needs_fewest(dream: Record, others: Sequence[Record]) -> bool:
    """Returns whether the dream needs fewer timings than all others that come near, beyond the intervals."""
    if dream["most"] == UNDEFINED:
        return False
    return all(row["fewest"] != UNDEFINED and dream["most"] < row["fewest"] for row in others)


AXES = {"timings": "whole graphs timed", "seconds": "seconds, learning included"}
"""What gains are drawn against."""


def course_of(record: Record, axis: str) -> list[tuple[float, float]]:
    """Returns what a run has gained [%] after so many timings or seconds, in steps; the last gain is measured anew."""
    at = {"timings": float(record["counts"]["end_to_end_timings"]), "seconds": 60 * float(record["minutes"])}[axis]
    moves = [
        (float(timed if axis == "timings" else passed), 100 * (1 - ratio)) for passed, timed, ratio in record["curve"]
    ]
    return [(0.0, 0.0), *moves, (max([at, *(place for place, _ in moves)]), 100 * gain_of(record))]


def mean_course(courses: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Returns the mean of values that change in steps, one course for each seed."""
    places = sorted({place for course in courses for place, _ in course})
    return [
        (place, sum([gain for at, gain in course if at <= place][-1] for course in courses) / len(courses))
        for place in places
    ]


def _draw(name: str, axis: str, records: Sequence[Record], path: Path) -> None:
    from experiments.reports.plots import plot_steps

    lines = {
        row: mean_course([course_of(record, axis) for record in records if record["row"] == row])
        for row in dict.fromkeys(record["row"] for record in records)
    }
    plot_steps(path, f"{name}: gain against {axis}, mean of the seeds", lines, AXES[axis], "% of the model's time")
