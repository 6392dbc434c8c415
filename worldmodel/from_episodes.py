"""The parts of a world model that come from episodes without training: statistics of the data, and start graphs.

`untrained` makes a model from a trained encoder and training data. `extended` makes one from a model and more data.
`adapt` binds a model to a start graph that it was not trained on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.noise import cost_noise
from worldmodel.dynamics.mdn_rnn import MdnRnn
from worldmodel.dynamics.neighbourhood import neighbour_table, rows_of_actions
from worldmodel.dynamics.potential import Potential, RulePotential, fitted
from worldmodel.dynamics.reward_table import (
    ActionRewards,
    rewards_of_rules,
    scaled_to_start,
    without_noise,
)
from worldmodel.dynamics.start_graphs import (
    UNKNOWN,
    Neighbours,
    StartGraph,
    Statistics,
    changes_per_rule,
    nodes_at_sites,
)
from worldmodel.encoder.embedding import Embeddings
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.errors import IncompatibleWorldModel
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training episodes by start graph.

    Attributes:
      buffer: all episodes; if z holds the cost, with the rewards that the times of the nodes make, without noise.
      parts: the episodes of each start graph.
      tables: the actions of each start graph.
      scaled, scaled_parts: `buffer` and `parts` with rewards in the unit in which they are learned (`CostInLatent`).
      cost_in_latent: whether this unit is percent of the start graph's cost.
      telescopes: see `ModelSizes`.
      cost_noise: see `ModelSizes`.
    """

    buffer: EpisodeBuffer
    parts: Mapping[str, EpisodeBuffer]
    tables: Mapping[str, ActionTable]
    scaled: EpisodeBuffer
    scaled_parts: Mapping[str, EpisodeBuffer]
    cost_in_latent: bool
    telescopes: bool
    cost_noise: float

    @classmethod
    def of(cls, buffer: EpisodeBuffer, *, cost_in_latent: bool, telescopes: bool) -> TrainingData:
        """Sorts episodes of one or several start graphs."""
        noise = cost_noise(buffer)
        buffer = without_noise(buffer) if cost_in_latent else buffer
        parts = buffer.by_start()
        tables = {start: part.action_table() for start, part in parts.items()}
        scaled = scaled_to_start(buffer) if cost_in_latent else buffer
        return cls(buffer, parts, tables, scaled, scaled.by_start(), cost_in_latent, telescopes, noise)


def untrained(
    signature: Signature,
    encoder: GraphEncoder,
    mdn_rnn: MdnRnn,
    data: TrainingData,
    slots: np.ndarray,
    *,
    encoder_states: int = 0,
    on_encoded: Callable[[int], None] | None = None,
) -> WorldModel:
    """Makes a world model of a trained encoder and of dynamics, which stay as they are.

    Args:
      slots: see `neighbour_slots`.
      encoder_states: number of distinct states that the encoder was trained on.
      on_encoded: called with the number of graphs that are encoded by then.
    """
    embeddings = Embeddings(encoder, signature.features)
    raw = embeddings(data.buffer.used_graphs(), on_encoded)
    visited = {start: np.stack([raw[h] for h in part.used_graphs()]) for start, part in data.parts.items()}
    is_real = encoder.config.categories == 0
    centres = {start: each.mean(axis=0) * is_real for start, each in visited.items()}
    starts = np.stack([raw[start] for start in data.parts])
    spread = np.concatenate([visited[start] - centre for start, centre in centres.items()])
    deviation = _deviation(spread) if is_real else np.ones_like(starts[0])
    of_actions, of_rules = _potentials(data, mdn_rnn)
    statistics = Statistics(
        deviation=deviation,
        offset=np.mean(np.stack(list(centres.values())) - starts, axis=0) * is_real,
        start_mean=starts.mean(axis=0),
        start_deviation=_deviation(starts - starts.mean(axis=0), of_constant=np.inf),
        slots=slots,
        rule_potential=of_rules,
        encoder_states=encoder_states,
        **_facts(data, raw, deviation),
    )
    model = WorldModel(signature, encoder, mdn_rnn, statistics, [], embeddings=embeddings)
    parts = data.scaled_parts.items()
    rewards = {start: ActionRewards.of_single_rewrites(part, data.tables[start]) for start, part in parts}
    return _with_start_graphs(model, data, centres, rewards, of_actions)


def extended(before: WorldModel, mdn_rnn: MdnRnn, data: TrainingData, slots: np.ndarray) -> WorldModel:
    """Makes a model with more data of the same start graphs, and with other dynamics, which stay as they are.

    The encoder, the latents, and the mean rewards of known actions stay too. All else comes from the data anew.

    Args:
      slots: see `neighbour_slots`.
    """
    raw = before.embeddings(data.buffer.used_graphs())
    facts = _facts(data, raw, before.statistics.deviation)
    of_actions, of_rules = _potentials(data, mdn_rnn)
    statistics = dataclasses.replace(before.statistics, slots=slots, rule_potential=of_rules, **facts)
    model = WorldModel(before.signature, before.encoder, mdn_rnn, statistics, [], embeddings=before.embeddings.copy())
    rewards, centres = {}, {}
    for start, part in data.scaled_parts.items():
        table, known = data.tables[start], before.start_graphs[start]
        rewards[start] = ActionRewards.of_single_rewrites(part, table).keeping(table, known.rewards, known.table)
        centres[start] = known.centre
    return _with_start_graphs(model, data, centres, rewards, of_actions)


