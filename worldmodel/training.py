"""The loop that trains every network here: counted steps, exact resumption, named failures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sonnet as snt
import tensorflow as tf

from worldmodel.config import OptimiserConfig
from worldmodel.errors import IncompatibleCheckpoint, NonFiniteLoss
from worldmodel.networks.adam import Adam
from worldmodel.storage import checkpoint_written

Metrics = Mapping[str, float]
OnStep = Callable[[Metrics], None]


class Optimiser(snt.Module):
    """Adam on a fixed list of variables."""

    def __init__(self, config: OptimiserConfig, variables: list[tf.Variable]) -> None:
        super().__init__()
        self._config, self._variables = config, variables
        self._rate = tf.Variable(config.learning_rate, trainable=False, name="learning_rate")
        self._adam = Adam(self._rate)
        # Creates the moments now, so that a training step is traced once and a checkpoint finds them all.
        self._adam.apply([tf.zeros_like(variable) for variable in variables], variables)
        self._adam.step.assign(0)

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return float(self._rate)

    @property
    def state(self) -> list[tf.Variable]:
        """Everything that the next step depends on besides the variables and its rate."""
        return [self._adam.step, *self._adam.m, *self._adam.v]

    def set_rate(self, step: int, num_steps: int) -> None:
        """Sets the learning rate for the step to come."""
        self._rate.assign(self._config.rate_at(step, num_steps))

    def minimise(self, loss: tf.Tensor, tape: tf.GradientTape) -> tf.Tensor:
        """Takes one gradient step on `loss`, recorded on `tape`; returns the gradient's norm before clipping."""
        found = tape.gradient(loss, self._variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # The gradient of a table may consist of some rows only. Adam would then leave all other rows as they are,
        # instead of moving them by their moments. Whether it does so would depend on the other terms of the loss.
        gradients = [tf.convert_to_tensor(gradient) for gradient in found]
        bounded, norm = tf.clip_by_global_norm(gradients, self._config.max_gradient_norm)
        self._adam.apply(bounded, self._variables)
        return norm


class TrainingLoop:
    """A loop that runs a training step a fixed number of times, and resumes from the last checkpoint.

        loop = TrainingLoop(train_step, {"model": model, "optimiser": optimiser}, num_steps=1000, directory=path)
        loop.run(on_step=lambda metrics: progress.advance(metrics["step"]))

    Bit-for-bit resumption requires two things of `train_step(step)`: all its state lives in the tracked objects, and
    every random draw is a function of the seed and `step`.

    Args:
      train_step: takes the number of the step, from 0; returns named scalars.
      tracked: the objects that a checkpoint holds.
      num_steps: the number of steps of the whole training.
      directory: the directory of the checkpoints; without one nothing is kept.
      checkpoint_every: steps between checkpoints; one more is written at the end.
      batch_of: describes the data of a step in words, for errors.
    """

    def __init__(
        self,
        train_step: Callable[[int], Metrics],
        tracked: Mapping[str, Any],
        *,
        num_steps: int,
        directory: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 100,
        batch_of: Callable[[int], str] = "batch {}".format,
    ) -> None:
        self._train_step, self._num_steps, self._every = train_step, num_steps, checkpoint_every
        self._batch_of = batch_of
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self._manager: tf.train.CheckpointManager | None = None
        if directory is not None:
            checkpoint = tf.train.Checkpoint(step=self._step, **tracked)
            self._manager = _going_on(checkpoint, Path(directory))

    @property
    def step(self) -> int:
        """The number of steps done so far, by this process and those before it."""
        return int(self._step)

    def run(self, *, until: int | None = None, on_step: OnStep | None = None) -> None:
        """Trains to the end, or to step `until`.

        Args:
          on_step: gets every step's metrics, with "step" (steps done) added.
        Raises:
          NonFiniteLoss: if a metric becomes NaN or infinite; it names the metric and the data. The last checkpoint
            stays as it was.
          OSError: if a checkpoint cannot be written.
        """
        last = self._num_steps if until is None else min(until, self._num_steps)
        for step in range(self.step, last):
            metrics = self._train_step(step)
            require_finite(metrics, step, self._batch_of)
            self._step.assign(step + 1)
            if (step + 1) % self._every == 0 or step + 1 == last:
                self._save()
            if on_step is not None:
                on_step({**metrics, "step": step + 1})

    def _save(self) -> None:
        if self._manager is not None:
            with checkpoint_written(Path(self._manager.directory)):
                self._manager.save(checkpoint_number=self.step)


def _going_on(checkpoint: tf.train.Checkpoint, directory: Path) -> tf.train.CheckpointManager:
    """Restores the last checkpoint of a directory, if there is one, and returns the manager of its checkpoints.

    Raises:
      IncompatibleCheckpoint: if the checkpoint lacks something that is trained, or cannot be read.
    """
    try:
        # The manager renames its index into place last, so a kill leaves the previous checkpoint valid.
        manager = tf.train.CheckpointManager(checkpoint, os.fspath(directory), max_to_keep=2)
        if manager.latest_checkpoint:
            checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
        elif (directory / "checkpoint").exists():
            raise ValueError("the file 'checkpoint' names none")
        return manager
    except (AssertionError, LookupError, ValueError, tf.errors.OpError) as error:
        said = (str(error).splitlines() or [""])[0]
        raise IncompatibleCheckpoint(
            f"the checkpoints in {directory} do not hold what is trained here ({said}): they are of other settings or "
            "another version, or damaged. Delete the directory to begin anew."
        ) from error


def require_finite(metrics: Metrics, step: int, batch_of: Callable[[int], str]) -> None:
    """Raises `NonFiniteLoss` if a metric is NaN or infinite; it names every such metric and the data."""
    broken = [f"{name} = {value}" for name, value in metrics.items() if not math.isfinite(value)]
    if broken:
        raise NonFiniteLoss(
            f"training step {step} gave {', '.join(broken)} on {batch_of(step)}: the weights of this step are lost, "
            f"the last checkpoint is intact. Lower the learning rate, or look for non-finite values in this data."
        )
