from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from worldmodel.config import OptimiserConfig
from worldmodel.errors import IncompatibleCheckpoint, NonFiniteLoss
from worldmodel.training import Metrics, Optimiser, TrainingLoop


class Descent:
    """A training loop that fits a point to noisy targets and tracks everything that it needs to go on."""

    def __init__(self, directory: Path | None, *, poison_at: int = -1) -> None:
        self.point = tf.Variable([1.0, -2.0])
        self.optimiser = Optimiser(OptimiserConfig(0.1, 0.01), [self.point])
        self.poison_at = poison_at
        tracked = {"point": self.point, "optimiser": self.optimiser}
        self.loop = TrainingLoop(self.step, tracked, num_steps=10, directory=directory, checkpoint_every=3)

    def step(self, step: int) -> Metrics:
        self.optimiser.set_rate(step, 10)
        target = tf.random.stateless_normal([2], [0, step])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(self.point - target)) * (np.nan if step == self.poison_at else 1.0)
        return {"distance": float(loss), "gradient_norm": float(self.optimiser.minimise(loss, tape))}


@pytest.mark.parametrize("stop", [1, 3, 5, 10])
def test_resuming_is_exact(tmp_path: Path, stop: int) -> None:
    whole = Descent(None)
    whole.loop.run()
    Descent(tmp_path).loop.run(until=stop)
    resumed = Descent(tmp_path)
    assert resumed.loop.step == stop
    resumed.loop.run()
    np.testing.assert_array_equal(resumed.point, whole.point)


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(metrics: Metrics) -> None:
        if metrics["step"] == 5:
            raise Killed

    with pytest.raises(Killed):
        Descent(tmp_path).loop.run(on_step=kill)
    resumed, whole = Descent(tmp_path), Descent(None)
    assert resumed.loop.step == 3
    resumed.loop.run()
    whole.loop.run()
    np.testing.assert_array_equal(resumed.point, whole.point)


def test_a_broken_loss_is_named_and_the_checkpoint_kept(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteLoss, match=r"step 7 gave distance = nan, gradient_norm = nan"):
        Descent(tmp_path, poison_at=7).loop.run()
    kept = Descent(tmp_path)
    assert kept.loop.step == 6
    assert np.all(np.isfinite(kept.point))


def test_the_learning_rate_falls_quadratically() -> None:
    config = OptimiserConfig(8e-3, 2e-4)
    assert config.rate_at(0, 101) == 8e-3
    assert config.rate_at(50, 101) == pytest.approx(2e-4 + (8e-3 - 2e-4) / 4)
    assert config.rate_at(100, 101) == config.rate_at(500, 101) == 2e-4


def test_gradients_are_bounded_together() -> None:
    """A common factor hardly changes a step of Adam, so the test reads Adam's first moment."""
    point = tf.Variable([0.0, 0.0])
    optimiser = Optimiser(OptimiserConfig(max_gradient_norm=1.0), [point])
    with tf.GradientTape() as tape:
        loss = 300.0 * point[0] + 400.0 * point[1]
    assert float(optimiser.minimise(loss, tape)) == pytest.approx(500.0)
    first_moment = optimiser._adam.m[0].numpy()
    np.testing.assert_allclose(first_moment, [0.06, 0.08], rtol=1e-5)


def test_a_table_learns_alike_whether_its_gradient_comes_in_rows_or_whole() -> None:
    """This includes the rows that a step does not touch, which keep moving by their moments."""
    tables = [tf.Variable(tf.ones([3, 2])) for _ in range(2)]
    looked_up = [lambda rows: tf.gather(tables[0], rows), lambda rows: tf.one_hot(rows, 3) @ tables[1]]
    for table, look_up in zip(tables, looked_up, strict=True):
        optimiser = Optimiser(OptimiserConfig(max_gradient_norm=0.5), [table])
        for rows in ([0, 0, 1], [1], [2, 2]):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(look_up(rows) - 3.0))
            optimiser.minimise(loss, tape)
    np.testing.assert_allclose(*tables, rtol=1e-6)
    assert len(np.unique(tables[0].numpy().round(6))) == 3


@pytest.mark.parametrize("other", [{"more": tf.Variable(0.0)}, {"point": tf.Variable([1.0, 2.0, 3.0])}])
def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path, other: dict[str, tf.Variable]) -> None:
    """Otherwise, what is trained here and is missing in the checkpoint would silently begin anew."""
    Descent(tmp_path).loop.run(until=3)
    with pytest.raises(IncompatibleCheckpoint, match="Delete the directory to begin anew"):
        TrainingLoop(lambda step: {}, {"point": tf.Variable([0.0, 0.0])} | other, num_steps=9, directory=tmp_path)


@pytest.mark.parametrize("left", [b"", b"half", b"garbage {"])
@pytest.mark.parametrize("name", ["checkpoint", "ckpt-3.index", "ckpt-3.data-00000-of-00001"])
def test_a_damaged_checkpoint_is_refused(name: str, left: bytes, tmp_path: Path) -> None:
    """Otherwise, what was trained before would silently be lost."""
    Descent(tmp_path).loop.run(until=3)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2] if left == b"half" else left)
    with pytest.raises(IncompatibleCheckpoint, match="Delete the directory to begin anew"):
        Descent(tmp_path)


def test_a_first_checkpoint_that_was_not_finished_is_none(tmp_path: Path) -> None:
    Descent(tmp_path).loop.run(until=3)
    (tmp_path / "checkpoint").unlink()
    assert Descent(tmp_path).loop.step == 0


@pytest.mark.parametrize(
    "reason", [tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError, tf.errors.DataLossError]
)
def test_a_checkpoint_that_cannot_be_written_is_an_error_of_the_file_system(
    reason: type[tf.errors.OpError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise reason(None, None, "no space")

    monkeypatch.setattr(tf.train.CheckpointManager, "save", fail)
    with pytest.raises(OSError, match=str(tmp_path)) as caught:
        Descent(tmp_path).loop.run(until=3)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO)
