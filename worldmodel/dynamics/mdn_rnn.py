"""The MDN-RNN: P(z', reward, terminal, legal actions' | z, action, legal actions, past rewrites, h)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sonnet as snt
import tensorflow as tf

from worldmodel.config import MdnRnnConfig
from worldmodel.dynamics.heads import RewardHead, RewardNetwork, Seen, TerminalHead, reward_head
from worldmodel.dynamics.latent_heads import LatentHead
from worldmodel.dynamics.mask_head import MaskHead
from worldmodel.dynamics.start_graphs import ActionCodes, ModelSizes, StartGraphInputs
from worldmodel.networks.action_embedding import ActionEmbedding, GraphActionEmbedding

MOST_LOG_COST = 3.0
"""Bound of |ln(cost / cost of the start graph)|: no dream should count on a cost that differs by a factor beyond e³."""

HEADS: Mapping[str, Callable[[MdnRnnConfig, ModelSizes], Any]] = {
    "latent": LatentHead,
    "reward": reward_head,
    "terminal": TerminalHead,
    "mask": MaskHead,
}
"""The `heads.Head` of each thing that a step brings. A dream (`worldmodel.dream.step`) needs these four."""

Predictions = Mapping[str, Any]
"""The predictions of one member for n steps, by head."""


def symlog(z: tf.Tensor) -> tf.Tensor:
    """Returns sign(z) · ln(1 + |z|), the form in which networks read latents.

    Near 0 it is z itself. Far from the training data, where good policies go, it hardly grows with z, and so the
    outputs of a network hardly grow either.

    Source: Hafner et al. 2023 (DreamerV3).
    """
    return tf.sign(z) * tf.math.log1p(tf.abs(z))


class CostInLatent(snt.Module):
    """The last number of z as the logarithm of the graph's cost, if rewards are changes of that cost.

    If z holds the cost, rewards are learned in percent of the start graph's cost. In this unit a rewrite saves much the
    same wherever it is applied; in percent of the present graph's cost it does not.

    Args:
      is_there: whether z holds the cost.

    Attributes:
      per_reward: by how much the last number of z changes for a reward of 1 %; None if z holds no cost.
    """

    def __init__(self, is_there: bool, name: str | None = None) -> None:
        super().__init__(name=name)
        self.per_reward = tf.Variable(0.0, trainable=False, name="cost_per_reward") if is_there else None

    def after(self, z: tf.Tensor, reward: tf.Tensor) -> tf.Tensor:
        """Returns the last number of z [n, Z] after a step with reward [n]: [n].

        Rewards are predicted best, because they come from a table. A cost that was predicted separately would add up
        noise.
        """
        return z[:, -1] + self.per_reward * reward

    def reward_scale(self, z: tf.Tensor, inputs: StartGraphInputs) -> tf.Tensor:
        """Returns the cost of the start graph over the cost of z [n, Z]: [n].

        A saving of 1 % of the start graph's cost is this many percent of the cost of z.
        """
        return self.times_cheaper(z[:, -1] - inputs.cost)

    def times_cheaper(self, change: tf.Tensor) -> tf.Tensor:
        """Returns by what factor a graph is cheaper than another: [n]; 1 if z holds no cost.

        Args:
          change: [n], the last number of the graph's z minus that of the other.
        """
        if self.per_reward is None:
            return tf.ones_like(change)
        earned = tf.math.divide_no_nan(change, self.per_reward)  # percent of logarithm
        return tf.exp(tf.clip_by_value(earned / 100.0, -MOST_LOG_COST, MOST_LOG_COST))


class Member(snt.Module):
    """One member of the ensemble: one head of every kind, and the features that they read."""

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self._shared = snt.Linear(config.head_hidden)
        self._local = snt.Linear(config.neighbour_hidden)
        self._outcome = snt.Linear(config.head_hidden)
        self.heads: dict[str, Any] = {name: make(config, sizes) for name, make in HEADS.items()}

    @property
    def latent(self) -> LatentHead:
        return self.heads["latent"]

    @property
    def mask(self) -> MaskHead:
        return self.heads["mask"]

    @property
    def reward(self) -> RewardHead | RewardNetwork:
        return self.heads["reward"]

    def _outcomes(self, shared: tf.Tensor, local: tf.Tensor) -> tf.Tensor:
        """Returns `Seen.outcome` from its two parts."""
        return tf.nn.relu(self._outcome(tf.concat([shared, local], axis=-1)))

    def see(
        self,
        h: tf.Tensor,
        z: tf.Tensor,
        action: tf.Tensor,
        legal: tf.Tensor,
        past: tf.Tensor,
        reward_scale: tf.Tensor,
        mask_keys: tf.Tensor,
        codes: ActionCodes,
        carried: tf.Tensor | tuple[()] = (),
    ) -> Seen:
        """Returns the features of n steps; for the arguments see `MdnRnn.see` and `Seen`."""
        near = self.mask.neighbourhood
        inputs = [h, z] if near is None else [h, symlog(z), tf.gather(codes.embedded, action)]
        shared = tf.nn.relu(self._shared(tf.concat(inputs, axis=-1)))
        local = self._local(shared)
        carried_out = None
        if near is None:
            local = tf.nn.relu(local)
        else:

            def earned(rows: tf.Tensor, matches: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
                one = _with_count(features, tf.ones_like(features[:, 0]))
                outcome = self._outcomes(tf.gather(shared, rows), one)
                everything = tf.concat([tf.gather(tf.concat(inputs, axis=-1), rows), tf.stop_gradient(one)], axis=-1)
                return self.reward.of_match(self.reward.reads(outcome, everything), matches, codes)

            carried_out = near(local, action, legal, past, codes, carried, earned)
            local = _with_count(carried_out.features, carried_out.count)
        return Seen(
            z=z,
            action=action,
            legal=legal,
            shared=shared,
            local=local,
            outcome=self._outcomes(shared, local),
            everything=tf.concat(inputs if near is None else [*inputs, tf.stop_gradient(local)], axis=-1),
            reward_scale=reward_scale,
            mask_keys=mask_keys,
            codes=codes,
            carried_out=carried_out,
        )


def _with_count(features: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns features [n, any] with the logarithm of the number [n] of rewrites that they are the mean of."""
    return tf.concat([features, tf.math.log1p(count)[:, tf.newaxis]], axis=-1)


