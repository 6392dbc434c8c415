"""`LatentPolicy`: policy and value on latent states, the same in the dream and around the real environment."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.hierarchical import HierarchicalCategorical, SharedActions
from controller.networks import Gaussian, RuleThenLocationHead, Torso, ValueNet
from controller.policy_config import PolicyConfig
from worldmodel.rollout import LatentObservation
from worldmodel.world_model import WorldModel


class LatentPolicy(snt.Module):
    """π(a | z, h, mask) and V(z, h, mask) over an action table of A (rule, location) pairs and NO-OP.

    Both networks read [z, h, how many actions each rule has, a learned sum over the legal actions]; the last two
    say exactly what has not been rewritten yet, which z only knows approximately.
    """

    def __init__(
        self,
        rules: np.ndarray,
        sites: np.ndarray,
        *,
        latent_size: int,
        hidden_size: int,
        config: PolicyConfig,
        seed: int = 0,
    ) -> None:
        """
        Args:
          rules, sites: int [A + 1], what the table's actions do and where, sites numbered from 0 without gaps; NO-OP,
            the last, is rule R and has a site of its own (as in `worldmodel.actions.ActionTable`).
          latent_size, hidden_size: sizes of z and h.
          config: sizes.
          seed: of the initial weights.
        """
        super().__init__("latent_policy")
        rng = np.random.default_rng(seed)
        num_rules, num_sites = int(rules[-1]), int(sites.max()) + 1
        self._rules_of_actions, self._sites_of_actions = tf.constant(rules, tf.int32), tf.constant(sites, tf.int32)
        self._groups = SharedActions(rules, num_rules + 1)
        self._torso = Torso(config.torso, rng, name="policy_torso")
        self._value = ValueNet(config.torso, rng, name="value")
        self._head = RuleThenLocationHead(num_rules, config.width, rng, noop_logit=config.noop_logit)
        self._sites = tf.Variable(rng.standard_normal((num_sites, config.width)), dtype=tf.float32, name="sites")
        self._bias = tf.Variable(tf.zeros([len(rules)]), name="bias")
        # 1/√(legal actions) would need the count; about a hundred are legal at once in a graph of BERT's size.
        self._mask_sum = snt.Linear(config.mask_width, with_bias=False, w_init=Gaussian(rng, 0.1), name="mask_sum")
        self._build(latent_size, hidden_size, len(rules))

    @classmethod
    def for_world_model(cls, world_model: WorldModel, *, config: PolicyConfig, seed: int) -> LatentPolicy:
        """A policy over the actions and the latent states of a world model."""
        table = world_model.table
        return cls(
            table.rules,
            table.sites,
            latent_size=world_model.latent_size,
            hidden_size=world_model.hidden_size,
            config=config,
            seed=seed,
        )

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Samples: `worldmodel.rollout.Policy`."""
        distribution, value = self.distribution_and_value(observation)
        action = distribution.sample(seed)
        return action, distribution.log_prob(action), value

    def distribution_and_value(
        self, observation: LatentObservation, *, temperature: float = 1.0
    ) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """The distribution over the A + 1 actions, and values float32 [B] in the learner's units."""
        mask = observation.action_mask
        inputs = self._inputs(observation)
        features = self._torso(inputs)
        keys = self._head.gated(tf.gather(self._sites, self._sites_of_actions), self._rules_of_actions)
        locations = tf.matmul(self._head.query(features), keys, transpose_b=True) + self._bias
        distribution = HierarchicalCategorical(
            self._head.rule_logits(features), locations, mask, self._groups, temperature=temperature
        )
        return distribution, self._value(inputs)

    def _inputs(self, observation: LatentObservation) -> tf.Tensor:
        legal = tf.cast(observation.action_mask, tf.float32)
        counts = tf.math.log1p(self._groups.total(legal))
        return tf.concat([observation.z, observation.h, counts, self._mask_sum(legal)], axis=1)

    def _build(self, latent_size: int, hidden_size: int, num_actions: int) -> None:
        """Creates all weights now, so that checkpoints can be restored before the first use."""
        nothing = LatentObservation(
            tf.zeros([1, latent_size]), tf.zeros([1, hidden_size]), tf.ones([1, num_actions], tf.bool)
        )
        self.distribution_and_value(nothing)
