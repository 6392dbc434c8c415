"""Figures of training and of search, step by step, from the runs of `rlflow reproduce controllers`.

    fig-search       cost of the best graph by the graphs that a search has expanded (dissertation, Figure 4.2)
    fig-modelfree    return of PPO trained in the real environment (dissertation, Figure 4.4)
    fig-wmloss       losses of the MDN-RNN (RLFlow, Figure 9)
    fig-dreamreward  return of PPO trained in the dream (RLFlow, Figure 10)

Runs that are finished are read; others are done first: up to 45 minutes each, on large graphs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.executors.units import Record
from experiments.reproduce.options import chosen_graphs, chosen_seeds, run_units
from experiments.reproduce.papers.players import DREAMED, REAL, add_runs, named_players, presets_of
from experiments.reproduce.search.controllers import GRAPHS, QUICK
from experiments.reproduce.search.plays import BEST_COST, ON_PAPER, units_of
from experiments.reproduce.table import OVER_SEEDS, Experiment, Table, of_seeds
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

if TYPE_CHECKING:  # matplotlib is imported when something is drawn
    from experiments.reports.plots import Band

POINTS = 40
"""Steps at which the seeds are averaged."""
COLUMNS = {
    "graph": "cleaned in full",
    "row": "the controller, and the world that it learns in",
    "curve": "what is shown",
    "step": "steps so far",
    "seeds": "runs",
    "mean": "of the seeds",
    **OVER_SEEDS,
}


@dataclass(frozen=True)
class Curves:
    """One figure.

    Attributes:
      title: the heading.
      rows: rows of `controllers`.
      stage: the stage of the run whose figures are shown.
      figures: names of these figures, with what the table calls them; empty: all of the stage.
      told: names of the figures that the finding tells, of those that a row has; empty: all.
      x_label: what a step is.
      seeds: the default seeds.
      logarithmic: whether steps are on a logarithmic axis.
    """

    title: str
    rows: Sequence[str]
    stage: str
    figures: Mapping[str, str]
    x_label: str
    seeds: str = "0,1,2,3,4"
    logarithmic: bool = False
    told: Sequence[str] = ()

    def experiment(self, description: str) -> Experiment:
        """Returns the experiment of `rlflow reproduce`."""
        return Experiment(description, self._add_options, self.reproduce)

    def _add_options(self, parser: argparse.ArgumentParser) -> None:
        add_runs(parser, GRAPHS, self.seeds, self.rows)

    def reproduce(self, options: argparse.Namespace, progress: ProgressDisplay) -> Table:
        """Reads the runs, and does those that are not finished."""
        names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, self.seeds)
        players = named_players(self.rows, options)
        records = run_units(units_of(names, players, seeds, options.scale), options, progress)
        rows = list(self.rows_of(records))
        return Table(
            self.title,
            COLUMNS,
            dict.fromkeys(("mean", "low", "high", "IQM"), ".4g") | {"step": ","},
            rows,
            options.command_line,
            f"{ON_PAPER[0]}; {len(RuleSet.default())} rules. {presets_of(players)}".rstrip(),
            self.finding(rows),
            {name: partial(self.draw, name, [row for row in rows if row["graph"] == name]) for name in names},
        )

    def rows_of(self, records: Sequence[Record]) -> Iterator[Record]:
        """Yields the mean of the seeds at some steps, for each curve of each row on each graph."""
        for graph in dict.fromkeys(record["graph"] for record in records):
            for name in self.rows:
                same = [record for record in records if (record["graph"], record["controller"]) == (graph, name)]
                runs = [record["curves"][self.stage] for record in same if self.stage in record["curves"]]
                figures = self.figures or {key: key for run in runs[:1] for key in run if key != "step"}
                for figure, label in figures.items():
                    place = {"graph": graph, "row": name, "curve": label}
                    known = [run for run in runs if figure in run]
                    yield from (place | point for point in averaged(known, figure, logarithmic=self.logarithmic))

    def finding(self, rows: Sequence[Record]) -> str:
        """Returns where the curves of each row begin and end, in a sentence for each graph and row."""
        said = []
        for graph, name in dict.fromkeys((row["graph"], row["row"]) for row in rows):
            own = [row for row in rows if (row["graph"], row["row"]) == (graph, name)]
            ends = []
            for curve in dict.fromkeys(row["curve"] for row in own):
                means = [row["mean"] for row in own if row["curve"] == curve]
                if not self.told or curve in self.told:
                    ends.append(f"{curve} from {means[0]:.3g} to {means[-1]:.3g}")
            said.append(f"{graph}, `{name}`: {', '.join(ends)}.")
        return "\n\n".join(said)

    def draw(self, name: str, rows: Sequence[Record], path: Path) -> None:
        """Draws a panel for each curve, with a line for each row of `controllers`."""
        from experiments.reports.plots import Band, plot_bands

        panels: dict[str, dict[str, Band]] = {}
        for row, curve in dict.fromkeys((row["row"], row["curve"]) for row in rows):
            own = [each for each in rows if (each["row"], each["curve"]) == (row, curve)]
            panels.setdefault(curve, {})[row] = Band.of_rows(own, x="step", y="mean")
        plot_bands(path, f"{name}: {self.title}", panels, {}, self.x_label, logarithmic=self.logarithmic)


def averaged(
    runs: Sequence[Mapping[str, Sequence[float]]], figure: str, *, logarithmic: bool = False
) -> Iterator[Record]:
    """Yields the mean of the seeds at some steps, with its interval and the interquartile mean.

    Args:
      runs: for each seed, a stage of `curves` of its record.
      logarithmic: whether the steps are evenly spread on a logarithmic axis.
    """
    if not runs:
        return
    last = max(run["step"][-1] for run in runs)
    if logarithmic:
        steps = np.unique(np.geomspace(1, max(1, last), POINTS).round())
    else:
        steps = np.unique(np.linspace(min(run["step"][0] for run in runs), last, POINTS).round())
    for step in steps:
        values = [_at(run["step"], run[figure], step) for run in runs]
        known = np.array([value for value in values if value is not None])
        if len(known):
            yield {"step": int(step), "seeds": len(known), **of_seeds("mean", known.tolist())}


def _at(steps: Sequence[float], values: Sequence[float], step: float) -> float | None:
    """Returns the value at the last known step up to `step`; None before the first."""
    place = int(np.searchsorted(np.asarray(steps, float), step, side="right")) - 1
    return None if place < 0 else float(values[place])


SEARCH = Curves(
    "Cost of the best graph of a search",
    ("taso", "restarts"),
    "controller",
    {BEST_COST: "cost [ms]"},
    "graphs expanded",
    logarithmic=True,
).experiment("""Cost of the best graph by the graphs that a search has expanded (dissertation, Figure 4.2).

