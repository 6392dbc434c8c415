"""What a world model knows of a start graph before the first step: the rewrites it may lead to, and where they are.

One model serves many graphs. Its weights are shared by all of them; all that belongs to one is in its `StartGraph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.reward_table import ActionRewards

UNKNOWN = 0
"""Row of the learned tables for what was never trained on."""


class ModelSizes(NamedTuple):
    """What the data decides of an MDN-RNN.

    Attributes:
      num_rules: R.
      neighbourhoods, slots: rules that have a neighbourhood, and one for all others; slots of the largest.
      num_sites, num_actions: rows of the learned tables, that of the unknown included.
      latent, categories: of the encoder.
      node_width: of the nodes of a start graph.
      reward_deviation: standard deviation of all rewards, in the units of `StartGraphInputs.rewards`.
      cost_in_latent: the last number of z is the logarithm of a cost whose changes are the rewards.
    """

    num_rules: int
    neighbourhoods: int
    slots: int
    num_sites: int
    num_actions: int
    latent: int
    categories: int
    node_width: int
    reward_deviation: float
    cost_in_latent: bool = False


class ActionInputs(NamedTuple):
    """The A actions of a start graph and NO-OP as the networks take them.

    Attributes:
      rules: int32 [A + 1].
      sites: int32 [A + 1], row of every action's site among the learned sites of all start graphs.
      rows: int32 [A + 1], row of every action among the learned actions of all start graphs.
      nodes: float32 [A + 1, node width], what the encoder makes of the start graph's node at each action's site; zero
        where a site belongs to no node.
    """

    rules: Any
    sites: Any
    rows: Any
    nodes: Any


class Neighbours(NamedTuple):
    """The bits near every action, see `neighbourhood`.

    Attributes:
      rows: int32 [A + 1], row of every action's rule among those that have a neighbourhood.
      slots: int32 [A + 1, P], the bit in every slot; A where there is none.
    """

    rows: Any
    slots: Any


class StartGraphInputs(NamedTuple):
    """A start graph as the networks take it.

    Attributes:
      actions, neighbours: see there.
      rewards: of every action in the training data; in percent of the start graph's cost where latents tell the present
        one (`ModelSizes.cost_in_latent`), else of the graph that is rewritten.
      embedding: float32 [1, Z], what tells the start graph from others.
      cost: float32 [1], the last number of the start graph's latent.
      rule_changes: float32 [R + 1, 2, Z], see `Statistics`.
    """

    actions: ActionInputs
    neighbours: Neighbours
    rewards: ActionRewards
    embedding: Any
    cost: Any
    rule_changes: Any


def inputs_signature(sizes: ModelSizes) -> StartGraphInputs:
    """The `input_signature` entry under which one trace serves start graphs of every size."""
    row, pair = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 2], tf.float32)
    return StartGraphInputs(
        actions=ActionInputs(row, row, row, nodes=tf.TensorSpec([None, sizes.node_width], tf.float32)),
        neighbours=Neighbours(row, slots=tf.TensorSpec([None, sizes.slots], tf.int32)),
        rewards=ActionRewards(mean=pair, spread=tf.TensorSpec([None], tf.float32), bit=row, counts=pair),
        embedding=tf.TensorSpec([1, sizes.latent], tf.float32),
        cost=tf.TensorSpec([1], tf.float32),
        rule_changes=tf.TensorSpec([None, 2, sizes.latent], tf.float32),
    )


class ActionCodes(NamedTuple):
    """What all steps on a start graph share: computed once per rollout or training step.

    Attributes:
      embedded: float32 [A + 1, width], of every action.
      mask_keys: of every member of the ensemble, float32 [A, mask_rank], by which its mask head addresses the bits.
      inputs: of the start graph.
    """

    embedded: tf.Tensor
    mask_keys: tuple[tf.Tensor, ...]
    inputs: StartGraphInputs


@dataclass(frozen=True, eq=False)
class Statistics:
    """What the training data say of all start graphs together.

    Attributes:
      deviation: float32 [Z], of raw embeddings from their start graph's centre.
      offset: float32 [Z], mean over the start graphs of how far the centre is from the start graph.
      start_mean, start_deviation: float32 [Z], of the start graphs' raw embeddings; the deviation is infinite
        where all are alike: what sets another graph apart there would meet weights that were never trained.
      slots: int32 [R, P, 2], see `neighbourhood`.
      rule_mean, rule_spread: float32 [R + 1], rewards of every rule, in the units of `StartGraphInputs.rewards`.
      rule_changes: float32 [R + 1, 2, Z], least and greatest change of the latent that every rule brought.
      longest: steps of the longest training episode: nothing is known of states further from their start.
      encoder_states: distinct states that the encoder's training drew from.
    """

    deviation: np.ndarray
    offset: np.ndarray
    start_mean: np.ndarray
    start_deviation: np.ndarray
    slots: np.ndarray
    rule_mean: np.ndarray
    rule_spread: np.ndarray
    rule_changes: np.ndarray
    longest: int
    encoder_states: int

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays for `np.savez`."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Statistics:
        """Inverse of `to_arrays`."""
        numbers = {name: int(arrays[name]) for name in ("longest", "encoder_states")}
        return cls(**(dict(arrays) | numbers))


@dataclass(frozen=True, eq=False)
class StartGraph:
    """A start graph that a world model can be asked about.

    Attributes:
      start: its hash.
      table: the A rewrites that are known to be possible at some time after it.
      centre: float32 [Z], mean raw embedding of the graphs that it leads to.
      embedding: float32 [Z], raw, of the start graph itself.
      nodes: float32 [A + 1, node width], see `ActionInputs`.
      neighbours: see there.
      rewards: what the training data say of every action's rewards.
      first_site, first_action: rows of the learned tables where this start graph's begin; UNKNOWN for a graph that was
        not trained on.
    """

    start: str
    table: ActionTable
    centre: np.ndarray
    embedding: np.ndarray
    nodes: np.ndarray
    neighbours: Neighbours
    rewards: ActionRewards
    first_site: int = UNKNOWN
    first_action: int = UNKNOWN

    @property
    def is_trained(self) -> bool:
        """Whether the model was trained on episodes of this graph."""
        return self.first_site != UNKNOWN

    def action_inputs(self) -> ActionInputs:
        """The actions as tensors."""
        learned = np.arange(self.table.num_actions + 1)
        return ActionInputs(
            rules=tf.constant(self.table.rules),
            sites=tf.constant(self.is_trained * (self.first_site + self.table.sites), tf.int32),
            rows=tf.constant(self.is_trained * (self.first_action + learned), tf.int32),
            nodes=tf.constant(self.nodes, tf.float32),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays for `np.savez`."""
        own = {name: np.asarray(getattr(self, name)) for name in _OWN_ARRAYS}
        neighbours = {f"neighbours.{name}": array for name, array in self.neighbours._asdict().items()}
        rewards = {f"rewards.{name}": array for name, array in self.rewards._asdict().items()}
        return own | neighbours | rewards | self.table.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> StartGraph:
        """Inverse of `to_arrays`."""
        return cls(
            start=str(arrays["start"]),
            table=ActionTable.from_arrays(arrays),
            centre=arrays["centre"],
            embedding=arrays["embedding"],
            nodes=arrays["nodes"],
            neighbours=Neighbours(**{name: arrays[f"neighbours.{name}"] for name in Neighbours._fields}),
            rewards=ActionRewards(**{name: arrays[f"rewards.{name}"] for name in ActionRewards._fields}),
            first_site=int(arrays["first_site"]),
            first_action=int(arrays["first_action"]),
        )


