"""Rewards by the clock, averaged over N runs: the time of a step against what is gained (dissertation, section 3.2.4).

rlflow reproduce fig-real-rewards
rlflow reproduce fig-real-rewards bert-l2-h128 --rows 'ppo real' --runs 2,8 --seeds 0

A model-free agent is paid by the run time of whole graphs. Each graph is timed N times against the start graph when it
is first met, in pairs, and the mean ratio is its price. Few runs make a step cheap and its reward noisy: the agent then
keeps graphs that were lucky. So the gain is measured once more, by a measurement that decides nothing, beside the one
that the agent was promised. A run without the clock, on paper, stands beside them. On BERT-Tiny a run with two timings
takes 19 minutes; a step of the largest N takes N times two inferences, and two sessions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from environment.inputs import TIMED_ON
from environment.measurement.effort import FEWEST_PAIRS
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.pipeline.learning.evaluate import STAGE as EVALUATION
from experiments.pipeline.learning.rounds import STAGE as TRAINING
from experiments.reproduce.options import (
    add_device,
    add_graphs,
    add_seeds,
    chosen_graphs,
    chosen_seeds,
    require_one_process,
    run_units,
)
from experiments.reproduce.papers.players import REAL, add_long, add_rows, chosen_players, named_players, presets_of
from experiments.reproduce.search.default_runs import LAST
from experiments.reproduce.search.plays import PRICES, SECONDS, Play
from experiments.reproduce.table import OVER_SEEDS, UNDEFINED, WHOLE, Table, mean_of, of_seeds
from experiments.runs.progress import ProgressDisplay
from experiments.studies.study import numbers_of
from taso_ext import RuleSet

NAME = "fig-real-rewards"
GRAPH, SEEDS = "bert-l2-h128", "0,1,2,3,4"
RUNS = {"smoke": "2,8", "full": "2,4,8,16,32"}
COLUMNS = {
    "graph": "cleaned in full",
    "row": "the agent",
    "runs": f"timings that a reward is averaged over; {UNDEFINED}: on paper, by {PRICES}",
    "seeds": "runs of the agent",
    "step_ms": "a real step with its reward, policy and learning included, mean of the seeds",
    "promised": "improvement of its best graph by its own rewards, mean of the seeds [%]",
    "gain": "the same measured once more, mean of the seeds [%]",
    **OVER_SEEDS,
    "real_steps": "steps of the real environment, mean",
    "timings": "graphs that were timed, mean",
    "minutes": "for everything but the last measurement, mean",
}
FORMATS = {
    **dict.fromkeys(("promised", "gain", "low", "high", "IQM", "step_ms"), ".2f"),
    **dict.fromkeys(("real_steps", "timings"), ",.0f"),
    "minutes": ".1f",
}


@dataclass(frozen=True)
class Paid:
    """One agent on one graph with one seed, paid by the clock or on paper: a unit of work.

    Attributes:
      row: the name of the agent's row.
      runs: timings of each graph; None: on paper.
      play: its run.
    """

    row: str
    runs: int | None
    play: Play

    @classmethod
    def of(cls, graph: str, row: str, runs: int | None, seed: int, options: argparse.Namespace) -> Paid:
        """Returns the unit; on paper, the run is that of `controllers`."""
        costs = PRICES if runs is None else f"endtoend:{options.device}:pairs={runs}"
        name = row if runs is None else f"{row}, {runs} runs"
        device = "cpu" if runs is None else options.device
        (player,) = chosen_players([row], options).values()
        return cls(row, runs, Play(graph, name, player, options.scale, SECONDS[options.scale], seed, costs, device))

    def record(self, device: str, progress: ProgressDisplay) -> Record:
        """Returns the record of the run, with the ratio of a last measurement; finished ones are not done again."""
        runtime, effort = OnnxRuntime(device), LAST[self.play.scale]
        played = self.play.record(progress)
        label = f"{runtime.label}, {effort}"
        settings = {"play": self.play.settings, "last": label, "feeds": TIMED_ON}

        def work() -> Record:
            start, best = self.play.models(progress)
            found = measure(Variant("start", runtime, start), [Variant("best", runtime, best)], effort)
            return {"ratio": found.ratio.value, "low": found.ratio.low, "high": found.ratio.high}

        last = once(NAME, self.play.name, settings, work)
        return {**played, "row": self.row, "runs": self.runs, "last": last}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this figure has."""
    add_graphs(parser, GRAPH)
    add_seeds(parser, SEEDS)
    add_device(parser)
    parser.add_argument("--runs", metavar="A,B,…", help=f"timings that a reward is averaged over ({RUNS['full']})")
    add_rows(parser, REAL)
    add_long(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains each agent with each number of runs, and measures its graph; finished units are not done again."""
    require_one_process(options)
    names, seeds = chosen_graphs(options, [GRAPH]), chosen_seeds(options, SEEDS)
    runs = numbers_of("--runs", options.runs or RUNS[options.scale], least=FEWEST_PAIRS)
    players = named_players(REAL, options)
    paid = [
        Paid.of(name, row, number, seed, options)
        for seed in seeds
        for name in names
        for row in players
        for number in (None, *runs)
    ]
    units = [
        Unit(f"{each.play.graph} {each.play.row} seed {each.play.seed}", partial(each.record, options.device))
        for each in paid
    ]
    records = run_units(units, options, progress, measures=True, times_tensorflow=False)
    presets = presets_of(players)
    table = list(rows_of(records))
    return Table(
        f"Rewards by the clock, averaged over runs, on {options.device}",
        COLUMNS,
        FORMATS,
        table,
        options.command_line,
        f"{OnnxRuntime(options.device).label}; {len(RuleSet.default())} rules. {presets}",
        finding(table),
        {name: partial(draw, name, [row for row in table if row["graph"] == name]) for name in names},
    )


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields a row for each agent and each number of runs on each graph."""
    for graph, row, runs in dict.fromkeys((record["graph"], record["row"], record["runs"]) for record in records):
        same = [record for record in records if (record["graph"], record["row"], record["runs"]) == (graph, row, runs)]
        gains = [100 * (1 - float(record["last"]["ratio"])) for record in same]
        yield {
            "graph": graph,
            "row": row,
            "runs": UNDEFINED if runs is None else runs,
            "seeds": len(same),
            "step_ms": float(np.mean([step_ms(record) for record in same])),
            "promised": mean_of(same, "own"),
            **of_seeds("gain", gains, largest=WHOLE),
            "timings": mean_of(same, "end_to_end_timings"),
            **{key: mean_of(same, key) for key in ("real_steps", "minutes")},
        }


def step_ms(record: Record) -> float:
    """Returns the mean time of a real step of training and playing."""
    seconds = sum(record["stages"].get(stage, 0.0) for stage in (TRAINING, EVALUATION))
    return 1000 * seconds / max(1, record["real_steps"])


def finding(rows: Sequence[Record]) -> str:
    """Returns for each agent what its gain is with the fewest and with the most runs, in a sentence for each graph."""
    said = []
    for graph, agent in dict.fromkeys((row["graph"], row["row"]) for row in rows):
        clocked = [row for row in rows if (row["graph"], row["row"]) == (graph, agent) and row["runs"] != UNDEFINED]
        ends = [clocked[0], clocked[-1]] if len(clocked) > 1 else clocked
        each = [
            "{runs} runs promise {promised:.1f} % and give {gain:.1f} %, at {step_ms:.1f} ms a step".format(**row)
            for row in ends
        ]
        said.append(f"{graph}, {agent}: {'; '.join(each)}.")
    return " ".join(said)


def draw(graph: str, rows: Sequence[Record], path: Path) -> None:
    """Draws gain and promise by the time of a step, with a line for each agent; on paper is left out."""
    from experiments.reports.plots import Band, plot_bands

    panels: dict[str, dict[str, Band]] = {"gain, measured once more [%]": {}, "promised by its rewards [%]": {}}
    for agent in dict.fromkeys(row["row"] for row in rows):
        own = sorted(
            (row for row in rows if row["row"] == agent and row["runs"] != UNDEFINED), key=lambda row: row["step_ms"]
        )
        promised = [{**row, "low": UNDEFINED, "high": UNDEFINED} for row in own]
        for lines, points, y in zip(panels.values(), (own, promised), ("gain", "promised"), strict=True):
            lines[agent] = Band.of_rows(points, x="step_ms", y=y)
    title = f"{graph}: rewards averaged over more and more runs"
    plot_bands(path, title, panels, {}, "ms of a step", logarithmic=False)
