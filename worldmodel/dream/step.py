"""One dreamed step: the joint prediction of all members of a world model, as a pure function of tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from worldmodel.data.past import past_after
from worldmodel.data.trajectory import LatentObservation
from worldmodel.dream.bounds import bounded
from worldmodel.dream.noise import noise_of
from worldmodel.dream.settlement import STATES, settled
from worldmodel.dynamics.latent_heads import with_last
from worldmodel.dynamics.mask_head import next_mask
from worldmodel.dynamics.mdn_rnn import MdnRnn, Predictions
from worldmodel.dynamics.mixture import ALGORITHM
from worldmodel.dynamics.start_graphs import ActionCodes


class DreamState(NamedTuple):
    """The whole state of a dream: z [B, Z], the LSTM's hidden and cell [B, H], action_mask and past bool [B, A + 1].

    What is past is described in `worldmodel.data.past`.

    The ledger float64 [B, 4, L] holds what rewards have added up to, see `settlement`. States have one from the moment
    that a dream begins with them; others have (). The noise int64 [B] is the key of each row's noise, see
    `worldmodel.dream.noise`; () if rewards do not scatter. The account float32 [B, 2] is explained in `bounds`; () if
    the model has no potential, and before a dream begins. The graphs int64 [B] are numbers of a
    `worldmodel.dream.structure.Structure`; () if legal rewrites are predicted.
    """

    z: tf.Tensor
    hidden: tf.Tensor
    cell: tf.Tensor
    action_mask: tf.Tensor
    past: tf.Tensor
    ledger: tf.Tensor | tuple[()] = ()
    noise: tf.Tensor | tuple[()] = ()
    account: tf.Tensor | tuple[()] = ()
    graph: tf.Tensor | tuple[()] = ()

    def observation(self) -> LatentObservation:
        """Returns what a policy sees of the state."""
        return LatentObservation(self.z, self.hidden, self.action_mask)


class StartStates(NamedTuple):
    """Encoded real states that dreams start from.

    Attributes:
      state: S states. Their recurrent states come from teacher forcing and are zero at depth 0; their masks are the
        real ones.
      depth: int32 [S], steps since the episode began.
    """

    state: DreamState
    depth: tf.Tensor


def legal_logit(probability: float) -> float:
    """Returns the logit above which a rewrite counts as legal, if it does from a probability."""
    return math.log(probability / (1.0 - probability))


class DreamSettings(NamedTuple):
    """The settings of dreamed steps, float32 scalars.

    Attributes:
      temperature: τ ≥ 0 of the sampled latents; at 0 they are the most likely mean.
      pessimism: how many standard deviations between the members of an ensemble are subtracted from rewards.
      threshold: logit above which a rewrite counts as legal.
      numbers: float64 [2, A + 1], see `settlement.draw_numbers`; () if the rewards of the dream do not telescope.
    """

    temperature: tf.Tensor
    pessimism: tf.Tensor
    threshold: tf.Tensor
    numbers: tf.Tensor | tuple[()] = ()


class Known(NamedTuple):
    """What the engine knows of B states.

    Attributes:
      legal: bool [B, A + 1], the legal actions.
      saved: float32 [B], what the operators of the graphs save, up to a constant; () if that was not learned.
    """

    legal: tf.Tensor
    saved: tf.Tensor | tuple[()] = ()


def dream_step(
    model: MdnRnn,
    state: DreamState,
    action: tf.Tensor,
    seed: tf.Tensor,
    codes: ActionCodes,
    settings: DreamSettings,
    over: tf.Tensor | None = None,
    known: Known | None = None,
) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
    """Predicts what follows an action in each of B rows.

    Args:
      model: the dynamics.
      state: the state before the action.
      action: int32 [B] in [0, A].
      seed: int32 [2], the seed of the drawn latents.
      codes: the codes of the start graph's actions.
      settings: the settings of the dream.
      over: bool [B], the rows whose state must stay as it is.
      known: what the engine knows of the states after the step; None: all is predicted.
    Returns:
      (next state, reward float32 [B], terminal bool [B]). NO-OP leaves z and the mask as they are.
    """
    recurrent = model.advance(state.z, action, snt.LSTMState(state.hidden, state.cell), codes)
    bits, past_bits = (tf.cast(each, tf.float32) for each in (state.action_mask, state.past))
    predictions = model.predict(recurrent.hidden, state.z, action, bits, past_bits, codes)
    reward, terminal_logit, mask_logits = _agreed(predictions, settings.pessimism)
    stays = (action == tf.shape(codes.inputs.actions.rules)[0] - 1)[:, tf.newaxis]
    following = next_mask(mask_logits, settings.threshold, codes.inputs.actions) if known is None else known.legal
    mask = tf.where(stays, state.action_mask, following)
    taken = tf.add_n([each["taken"] for each in predictions]) > 0.5 * len(predictions)
    past = tf.where(stays, state.past, past_after(state.past, taken, mask))
    ledger = state.ledger
    if not isinstance(settings.numbers, tuple):
        reward, ledger = settled(
            ledger, state.action_mask, mask, action, reward, settings.numbers,
            of_log_cost=model.cost.per_reward is not None,
        )  # fmt: skip
    account = state.account
    if not isinstance(account, tuple):
        saved = () if known is None else known.saved
        whole = not isinstance(saved, tuple)
        if isinstance(saved, tuple):
            saved = model.saved(mask, past, codes.inputs)
        reward, account = bounded(model, account, reward, state.z, saved, codes.inputs, whole=whole)
    drawn = _drawn(model, predictions, settings.temperature, seed)
    if model.cost.per_reward is not None:  # rewards are not drawn, and neither is the cost that they add up to
        drawn = with_last(drawn, model.cost.after(state.z, reward))
    z = tf.where(stays, state.z, drawn)
    if not (isinstance(state.noise, tuple) or isinstance(ledger, tuple) or isinstance(state.ledger, tuple)):
        before, after = (noise_of(state.noise, each[:, STATES, -1]) for each in (state.ledger, ledger))
        reward += settings.temperature * model.sizes.cost_noise * (before - after)  # z holds costs without noise
    nothing_left = ~tf.reduce_any(mask[:, :-1], axis=-1)
    terminal = stays[:, 0] | (terminal_logit > 0.0) | nothing_left
    reached = DreamState(z, recurrent.hidden, recurrent.cell, mask, past, ledger, state.noise, account, state.graph)
    if over is not None:
        reached = tf.nest.map_structure(functools.partial(_halted, over), state, reached)
    return reached, reward, terminal


def _halted(over: tf.Tensor, old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Returns the old values [B, ...] of rows that are over, and the new ones of the others."""
    return tf.where(tf.reshape(over, [-1, *[1] * (new.shape.rank - 1)]), old, new)


