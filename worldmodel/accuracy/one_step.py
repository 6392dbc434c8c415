"""The mixtures that a model predicts one step after real states."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from worldmodel.accuracy.open_loop import Windows, require_finite
from worldmodel.accuracy.uncertainty import Mixtures
from worldmodel.world_model import WorldModel

_WINDOWS_AT_ONCE = 2048


def next_latents(world_model: WorldModel, windows: Windows) -> Mixtures:
    """What is expected of the latents after the first step of each window; an ensemble's members weigh alike.

    Raises:
      ValueError: the model predicts no mixtures (`MdnRnnConfig.dynamics`).
      NonFinitePrediction: they are not finite.
    """
    model = world_model.mdn_rnn
    if model.config.dynamics != "mdn":
        raise ValueError(f"expected a model that predicts mixtures, dynamics 'mdn', got {model.config.dynamics!r}")
    real, codes = windows.trajectory, model.action_codes(world_model.inputs(world_model.start_graph()))
    parts = []
    for begin in range(0, len(windows.episode), _WINDOWS_AT_ONCE):
        chunk = slice(begin, begin + _WINDOWS_AT_ONCE)
        z, actions = tf.constant(real.state[0, chunk]), tf.constant(real.action[0, chunk])
        before = snt.LSTMState(tf.constant(windows.hidden[chunk]), tf.constant(windows.cell[chunk]))
        state = model.advance(z, actions, before, codes)
        members = model.predict(state.hidden, z, actions, tf.constant(real.legal[0, chunk], tf.float32), codes)
        logits = tf.concat([tf.nn.log_softmax(member["latent"].logits) for member in members], axis=1)
        means, log_sigmas = (tf.concat(each, axis=1) for each in zip(*(m["latent"][1:] for m in members), strict=True))
        parts.append((logits.numpy(), means.numpy(), log_sigmas.numpy()))
    mixtures = Mixtures(*(np.concatenate(field) for field in zip(*parts, strict=True)))
    require_finite(windows, **{f"mixture ({name})": field[np.newaxis] for name, field in mixtures._asdict().items()})
    return mixtures
