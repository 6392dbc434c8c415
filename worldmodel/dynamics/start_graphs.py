"""What a world model knows of a start graph before the first step: the rewrites it may lead to, and where they are.

One model serves many graphs: its weights are shared by all, and all that belongs to one of them is in its `Scene`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from worldmodel.data.actions import ActionTable
from worldmodel.dynamics.reward_table import ActionRewards

UNKNOWN = 0
"""Row of the learned tables for what was never trained on."""


class SceneInputs(NamedTuple):
    """A scene as the networks take it, with A actions.

    Attributes:
      rules: int32 [A + 1], of every action.
      sites: int32 [A + 1], row of every action's site among the learned sites of all scenes.
      actions: int32 [A + 1], row of every action among the learned actions of all scenes.
      nodes: float32 [A + 1, node width], what the encoder makes of the node of the start graph at each action's site.
      start: float32 [1, Z], what tells the start graph from others.
      neighbourhoods: int32 [A + 1], row of every action's rule among those that have a neighbourhood.
      neighbours: int32 [A + 1, P], bit in every slot (see `neighbourhood`); A where there is none.
      reward_mean: float32 [A + 1, 2], of every action in the training data with its telling bit off and on; in percent
        of the start graph's cost where latents tell the present one (`ModelSizes.cost_is_told`), else of the graph that
        is rewritten.
      reward_spread: float32 [A + 1], in the same units.
      reward_bit: int32 [A + 1], see `telling_bits`.
      start_cost: float32 [1], the last dimension of the start graph's latent.
      rule_changes: float32 [R + 1, 2, Z], see `Statistics`.
    """

    rules: tf.Tensor
    sites: tf.Tensor
    actions: tf.Tensor
    nodes: tf.Tensor
    start: tf.Tensor
    neighbourhoods: tf.Tensor
    neighbours: tf.Tensor
    reward_mean: tf.Tensor
    reward_spread: tf.Tensor
    reward_bit: tf.Tensor
    start_cost: tf.Tensor
    rule_changes: tf.Tensor


def scene_signature(latent: int, node_width: int, slots: int) -> SceneInputs:
    """The `input_signature` entry under which one trace serves scenes of every size."""
    row, rows = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.float32)
    nodes, start = tf.TensorSpec([None, node_width], tf.float32), tf.TensorSpec([1, latent], tf.float32)
    neighbours, cost = tf.TensorSpec([None, slots], tf.int32), tf.TensorSpec([1], tf.float32)
    means, changes = tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([None, 2, latent], tf.float32)
    return SceneInputs(row, row, row, nodes, start, row, neighbours, means, rows, row, cost, changes)


@dataclass(frozen=True, eq=False)
class Statistics:
    """What the training data say of all scenes together.

    Attributes:
      deviation: float32 [Z], of raw embeddings from their scene's centre.
      offset: float32 [Z], mean over the scenes of how far the centre is from the start graph.
      start_mean, start_deviation: float32 [Z], of the start graphs' raw embeddings; the deviation is infinite
        where all are alike: what sets another graph apart there would meet weights that were never trained.
      slots: int32 [R, P, 2], see `neighbourhood`.
      rule_mean, rule_spread: float32 [R + 1], rewards of every rule, in the units of `SceneInputs.reward_mean`.
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
class Scene:
    """A start graph.

    Attributes:
      start: its hash.
      table: the A rewrites that are known to be possible at some time after it.
      centre: float32 [Z], mean raw embedding of the graphs that it leads to.
      embedding: float32 [Z], raw, of the start graph itself.
      nodes: float32 [A + 1, node width], see `SceneInputs`; zero where a site belongs to no node of the start graph.
      neighbourhoods, neighbours: see `SceneInputs`.
      reward_mean, reward_spread, reward_bit, reward_counts: see `ActionRewards`.
      first_site, first_action: rows of the learned tables where this scene's begin; UNKNOWN for a graph that was not
        trained on.
    """

    start: str
    table: ActionTable
    centre: np.ndarray
    embedding: np.ndarray
    nodes: np.ndarray
    neighbourhoods: np.ndarray
    neighbours: np.ndarray
    reward_mean: np.ndarray
    reward_spread: np.ndarray
    reward_bit: np.ndarray
    reward_counts: np.ndarray
    first_site: int = UNKNOWN
    first_action: int = UNKNOWN

    @property
    def is_trained(self) -> bool:
        """Whether the model was trained on episodes of this graph."""
        return self.first_site != UNKNOWN

    @property
    def rewards(self) -> ActionRewards:
        """What the training data say of every action's rewards."""
        return ActionRewards(self.reward_mean, self.reward_spread, self.reward_bit, self.reward_counts)

    def inputs(self, start: np.ndarray, start_cost: float, rule_changes: np.ndarray) -> SceneInputs:
        """For the networks.

        Args:
          start: float32 [Z], the embedding in units that tell graphs apart.
          start_cost, rule_changes: see `SceneInputs`.
        """
        learned = np.arange(self.table.num_actions + 1)
        return SceneInputs(
            rules=tf.constant(self.table.rules),
            sites=tf.constant(self.is_trained * (self.first_site + self.table.sites), tf.int32),
            actions=tf.constant(self.is_trained * (self.first_action + learned), tf.int32),
            nodes=tf.constant(self.nodes, tf.float32),
            start=tf.constant(start[np.newaxis], tf.float32),
            neighbourhoods=tf.constant(self.neighbourhoods),
            neighbours=tf.constant(self.neighbours),
            reward_mean=tf.constant(self.reward_mean),
            reward_spread=tf.constant(self.reward_spread),
            reward_bit=tf.constant(self.reward_bit),
            start_cost=tf.constant([start_cost], tf.float32),
            rule_changes=tf.constant(rule_changes),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Arrays for `np.savez`."""
        own = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self) if field.name != "table"}
        return own | self.table.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Scene:
        """Inverse of `to_arrays`."""
        own = {field.name: arrays[field.name] for field in fields(cls) if field.name != "table"}
        numbers = {name: int(own[name]) for name in ("first_site", "first_action")}
        return cls(**(own | numbers | {"start": str(own["start"]), "table": ActionTable.from_arrays(arrays)}))


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