_OWN_ARRAYS = ("start", "centre", "embedding", "nodes", "first_site", "first_action")


def nodes_at_sites(table: ActionTable, embedded: np.ndarray, num_locations: int) -> np.ndarray:
    """What the encoder makes of the node at every action's site: float32 [A + 1, width].

    Sites number the operators of the start graph in the order of its nodes' rows.

    Args:
      embedded: float32 [operators, width], of the start graph, its inputs left out.
      num_locations: see `Episode`; where they are fewer than the operators, nobody knows which node is meant: all zero.
    """
    rows = np.zeros((table.num_actions + 1, embedded.shape[1]), np.float32)
    if num_locations < len(embedded):
        return rows
    there = np.flatnonzero(table.locations[:-1] < len(embedded))
    rows[there] = embedded[table.locations[there]]
    return rows


def changes_per_rule(buffer: EpisodeBuffer, embeddings: Mapping[str, np.ndarray]) -> np.ndarray:
    """Least and greatest change of every number of the latent that each rule brought: float32 [R + 1, 2, Z].

    Dreams keep the means of their steps within these. Good play goes where random play hardly ever does; nothing holds
    what a network makes of a rewrite there, and one wrong step spoils all that come after it. The rewrite itself does
    there much the same as everywhere.

    Of a rule that was never taken, the changes of all rules together; of NO-OP, none.

    Args:
      buffer: episodes with at least one rewrite.
      embeddings: float32 [Z], of every graph that they visit, by its hash.
    """
    rules = np.concatenate([episode.actions[:, 0] for episode in buffer])
    changes = np.concatenate([np.diff([embeddings[h] for h in episode.hashes], axis=0) for episode in buffer])
    known = np.zeros((buffer.num_rules + 1, 2, changes.shape[1]), np.float32)
    for rule in range(buffer.num_rules):
        its_own = changes[rules == rule] if rule in rules else changes
        known[rule] = its_own.min(axis=0), its_own.max(axis=0)
    return known
