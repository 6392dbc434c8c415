"""The noise of dreamed costs, for worlds whose costs are drawn from recorded timings (`noise=resampled`).

In such an episode every graph has one draw, wherever it is met. So the noise of a dreamed state is a function of a key,
which is drawn for the row, and of the number of the state (`worldmodel.dream.settlement`): who comes back to a state
finds its noise again, and rewards add up to zero around loops as they do without noise.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.mixture import ALGORITHM

_BITS = 53
"""Random bits of a float64 between 0 and 1."""


def cost_noise(buffer: EpisodeBuffer) -> float:
    """Returns the mean of |100 · ln(drawn cost / cost)| over all states of episodes with drawn costs; 0 without any."""
    drawn = [100.0 * np.log(episode.seen_ms / episode.cost_ms) for episode in buffer if episode.drawn_ms is not None]
    return float(np.mean(np.abs(np.concatenate(drawn)))) if drawn else 0.0


def draw_keys(rows: tf.Tensor | int, seed: tf.Tensor) -> tf.Tensor:
    """Draws the keys of some rows: int64 [rows]; `seed` is int32 [2]."""
    return tf.random.stateless_uniform([rows], seed, minval=None, maxval=None, dtype=tf.int64, alg=ALGORITHM)


def noise_of(keys: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
    """Returns the noise float32 [B] of states with the numbers float64 [B]: Laplace with a mean absolute value of 1."""
    uniform = tf.cast(_mixed(keys, tf.cast(states, tf.int64)), tf.float64) / 2.0**_BITS - 0.5
    nearly_one = 1.0 - 2.0**-40  # so that no logarithm is infinite
    return tf.cast(-tf.sign(uniform) * tf.math.log1p(-2.0 * nearly_one * tf.abs(uniform)), tf.float32)


def _mixed(keys: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Returns int64 [B] in [0, 2^53) that look random.

    Source: Steele, Lea and Flood 2014 (the finalizer of SplitMix64).
    """
    bits = keys + numbers * _signed(0x9E3779B97F4A7C15)
    bits = (bits ^ _shifted(bits, 30)) * _signed(0xBF58476D1CE4E5B9)
    bits = (bits ^ _shifted(bits, 27)) * _signed(0x94D049BB133111EB)
    return _shifted(bits ^ _shifted(bits, 31), 64 - _BITS)


def _signed(bits: int) -> tf.Tensor:
    return tf.constant(bits - (1 << 64) if bits >> 63 else bits, tf.int64)


def _shifted(bits: tf.Tensor, places: int) -> tf.Tensor:
    """Shifts zeros in from the left."""
    return tf.bitwise.right_shift(bits, tf.constant(places, tf.int64)) & tf.constant((1 << (64 - places)) - 1, tf.int64)
