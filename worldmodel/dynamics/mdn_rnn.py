"""The MDN-RNN: P(z', reward, terminal, legal actions' | z, action, legal actions, h)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from worldmodel.config import MdnRnnConfig
from worldmodel.dynamics.latent_heads import make_latent_head, with_last
from worldmodel.dynamics.mask_head import MaskHead
from worldmodel.dynamics.start_graphs import SceneInputs
from worldmodel.networks.action_embedding import ActionCodes, ActionEmbedding, SceneEmbedding

MOST_LOG_COST = 3.0
"""Costs beyond e³ times the start graph's, or below their inverse, are none that any dream should count on."""


class Prediction(NamedTuple):
    """What one step is expected to bring, for n rows.

    Attributes:
      latent: distribution over the next latent: parameters of the `LatentHead`.
      reward: float32 [n], percent, of a rewrite that earns or costs something.
      idle_logit: float32 [n], logit of its earning nothing at all, as many rewrites do.
      terminal_logit: float32 [n], logit of "nothing is left to rewrite".
      mask_logits: float32 [n, A], of every rewrite being legal next.
    """

    latent: Any
    reward: tf.Tensor
    idle_logit: tf.Tensor
    terminal_logit: tf.Tensor
    mask_logits: tf.Tensor

    @property
    def likely_reward(self) -> tf.Tensor:
        """The reward, exactly 0 where that is likelier than not: a policy adds up what is predicted for nothing."""
        return tf.where(self.idle_logit > 0.0, 0.0, self.reward)


class ModelSizes(NamedTuple):
    """What the data decides of an MDN-RNN.

    Attributes:
      num_rules: R.
      neighbourhoods, slots: rules that have a neighbourhood, and one for all others; slots of the largest.
      num_sites, num_actions: rows of the learned tables, that of the unknown included.
      latent, categories: of the encoder.
      node_width: of the nodes of a start graph.
      reward_scale: standard deviation of all rewards, in the units of `SceneInputs.reward_mean`.
      cost_is_told: the last dimension of z is the logarithm of a cost whose changes are the rewards.
    """

    num_rules: int
    neighbourhoods: int
    slots: int
    num_sites: int
    num_actions: int
    latent: int
    categories: int
    node_width: int
    reward_scale: float
    cost_is_told: bool = False


class _StateCore(snt.RNNCore):
    """An LSTM whose output is its whole state, so that an unrolled sequence keeps the cells as well."""

    def __init__(self, lstm: snt.LSTM, name: str | None = None) -> None:
        super().__init__(name=name)
        self._lstm = lstm

    def __call__(self, inputs: tf.Tensor, prev_state: snt.LSTMState) -> tuple[snt.LSTMState, snt.LSTMState]:
        _, state = self._lstm(inputs, prev_state)
        return state, state

    def initial_state(self, batch_size: int | tf.Tensor, **kwargs: object) -> snt.LSTMState:
        return self._lstm.initial_state(batch_size, **kwargs)


def symlog(z: tf.Tensor) -> tf.Tensor:
    """sign(z) · ln(1 + |z|) (Hafner et al., DreamerV3, 2023): as networks see latents.

    Near nought it is z itself; far from all that was trained on, where good policies go, it hardly grows any more, and
    what a network makes of it does neither.
    """
    return tf.sign(z) * tf.math.log1p(tf.abs(z))


