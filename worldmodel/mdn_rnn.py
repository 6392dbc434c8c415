"""The MDN-RNN: P(z', reward, terminal, legal actions' | z, action, legal actions, h)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from worldmodel import mdn
from worldmodel.actions import ActionTable
from worldmodel.config import MdnRnnConfig


class LatentMixture(NamedTuple):
    """A mixture over the next latent: logits [n, K], means [n, K, Z], log_sigmas [n, K, Z]; see `mdn`."""

    logits: tf.Tensor
    means: tf.Tensor
    log_sigmas: tf.Tensor


class Prediction(NamedTuple):
    """What one step is expected to bring, for n rows.

    Attributes:
      latent: mixture over the next latent.
      reward: float32 [n], percent.
      terminal_logit: float32 [n], logit of "nothing is left to rewrite".
      mask_logits: float32 [n, A], of every rewrite being legal next.
    """

    latent: LatentMixture
    reward: tf.Tensor
    terminal_logit: tf.Tensor
    mask_logits: tf.Tensor


class ActionCodes(NamedTuple):
    """What the model knows of every action, the same at all steps: computed once per rollout or training step.

    Attributes:
      embedded: float32 [A + 1, action_embedding].
      mask_keys: float32 [A, mask_rank], by which the mask head addresses the bits.
    """

    embedded: tf.Tensor
    mask_keys: tf.Tensor


class ActionEmbedding(snt.Module):
    """Embeddings of all actions from learned ones of their rule and site, never from raw ids: [A + 1, width]."""

    def __init__(
        self, table: ActionTable, rule_width: int, site_width: int, width: int, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        self._rules, self._sites = tf.constant(table.rules), tf.constant(table.sites)
        small = snt.initializers.TruncatedNormal(stddev=0.3)
        self._rule_embedding = snt.Embed(table.num_rules + 1, rule_width, initializer=small)
        self._site_embedding = snt.Embed(table.num_sites, site_width, initializer=small)
        self._mix = snt.nets.MLP([width, width])

    def __call__(self) -> tf.Tensor:
        return self._mix(tf.concat([self._rule_embedding(self._rules), self._site_embedding(self._sites)], axis=-1))


class Neighbourhood(snt.Module):
    """Reads the bits in an action's slots and says how they change, with weights per rule.

    Args:
      neighbours: int32 [A + 1, P], bit in every slot; A where there is none.
      rules: int32 [A + 1], rule of every action.
      hidden: width of what is read.
    """

    def __init__(self, neighbours: np.ndarray, rules: np.ndarray, hidden: int, name: str | None = None) -> None:
        super().__init__(name=name)
        num_rules, slots = int(rules.max()) + 1, neighbours.shape[1]
        self.neighbours = tf.Variable(neighbours, trainable=False, name="neighbours")
        self._rules = tf.constant(rules)
        scatter = snt.initializers.TruncatedNormal(stddev=1.0 / max(slots, 1) ** 0.5)
        self._read = tf.Variable(scatter([num_rules, slots, hidden], tf.float32), name="read")
        self._write = tf.Variable(scatter([num_rules, slots, hidden], tf.float32), name="write")
        self._bias = tf.Variable(tf.zeros([num_rules, slots]), name="bias")

    def read(self, actions: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Summary of the bits around each action: actions int32 [n], mask float32 [n, A + 1] to [n, hidden]."""
        slots = tf.gather(self.neighbours, actions)
        bits = 2.0 * tf.gather(mask, slots, batch_dims=1) - 1.0
        present = tf.cast(slots < tf.shape(mask)[1] - 1, tf.float32)
        weights = tf.gather(self._read, tf.gather(self._rules, actions))
        return tf.linalg.matvec(weights, bits * present, transpose_a=True)

    def write(self, logits: tf.Tensor, actions: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        """Adds to `logits` [n, A] what `features` [n, hidden] say about each action's slots."""
        rules, slots = tf.gather(self._rules, actions), tf.gather(self.neighbours, actions)
        change = tf.linalg.matvec(tf.gather(self._write, rules), features) + tf.gather(self._bias, rules)
        rows = tf.broadcast_to(tf.range(tf.shape(slots)[0])[:, tf.newaxis], tf.shape(slots))
        padded = tf.pad(logits, [[0, 0], [0, 1]])  # empty slots point at this column, which is cut off again
        return tf.tensor_scatter_nd_add(padded, tf.stack([rows, slots], axis=-1), change)[:, :-1]


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


class MdnRnn(snt.Module):
    """LSTM with heads for the next latent, the reward, the terminal and the next legal actions.

    One real or dreamed step costs one LSTM step: `advance` consumes (z_t, a_t) and yields the state h_{t+1}; `predict`
    turns (h_{t+1}, z_t, a_t, mask_t) into what step t brings.

    Args:
      config: sizes.
      table: the A actions.
      latent: Z.
      neighbours: int32 [A + 1, P] from `neighbourhood.neighbour_table`.
      reward_table: float32 [A + 1], mean reward of every action, where the reward head starts.
      reward_spread: float32 [A + 1], how much each action's reward varies: the unit in which the head learns, so that
        an action that always earns the same keeps exactly that.
      reward_scale: standard deviation of all rewards.
    """

    def __init__(
        self,
        config: MdnRnnConfig,
        table: ActionTable,
        latent: int,
        *,
        neighbours: np.ndarray,
        reward_table: np.ndarray,
        reward_spread: np.ndarray,
        reward_scale: float,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.config, self.latent, self.num_actions = config, latent, table.num_actions
        self._actions = ActionEmbedding(table, config.rule_embedding, config.site_embedding, config.action_embedding)
        self._neighbourhood = Neighbourhood(neighbours, table.rules, config.neighbour_hidden)
        self._lstm = snt.LSTM(config.hidden)
        small = snt.initializers.TruncatedNormal(stddev=0.02)  # predictions start near "nothing changes"
        self._mixture = snt.Linear(config.mixtures * (2 * latent + 1), w_init=small)
        self._reward_start = tf.Variable(reward_table, trainable=False, name="reward_start")
        self._reward_change = tf.Variable(tf.zeros_like(reward_table), name="reward_change")
        self._reward_scale = tf.Variable(reward_scale, trainable=False, dtype=tf.float32, name="reward_scale")
        self._reward_spread = tf.Variable(reward_spread, trainable=False, name="reward_spread")
        self._trunk = snt.Linear(config.head_hidden)
        # Apart from the others' trunk: the likelihood's gradient grows as σ falls, and would drown theirs.
        self._latent_trunk = snt.Linear(config.latent_hidden)
        self._local = snt.Linear(config.neighbour_hidden)
        self._outcome_trunk = snt.Linear(config.head_hidden)
        self._outcome = snt.Linear(2, w_init=snt.initializers.Zeros())
        self._mask_query = snt.Linear(config.mask_rank)
        self._mask_keys = snt.Linear(config.mask_rank, w_init=snt.initializers.TruncatedNormal(stddev=0.05))
        self._inertia = tf.Variable(config.inertia, dtype=tf.float32, name="inertia")

    def initial_state(self, batch: int | tf.Tensor) -> snt.LSTMState:
        """The zero state at the start of an episode: hidden and cell [batch, hidden]."""
        return self._lstm.initial_state(batch)

    def action_codes(self) -> ActionCodes:
        """Codes of all actions under the present weights."""
        embedded = self._actions()
        return ActionCodes(embedded, self._mask_keys(embedded[:-1]))

    def advance(self, z: tf.Tensor, actions: tf.Tensor, state: snt.LSTMState, codes: ActionCodes) -> snt.LSTMState:
        """One LSTM step: z [B, Z], actions int32 [B] to the state after it; `state.hidden` is h_{t+1}."""
        return self._lstm(tf.concat([z, tf.gather(codes.embedded, actions)], axis=-1), state)[1]

    def unroll(self, z: tf.Tensor, actions: tf.Tensor, codes: ActionCodes) -> snt.LSTMState:
        """Teacher forcing from the start of an episode.

        Args:
          z: [T, B, Z]; actions: int32 [T, B].
        Returns:
          States after every step: hidden and cell [T, B, hidden].
        """
        inputs = tf.concat([z, tf.gather(codes.embedded, actions)], axis=-1)
        states, _ = snt.dynamic_unroll(_StateCore(self._lstm), inputs, self.initial_state(tf.shape(z)[1]))
        return states

    def predict(
        self, h: tf.Tensor, z: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, codes: ActionCodes
    ) -> Prediction:
        """What a step brings.

        Args:
          h: [n, hidden], output of `advance` for this step; z: [n, Z] before it; actions: int32 [n];
          mask: float32 [n, A + 1], legal actions before it; codes: from `action_codes`.
        """
        embedded = tf.gather(codes.embedded, actions)
        trunk = tf.nn.relu(self._trunk(tf.concat([h, z, embedded], axis=-1)))
        local = tf.nn.relu(self._local(trunk) + self._neighbourhood.read(actions, mask))
        outcome = self._outcome(tf.nn.relu(self._outcome_trunk(tf.concat([trunk, local], axis=-1))))
        change = tf.gather(self._reward_change, actions) + outcome[:, 0]
        return Prediction(
            latent=self._predict_latent(tf.concat([h, z, embedded, tf.stop_gradient(local)], axis=-1), z),
            reward=tf.gather(self._reward_start, actions) + tf.gather(self._reward_spread, actions) * change,
            terminal_logit=outcome[:, 1],
            mask_logits=self._predict_mask(trunk, local, actions, mask, codes),
        )

    def reward_unit(self, actions: tf.Tensor) -> tf.Tensor:
        """Unit of the reward loss: an action's own spread, but not less than a tenth of that of all rewards: [n]."""
        return tf.sqrt(tf.square(tf.gather(self._reward_spread, actions)) + tf.square(0.1 * self._reward_scale))

    def next_mask(self, prediction: Prediction) -> tf.Tensor:
        """The legal actions as predicted, NO-OP always: bool [n, A + 1]."""
        return tf.pad(prediction.mask_logits > 0.0, [[0, 0], [0, 1]], constant_values=True)

    def _predict_latent(self, features: tf.Tensor, z: tf.Tensor) -> LatentMixture:
        """The mixture; its means are changes of z, because one rewrite changes a graph little."""
        k, width = self.config.mixtures, self.latent
        parameters = self._mixture(tf.nn.relu(self._latent_trunk(features)))
        logits, means, raw = tf.split(parameters, [k, k * width, k * width], axis=-1)
        log_sigmas = mdn.bound_log_sigma(tf.reshape(raw, [-1, k, width]), *self.config.log_sigma_range)
        return LatentMixture(logits, z[:, tf.newaxis] + tf.reshape(means, [-1, k, width]), log_sigmas)

    def _predict_mask(
        self, trunk: tf.Tensor, local: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, codes: ActionCodes
    ) -> tf.Tensor:
        """Logits of the next bits: their present value, unless the query or the neighbourhood says otherwise."""
        logits = tf.matmul(self._mask_query(trunk), codes.mask_keys, transpose_b=True)
        logits += self._inertia * (2.0 * mask[:, :-1] - 1.0)
        return self._neighbourhood.write(logits, actions, local)