rlflow reproduce fig-search

TASO's search has no random draw, so that its five runs in the dissertation differ by measured costs alone; here costs
are exact and one run is all. Random restarts have five. The runs are those of `rlflow reproduce controllers`. If none
is finished, they take about three hours of one core.
""")
MODEL_FREE = Curves(
    "PPO in the real environment",
    REAL,
    "controller",
    {"return": "return [%]", "best_return": "best return [%]"},
    "updates",
).experiment("""Return of PPO that is trained in the real environment, without a world model (dissertation, Figure 4.4).

rlflow reproduce fig-modelfree

A return is the sum of an episode's rewards, 100 ln(cost before / cost after). The runs are those of `rlflow reproduce
controllers`. A run of the papers' agent takes 5 to 15 minutes of one core on SqueezeNet1.1, and one of ours a minute.
""")
LOSSES = Curves(
    "Losses of the MDN-RNN", DREAMED, "mdn-rnn", {}, "gradient steps", told=("loss", "latent", "reward", "mask")
).experiment(
    """Losses of the MDN-RNN while it is trained on random play (RLFlow, Figure 9).

rlflow reproduce fig-wmloss

`latent` is the negative log-likelihood of the papers' figure; the other losses are those of the heads. The runs are
those of `rlflow reproduce controllers`, before recollection. A run of the papers' agent takes 3 to 10 minutes of one
core, and one of ours 5 to 45.
"""
)
DREAM_REWARD = Curves(
    "PPO in the dream",
    DREAMED,
    "controller",
    {"return": "return in the dream [%]", "best_return": "best return in the dream [%]"},
    "updates",
).experiment("""Return of PPO in the dream that it is trained in (RLFlow, Figure 10).

rlflow reproduce fig-dreamreward

What the dream pays is not what reality pays: `rlflow reproduce truth` has both. The runs are those of `rlflow reproduce
controllers`, before recollection. A run of the papers' agent takes 3 to 10 minutes of one core, one of ours 5 to 45.
""")
