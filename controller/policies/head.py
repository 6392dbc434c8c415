"""`Head`, the deciding part of every policy: from a state and its legal actions to probabilities and a value.

| `policy.head`   | what it is                                                                    | dream | real |
|-----------------|-------------------------------------------------------------------------------|-------|------|
| `hierarchical`  | rule, then location, from one shared trunk (`hierarchical_head`)              | yes   | yes  |
| `four-networks` | actor and critic of rules, actor and critic of locations (`four_networks`)    | yes   | yes  |
| `pointer`       | scores of candidates, from the nodes that they rewrite (`pointer`)            | no    | yes  |

The weights of the first two belong to the actions of one graph. Those of the pointer belong to the rule set alone, so
that it plays on any graph.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import tensorflow as tf

from controller.policies.four_networks import FourNetworks
from controller.policies.hierarchical import HierarchicalCategorical
from controller.policies.hierarchical_head import HierarchicalHead
from controller.policies.pointer import PointerHead
from controller.ppo.config import PolicyConfig


class Head(Protocol):
    """A network over a table of A actions and NO-OP; action a applies rule(a) at site(a).

    Attributes:
      reads_nodes: whether `over_candidates` needs the embeddings of nodes.
      has_location_critic: whether the distributions have values of locations, see `HierarchicalCategorical`. The
        learner then compares the choice of the location with these values, and the choice of the rule with the state's.
    """

    reads_nodes: bool
    has_location_critic: bool

    def over_table(self, features: tf.Tensor, mask: tf.Tensor) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Returns the policy over the whole table, which all rows share, and the value.

        Args:
          features: float32 [B, F], the features of each state.
          mask: bool [B, A + 1], true for legal actions.
        Returns:
          (distribution over indices of the table, value float32 [B]).
        """
        ...

    def over_candidates(
        self, features: tf.Tensor, actions: tf.Tensor, mask: tf.Tensor, nodes: tf.Tensor | None = None
    ) -> tuple[HierarchicalCategorical, tf.Tensor]:
        """Returns the policy over each row's own candidates, and the value.

        Args:
          features: float32 [B, F], the features of each state.
          actions: int32 [B, K], indices of the table; any index where masked.
          mask: bool [B, K], false for padding.
          nodes: float32 [B, K, D], an embedding of the nodes that each candidate rewrites; only if `reads_nodes`.
        Returns:
          (distribution over positions in `actions`, value float32 [B]).
        """
        ...


def make_head(
    rules: np.ndarray,
    sites: np.ndarray,
    config: PolicyConfig,
    rng: np.random.Generator,
    everywhere: np.ndarray | None = None,
) -> Head:
    """Builds the head that `config.head` names.

    Args:
      rules, sites: int [A + 1], the rule and the site of each action, numbered from 0 without gaps. The last action is
        NO-OP: rule R at site S.
      config: the kind and the sizes of the head, and the initial logit of NO-OP.
      rng: the generator of the initial weights.
      everywhere: bool [A + 1], the everywhere-actions; None if there are none.
    """
    if config.head == "pointer":
        return PointerHead(rules, config, rng, everywhere)
    kind = FourNetworks if config.head == "four-networks" else HierarchicalHead
    return kind(rules, sites, config, rng, everywhere)


def considered(config: PolicyConfig, everywhere: np.ndarray | None) -> tf.Tensor | None:
    """Returns the actions that a policy considers, bool [A + 1]; None: all of them. `everywhere` is as in `make_head`.

    The others count as illegal, for acting as for learning.
    """
    if config.everywhere != "never" or everywhere is None or not everywhere.any():
        return None
    return tf.constant(~everywhere)
