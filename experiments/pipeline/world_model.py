"""Trains the world model on the collected episodes: the encoder, then the MDN-RNN; this again in later rounds."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from experiments.pipeline.collect import joined
from experiments.pipeline.load import Loaded
from experiments.runs.progress import Bar
from experiments.runs.run import Run, in_round, of_round
from worldmodel.data.episodes import EpisodeBuffer

if TYPE_CHECKING:  # the import of TensorFlow belongs to the stage that needs it
    from worldmodel.signature import Signature
    from worldmodel.world_model import WorldModel

ENCODER, MDN_RNN = "encoder", "mdn-rnn"
BUNDLE = "world_model"
"""Name of a round's world model among the checkpoints."""


class RoundModel:
    """The world model of a round of recollection, read where it is needed.

    The last bits of an embedding depend on which graphs are encoded together. So no stage may find embeddings that
    another one happened to leave: an interrupted run, in which that stage had been finished before, would go another
    way.

    Attributes:
      number: of the round.
      signature: what it was trained for.
    """

    def __init__(self, run: Run, number: int, signature: Signature) -> None:
        self.number, self.signature = number, signature
        self._bundle = run.directory.checkpoint(of_round(BUNDLE, number))

    def fresh(self) -> WorldModel:
        """It, knowing the embeddings of its training data, and no others."""
        from worldmodel.world_model import WorldModel

        return WorldModel.load(self._bundle, self.signature)


def train_world_model(run: Run, loaded: Loaded, buffer: EpisodeBuffer) -> RoundModel:
    """A world model of the episodes of `buffer`; continues from the last checkpoint of either part."""
    from worldmodel.fit import fit_world_model
    from worldmodel.signature import Signature

    signature = Signature.of(loaded.env)
    if run.directory.finished(MDN_RNN):
        return RoundModel(run, 0, signature)
    config = run.config.world_model
    parts = {
        "encoder": _Part(ENCODER, "train the encoder", config.encoder_training.steps),
        "mdn_rnn": _Part(MDN_RNN, "train the MDN-RNN", config.mdn_rnn_training.steps),
    }
    with _TrainingStages(run, parts) as stages:
        model = fit_world_model(
            buffer,
            signature,
            config,
            seed=run.seed("world model"),
            directory=run.directory.checkpoint("world_model_training"),
            on_step=stages.on_step,
        )
        model.save(run.directory.checkpoint(BUNDLE))
    return RoundModel(run, 0, signature)


def train_further(run: Run, before: RoundModel, parts: Sequence[EpisodeBuffer]) -> RoundModel:
    """The world model of the next round: what that of the round before has learned, and what more episodes teach it.

    Args:
      before: not changed.
      parts: the episodes that `before` has learned from, and last the new ones.
    """
    from worldmodel.fit import refit_world_model

    number = before.number + 1
    stage = of_round(MDN_RNN, number)
    if run.directory.finished(stage):
        return RoundModel(run, number, before.signature)
    config = run.config.refit()
    part = _Part(stage, in_round("train the MDN-RNN", number), config.steps)
    with _TrainingStages(run, {"mdn_rnn": part}) as stages:
        model = refit_world_model(
            before.fresh(),
            joined(parts),
            config,
            seed=run.seed(of_round("world model", number)),
            directory=run.directory.checkpoint(of_round("world_model_training", number)),
            on_step=stages.on_step,
        )
        model.save(run.directory.checkpoint(of_round(BUNDLE, number)))
    return RoundModel(run, number, before.signature)


class _Part(NamedTuple):
    """A part of a world model as a stage of a run."""

    stage: str
    title: str
    steps: int


class _TrainingStages:
    """Opens the stage of the run that a training step belongs to, and closes the one before it.

    Args:
      parts: by the world model's names for them, in order.
    """

    def __init__(self, run: Run, parts: Mapping[str, _Part]) -> None:
        self._run, self._parts = run, parts
        self._open = contextlib.ExitStack()
        self._bars: dict[str, Bar] = {}  # of the stages begun by this command, the last one open
        self._logged: set[str] = set()

    def __enter__(self) -> _TrainingStages:
        self._begin(next(iter(self._parts.values())))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._open.__exit__(kind, error, trace)

    def on_step(self, name: str, metrics: Mapping[str, float]) -> None:
        """One training step of a part; `metrics` hold "step", the steps done."""
        part, done = self._parts[name], int(metrics["step"])
        if part.stage not in self._bars:
            self._begin(part)
        if part.stage not in self._logged:
            self._run.metrics.rewind(part.stage, done)  # steps after the last checkpoint come again
            self._logged.add(part.stage)
        figures = {name: value for name, value in metrics.items() if name != "step"}
        self._run.metrics.append(part.stage, done, figures)
        self._bars[part.stage].update(done, loss=metrics["loss"])

    def _begin(self, part: _Part) -> None:
        self._open.close()
        self._bars[part.stage] = self._open.enter_context(self._run.stage(part.stage, part.title, part.steps))
