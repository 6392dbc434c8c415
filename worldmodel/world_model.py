"""`WorldModel`: encoder, scenes and MDN-RNN as one bundle that is saved and loaded together."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel import storage as bundle
from worldmodel.data.actions import ActionTable
from worldmodel.data.batches import SequenceBatch, SequenceData
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.graph_store import GraphLike, StoredGraph
from worldmodel.data.graphs import to_graphs_tuple
from worldmodel.dream.rollout import StartStates
from worldmodel.dynamics.conditioning_actions import telling_bits
from worldmodel.dynamics.known_changes import changes_per_rule
from worldmodel.dynamics.mdn_rnn import MdnRnn
from worldmodel.dynamics.neighbourhood import neighbour_table, neighbourhood_rows
from worldmodel.dynamics.reward_table import (
    ActionRewards,
    in_percent_of_start,
    mean_reward_per_rule,
    reward_spread_per_rule,
)
from worldmodel.dynamics.start_graphs import UNKNOWN, Scene, SceneInputs, Statistics, nodes_at_sites
from worldmodel.dynamics.step import dream_step
from worldmodel.encoder.embedding import embed_all, embedder, operators_of, used_graphs
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.errors import IncompatibleWorldModel
from worldmodel.signature import Signature

_LEAST_DEVIATION = 1e-6


class WorldModel:
    """A trained world model; `dream.DreamEnv` and `latent_env.LatentEnv` are played with it.

    Attributes:
      signature: the rule set and features it was trained for.
      encoder: graphs to raw embeddings.
      mdn_rnn: the dynamics.
      statistics: of the training data.
      scenes: the start graphs that it knows, by hash; those that it was trained on come first.
    """

    def __init__(
        self,
        signature: Signature,
        encoder: GraphEncoder,
        mdn_rnn: MdnRnn,
        statistics: Statistics,
        scenes: Sequence[Scene],
        *,
        embeddings: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """`embeddings`: raw ones that are known already, by graph hash."""
        self.signature, self.encoder, self.mdn_rnn = signature, encoder, mdn_rnn
        self.statistics, self.scenes = statistics, {scene.start: scene for scene in scenes}
        self._embed = embedder(encoder, signature.features)
        self._embeddings: dict[str, np.ndarray] = dict(embeddings or {})

    @classmethod
    def of_buffer(
        cls,
        signature: Signature,
        encoder: GraphEncoder,
        mdn_rnn: MdnRnn,
        buffer: EpisodeBuffer,
        tables: Mapping[str, ActionTable],
        slots: np.ndarray,
        *,
        encoder_states: int = 0,
    ) -> WorldModel:
        """A world model of a trained encoder and what the training data say directly; its dynamics as they are.

        Args:
          tables: the actions of every start graph of `buffer`.
          slots: see `neighbour_slots`.
          encoder_states: distinct states that the encoder's training drew from.
        """
        if mdn_rnn.sizes.cost_is_told:
            buffer = in_percent_of_start(buffer)
        graphs = used_graphs(buffer)
        raw = embed_all(embedder(encoder, signature.features), graphs.values())
        embeddings = dict(zip(graphs, raw, strict=True))
        parts = buffer.by_start()
        of_scenes = {start: np.stack([embeddings[h] for h in used_graphs(part)]) for start, part in parts.items()}
        discrete = encoder.config.categories > 0
        centres = {start: np.zeros_like(raw[0]) if discrete else each.mean(axis=0) for start, each in of_scenes.items()}
        deviations = np.concatenate([of_scenes[start] - centre for start, centre in centres.items()])
        starts = np.stack([embeddings[start] for start in parts])
        deviation = np.ones_like(raw[0]) if discrete else _deviation(deviations)
        statistics = Statistics(
            deviation=deviation,
            offset=np.mean(np.stack(list(centres.values())) - starts, axis=0) * (not discrete),
            start_mean=starts.mean(axis=0),
            start_deviation=_deviation(starts - starts.mean(axis=0), of_constant=np.inf),
            slots=slots,
            encoder_states=encoder_states,
            **_facts(buffer, embeddings, deviation),
        )
        model = cls(signature, encoder, mdn_rnn, statistics, [], embeddings=embeddings)
        rewards = {start: model._rewards(part, tables[start]) for start, part in parts.items()}
        model._add_trained(parts, tables, centres, rewards)
        return model

    def grown(
        self, mdn_rnn: MdnRnn, buffer: EpisodeBuffer, tables: Mapping[str, ActionTable], slots: np.ndarray
    ) -> WorldModel:
        """This model with more data of the same start graphs, and other dynamics, as they are.

        Encoder and latents stay what they are, and what the rewards of known actions are told from; all else is taken
        from the data anew.

        Args:
          mdn_rnn, buffer, tables, slots: see `of_buffer`.
        """
        if mdn_rnn.sizes.cost_is_told:
            buffer = in_percent_of_start(buffer)
        model = WorldModel(self.signature, self.encoder, mdn_rnn, self.statistics, [], embeddings=self._embeddings)
        facts = _facts(buffer, model._raw(used_graphs(buffer)), self.statistics.deviation)
        model.statistics = dataclasses.replace(self.statistics, slots=slots, **facts)
        parts, old = buffer.by_start(), self.scenes
        rewards = {
            start: model._rewards(part, tables[start]).keeping(tables[start], old[start].rewards, old[start].table)
            for start, part in parts.items()
        }
        model._add_trained(parts, tables, {start: old[start].centre for start in parts}, rewards)
        return model

    def _rewards(self, part: EpisodeBuffer, table: ActionTable) -> ActionRewards:
        """Of episodes of one start graph."""
        neighbours = neighbour_table(self.statistics.slots, table)
        if not self.mdn_rnn.config.telling_bits:
            neighbours = np.full_like(neighbours, table.num_actions)  # NO-OP, which tells nothing
        return ActionRewards.of(part, table, telling_bits(part, table, neighbours))

    def _add_trained(
        self,
        parts: Mapping[str, EpisodeBuffer],
        tables: Mapping[str, ActionTable],
        centres: Mapping[str, np.ndarray],
        rewards: Mapping[str, ActionRewards],
    ) -> None:
        """The scenes of the training data; `centres` of their latents. All by start graph."""
        first_site = first_action = 1
        for start, part in parts.items():
            table = tables[start]
            self._add(part, table, centres[start], rewards[start], (first_site, first_action))
            first_site, first_action = first_site + table.num_sites, first_action + table.num_actions + 1

    def meet(self, buffer: EpisodeBuffer) -> WorldModel:
        """This model before a start graph that it was not trained on, which is the only scene of what is returned.

        It learns nothing: of the episodes only the start graph and what was ever legal is used.
        """
        statistics, table, (start,) = self.statistics, buffer.action_table(), buffer.by_start()
        model = WorldModel(self.signature, self.encoder, self.mdn_rnn, statistics, [], embeddings=self._embeddings)
        raw = self._raw({start: buffer.graphs[start]})[start]
        centre, share = raw + statistics.offset, self._share_of(raw)
        rewards = ActionRewards.of_rules(share * statistics.rule_mean, share * statistics.rule_spread, table)
        model._add(buffer, table, centre * (self.encoder.config.categories == 0), rewards, (UNKNOWN, UNKNOWN))
        return model

    def _share_of(self, start: np.ndarray) -> float:
        """What a saving of 1 % of the start graphs that were trained on is of the cost of another one, in percent.

        A rewrite saves much the same time wherever it is, and so less of a larger graph.

        Args:
          start: float32 [Z], raw embedding of the other one.
        """
        larger_by = (start - self.statistics.start_mean)[-1:] / self.statistics.deviation[-1:]
        return float(self.mdn_rnn.times_cheaper(tf.constant(larger_by, tf.float32))[0])

    def _add(
        self,
        part: EpisodeBuffer,
        table: ActionTable,
        centre: np.ndarray,
        rewards: ActionRewards,
        places: tuple[int, int],
    ) -> None:
        """`part`: episodes of one start graph; `places`: first rows of the learned sites and actions."""
        start, locations = part[0].start, min(episode.num_locations for episode in part)
        graph = part.graphs[start]
        self.scenes[start] = Scene(
            start,
            table,
            centre,
            self._raw({start: graph})[start],
            nodes_at_sites(table, operators_of(self.encoder, self.signature.features, graph), locations),
            neighbourhood_rows(self.statistics.slots)[table.rules],
            neighbour_table(self.statistics.slots, table),
            *rewards,
            *places,
        )

    @property
    def latent_size(self) -> int:
        return self.encoder.config.latent

    @property
    def hidden_size(self) -> int:
        return self.mdn_rnn.config.hidden

    def scene(self, start: str | None = None) -> Scene:
        """The scene of a start graph; without one, the only scene that there is.

        Raises:
          IncompatibleWorldModel: it knows no such graph, or several.
        """
        if start in self.scenes:
            return self.scenes[start]
        if start is not None:
            raise IncompatibleWorldModel(
                f"the world model does not know the start graph {start}, only {', '.join(self.scenes)}. Train it on "
                f"episodes of that graph too, or let it meet() some."
            )
        if len(self.scenes) != 1:
            raise IncompatibleWorldModel(
                f"the world model knows {len(self.scenes)} start graphs: say which one is meant, "
                f"{', '.join(self.scenes)}, by facing() it."
            )
        (scene,) = self.scenes.values()
        return scene

    @property
    def table(self) -> ActionTable:
        """The actions, where there is just one scene."""
        return self.scene().table

    @property
    def num_actions(self) -> int:
        """A, NO-OP not counted, where there is just one scene."""
        return self.table.num_actions

    def inputs(self, scene: Scene) -> SceneInputs:
        """A scene as the networks take it."""
        statistics = self.statistics
        start = (scene.embedding - statistics.start_mean) / statistics.start_deviation
        return scene.inputs(start, float(self._latent(scene.embedding, scene)[-1]), statistics.rule_changes)

    def facing(self, start: str) -> WorldModel:
        """This model before one of the start graphs that it knows, which is the only scene of what is returned.

        What judges a model, dreams of it or collects for it faces one graph.

        Raises:
          IncompatibleWorldModel: it knows no such graph.
        """
        parts = self.signature, self.encoder, self.mdn_rnn, self.statistics
        return WorldModel(*parts, [self.scene(start)], embeddings=self._embeddings)

    def encode(self, graphs: Mapping[str, GraphLike], scene: Scene | None = None) -> dict[str, np.ndarray]:
        """Latents [latent] of graphs by hash; every hash is encoded once in the life of this object.

        Args:
          scene: that the graphs belong to; None: the only one.
        """
        scene = scene or self.scene()
        return {h: self._latent(raw, scene) for h, raw in self._raw(graphs).items()}

    def _latent(self, raw: np.ndarray, scene: Scene) -> np.ndarray:
        return (raw - scene.centre) / self.statistics.deviation

    def _raw(self, graphs: Mapping[str, GraphLike]) -> dict[str, np.ndarray]:
        new = [graph_hash for graph_hash in graphs if graph_hash not in self._embeddings]
        if new:
            raw = embed_all(self._embed, (graphs[graph_hash] for graph_hash in new))
            self._embeddings.update(zip(new, raw, strict=True))
        return {graph_hash: self._embeddings[graph_hash] for graph_hash in graphs}

    def scene_of(self, buffer: EpisodeBuffer) -> Scene:
        """The scene that all episodes of a buffer belong to.

        Raises:
          IncompatibleWorldModel: it knows no such graph.
          ValueError: the episodes do not start from one graph.
        """
        starts = list(buffer.by_start())
        if len(starts) != 1:
            raise ValueError(f"expected episodes from one start graph, got {len(starts)}; part them with by_start()")
        return self.scene(starts[0])

    def sequences(self, buffer: EpisodeBuffer) -> SequenceData:
        """The episodes of `buffer`, of one start graph, over this model's latents and its scene's table."""
        scene = self.scene_of(buffer)
        return SequenceData(buffer, scene.table, self.encode(used_graphs(buffer), scene))

    def teacher_forced(self, batch: SequenceBatch, scene: Scene | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Recurrent states with which every step begins: hidden and cell [T + 1, B, hidden]; zero at time 0."""
        codes = self.mdn_rnn.action_codes(self.inputs(scene or self.scene()))
        states = self.mdn_rnn.unroll(tf.constant(batch.z[:-1]), tf.constant(batch.actions), codes)
        hidden, cell = (tf.pad(part, [[1, 0], [0, 0], [0, 0]]) for part in (states.hidden, states.cell))
        return hidden, cell

    def start_states(self, buffer: EpisodeBuffer, *, max_states: int = 4096, seed: int = 0) -> StartStates:
        """States that dreams may start from: the real ones of `buffer`, at any depth, that have something to rewrite.

        First states of episodes are all the same, and are there once.

        Args:
          buffer: episodes of one start graph.
          max_states: if there are more, as many are drawn, the first state always among them.
          seed: of the draw.
        """
        data, scene = self.sequences(buffer), self.scene_of(buffer)
        states = data.open_states()
        first, deeper = states[states[:, 1] == 0][:1], states[states[:, 1] > 0]
        drawn = np.random.default_rng(seed).permutation(len(deeper))[: max(0, max_states - len(first))]
        chosen = np.concatenate([first, deeper[np.sort(drawn)]])
        parts = [self._states_at(data, rows, chosen, scene) for rows in _chunks(len(data), 64)]
        return StartStates(*(tf.constant(np.concatenate(columns)) for columns in zip(*parts, strict=True)))

    def _states_at(
        self, data: SequenceData, rows: np.ndarray, states: np.ndarray, scene: Scene
    ) -> tuple[np.ndarray, ...]:
        """The fields of `StartStates` of those (episode, time) `states` that are in the episodes `rows`."""
        batch = data.batch(rows)
        hidden, cell = (part.numpy() for part in self.teacher_forced(batch, scene))
        mine = states[(states[:, 0] >= rows[0]) & (states[:, 0] <= rows[-1])]
        places = mine[:, 1], mine[:, 0] - rows[0]
        return batch.z[places], hidden[places], cell[places], batch.masks[places], mine[:, 1].astype(np.int32)

    @functools.cached_property
    def dream_step(self) -> Callable[..., Any]:
        """`worldmodel.dynamics.step.dream_step` of these dynamics, for any number of rows."""
        step = functools.partial(dream_step, self.mdn_rnn)
        return tf.function(lambda *arguments: step(*arguments), reduce_retracing=True, autograph=False)

    @functools.cached_property
    def compiled_dream_step(self) -> Callable[..., Any]:
        """The same through XLA: much faster, but compiled anew for every number of rows."""
        step = functools.partial(dream_step, self.mdn_rnn)
        return tf.function(lambda *arguments: step(*arguments), jit_compile=True, autograph=False)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the bundle; a directory of that name is replaced only when the new one is complete."""
        bundle.replace_directory(Path(directory), lambda temporary: bundle.write(temporary, self._parts()))

    def _parts(self) -> bundle.Parts:
        scenes = list(self.scenes.values())
        return bundle.Parts(self.signature, self.encoder, self.mdn_rnn, self.statistics, scenes, self._embeddings)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], signature: Signature | None = None) -> WorldModel:
        """Reads a bundle written by `save`.

        Args:
          signature: of the environment at hand; checked if given.
        Raises:
          IncompatibleWorldModel: if it was trained with another rule set or other features, or has another format.
        """
        path = Path(directory)
        with bundle.readable(path):
            parts = bundle.read(path, signature)
            model = cls(*parts[:5], embeddings=parts.embeddings)
            model.create_variables()
            bundle.read_weights(path, parts)
        return model

    def create_variables(self) -> None:
        """Makes all weights that are not there yet, so that they can be assigned."""
        widths = len(self.signature.features.node_features), len(self.signature.features.edge_features)
        self.encoder(to_graphs_tuple([_smallest_graph(*widths)]))
        scene = next(iter(self.scenes.values()))
        codes = self.mdn_rnn.action_codes(self.inputs(scene))
        z, actions, mask = tf.zeros([1, self.latent_size]), tf.zeros([1], tf.int32), scene.table.mask(np.zeros((0, 2)))
        state = self.mdn_rnn.advance(z, actions, self.mdn_rnn.initial_state(1), codes)
        self.mdn_rnn.predict(state.hidden, z, actions, tf.constant(mask[np.newaxis], tf.float32), codes)


def _facts(buffer: EpisodeBuffer, embeddings: Mapping[str, np.ndarray], deviation: np.ndarray) -> dict[str, Any]:
    """What `Statistics` say of all episodes, whatever their start, and of the raw embeddings of their graphs."""
    return {
        "rule_mean": mean_reward_per_rule(buffer),
        "rule_spread": reward_spread_per_rule(buffer),
        "rule_changes": changes_per_rule(buffer, embeddings) / deviation,
        "longest": max(episode.num_steps for episode in buffer),
    }


def _deviation(centred: np.ndarray, *, of_constant: float = 1.0) -> np.ndarray:
    """Root mean square of rows [n, Z]; `of_constant` for a dimension that does not vary."""
    deviation = np.sqrt(np.mean(np.square(centred), axis=0))
    return np.where(deviation > _LEAST_DEVIATION, deviation, of_constant).astype(np.float32)


def _chunks(size: int, width: int) -> Iterator[np.ndarray]:
    return (np.arange(start, min(start + width, size)) for start in range(0, size, width))


def _smallest_graph(node_width: int, edge_width: int) -> StoredGraph:
    return StoredGraph(np.zeros((1, node_width)), np.zeros((0, edge_width)), np.zeros((0, 2), np.int64))
