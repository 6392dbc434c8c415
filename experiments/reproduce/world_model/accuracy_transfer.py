"""What world models predict of graphs that they were not trained on.

rlflow reproduce accuracy-transfer

The models are those of `rlflow reproduce accuracy` before recollection: trained on random play of one graph, they are
asked about other depths and input shapes of it. They are told the other graph's rewrites, and learn nothing from it.
"""

from __future__ import annotations

import argparse

from experiments.errors import UserError
from experiments.reproduce.options import add_graphs, chosen_graphs
from experiments.reproduce.table import Table
from experiments.reproduce.units import Record
from experiments.reproduce.world_model.accuracy import held_out_notes
from experiments.reproduce.world_model.accuracy_rows import figure_rows, held_out_rows
from experiments.reproduce.world_model.accuracy_summary import summary
from experiments.runs.progress import ProgressDisplay
from experiments.studies import study
from experiments.studies.setting import Setting, Target
from experiments.studies.study import SCALES, Study, seeds_of, training_config
from worldmodel.accuracy.baselines import PREDICTORS

TARGETS = {
    "resnet18": (Target("resnet50"),),
    "bert-base": (
        Target("bert-base", {"layers": 6}),
        Target("bert-base", {"layers": 24}),
        Target("bert-base", {"sequence": 64}),
    ),
    "squeezenet1.1": (Target("squeezenet1.1", {"image_size": 160}),),
    "squeezenet1.1-tiny": (Target("squeezenet1.1-tiny", {"image_size": 48}),),
}
"""By the graph that is trained on."""
GRAPHS = {"smoke": ("squeezenet1.1-tiny",), "full": ("resnet18", "bert-base", "squeezenet1.1")}
SEEDS = "0,1"

COLUMNS = {
    "trained_on": "cleaned in full, under the cost model of the settings",
    "graph": "that is judged",
    "play": "held-out random or greedy episodes of it",
    "figure": "what is measured; rewards in percent",
    "step": "after how many steps without a look at reality",
    "model": "of the world model, mean over seeds",
    "low": "95 % interval of it, lower end: over seeds; with one seed, over its episodes",
    "high": "upper end",
    **{key: f"trivial predictor, made of random play of the judged graph: {text}" for key, text in PREDICTORS.items()},
    "asked": "what is asked of a model on the graph that it was trained on",
    "met": "nothing is asked of other graphs",
    "seeds": "how many there are",
    "windows": "predictions judged, over all seeds",
}
FORMATS = dict.fromkeys(("model", "low", "high", *PREDICTORS), ".3f")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside those of all tables."""
    add_graphs(parser, default=", ".join(GRAPHS["full"]))
    study.add_options(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains where that is not done yet, and judges; finished units are not done again."""
    effort, config = SCALES[options.scale].effort, training_config(options)
    names = chosen_graphs(options.graphs or GRAPHS[options.scale])
    for name in names:
        if name not in TARGETS:
            raise UserError(f"No other graph is like '{name}'. Choose among {', '.join(TARGETS)}.")
    rows: list[Record] = []
    for name in names:
        studies = [
            Study(Setting(name, config), seed, effort, progress) for seed in seeds_of(name, options.seeds or SEEDS)
        ]
        for target in TARGETS[name]:
            judged = [each.transfer(target) for each in studies]
            found = [*held_out_rows(judged), *figure_rows(judged, counted=False, steps=effort.steps)]
            rows += [{"trained_on": name, **row} for row in found]
    return Table(
        "What world models predict of graphs that they were not trained on",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{config.costs}. {held_out_notes(effort)} What training met is here random play of the judged graph, of which "
        "the model is told the rewrites.",
        summary=summary(rows, "graphs that a model was not trained on"),
    )
