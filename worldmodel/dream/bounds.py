"""Dreamed rewards that add up to no more than the states that they lead to are worth.

Two predictions of what a dream costs make different mistakes. Rewards of steps are precise where the model has been,
and add up their mistakes where it has not. The potential of its state (`worldmodel.dynamics.potential`) is coarser, but
does not add anything up. A policy finds the mistakes of either that are in its favour; those of both at once are rare.
So a dream pays the sum of its rewards, but never more than the potential says that its state saves. Where the engine
says which graph a state is, the potential of its operators (`worldmodel.dynamics.operators`) is more precise than
rewards, and is paid whatever they say.
"""

from __future__ import annotations

import tensorflow as tf

from worldmodel.dynamics.mdn_rnn import MdnRnn
from worldmodel.dynamics.start_graphs import StartGraphInputs

LEAST_COST = 0.01
"""The least cost of a state by the potential, as a share of the start graph's."""


def open_account(model: MdnRnn, z: tf.Tensor, saved: tf.Tensor, inputs: StartGraphInputs) -> tf.Tensor:
    """Returns the account of B rows that begin in states: float32 [B, 2].

    If z holds costs, the first column is what the potential has to be taken from to be the state's cost, as a share of
    the cost of the start graph. Otherwise it is the potential of the state whose savings are all paid. The second is
    what rewards have promised beyond what was paid.

    Args:
      z: [B, Z], of the states.
      saved: [B], what they save by the potential, up to a constant.
    """
    if model.cost.per_reward is not None:
        saved = 1.0 / model.cost.reward_scale(z, inputs) + saved / 100.0
    return tf.stack([saved, tf.zeros_like(saved)], axis=1)


def bounded(
    model: MdnRnn,
    account: tf.Tensor,
    reward: tf.Tensor,
    z: tf.Tensor,
    saved: tf.Tensor,
    inputs: StartGraphInputs,
    *,
    whole: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the rewards of steps that are paid [B], and the account after them.

    Args:
      reward: [B], as predicted for the steps.
      z: [B, Z], before the steps.
      saved: [B], what the states after the steps save by the potential, up to a constant.
      whole: whether all that the potential says is paid, whatever was predicted.
    """
    offset, owed = tf.unstack(account, axis=1)
    if model.cost.per_reward is None:
        most = saved - offset
        paid = most if whole else tf.minimum(reward + owed, most)
        offset += paid
    else:
        worth = tf.maximum(offset - saved / 100.0, LEAST_COST)
        most = -100.0 * tf.math.log(worth * model.cost.reward_scale(z, inputs))
        paid = most if whole else tf.minimum(reward + owed, most)
    return paid, tf.stack([offset, reward + owed - paid], axis=1)