def _agreed(predictions: Sequence[Predictions], pessimism: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the means of the members' rewards, terminal logits and mask logits.

    The reward is lowered by the members' disagreement.
    """
    if len(predictions) == 1:
        return _reward(predictions[0]), predictions[0]["terminal"], predictions[0]["mask"]
    rewards = tf.stack([_reward(each) for each in predictions])
    reward = tf.reduce_mean(rewards, axis=0) - pessimism * tf.math.reduce_std(rewards, axis=0)
    logits = ([each[head] for each in predictions] for head in ("terminal", "mask"))
    terminal, mask = (tf.add_n(parts) / len(parts) for parts in logits)
    return reward, terminal, mask


def _reward(predictions: Predictions) -> tf.Tensor:
    """Returns the likely reward; NaN if a logit is NaN, because a NaN logit would silently become a false bit."""
    reward, others = (
        predictions["reward"],
        tf.stack([predictions["reward"].idle_logit, predictions["terminal"]], axis=-1),
    )
    logits = tf.concat([predictions["mask"], others], axis=-1)
    return tf.where(tf.reduce_any(tf.math.is_nan(logits), axis=-1), np.nan, reward.likely)


def _drawn(model: MdnRnn, predictions: Sequence[Predictions], temperature: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns the next latents [B, Z]; the latent of each row comes from a member that is drawn for the row.

    At temperature 0 nothing is drawn, and all latents come from the first member.
    """
    drawn = [
        member.latent.kind.sample(each["latent"], temperature, seed)
        for member, each in zip(model.members, predictions, strict=True)
    ]
    if len(drawn) == 1:
        return drawn[0]
    rows = tf.shape(drawn[0])[0]
    which = tf.random.stateless_uniform([rows], seed + 1, maxval=len(drawn), dtype=tf.int32, alg=ALGORITHM)
    which = tf.where(temperature > 0.0, which, 0)
    return tf.gather(tf.stack(drawn, axis=1), which, batch_dims=1)