class Member(snt.Module):
    """All heads, once: one member of the ensemble."""

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self._trunk = snt.Linear(config.head_hidden)
        # Apart from the others' trunk: the likelihood's gradient grows as σ falls, and would drown theirs.
        self._latent_trunk = snt.Linear(config.latent_hidden)
        self.latent = make_latent_head(config, sizes.latent, sizes.categories)
        self.mask = MaskHead(config, sizes.neighbourhoods, sizes.slots)
        self._local = snt.Linear(config.neighbour_hidden)
        self._outcome_trunk = snt.Linear(config.head_hidden)
        self._outcome = snt.Linear(3, w_init=snt.initializers.Zeros())
        self.reward_change = tf.Variable(tf.zeros([sizes.num_actions]), name="reward_change")
        self._reward_network: snt.Module | None = None
        if config.reward_head == "separate":
            zeros = snt.initializers.Zeros()
            self._reward_network = snt.Sequential(
                [snt.nets.MLP([config.reward_hidden] * 2, activate_final=True), snt.Linear(2, w_init=zeros)]
            )

    def __call__(
        self, h: tf.Tensor, z: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, keys: tf.Tensor, codes: ActionCodes
    ) -> Prediction:
        """See `MdnRnn.predict`; keys: [A, mask_rank], this member's."""
        embedded, seen = tf.gather(codes.embedded, actions), symlog(z)
        trunk = tf.nn.relu(self._trunk(tf.concat([h, seen, embedded], axis=-1)))
        local = tf.nn.relu(self._local(trunk) + self.mask.read(actions, mask, codes))
        outcome = self._outcome(tf.nn.relu(self._outcome_trunk(tf.concat([trunk, local], axis=-1))))
        everything = tf.concat([h, seen, embedded, tf.stop_gradient(local)], axis=-1)
        of_reward = outcome if self._reward_network is None else self._reward_network(everything)
        return Prediction(
            latent=self.latent(tf.nn.relu(self._latent_trunk(everything)), z),
            reward=self._reward(actions, mask, of_reward[:, 0], codes.inputs),
            idle_logit=of_reward[:, 1],
            terminal_logit=outcome[:, 2],
            mask_logits=self.mask(trunk, local, actions, mask, keys, codes),
        )

    def _reward(self, actions: tf.Tensor, mask: tf.Tensor, change: tf.Tensor, inputs: SceneInputs) -> tf.Tensor:
        """The mean of the data where the telling bit was what it is now, and what is learned beyond it, in units of how
        much an action's reward varies: one that always earns the same keeps exactly that."""
        change = change + tf.gather(self.reward_change, tf.gather(inputs.actions, actions))
        off, on = tf.unstack(tf.gather(inputs.reward_mean, actions), axis=-1)
        is_on = tf.gather(mask, tf.gather(inputs.reward_bit, actions), batch_dims=1) > 0.5
        return tf.where(is_on, on, off) + tf.gather(inputs.reward_spread, actions) * change