def adapt(model: WorldModel, buffer: EpisodeBuffer) -> WorldModel:
    """Binds a model to a start graph that it was not trained on.

    It learns nothing. It reads only the start graph and the rewrites that were ever legal from the episodes.

    Raises:
      IncompatibleWorldModel: if the episodes have everywhere-actions, and those that the model learned from have none.
    """
    statistics, table, (start,) = model.statistics, buffer.action_table(), buffer.by_start()
    if buffer.num_kinds > len(statistics.rule_mean):
        raise IncompatibleWorldModel(
            "the world model was trained without everywhere-actions, and these episodes have some: play without them "
            "(environment.everywhere=false), or train a world model with them."
        )
    raw = model.embeddings({start: buffer.graphs[start]})[start]
    centre = (raw + statistics.offset) * (model.encoder.config.categories == 0)
    # A rewrite saves much the same time wherever it is, and so a smaller share of a larger graph.
    larger_by = (raw - statistics.start_mean)[-1:] / statistics.deviation[-1:]
    share = float(model.mdn_rnn.cost.times_cheaper(tf.constant(larger_by, tf.float32))[0])
    rewards = ActionRewards.of_rules(share * statistics.rule_mean, share * statistics.rule_spread, table)
    potential = statistics.rule_potential.on(table, share)
    unknown = (UNKNOWN, UNKNOWN)
    return model.with_start_graphs([_start_graph(model, buffer, table, centre, rewards, potential, unknown)])


def _with_start_graphs(
    model: WorldModel,
    data: TrainingData,
    centres: Mapping[str, np.ndarray],
    rewards: Mapping[str, ActionRewards],
    potentials: Mapping[str, Potential],
) -> WorldModel:
    """Returns the model with the start graphs of its data, whose rows follow each other in the learned tables."""
    graphs, first_site, first_action = [], UNKNOWN + 1, UNKNOWN + 1
    for start, part in data.parts.items():
        table, rows = data.tables[start], (first_site, first_action)
        known = centres[start], rewards[start], potentials[start]
        graphs.append(_start_graph(model, part, table, *known, rows))
        first_site, first_action = first_site + table.num_sites, first_action + table.num_actions + 1
    return model.with_start_graphs(graphs)


def _start_graph(
    model: WorldModel,
    part: EpisodeBuffer,
    table: ActionTable,
    centre: np.ndarray,
    rewards: ActionRewards,
    potential: Potential,
    first_rows: tuple[int, int],
) -> StartGraph:
    """Makes a start graph.

    Args:
      part: its episodes.
      first_rows: the rows where its sites and its actions begin in the learned tables.
    """
    start, locations = part[0].start, min(episode.num_locations for episode in part)
    graph, slots = part.graphs[start], model.statistics.slots
    return StartGraph(
        start=start,
        table=table,
        centre=centre,
        embedding=model.embeddings({start: graph})[start],
        nodes=nodes_at_sites(table, model.embeddings.of_operators(graph), locations),
        neighbours=Neighbours(rows_of_actions(slots, table), neighbour_table(slots, table)),
        rewards=rewards,
        potential=potential,
        first_site=first_rows[0],
        first_action=first_rows[1],
    )


def _potentials(data: TrainingData, mdn_rnn: MdnRnn) -> tuple[dict[str, Potential], RulePotential]:
    """Returns the potentials of the start graphs, and what is the same on all of them; 0 if dynamics do not use it."""
    if not mdn_rnn.has_potential:
        nothing = RulePotential.none(data.buffer.num_rules)
        return {start: nothing.on(table) for start, table in data.tables.items()}, nothing
    of_log_cost = data.cost_in_latent
    found = {start: fitted(part, data.tables[start], of_log_cost=of_log_cost) for start, part in data.parts.items()}
    of_rules = RulePotential.mean([of_rules for _, of_rules in found.values()])
    return {start: of_graph for start, (of_graph, _) in found.items()}, of_rules


def _facts(data: TrainingData, raw: Mapping[str, np.ndarray], deviation: np.ndarray) -> dict[str, Any]:
    """Returns the fields of `Statistics` about the episodes of all starts; `raw` has embeddings by graph hash."""
    rule_mean, rule_spread = rewards_of_rules(data.scaled)
    return {
        "rule_mean": rule_mean,
        "rule_spread": rule_spread,
        "rule_changes": changes_per_rule(data.buffer, raw) / deviation,
        "longest": max(episode.num_steps for episode in data.buffer),
    }


def _deviation(centred: np.ndarray, *, of_constant: float = 1.0) -> np.ndarray:
    """Returns the root mean square of rows [n, Z]; `of_constant` in a dimension that does not vary."""
    deviation = np.sqrt(np.mean(np.square(centred), axis=0))
    return np.where(deviation > _LEAST_DEVIATION, deviation, of_constant).astype(np.float32)
