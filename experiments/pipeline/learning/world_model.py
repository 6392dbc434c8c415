"""Trains the world model of each round on the collected episodes and measures it on held-out episodes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.pipeline.loading.load import Loaded
from experiments.runs.directory import finite
from experiments.runs.progress import Bar
from experiments.runs.run import Run, in_round, of_round
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy.baselines import Trivial
from worldmodel.accuracy.omissions import Offers, paying_along
from worldmodel.accuracy.rewards_and_masks import mask_figures, total_figures
from worldmodel.data.episodes import EpisodeBuffer

if TYPE_CHECKING:  # the stage imports TensorFlow when it runs
    from worldmodel.accuracy.open_loop import OpenLoop, Windows
    from worldmodel.signature import Signature
    from worldmodel.world_model import WorldModel

ENCODER, EMBEDDINGS, MDN_RNN, ACCURACY = "encoder", "embeddings", "mdn-rnn", "accuracy"
BUNDLE = "world_model"
"""Name of the world model among the checkpoints."""
STEPS = (1, 5, 10, 20)
"""Numbers of steps after which open-loop predictions are measured."""
FIRST = 5
"""Smallest depth at which predictions start: training has met most states that are shallower."""
ENOUGH = 10
"""Number of windows that are enough to measure a number of steps."""


class RoundModel:
    """The world model of a round, which each stage reads from its file anew.

    The last bits of an embedding depend on which graphs are encoded together, and a model keeps the embeddings of all
    graphs that it has seen. If a stage used the model object of the stage before it, a resumed run, which skips that
    stage, would get other results.

    Attributes:
      number: number of the round.
      signature: signature of the environment that the model was trained for.
    """

    def __init__(self, run: Run, number: int, signature: Signature) -> None:
        self.number, self.signature = number, signature
        self._bundle = run.directory.checkpoint(of_round(BUNDLE, number))
        self._hold_changes = run.config.world_model.mdn_rnn.hold_changes

    def fresh(self) -> WorldModel:
        """Returns the model with the embeddings of its training data and no others."""
        from worldmodel.world_model import WorldModel

        model = WorldModel.load(self._bundle, self.signature)
        # Training does not depend on `hold_changes`, so that runs which differ in it share a model.
        model.mdn_rnn.config = dataclasses.replace(model.mdn_rnn.config, hold_changes=self._hold_changes)
        return model


def train_world_model(run: Run, loaded: Loaded, buffer: EpisodeBuffer) -> RoundModel:
    """Trains the world model of round 0 on episodes, continuing from the last checkpoint of either part."""
    from worldmodel.fitting import fit
    from worldmodel.signature import Signature

    signature = Signature.of(loaded.env)
    if run.directory.finished(MDN_RNN):
        return RoundModel(run, 0, signature)
    config = run.config.world_model
    parts = {
        "encoder": _Part(ENCODER, "train the encoder", config.encoder_training.steps),
        "embeddings": _Part(EMBEDDINGS, "encode all graphs", len(buffer.used_graphs())),
        "mdn_rnn": _Part(MDN_RNN, "train the MDN-RNN", config.mdn_rnn_training.steps),
    }
    with _TrainingStages(run, parts) as stages:
        model = fit(
            buffer,
            signature,
            config,
            seed=run.seed("world model"),
            directory=run.directory.checkpoint("world_model_training"),
            on_step=stages.on_step,
        )
        _with_operators(run, loaded, model, buffer).save(run.directory.checkpoint(BUNDLE))
    return RoundModel(run, 0, signature)


def _with_operators(run: Run, loaded: Loaded, model: WorldModel, buffer: EpisodeBuffer) -> WorldModel:
    """Returns a model that knows what operators save, if the engine is to follow its dreams."""
    config = run.config
    if config.dream.legality != "exact" or config.collect.actions != "site" or not model.mdn_rnn.has_potential:
        return model
    from worldmodel.dream.structure import with_operators

    return with_operators(model, loaded.env, buffer)


def train_further(run: Run, loaded: Loaded, before: RoundModel, buffer: EpisodeBuffer, *, omits: bool) -> RoundModel:
    """Trains the world model of the next round, starting from the model of the round before.

    Args:
      loaded: what the episodes are of.
      before: the world model of the round before; it is not changed.
      buffer: the episodes that `before` has learned from, and the new ones.
      omits: whether the dream of `before` offers too few of the rewrites that pay.
    """
    from worldmodel.fitting import refit

    number = before.number + 1
    stage = of_round(MDN_RNN, number)
    if run.directory.finished(stage):
        return RoundModel(run, number, before.signature)
    config = run.config.refit(omits)
    part = _Part(stage, in_round("train the MDN-RNN", number), config.steps)
    with _TrainingStages(run, {"mdn_rnn": part}) as stages:
        model = refit(
            before.fresh(),
            buffer,
            config,
            seed=run.seed(of_round("world model", number)),
            directory=run.directory.checkpoint(of_round("world_model_training", number)),
            on_step=stages.on_step,
        )
        _with_operators(run, loaded, model, buffer).save(run.directory.checkpoint(of_round(BUNDLE, number)))
    return RoundModel(run, number, before.signature)


def measure_accuracy(
    run: Run, loaded: Loaded, model: RoundModel, training: EpisodeBuffer, held_out: EpisodeBuffer
) -> list[dict[str, Any]]:
    """Returns the open-loop accuracy after each of `STEPS` that the episodes reach, from states unseen in training.

    Each row also has the `worldmodel.accuracy.omissions.Offers.facts` of its states; a figure that is undefined, such
    as a precision without predictions, is None.

    The result is kept as `checkpoints/accuracy.json`, of a later round as `checkpoints/accuracy-<number>.json`.
    """
    stage = of_round(ACCURACY, model.number)
    name = f"checkpoints/{stage}.json"
    if run.directory.finished(stage):
        return run.directory.stored(name, list)
    with run.stage(stage, in_round("measure the world model", model.number), 1) as bar:
        figures = list(_rows(run, loaded, model.fresh(), training, held_out))
        run.directory.write_json(name, figures)
        bar.update(1)
    return figures


def _rows(
    run: Run, loaded: Loaded, model: WorldModel, training: EpisodeBuffer, held_out: EpisodeBuffer
) -> Iterator[dict[str, Any]]:
    """Yields for each number of steps the figures of predictions, and the facts of what the dream offers."""
    from worldmodel.accuracy.open_loop import longest_windows, play

    windows = longest_windows(model, held_out, STEPS, first=FIRST, seen=training.states(), at_least=ENOUGH)
    if windows is None:
        return
    steps = [step for step in STEPS if step <= windows.steps]
    played, omitted = play(model, windows), _omissions(run, loaded, model, held_out, windows, steps)
    trivial = Trivial.of(training, model)
    for step in steps:
        yield _figures(model, played, trivial, step) | omitted.get(step, {})


def _figures(model: WorldModel, played: OpenLoop, trivial: Trivial, step: int) -> dict[str, Any]:
    """Returns the figures of predictions after some steps."""
    from worldmodel.accuracy.latents import latent_figures

    figures = [
        *latent_figures(played, trivial, step, resamples=0),
        *mask_figures(played, trivial, model.table.rules[:-1], step, resamples=0),
        *total_figures(played, trivial, step, resamples=0),
    ]
    values = {_SHOWN[figure.name]: figure.model.value for figure in figures if figure.name in _SHOWN}
    stored = {name: finite(value) for name, value in values.items()}
    return {"step": step, "windows": len(played.real.episode), **stored}


def _omissions(
    run: Run, loaded: Loaded, model: WorldModel, held_out: EpisodeBuffer, windows: Windows, steps: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Returns the facts of what the dream offers after each number of steps, at the probability that the dream uses.

    There are none if actions are named by rank, because such episodes cannot be replayed. A dream with exact legality
    offers whatever is legal.
    """
    from worldmodel.accuracy.open_loop import play

    if run.config.collect.actions != "site":
        return {}
    played = play(model, windows, legal_from=run.config.dream.legal_from)
    found = paying_along(loaded.env, held_out, windows, steps)
    masks = played.dreamed.legal
    masks = np.ones_like(masks) if run.config.dream.legality == "exact" else masks
    offers = {step: Offers.of(model.table, paying, masks[step]) for step, paying in found.items()}
    return {step: each.facts(loaded.env.rule_names) for step, each in offers.items()}