class MdnRnn(snt.Module):
    """LSTM with heads for the next latent, the reward, the terminal and the next legal actions.

    One real or dreamed step costs one LSTM step: `advance` consumes (z_t, a_t) and yields the state h_{t+1}; `predict`
    turns (h_{t+1}, z_t, a_t, mask_t) into what step t brings. The members of an ensemble share the LSTM and the codes
    of actions, and have all heads to themselves.

    Args:
      config: sizes.
      sizes: those that the data decides.

    Attributes:
      cost_per_reward: by how much the last dimension of z changes for a reward of 1 %, where `sizes.cost_is_told`.
    """

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self.config, self.sizes, self.latent = config, sizes, sizes.latent
        self._actions = ActionEmbedding(
            sizes.num_rules + 1, sizes.num_sites, config.rule_embedding, config.site_embedding, config.action_embedding
        )
        self._embedding = SceneEmbedding(self._actions, config.site_embedding)
        self._lstm = snt.LSTM(config.hidden)
        self.cost_per_reward = tf.Variable(0.0, trainable=False, name="cost_per_reward") if sizes.cost_is_told else None
        self.members = [Member(config, sizes, name=f"member_{i}") for i in range(config.ensemble)]

    def initial_state(self, batch: int | tf.Tensor) -> snt.LSTMState:
        """The zero state at the start of an episode: hidden and cell [batch, hidden]."""
        return self._lstm.initial_state(batch)

    def action_codes(self, inputs: SceneInputs) -> ActionCodes:
        """Codes of all actions of a scene under the present weights."""
        embedded = self._embedding(inputs)
        return ActionCodes(embedded, tuple(member.mask.keys(embedded) for member in self.members), inputs)

    def advance(self, z: tf.Tensor, actions: tf.Tensor, state: snt.LSTMState, codes: ActionCodes) -> snt.LSTMState:
        """One LSTM step: z [B, Z], actions int32 [B] to the state after it; `state.hidden` is h_{t+1}."""
        return self._lstm(tf.concat([symlog(z), tf.gather(codes.embedded, actions)], axis=-1), state)[1]

    def unroll(self, z: tf.Tensor, actions: tf.Tensor, codes: ActionCodes) -> snt.LSTMState:
        """Teacher forcing from the start of an episode.

        Args:
          z: [T, B, Z]; actions: int32 [T, B].
        Returns:
          States after every step: hidden and cell [T, B, hidden].
        """
        inputs = tf.concat([symlog(z), tf.gather(codes.embedded, actions)], axis=-1)
        states, _ = snt.dynamic_unroll(_StateCore(self._lstm), inputs, self.initial_state(tf.shape(z)[1]))
        return states

    def predict(
        self, h: tf.Tensor, z: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, codes: ActionCodes
    ) -> tuple[Prediction, ...]:
        """What a step brings, according to every member.

        With `MdnRnnConfig.hold_changes`, the latent moves no further than `SceneInputs.rule_changes`.

        Args:
          h: [n, hidden], output of `advance` for this step; z: [n, Z] before it; actions: int32 [n];
          mask: float32 [n, A + 1], legal actions before it; codes: from `action_codes`.
        """
        freely = [self.predict_freely(i, h, z, actions, mask, codes) for i in range(len(self.members))]
        if not self.config.hold_changes:
            return tuple(freely)
        least, most = self._reach(z, actions, codes.inputs)
        return tuple(
            each._replace(latent=head.latent.held(each.latent, least, most))
            for head, each in zip(self.members, freely, strict=True)
        )

    def predict_freely(
        self, member: int, h: tf.Tensor, z: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, codes: ActionCodes
    ) -> Prediction:
        """What a step brings according to one member's networks, which learn nothing where they are held."""
        head = self.members[member]
        prediction = head(h, z, actions, mask, codes.mask_keys[member], codes)
        if self.cost_per_reward is None:
            return prediction
        prediction = prediction._replace(reward=prediction.reward * self.leverage(z, codes.inputs))
        cost = self.cost_after(z, tf.stop_gradient(prediction.likely_reward))
        return prediction._replace(latent=head.latent.with_last(prediction.latent, cost))

    def _reach(self, z: tf.Tensor, actions: tf.Tensor, inputs: SceneInputs) -> tuple[tf.Tensor, tf.Tensor]:
        """Least and greatest z [n, Z] that the rules of actions have been seen to lead to from z."""
        least, most = tf.unstack(tf.gather(inputs.rule_changes, tf.gather(inputs.rules, actions)), axis=1)
        if self.cost_per_reward is not None:
            least, most = with_last(least, tf.constant(-np.inf)), with_last(most, tf.constant(np.inf))
        return z + least, z + most

    def cost_after(self, z: tf.Tensor, reward: tf.Tensor) -> tf.Tensor:
        """The last dimension of z [n, Z] after a step, [n], where it is a cost: rewards [n] alone move it.

        They are known best, from a table: what a cost did beside them would add up as noise.
        """
        return z[:, -1] + self.cost_per_reward * reward

    def tables(self) -> dict[str, list[tf.Variable]]:
        """The weights with a place for each of what the data hold: "sites", "actions", "slots" and "slots last"."""
        neighbourhoods = [member.mask.neighbourhood.tables for member in self.members]
        return {
            "sites": [self._actions.site_table],
            "actions": [member.reward_change for member in self.members],
            **{kind: [table for tables in neighbourhoods for table in tables[kind]] for kind in neighbourhoods[0]},
        }

    def leverage(self, z: tf.Tensor, inputs: SceneInputs) -> tf.Tensor:
        """By how much a saving counts for more than in the start graph, [n]: its cost over that of z [n, Z].

        Rewards are learned in percent of the start graph's cost where z tells the present one, and as they are, with a
        leverage of 1, where it does not.
        """
        return self.times_cheaper(z[:, -1] - inputs.start_cost)

    def times_cheaper(self, change: tf.Tensor) -> tf.Tensor:
        """A cost over another one that `change` [n] sets apart from it in the last dimension of z: [n]; 1 where z tells
        no cost."""
        if self.cost_per_reward is None:
            return tf.ones_like(change)
        earned = tf.math.divide_no_nan(change, self.cost_per_reward)  # percent of logarithm
        return tf.exp(tf.clip_by_value(earned / 100.0, -MOST_LOG_COST, MOST_LOG_COST))

    def reward_unit(self, actions: tf.Tensor, z: tf.Tensor, inputs: SceneInputs) -> tf.Tensor:
        """Unit of the reward loss: an action's own spread, but not less than a tenth of that of all rewards: [n]."""
        spread = tf.gather(inputs.reward_spread, actions)
        return tf.sqrt(tf.square(spread) + (0.1 * self.sizes.reward_scale) ** 2) * self.leverage(z, inputs)


def next_mask(mask_logits: tf.Tensor, threshold: float | tf.Tensor = 0.0) -> tf.Tensor:
    """The actions whose logits [n, A] of being legal are above a threshold, and NO-OP: bool [n, A + 1]."""
    return tf.pad(mask_logits > threshold, [[0, 0], [0, 1]], constant_values=True)
