"""The knowledge of a world model about a start graph before the first step: its possible rewrites and their sites.

One model serves many graphs, which share its weights. All that belongs to one graph is in its `StartGraph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.operators import OperatorWeights
from worldmodel.dynamics.potential import KINDS_OF_BITS, Potential, RulePotential
from worldmodel.dynamics.reward_table import ActionRewards

UNKNOWN = 0
"""The row of the learned tables for everything that the model was not trained on."""


class ModelSizes(NamedTuple):
    """The sizes of an MDN-RNN that the data decides.

    Attributes:
      num_rules: R, the number of rules.
      neighbourhoods: number of rules that have a neighbourhood, plus one for all others.
      slots: P, the number of slots of the largest neighbourhood.
      num_sites, num_actions: numbers of rows of the learned tables, with the row of the unknown.
      latent, categories: sizes of the encoder's latent, see `EncoderConfig`.
      node_width: width of what the encoder makes of a node.
      reward_deviation: standard deviation of all rewards, in the units of `StartGraphInputs.rewards`.
      cost_in_latent: whether the last number of z is the logarithm of a cost whose changes are the rewards.
      telescopes: whether rewards are differences of any cost; not known of older models.
      cost_noise: mean deviation of drawn costs from the frozen ones, in percent; 0 if none were drawn.
      everywhere: whether there are everywhere-actions.
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
    telescopes: bool = False
    cost_noise: float = 0.0
    everywhere: bool = False


class ActionInputs(NamedTuple):
    """The A actions of a start graph and NO-OP, as inputs of the networks.

    Attributes:
      rules: int32 [A + 1], the rule of every action.
      kinds: int32 [A + 1], the kind of every action, see `data.actions.kinds_of`.
      sites: int32 [A + 1], the row of every action's site in the table of learned sites of all start graphs.
      rows: int32 [A + 1], the row of every action in the table of learned actions of all start graphs.
      nodes: float32 [A + 1, node width], the encoder's output for the node of the start graph at each action's site;
        zero if the site belongs to no node.
      first, spans: int32 [A + 1]. The single rewrites that an everywhere-action may carry out are the `spans` actions
        from `first` on, which are those of its rule; all other actions are their own only one.
      places: int32 [S], 0 to S - 1, where S is the largest span.
      groups: int32 [A + 1], the rule of every action, numbered without gaps.
      group_numbers: int32 [G], 0 to G - 1: all numbers in `groups`.
    """

    rules: Any
    kinds: Any
    sites: Any
    rows: Any
    nodes: Any
    first: Any
    spans: Any
    places: Any
    groups: Any
    group_numbers: Any


def is_everywhere(actions: ActionInputs) -> tf.Tensor:
    """Returns which actions are everywhere-actions, whose kinds are not those of their rules: bool [A + 1]."""
    return tf.not_equal(actions.kinds, actions.rules)


class Neighbours(NamedTuple):
    """The bits near every action, see `neighbourhood`.

    Attributes:
      rows: int32 [A + 1], the row of every action's rule among the rules that have a neighbourhood.
      slots: int32 [A + 1, P], the bit in every slot; A in an empty slot.
    """

    rows: Any
    slots: Any


class StartGraphInputs(NamedTuple):
    """A start graph, as input of the networks.

    Attributes:
      actions, neighbours: see their classes.
      rewards: statistics of every action's rewards, in percent of the start graph's cost if latents hold the present
        cost (`ModelSizes.cost_in_latent`), else of the cost of the graph that is rewritten.
      embedding: float32 [1, Z], the start graph's embedding, standardised over all start graphs of the training data.
      cost: float32 [1], the last number of the start graph's latent.
      potential: see `worldmodel.dynamics.potential`.
      rule_changes: float32 [K, 2, Z], see `Statistics`.
    """

    actions: ActionInputs
    neighbours: Neighbours
    rewards: ActionRewards
    potential: Potential
    embedding: Any
    cost: Any
    rule_changes: Any


