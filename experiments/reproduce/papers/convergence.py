"""Learning without and with a world model, by real steps and by seconds (dissertation, Figure 4.11).

rlflow reproduce fig-convergence
rlflow reproduce fig-convergence bert-base --seeds 0,1

The score is the mean improvement at the end of an episode. Without a world model, it is that of the episodes of each
update. With one, it is known in reality at the end of each round alone: from the plans that the policy dreams, carried
out without the rewrites that are illegal. In between stands what the dream says of it. Real steps are those that were
learned from. The seconds of an update are its share of its stage, and all of the machine that has done the run.
The runs are those of `rlflow reproduce controllers`, and of the papers' agents; a run that is not finished takes up to
45 minutes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.errors import UserError
from experiments.executors.units import DIRECTORY, Record
from experiments.pipeline.learning.evaluate import STAGE as EVALUATION
from experiments.pipeline.learning.rounds import STAGE as TRAINING
from experiments.pipeline.learning.world_model import ACCURACY
from experiments.reproduce.options import chosen_graphs, chosen_seeds, run_units
from experiments.reproduce.papers.cleaning import BASIC, against_basic
from experiments.reproduce.papers.players import DREAMED, REAL, add_runs, named_players, presets_of
from experiments.reproduce.search.controllers import GRAPHS, QUICK
from experiments.reproduce.search.plays import ON_PAPER, UNITS, units_of
from experiments.reproduce.table import OVER_SEEDS, Table, of_seeds, spanned
from experiments.runs.progress import ProgressDisplay
from experiments.runs.rounds import EXPLOIT
from experiments.runs.run import of_round
from taso_ext import RuleSet

SEEDS = "0,1,2,3,4"
AGENTS = (*REAL, *DREAMED)
JUDGED = (ACCURACY, EXPLOIT, EVALUATION)
"""Stages that nothing is learned from."""
FOR_REAL, DREAM = "in reality", "in its dream"
COLUMNS = {
    "graph": "cleaned in full",
    "row": "the agent, and the world that it learns in",
    "curve": f"{FOR_REAL}, or what its dream says",
    "update": "updates of the policy so far, over all rounds",
    "seeds": "runs",
    "real_steps": "real steps that were learned from until then, mean of the seeds",
    "seconds": "of learning until then, mean of the seeds",
    "score": "mean improvement at the end of episodes, mean of the seeds [%]",
    **OVER_SEEDS,
    **BASIC,
}
FORMATS = {
    **dict.fromkeys(("update", "real_steps", "seconds"), ",.0f"),
    **dict.fromkeys(("score", "low", "high", "IQM", *BASIC), ".2f"),
}


class Point(NamedTuple):
    """The score of one run at one time.

    Attributes:
      curve: where it is scored.
      update: number of updates so far.
      real_steps, seconds: what was spent until then.
      score: mean improvement at the end of episodes [%].
    """

    curve: str
    update: int
    real_steps: float
    seconds: float
    score: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this figure has."""
    add_runs(parser, GRAPHS, SEEDS, AGENTS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Reads the runs, and does those that are not finished."""
    names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, SEEDS)
    players = named_players(AGENTS, options)
    records = run_units(units_of(names, players, seeds, options.scale), options, progress)
    rows = list(rows_of(records))
    return Table(
        "Learning without and with a world model",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{ON_PAPER[0]}; {len(RuleSet.default())} rules. {presets_of(players)}",
        finding(rows),
        {
            f"{name}-{unit}": partial(draw, name, unit, [row for row in rows if row["graph"] == name])
            for name in names
            for unit in ("steps", "seconds")
        },
    )


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields the mean of the seeds at each update of each curve, for each agent on each graph."""
    for graph, agent in dict.fromkeys((record["graph"], record["controller"]) for record in records):
        grouped: dict[tuple[str, int], list[Point]] = {}
        for record in records:
            if (record["graph"], record["controller"]) == (graph, agent):
                for point in points_of(record):
                    grouped.setdefault((point.curve, point.update), []).append(point)
        for (curve, update), points in sorted(grouped.items()):
            scores = [point.score for point in points]
            yield {
                "graph": graph,
                "row": agent,
                "curve": curve,
                "update": update,
                "seeds": len(points),
                "real_steps": float(np.mean([point.real_steps for point in points])),
                "seconds": float(np.mean([point.seconds for point in points])),
                **of_seeds("score", scores),
                "basic": against_basic(graph, float(np.mean(scores))),
            }


def points_of(record: Record) -> Iterator[Point]:
    """Yields the points of one run."""
    return _with_rounds(record) if record["world"] == "dream" else _model_free(record)


def _model_free(record: Record) -> Iterator[Point]:
    curve = record["curves"].get(TRAINING)
    if curve is None:  # the graph allows no rewrite
        return
    batch = record["settings"]["config"]["ppo_real"]["batch"]
    before = seconds_before(record)
    steps, last = 0.0, 0
    for update, length, returned in zip(curve["step"], curve["length"], curve["return"], strict=True):
        steps += batch * length * (update - last)  # long curves are thinned: the updates between are as long
        last = int(update)
        seconds = before + record["stages"][TRAINING] * update / curve["step"][-1]
        yield Point(FOR_REAL, int(update), steps, seconds, improvement_of(returned))


def seconds_before(record: Record) -> float:
    """Returns the time that a run which learns for real has spent before its training [s]."""
    return sum(seconds for stage, seconds in record["stages"].items() if stage not in (TRAINING, *JUDGED))


def gain_within(record: Record, seconds: float) -> float | None:
    """Returns the improvement of the best episode of the first seconds of a training for real [%].

    Returns:
      None if the record does not say it.
    """
    curve = record["curves"].get(TRAINING, {})
    if "best_return" not in curve:
        return None
    last, whole = curve["step"][-1], record["stages"][TRAINING]
    done = [
        best for step, best in zip(curve["step"], curve["best_return"], strict=True) if whole * step <= seconds * last
    ]
    return improvement_of(max([0.0, *done]))


def _with_rounds(record: Record) -> Iterator[Point]:
    """Yields the points of what learns in dreams: a curve of updates in each round, and its plans at its end."""
    if "rounds" not in record:
        raise UserError(
            f"The finished run of {record['controller']} on {record['graph']} with seed {record['seed']} keeps no "
            f"figures of its rounds: an older version has made it. Remove its file from {DIRECTORY / UNITS / 'units'}, "
            "and repeat the command."
        )
    done, spent = 0, 0.0
    for number, each in enumerate(record["rounds"]):
        stage = of_round(TRAINING, number)
        curve = record["curves"][stage]
        trained = record["stages"][stage]
        spent += sum(took for name, took in record["stages"].items() if name != stage and _learned_in(name) == number)
        for update, returned in zip(curve["step"], curve["return"], strict=True):
            seconds = spent + trained * update / curve["step"][-1]
            yield Point(DREAM, done + int(update), each["real_steps"], seconds, improvement_of(returned))
        tried = record["stages"].get(of_round(EXPLOIT, number), 0.0)  # which says what the round is worth in reality
        done, spent = done + int(curve["step"][-1]), spent + trained + tried
        if each["real"] is not None:
            yield Point(FOR_REAL, done, each["real_steps"], spent, each["real"])


def _learned_in(stage: str) -> int | None:
    """Returns the number of the round that learns from a stage; None if nothing does."""
    base, _, number = stage.rpartition("-")
    name, learned_in = (base, int(number)) if number.isdigit() else (stage, 0)
    return None if name in JUDGED else learned_in


def improvement_of(returned: float) -> float:
    """Returns the improvement [%] of a sum of rewards 100 ln(cost before / cost after)."""
    return 100 * (1 - math.exp(-returned / 100))


def finding(rows: Sequence[Record]) -> str:
    """Returns what each agent has reached in reality, and what it has spent on it, in a sentence for each graph."""
    said = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        ends: dict[str, Record] = {}  # of a world model's rounds the one that plays: the best one
        for row in rows:
            if row["graph"] == graph and row["curve"] == FOR_REAL:
                before = ends.get(row["row"])
                if before is None or row["row"] not in DREAMED or row["score"] >= before["score"]:
                    ends[row["row"]] = row
        reached = [
            f"{agent} {spanned([row['score']])} % after {row['real_steps']:,.0f} real steps and {row['seconds']:,.0f} s"
            for agent, row in ends.items()
        ]
        said.append(f"{graph}: {'; '.join(reached)}.")
    return "\n\n".join(said)


def draw(graph: str, unit: str, rows: Sequence[Record], path: Path) -> None:
    """Draws a panel of the scores in reality and one of the scores in dreams, with a line for each agent."""
    from experiments.reports.plots import Band, plot_bands

    x = "real_steps" if unit == "steps" else "seconds"
    panels: dict[str, dict[str, Band]] = {}
    for curve, agent in dict.fromkeys((row["curve"], row["row"]) for row in rows):
        if (curve, unit) != (DREAM, "steps"):  # updates in a dream take no real steps
            own = sorted((row for row in rows if (row["curve"], row["row"]) == (curve, agent)), key=lambda row: row[x])
            panels.setdefault(f"score {curve} [%]", {})[agent] = Band.of_rows(own, x=x, y="score")
    label = "real steps that were learned from" if unit == "steps" else "seconds"
    plot_bands(path, f"{graph}: learning without and with a world model", panels, {}, label)