class MdnRnn(snt.Module):
    """An LSTM with heads for the next latent, the reward, the terminal and the next legal actions.

    One real or dreamed step costs one LSTM step: `advance` consumes (z_t, a_t) and returns the state h_{t+1}; `predict`
    turns (h_{t+1}, z_t, a_t, legal_t, past_t) into the predictions for step t. The members of an ensemble share the
    LSTM and the embeddings of actions; each has its own heads.

    Args:
      config: the configured sizes.
      sizes: the sizes that the data decides.

    Attributes: config, sizes, members, cost (`CostInLatent`).
    """

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self.config, self.sizes = config, sizes
        self._actions = ActionEmbedding(
            sizes.num_rules + 1, sizes.num_sites, config.rule_embedding, config.site_embedding, config.action_embedding
        )
        self._of_state = config.features == "state"
        self._embedding = GraphActionEmbedding(self._actions, config.site_embedding)
        self._lstm = snt.LSTM(config.hidden)
        self.cost = CostInLatent(sizes.cost_in_latent)
        self.members = [Member(config, sizes, name=f"member_{i}") for i in range(config.ensemble)]

    @property
    def has_potential(self) -> bool:
        """Whether states have a potential, see `MdnRnnConfig.potential`."""
        return self.config.potential and (self.sizes.cost_in_latent or self.sizes.telescopes) and not self._of_state

    def saved(self, legal: tf.Tensor, past: tf.Tensor, inputs: StartGraphInputs) -> tf.Tensor:
        """Returns what states save by the potential: [n], in the unit of a `Potential`, up to a constant.

        Args:
          legal, past: bool [n, A + 1].
        """
        bits = tf.cast(tf.concat([legal, past], axis=1), tf.float32)
        potential, by_bit = inputs.potential, tf.transpose(bits)
        products = tf.gather(by_bit, potential.pairs[:, 0]) * tf.gather(by_bit, potential.pairs[:, 1])
        of_products = tf.linalg.matvec(products, potential.weights, transpose_a=True)
        return tf.linalg.matvec(bits, tf.reshape(tf.transpose(potential.bits), [-1])) + of_products

    def initial_state(self, batch: int | tf.Tensor) -> snt.LSTMState:
        """Returns the zero state at the start of an episode: hidden and cell [batch, H]."""
        return self._lstm.initial_state(batch)

    def action_codes(self, inputs: StartGraphInputs) -> ActionCodes:
        """Returns the codes of all actions of a start graph under the present weights."""
        actions = inputs.actions
        if self._of_state:
            embedded = self._actions(actions.rules, actions.sites)
        else:
            embedded = self._embedding(actions.rules, actions.sites, actions.nodes, inputs.embedding)
        return ActionCodes(embedded, tuple(member.mask.keys(embedded) for member in self.members), inputs)

    def advance(self, z: tf.Tensor, actions: tf.Tensor, state: snt.LSTMState, codes: ActionCodes) -> snt.LSTMState:
        """Takes one LSTM step with z [B, Z] and actions int32 [B]; returns the state after it (hidden: h_{t+1})."""
        return self._lstm(self._read(z, actions, codes), state)[1]

    def _read(self, z: tf.Tensor, actions: tf.Tensor, codes: ActionCodes) -> tf.Tensor:
        """Returns the inputs of the LSTM for steps: [..., Z + width of the embeddings]."""
        return tf.concat([z if self._of_state else symlog(z), tf.gather(codes.embedded, actions)], axis=-1)

    def unroll(self, z: tf.Tensor, actions: tf.Tensor, codes: ActionCodes) -> snt.LSTMState:
        """Runs the LSTM over real steps from the start of an episode (teacher forcing).

        Args:
          z: [T, B, Z]; actions: int32 [T, B].
        Returns:
          The states after every step: hidden and cell [T, B, H].
        """
        inputs = self._read(z, actions, codes)
        return tf.scan(lambda state, step: self._lstm(step, state)[1], inputs, self.initial_state(tf.shape(z)[1]))

    def see(
        self,
        member: int,
        h: tf.Tensor,
        z: tf.Tensor,
        action: tf.Tensor,
        legal: tf.Tensor,
        past: tf.Tensor,
        codes: ActionCodes,
        carried: tf.Tensor | tuple[()] = (),
    ) -> Seen:
        """Returns what the heads of one member read of n steps; for the arguments see `predict`.

        Args:
          carried: bool [n, A + 1], the single rewrites that everywhere-actions really carried out; () predicts them.
        """
        scale = self.cost.reward_scale(z, codes.inputs)
        return self.members[member].see(h, z, action, legal, past, scale, codes.mask_keys[member], codes, carried)

    def predict_freely(self, member: int, seen: Seen) -> Predictions:
        """Returns one member's predictions, regardless of `MdnRnnConfig.hold_changes`; training learns from these."""
        heads = self.members[member].heads
        return self._with_cost(member, {name: head.predict(seen) for name, head in heads.items()}, seen.z)

    def predict(
        self, h: tf.Tensor, z: tf.Tensor, action: tf.Tensor, legal: tf.Tensor, past: tf.Tensor, codes: ActionCodes
    ) -> tuple[Predictions, ...]:
        """Returns the predictions of every member for n steps.

        Beside those of the heads there is "taken", see `Seen.taken`.

        With `MdnRnnConfig.hold_changes`, the change of z stays within the range that the action's rule showed in the
        training data.

        Args:
          h: [n, H], the output of `advance` for this step; z: [n, Z], before the step; action: int32 [n];
          legal, past: float32 [n, A + 1], before the step, see `data.past`; codes: from `action_codes`.
        """
        kinds = tf.gather(codes.inputs.actions.kinds, action)
        least, most = tf.unstack(tf.gather(codes.inputs.rule_changes, kinds), axis=1)
        found = []
        for number, member in enumerate(self.members):
            seen = self.see(number, h, z, action, legal, past, codes)
            predictions = {name: head.predict(seen) for name, head in member.heads.items()} | {"taken": seen.taken}
            if self.config.hold_changes:
                predictions["latent"] = member.latent.kind.held(predictions["latent"], z + least, z + most)
            found.append(self._with_cost(number, predictions, z))
        return tuple(found)

    def _with_cost(self, member: int, predictions: dict[str, Any], z: tf.Tensor) -> Predictions:
        """Returns the predictions with the last number of the latent as the predicted reward changes it.

        If z holds no cost, they stay as they are.
        """
        if self.cost.per_reward is None:
            return predictions
        cost = self.cost.after(z, tf.stop_gradient(predictions["reward"].likely))
        return predictions | {"latent": self.members[member].latent.kind.with_last(predictions["latent"], cost)}

    def tables(self) -> dict[str, list[tf.Variable]]:
        """Returns the weights that have a place for each site, action or slot of the data, by kind.

        The kinds are "sites", "actions", "slots", "slots last" and "rules".
        """
        neighbourhoods = [near.tables for near in (member.mask.neighbourhood for member in self.members) if near]
        return {
            "sites": [self._actions.site_table],
            "actions": [head.change for head in (each.reward for each in self.members) if isinstance(head, RewardHead)],
            **{
                kind: [table for each in neighbourhoods for table in each[kind]]
                for kind in ("slots", "slots last", "rules")
            },
        }