def inputs_signature(sizes: ModelSizes) -> StartGraphInputs:
    """Returns the entry of an `input_signature` with which one trace serves start graphs of every size."""
    row, number = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.float32)
    return StartGraphInputs(
        actions=ActionInputs(
            *(row, row, row, row),
            nodes=tf.TensorSpec([None, sizes.node_width], tf.float32),
            first=row,
            spans=row,
            places=tf.TensorSpec([None if sizes.everywhere else 1], tf.int32),
            groups=row,
            group_numbers=row,
        ),
        neighbours=Neighbours(row, slots=tf.TensorSpec([None, sizes.slots], tf.int32)),
        rewards=ActionRewards(mean=number, spread=number, counts=number),
        potential=Potential(
            bits=tf.TensorSpec([None, KINDS_OF_BITS], tf.float32),
            pairs=tf.TensorSpec([None, 2], tf.int32),
            weights=number,
        ),
        embedding=tf.TensorSpec([1, sizes.latent], tf.float32),
        cost=tf.TensorSpec([1], tf.float32),
        rule_changes=tf.TensorSpec([None, 2, sizes.latent], tf.float32),
    )


class ActionCodes(NamedTuple):
    """The tensors that all steps on a start graph share, computed once per rollout or training step.

    Attributes:
      embedded: float32 [A + 1, width], the embeddings of all actions.
      mask_keys: for every member of the ensemble float32 [A, mask_rank], by which its mask head addresses the bits.
      inputs: the start graph.
    """

    embedded: tf.Tensor
    mask_keys: tuple[tf.Tensor, ...]
    inputs: StartGraphInputs


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of the training data of all start graphs together.

    K is the number of kinds of actions (`data.actions.num_kinds`): R + 1, or 2 R + 1 if there are everywhere-actions.

    Attributes:
      deviation: float32 [Z], root mean square distance of raw embeddings from the centre of their start graph.
      offset: float32 [Z], mean over the start graphs of the difference between the centre and the start graph.
      start_mean, start_deviation: float32 [Z], mean and standard deviation of the start graphs' raw embeddings. The
        deviation is infinite in a dimension in which all are alike, because weights of that dimension were never
        trained and another graph must not use them.
      slots: int32 [R, P, 2], see `neighbourhood`.
      rule_mean, rule_spread: float32 [K], mean and standard deviation of the rewards of every kind, in the units of
        `StartGraphInputs.rewards`.
      rule_potential: see `worldmodel.dynamics.potential`.
      rule_changes: float32 [K, 2, Z], least and greatest change of the latent by every kind.
      longest: number of steps of the longest training episode. Nothing is known of states further from their start.
      encoder_states: number of distinct states that the encoder was trained on.
    """

    deviation: np.ndarray
    offset: np.ndarray
    start_mean: np.ndarray
    start_deviation: np.ndarray
    slots: np.ndarray
    rule_mean: np.ndarray
    rule_spread: np.ndarray
    rule_potential: RulePotential
    rule_changes: np.ndarray
    longest: int
    encoder_states: int

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns arrays for `np.savez`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        potential = _arrays_of("rule_potential", own.pop("rule_potential"))
        return {name: np.asarray(value) for name, value in own.items()} | potential

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Statistics:
        """Makes statistics from the arrays of `to_arrays`."""
        numbers = {name: int(arrays[name]) for name in ("longest", "encoder_states")}
        potential = _from_arrays("rule_potential", RulePotential, arrays)
        own = {name: array for name, array in arrays.items() if not name.startswith("rule_potential.")}
        return cls(**(own | numbers | {"rule_potential": potential}))


@dataclass(frozen=True, eq=False)
class StartGraph:
    """A start graph for which a world model can predict.

    Attributes:
      start: hash of the graph.
      table: the A rewrites that are known to be possible in some state that the graph leads to.
      centre: float32 [Z], mean raw embedding of the graphs that it leads to.
      embedding: float32 [Z], raw embedding of the start graph itself.
      nodes: float32 [A + 1, node width], see `ActionInputs`.
      neighbours: see `Neighbours`.
      rewards: statistics of every action's rewards.
      potential: see `StartGraphInputs`.
      operators: what the operators of graphs save, for dreams that the engine follows; see `operators`.
      first_site, first_action: first rows of this start graph in the learned tables; UNKNOWN if the model was not
        trained on the graph.
    """

    start: str
    table: ActionTable
    centre: np.ndarray
    embedding: np.ndarray
    nodes: np.ndarray
    neighbours: Neighbours
    rewards: ActionRewards
    potential: Potential
    first_site: int = UNKNOWN
    first_action: int = UNKNOWN
    operators: OperatorWeights = OperatorWeights.none()

    @property
    def is_trained(self) -> bool:
        """Whether the model was trained on episodes of this graph."""
        return self.first_site != UNKNOWN

    def action_inputs(self) -> ActionInputs:
        """Returns the actions as tensors."""
        learned = np.arange(self.table.num_actions + 1)
        first, spans = self.table.single_rewrites
        rules, groups = np.unique(self.table.rules, return_inverse=True)
        return ActionInputs(
            rules=tf.constant(self.table.rules),
            kinds=tf.constant(self.table.kinds),
            sites=tf.constant(self.is_trained * (self.first_site + self.table.sites), tf.int32),
            rows=tf.constant(self.is_trained * (self.first_action + learned), tf.int32),
            nodes=tf.constant(self.nodes, tf.float32),
            first=tf.constant(first),
            spans=tf.constant(spans),
            places=tf.range(spans.max()),
            groups=tf.constant(groups, tf.int32),
            group_numbers=tf.range(len(rules)),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns arrays for `np.savez`."""
        own = {name: np.asarray(getattr(self, name)) for name in _OWN_ARRAYS}
        for name in _PARTS:
            own |= _arrays_of(name, getattr(self, name))
        if self.operators.known:
            own |= _arrays_of("operators", self.operators)
        return own | self.table.to_arrays()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> StartGraph:
        """Makes a start graph from the arrays of `to_arrays`."""
        return cls(
            start=str(arrays["start"]),
            table=ActionTable.from_arrays(arrays),
            centre=arrays["centre"],
            embedding=arrays["embedding"],
            nodes=arrays["nodes"],
            **{name: _from_arrays(name, kind, arrays) for name, kind in _PARTS.items()},
            first_site=int(arrays["first_site"]),
            first_action=int(arrays["first_action"]),
            operators=_from_arrays("operators", OperatorWeights, arrays)
            if "operators.weights" in arrays
            else OperatorWeights.none(),
        )