_SHOWN = {
    names.LATENT_ERROR: "latent_error",
    names.MASK_ERROR: "mask_error",
    names.CHANGE_PRECISION: "change_precision",
    names.CHANGE_RECALL: "change_recall",
    names.TOTAL_R2: "return_r2",
    names.TOTAL_ERROR: "return_mae",
}
"""The figures of accuracy that a run keeps, and their keys in its rows."""


class _Part(NamedTuple):
    """A part of a world model as a stage of a run."""

    stage: str
    title: str
    steps: int


class _TrainingStages:
    """Opens the stage of the run that a training step belongs to, and closes the one before it.

    Args:
      parts: the parts in their order, by the names that the world model gives them.
    """

    def __init__(self, run: Run, parts: Mapping[str, _Part]) -> None:
        self._run, self._parts = run, parts
        self._open = contextlib.ExitStack()
        self._bars: dict[str, Bar] = {}  # of all stages that this command has begun; the last one is open
        self._logged: set[str] = set()

    def __enter__(self) -> _TrainingStages:
        self._begin(next(iter(self._parts.values())))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._open.__exit__(kind, error, trace)

    def on_step(self, name: str, metrics: Mapping[str, float]) -> None:
        """Reports one training step of a part; `metrics` have the number of finished steps under "step"."""
        part, done = self._parts[name], int(metrics["step"])
        if part.stage not in self._bars:
            self._begin(part)
        figures = {name: value for name, value in metrics.items() if name != "step"}
        if figures and part.stage not in self._logged:
            self._run.metrics.rewind(part.stage, done)  # the steps after the last checkpoint are repeated
            self._logged.add(part.stage)
        if figures:
            self._run.metrics.append(part.stage, done, figures)
        self._bars[part.stage].update(done, **{name: figures[name] for name in figures if name == "loss"})

    def _begin(self, part: _Part) -> None:
        self._open.close()
        self._bars[part.stage] = self._open.enter_context(self._run.stage(part.stage, part.title, part.steps))
