"""Measures the world model on episodes that it was not trained on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from experiments.run import Run
from worldmodel.episodes import EpisodeBuffer

if TYPE_CHECKING:  # TensorFlow is imported by the stage, not with the module
    from worldmodel.accuracy import AccuracyAtStep, OpenLoop
    from worldmodel.world_model import WorldModel

STAGE = "accuracy"
STEPS = (1, 5, 10, 20)


def measure_accuracy(run: Run, model: WorldModel, held_out: EpisodeBuffer) -> list[dict[str, Any]]:
    """Open-loop accuracy after each of `STEPS` that the episodes reach; kept as `checkpoints/accuracy.json`."""
    name = "checkpoints/accuracy.json"
    if run.directory.finished(STAGE):
        return list(run.directory.read_json(name))
    with run.stage(STAGE, "measure the world model", 1) as bar:
        from worldmodel.accuracy import accuracy_at

        played = _longest_open_loop(model, held_out)
        steps = [] if played is None else [step for step in STEPS if step <= len(played.actions)]
        figures = [_figures(accuracy_at(played, step)) for step in steps if played is not None]
        run.directory.write_json(name, figures)
        bar.update(1)
    return figures


def _longest_open_loop(model: WorldModel, held_out: EpisodeBuffer) -> OpenLoop | None:
    """Windows as long as the episodes allow; None where no episode has a usable step."""
    from worldmodel.accuracy import open_loop

    for steps in reversed(STEPS):
        try:
            return open_loop(model, held_out, steps=steps)
        except ValueError:  # no episode is that long
            continue
    return None


def _figures(accuracy: AccuracyAtStep) -> dict[str, Any]:
    """What the report shows; None where a figure does not exist (a precision without predictions)."""
    figures = {
        "latent_error": accuracy.latent_error,
        "mask_error": accuracy.mask_error,
        "change_precision": accuracy.change.precision,
        "change_recall": accuracy.change.recall,
        "return_r2": accuracy.return_r2,
        "return_mae": accuracy.return_mae,
    }
    finite = {name: float(value) if math.isfinite(value) else None for name, value in figures.items()}
    return {"step": accuracy.step, "windows": accuracy.windows, **finite}
