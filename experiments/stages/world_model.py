"""Trains the world model on the collected episodes: the encoder, then the MDN-RNN."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from experiments.progress import Bar
from experiments.run import Run
from worldmodel.episodes import EpisodeBuffer

if TYPE_CHECKING:  # the import of TensorFlow belongs to the stage that needs it
    from worldmodel.world_model import WorldModel

ENCODER, MDN_RNN = "encoder", "mdn-rnn"
_STAGES = {"encoder": ENCODER, "mdn_rnn": MDN_RNN}  # the world model's names for its parts


def train_world_model(run: Run, buffer: EpisodeBuffer) -> WorldModel:
    """A world model of the episodes of `buffer`; continues from the last checkpoint of either part."""
    from worldmodel.fit import fit_world_model
    from worldmodel.graphs import FeatureSpec
    from worldmodel.signature import Signature
    from worldmodel.world_model import WorldModel

    signature = Signature(buffer.rule_names, FeatureSpec.current())
    bundle = run.directory.checkpoint("world_model")
    if run.directory.finished(MDN_RNN):
        return WorldModel.load(bundle, signature)
    config = run.config.world_model
    totals = {ENCODER: config.encoder_training.steps, MDN_RNN: config.mdn_rnn_training.steps}
    with _TrainingStages(run, totals) as stages:
        model = fit_world_model(
            buffer,
            signature,
            config,
            seed=run.seed("world model"),
            directory=run.directory.checkpoint("world_model_training"),
            on_step=stages.on_step,
        )
        model.save(bundle)
    return model


class _TrainingStages:
    """Opens the stage of the run that a training step belongs to, and closes the one before it."""

    def __init__(self, run: Run, totals: Mapping[str, int]) -> None:
        self._run, self._totals = run, totals
        self._open = contextlib.ExitStack()
        self._bars: dict[str, Bar] = {}  # of the stages begun by this command, the last one open
        self._logged: set[str] = set()

    def __enter__(self) -> _TrainingStages:
        self._begin(ENCODER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._open.__exit__(kind, error, trace)

    def on_step(self, part: str, metrics: Mapping[str, float]) -> None:
        """One training step of `part`; `metrics` hold "step", the steps done."""
        stage, done = _STAGES[part], int(metrics["step"])
        if stage not in self._bars:
            self._begin(stage)
        if stage not in self._logged:
            self._run.metrics.rewind(stage, done)  # steps after the last checkpoint come again
            self._logged.add(stage)
        self._run.metrics.append(stage, done, {name: value for name, value in metrics.items() if name != "step"})
        self._bars[stage].update(done, loss=metrics["loss"])

    def _begin(self, stage: str) -> None:
        self._open.close()
        title = "train the encoder" if stage == ENCODER else "train the MDN-RNN"
        self._bars[stage] = self._open.enter_context(self._run.stage(stage, title, self._totals[stage]))