_OWN_ARRAYS = ("start", "centre", "embedding", "nodes", "first_site", "first_action")
_PARTS: Mapping[str, Any] = {"neighbours": Neighbours, "rewards": ActionRewards, "potential": Potential}
"""The fields of a `StartGraph` that are tuples of arrays, and their classes."""


def _arrays_of(name: str, part: Any) -> dict[str, np.ndarray]:
    """Returns the arrays of a named tuple under the name of the field that holds it."""
    return {f"{name}.{field}": array for field, array in part._asdict().items()}


def _from_arrays(name: str, kind: Any, arrays: Mapping[str, Any]) -> Any:
    """Inverts `_arrays_of`; `kind` is the class of the named tuple."""
    return kind(*(arrays[f"{name}.{field}"] for field in kind._fields))


def nodes_at_sites(table: ActionTable, embedded: np.ndarray, num_locations: int) -> np.ndarray:
    """Returns the encoder's output for the node at every action's site: float32 [A + 1, width].

    Sites number the operators of the start graph in the order of its nodes' rows. Everywhere-actions have no node.

    Args:
      embedded: float32 [operators, width], the encoder's output for the start graph without its inputs.
      num_locations: see `Episode`. If there are fewer locations than operators, the node of a site is not known and
        all rows are zero.
    """
    rows = np.zeros((table.num_actions + 1, embedded.shape[1]), np.float32)
    if num_locations < len(embedded):
        return rows
    there = np.flatnonzero((table.locations[:-1] < len(embedded)) & ~table.is_everywhere[:-1])
    rows[there] = embedded[table.locations[there]]
    return rows


def changes_per_rule(buffer: EpisodeBuffer, embeddings: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the least and greatest change of every number of the latent by each kind of action: float32 [K, 2, Z].

    Dreams keep the means of their steps within this range. Good play reaches states that random play hardly ever does.
    A network's prediction there can be anything, and one wrong step spoils all steps after it; the rewrite itself does
    much the same as everywhere.

    A kind that was never taken gets the range of all kinds together, and NO-OP gets 0.

    Args:
      buffer: episodes with at least one rewrite.
      embeddings: float32 [Z] by graph hash, for every graph that they visit.
    """
    kinds = np.concatenate([episode.kinds(buffer.num_rules) for episode in buffer])
    changes = np.concatenate([np.diff([embeddings[h] for h in episode.hashes], axis=0) for episode in buffer])
    order = np.argsort(kinds, kind="stable")
    taken, first = np.unique(kinds[order], return_index=True)
    least, greatest = (extreme.reduceat(changes[order], first, axis=0) for extreme in (np.minimum, np.maximum))
    known = np.empty((buffer.num_kinds, 2, changes.shape[1]), np.float32)
    known[:] = least.min(axis=0), greatest.max(axis=0)
    known[taken] = np.stack([least, greatest], axis=1)
    known[buffer.num_rules] = 0.0
    return known
