"""Measures the world model on episodes that it was not trained on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from experiments.pipeline.world_model import RoundModel
from experiments.runs.run import Run, in_round, of_round
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.splits import states_of

if TYPE_CHECKING:  # TensorFlow is imported by the stage, not with the module
    from worldmodel.world_model import WorldModel

STAGE = "accuracy"
STEPS = (1, 5, 10, 20)
FIRST = 5
"""Depth from which on states are judged: training has met most that are shallower."""
ENOUGH = 10
"""Windows that are enough for a number of steps."""


def measure_accuracy(
    run: Run, model: RoundModel, training: EpisodeBuffer, held_out: EpisodeBuffer
) -> list[dict[str, Any]]:
    """Open-loop accuracy after each of `STEPS` that the episodes reach, from states that training has not met.

    Kept as `checkpoints/accuracy.json`, of a later round as `accuracy-<number>.json`.
    """
    stage = of_round(STAGE, model.number)
    name = f"checkpoints/{stage}.json"
    if run.directory.finished(stage):
        return list(run.directory.read_json(name))
    with run.stage(stage, in_round("measure the world model", model.number), 1) as bar:
        figures = _figures(model.fresh(), training, held_out)
        run.directory.write_json(name, figures)
        bar.update(1)
    return figures


def _figures(model: WorldModel, training: EpisodeBuffer, held_out: EpisodeBuffer) -> list[dict[str, Any]]:
    """What the report shows; None where a figure does not exist (a precision without predictions)."""
    from worldmodel.accuracy import figure_names as names
    from worldmodel.accuracy.baselines import Trivial
    from worldmodel.accuracy.latents import latent_figures
    from worldmodel.accuracy.open_loop import longest_open_loop
    from worldmodel.accuracy.rewards_and_masks import mask_figures, total_figures

    seen = states_of(training)
    played = longest_open_loop(model, held_out, STEPS, first=FIRST, seen=seen, at_least=ENOUGH)
    if played is None:
        return []
    trivial, rules = Trivial.of(training, model), model.table.rules[:-1]
    shown = {
        names.LATENT_ERROR: "latent_error",
        names.MASK_ERROR: "mask_error",
        names.CHANGE_PRECISION: "change_precision",
        names.CHANGE_RECALL: "change_recall",
        names.TOTAL_R2: "return_r2",
        names.TOTAL_ERROR: "return_mae",
    }
    rows = []
    for step in (step for step in STEPS if step <= played.real.steps):
        figures = [
            *latent_figures(played, trivial, step, resamples=0),
            *mask_figures(played, trivial, rules, step, resamples=0),
            *total_figures(played, trivial, step, resamples=0),
        ]
        values = {shown[figure.name]: figure.model.value for figure in figures if figure.name in shown}
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        rows.append({"step": step, "windows": len(played.real.episode), **finite})
    return rows
