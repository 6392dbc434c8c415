"""What helps a world model to predict: settings that differ from the usual ones in one thing each.

rlflow reproduce accuracy-ablations

Every model is trained on the same number of real steps of random play. Because there are many, they are trained for
fewer gradient steps and judged on fewer episodes than those of `rlflow reproduce accuracy`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from experiments.config.flags import DISCRETE
from experiments.config.run import RunConfig
from experiments.reproduce.options import add_graphs, chosen_graphs
from experiments.reproduce.table import Table
from experiments.reproduce.units import Record
from experiments.reproduce.world_model import variants
from experiments.reproduce.world_model.accuracy import held_out_notes
from experiments.reproduce.world_model.accuracy_rows import UNDEFINED
from experiments.reproduce.world_model.variants import Variant, of
from experiments.runs.progress import ProgressDisplay
from experiments.studies import study
from experiments.studies.evaluation import GREEDY, RANDOM
from experiments.studies.setting import Effort, Setting
from experiments.studies.study import SCALES, Study, seeds_of, training_config
from worldmodel.accuracy import figure_names as names

USUAL = "as usual"
ENCODER, MDN_RNN = "world_model.encoder", "world_model.mdn_rnn"
VARIANTS = {
    USUAL: Variant(),
    "encoder of 1 round": of(f"{ENCODER}.rounds=1"),
    "encoder of half the width": of(f"{ENCODER}.hidden=32"),
    "attention encoder": of(f"{ENCODER}.kind=attention"),
    "encoder frozen as it was drawn": of(f"{ENCODER}_training.steps=0"),
    "latent of 16": of(f"{ENCODER}.latent=16"),
    "latent of 128": of(f"{ENCODER}.latent=128"),
    "latent without the total time": of(f"{ENCODER}.total_time=false"),
    "actions by rank": of("collect.actions=rank"),
    "no neighbourhood": of(f"{MDN_RNN}.neighbours=0"),
    "mean rewards told by no bit": of(f"{MDN_RNN}.telling_bits=false"),
    "episodes of 20 steps": of("environment.max_steps=20"),
    "deterministic dynamics": of(f"{MDN_RNN}.dynamics=deterministic"),
    "discrete dynamics": of(
        f"{MDN_RNN}.dynamics=discrete", *(f"{ENCODER}.{key}={value}" for key, value in DISCRETE.items())
    ),
    "no open loop": of(f"{MDN_RNN}_training.open_loop_steps=0"),
    "separate reward network": of(f"{MDN_RNN}.reward_head=separate"),
}
GRAPHS = {"smoke": ("squeezenet1.1-tiny",), "full": ("bert-base",)}
SEEDS = "0,1"
TRAINING = {
    "smoke": (),
    "full": ("world_model.encoder_training.steps=200", "world_model.mdn_rnn_training.steps=400"),
}
"""Changes to the settings of `SCALES`; `--set` has the last word."""
REAL_STEPS = {"smoke": 200, "full": 10_000}
MOST_EPISODES = 100
"""Held-out ones of each kind of play."""

FIGURES = {
    "reward": (RANDOM, names.REWARD_RANKS, 1, "rank correlation of one reward, random play"),
    "reward_greedy": (GREEDY, names.REWARD_RANKS, 1, "the same, greedy play"),
    "total": (RANDOM, names.TOTAL_R2, 20, "R² of the total of 20 steps, random play"),
    "total_greedy": (GREEDY, names.TOTAL_R2, 20, "the same, greedy play"),
    "masks": (RANDOM, names.MASK_ERROR, 10, "wrong bits after 10 steps per wrong bit of copying, random play"),
    "changes": (RANDOM, names.CHANGE_F1, 10, "F1 of the bits that change in 10 steps, random play"),
    "latents": (RANDOM, names.LATENT_ERROR, 20, "error of latents after 20 steps per error of copying, random play"),
}
"""By column: play, figure, steps (as many as are judged, if they are fewer), meaning."""

COLUMNS = {
    "graph": "cleaned in full, under the cost model of the settings",
    "variant": "what is different",
    **{column: f"{meaning}; mean over seeds" for column, (_, _, _, meaning) in FIGURES.items()},
    "spread": "largest difference between seeds in any of these",
    "minutes": "of CPU, from start to trained",
    "seeds": "how many there are",
}
FORMATS = dict.fromkeys((*FIGURES, "spread"), ".3f") | {"minutes": ".1f"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside those of all tables."""
    add_graphs(parser, default="bert-base")
    study.add_options(parser)
    variants.add_option(parser, VARIANTS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains and judges a model for each graph, variant and seed; finished units are not done again."""
    usual, amount = SCALES[options.scale].effort, REAL_STEPS[options.scale]
    effort = dataclasses.replace(usual, episodes=min(MOST_EPISODES, usual.episodes))
    options = argparse.Namespace(
        **{**vars(options), "set": [*TRAINING[options.scale], f"collect.steps={amount}", *options.set]}
    )
    rows: list[Record] = []
    for name in chosen_graphs(options.graphs or GRAPHS[options.scale]):
        for label, variant in variants.chosen(options.variants, VARIANTS).items():
            setting = Setting(name, variants.config_of(variant, options))
            seeds = seeds_of(name, options.seeds or SEEDS)
            judged = [Study(setting, seed, effort, progress).accuracy() for seed in seeds]
            rows.append({"graph": name, "variant": label, **_row(judged, effort)})
    return Table(
        "What helps a world model to predict",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        _notes(training_config(options), amount, effort),
    )


def _notes(config: RunConfig, amount: int, effort: Effort) -> str:
    training = config.world_model
    return (
        f"{config.costs}. Trained on {amount:,} real steps of random play, the encoder for "
        f"{training.encoder_training.steps:,} gradient steps and the MDN-RNN for {training.mdn_rnn_training.steps:,}. "
        f"{held_out_notes(effort)} Discrete latents cannot hold the total time, and are wider "
        f"({DISCRETE['latent']} bits): 'latent without the total time' is what to compare them with. Of "
        "other latents dreams hold means to what rules did in training, and of categories nothing."
    )


def _row(judged: Sequence[Record], effort: Effort) -> Record:
    row: Record = {"seeds": len(judged)}
    spreads = [0.0]
    for column, (play, figure, step, _) in FIGURES.items():
        key = play, figure, effort.furthest(step)
        values = [value for record in judged if (value := _value(record, *key)) is not None]
        row[column] = sum(values) / len(values) if values else UNDEFINED
        spreads.append(max(values) - min(values) if values else 0.0)
    spent = [record["spent"]["cpu_seconds"] / 60 for record in judged if record["spent"]]
    return row | {"spread": max(spreads), "minutes": sum(spent) / len(spent) if spent else UNDEFINED}


def _value(record: Record, play: str, figure: str, step: int) -> float | None:
    """None where there is no such figure."""
    for each in record["figures"]:
        if (each["play"], each["figure"], each["step"]) == (play, figure, step):
            value: float | None = each["value"]
            return value
    return None
