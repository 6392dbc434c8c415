"""`LatentPolicy`: policy and value on latent states, the same in the dream and around the real environment."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.categorical import sampled
from controller.policies.head import Head, considered, make_head
from controller.policies.hierarchical import HierarchicalCategorical
from controller.ppo.config import PolicyConfig
from worldmodel.data.trajectory import LatentObservation
from worldmodel.world_model import WorldModel


class LatentPolicy(snt.Module):
    """A policy π(a | z, h, mask) over a table of A (rule, location) pairs and NO-OP, and a value V(z, h, mask)."""

    def __init__(
        self,
        rules: np.ndarray,
        sites: np.ndarray,
        *,
        latent_size: int,
        hidden_size: int,
        config: PolicyConfig,
        seed: int = 0,
        everywhere: np.ndarray | None = None,
    ) -> None:
        """
        Args:
          rules, sites: int [A + 1], the rule and the site of each action of the table, both numbered from 0 without
            gaps. The last action is NO-OP, with a rule and a site of its own.
          latent_size, hidden_size: sizes of z and h.
          config: sizes and initial NO-OP logit of the head.
          seed: the seed of the initial weights.
          everywhere: bool [A + 1], the everywhere-actions; None if there are none.
        Raises:
          ValueError: the head is the pointer, which needs graphs.
        """
        super().__init__("latent_policy")
        self._head = make_head(rules, sites, config, np.random.default_rng(seed), everywhere)
        self._considered = considered(config, everywhere)
        # Creates all weights now, so that checkpoints can be restored before the first use.
        mask = tf.ones([1, len(rules)], tf.bool)
        self.distribution_and_value(LatentObservation(tf.zeros([1, latent_size]), tf.zeros([1, hidden_size]), mask))

    @classmethod
    def for_world_model(cls, world_model: WorldModel, *, config: PolicyConfig, seed: int) -> LatentPolicy:
        """Builds a policy over the actions and the latent states of a world model."""
        table, sizes = world_model.table, (world_model.latent_size, world_model.hidden_size)
        _, rules = np.unique(table.rules, return_inverse=True)  # most of the rule set matches nowhere in a graph
        return cls(
            rules,
            table.sites,
            latent_size=sizes[0],
            hidden_size=sizes[1],
            config=config,
            seed=seed,
            everywhere=table.is_everywhere,
        )

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Samples actions; see `worldmodel.data.trajectory.Policy`."""
        return sampled(self.distribution_and_value(observation), seed)

    @property
    def has_location_critic(self) -> bool:
        return self._head.has_location_critic

    @property
    def head(self) -> Head:
        """The head, which computes the distribution and the value."""
        return self._head

    def distribution_and_value(self, observation: LatentObservation) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Returns the distribution over the A + 1 actions, and values float32 [B] in the learner's units."""
        features = tf.concat([observation.z, observation.h], axis=1)
        mask = observation.action_mask
        return self._head.over_table(features, mask if self._considered is None else mask & self._considered)
