"""`WorldModel`: encoder, scenes and MDN-RNN as one bundle that is saved and loaded together."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel.actions import ActionTable
from worldmodel.config import EncoderConfig, MdnRnnConfig
from worldmodel.embedding import embed_all, embedder, operators_of, used_graphs
from worldmodel.encoder import GraphEncoder
from worldmodel.episodes import EpisodeBuffer
from worldmodel.graph_store import GraphLike, StoredGraph
from worldmodel.graphs import to_graphs_tuple
from worldmodel.mdn_rnn import MdnRnn, ModelSizes
from worldmodel.neighbourhood import neighbour_table, neighbourhood_rows
from worldmodel.npz import save_arrays
from worldmodel.reward_table import mean_reward_per_action, mean_reward_per_rule, reward_spread_per_rule
from worldmodel.rollout import StartStates
from worldmodel.scenes import Scene, SceneInputs, Statistics, nodes_at_sites
from worldmodel.sequences import SequenceBatch, SequenceData
from worldmodel.signature import IncompatibleWorldModel, Signature

FORMAT_VERSION = 3
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
    ) -> WorldModel:
        """A world model of a trained encoder and what the training data say directly; its dynamics as they are.

        Args:
          tables: the actions of every start graph of `buffer`.
          slots: see `neighbour_slots`.
        """
        graphs = used_graphs(buffer)
        raw = embed_all(embedder(encoder, signature.features), graphs.values())
        embeddings = dict(zip(graphs, raw, strict=True))
        parts = buffer.by_start()
        of_scenes = {start: np.stack([embeddings[h] for h in used_graphs(part)]) for start, part in parts.items()}
        discrete = encoder.config.categories > 0
        centres = {start: np.zeros_like(raw[0]) if discrete else each.mean(axis=0) for start, each in of_scenes.items()}
        deviations = np.concatenate([of_scenes[start] - centre for start, centre in centres.items()])
        starts = np.stack([embeddings[start] for start in parts])
        statistics = Statistics(
            deviation=np.ones_like(raw[0]) if discrete else _deviation(deviations),
            offset=np.mean(np.stack(list(centres.values())) - starts, axis=0) * (not discrete),
            start_mean=starts.mean(axis=0),
            start_deviation=_deviation(starts - starts.mean(axis=0)),
            slots=slots,
            rule_mean=mean_reward_per_rule(buffer),
            rule_spread=reward_spread_per_rule(buffer),
        )
        model = cls(signature, encoder, mdn_rnn, statistics, [], embeddings=embeddings)
        model._add_trained(buffer, tables, centres)
        return model

    def grown(
        self, mdn_rnn: MdnRnn, buffer: EpisodeBuffer, tables: Mapping[str, ActionTable], slots: np.ndarray
    ) -> WorldModel:
        """This model with more data of the same start graphs, and other dynamics, as they are.

        Encoder and latents stay what they are; all else is taken from the data anew.

        Args:
          mdn_rnn, buffer, tables, slots: see `of_buffer`.
        """
        rules = {"rule_mean": mean_reward_per_rule(buffer), "rule_spread": reward_spread_per_rule(buffer)}
        statistics = dataclasses.replace(self.statistics, slots=slots, **rules)
        model = WorldModel(self.signature, self.encoder, mdn_rnn, statistics, [], embeddings=self._embeddings)
        model._add_trained(buffer, tables, {start: self.scenes[start].centre for start in tables})
        return model

    def _add_trained(
        self, buffer: EpisodeBuffer, tables: Mapping[str, ActionTable], centres: Mapping[str, np.ndarray]
    ) -> None:
        """The scenes of the training data; `centres` of their latents, by start graph like `tables`."""
        first_site = first_action = 1
        for start, part in buffer.by_start().items():
            table = tables[start]
            rewards = mean_reward_per_action(part, table), reward_spread_per_rule(part)[table.rules]
            self._add(start, part.graphs[start], table, centres[start], rewards, (first_site, first_action))
            first_site, first_action = first_site + table.num_sites, first_action + table.num_actions + 1

    def meet(self, buffer: EpisodeBuffer) -> Scene:
        """Adds the start graph of some episodes that it was not trained on, and returns its scene.

        Of the episodes only the start graph and what was ever legal is used.
        """
        (start,), table = buffer.by_start(), buffer.action_table()
        statistics, graph = self.statistics, buffer.graphs[start]
        centre = self._raw({start: graph})[start] + statistics.offset
        rewards = statistics.rule_mean[table.rules], statistics.rule_spread[table.rules]
        return self._add(start, graph, table, centre * (self.encoder.config.categories == 0), rewards, (0, 0))

    def _add(
        self,
        start: str,
        graph: GraphLike,
        table: ActionTable,
        centre: np.ndarray,
        rewards: tuple[np.ndarray, np.ndarray],
        places: tuple[int, int],
    ) -> Scene:
        """`rewards`: mean and spread of every action; `places`: first rows of the learned sites and actions."""
        self.scenes[start] = Scene(
            start,
            table,
            centre,
            self._raw({start: graph})[start],
            nodes_at_sites(table, operators_of(self.encoder, self.signature.features, graph)),
            neighbourhood_rows(self.statistics.slots)[table.rules],
            neighbour_table(self.statistics.slots, table),
            *rewards,
            *places,
        )
        return self.scenes[start]

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
                f"{', '.join(self.scenes)}."
            )
        (scene,) = self.scenes.values()
        return scene

    def only(self, scene: Scene) -> WorldModel:
        """This model with one scene, one of its own: what knows just one graph can be asked of it."""
        parts = self.signature, self.encoder, self.mdn_rnn, self.statistics
        return WorldModel(*parts, [scene], embeddings=self._embeddings)

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
        return scene.inputs((scene.embedding - statistics.start_mean) / statistics.start_deviation)

    def encode(self, graphs: Mapping[str, GraphLike], scene: Scene | None = None) -> dict[str, np.ndarray]:
        """Latents [latent] of graphs by hash; every hash is encoded once in the life of this object.

        Args:
          scene: that the graphs belong to; None: the only one.
        """
        centre = (scene or self.scene()).centre
        return {h: (raw - centre) / self.statistics.deviation for h, raw in self._raw(graphs).items()}

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
        """States that dreams may start from: the real ones of `buffer` at any depth that have something to rewrite.

        Args:
          buffer: episodes of one start graph.
          max_states: if there are more, as many are drawn; every episode's first state goes before deeper ones.
          seed: of the draw.
        """
        data, scene = self.sequences(buffer), self.scene_of(buffer)
        parts = [self._starts_of(data.batch(rows), scene) for rows in _chunks(len(data), 64)]
        z, hidden, cell, mask, depth = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.random.default_rng(seed).permutation(len(depth))
        kept = np.sort(order[np.argsort(depth[order] > 0, kind="stable")][:max_states])
        return StartStates(*(tf.constant(values[kept]) for values in (z, hidden, cell, mask, depth)))

    def _starts_of(self, batch: SequenceBatch, scene: Scene) -> tuple[np.ndarray, ...]:
        hidden, cell = (part.numpy()[:-1] for part in self.teacher_forced(batch, scene))
        open_states = batch.valid & batch.masks[:-1, :, :-1].any(axis=-1)
        depth = np.broadcast_to(np.arange(len(batch.valid), dtype=np.int32)[:, np.newaxis], batch.valid.shape)
        return tuple(part[open_states] for part in (batch.z[:-1], hidden, cell, batch.masks[:-1], depth))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the bundle; a directory of that name is replaced only when the new one is complete."""
        directory = Path(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
        try:
            self._write(temporary)
            if directory.exists():
                shutil.rmtree(directory)
            temporary.rename(directory)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _write(self, directory: Path) -> None:
        description = {
            "format_version": FORMAT_VERSION,
            "signature": dataclasses.asdict(self.signature),
            "encoder": dataclasses.asdict(self.encoder.config),
            "mdn_rnn": dataclasses.asdict(self.mdn_rnn.config),
            "sizes": self.mdn_rnn.sizes._asdict(),
        }
        (directory / "world_model.json").write_text(json.dumps(description, indent=1))
        arrays = {f"statistics/{name}": value for name, value in vars(self.statistics).items()}
        for number, scene in enumerate(self.scenes.values()):
            arrays |= {f"scene{number}/{name}": value for name, value in scene.to_arrays().items()}
        save_arrays(directory / "tables.npz", arrays)
        self._checkpoint().write(str(directory / "weights"))

    def _checkpoint(self) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(encoder=self.encoder, mdn_rnn=self.mdn_rnn)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], signature: Signature | None = None) -> WorldModel:
        """Reads a bundle written by `save`.

        Args:
          signature: of the environment at hand; checked if given.
        Raises:
          IncompatibleWorldModel: if it was trained with another rule set or other features, or has another format.
        """
        directory = Path(directory)
        description = json.loads((directory / "world_model.json").read_text())
        if description["format_version"] != FORMAT_VERSION:
            raise IncompatibleWorldModel(
                f"{directory} has format {description['format_version']}, expected {FORMAT_VERSION}; train it anew"
            )
        stored = Signature.from_json(description["signature"])
        if signature is not None:
            stored.require(signature, f"the world model {directory}")
        with np.load(directory / "tables.npz") as arrays:
            statistics, scenes = _read_tables(dict(arrays))
        encoder = GraphEncoder(EncoderConfig(**description["encoder"]), stored.features)
        mdn_rnn = MdnRnn(_read_mdn_rnn_config(description["mdn_rnn"]), ModelSizes(**description["sizes"]))
        model = cls(stored, encoder, mdn_rnn, statistics, scenes)
        model.create_variables()
        model._checkpoint().read(str(directory / "weights")).assert_consumed()
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


def _deviation(centred: np.ndarray) -> np.ndarray:
    """Root mean square of rows [n, Z]; 1 for a dimension that does not vary, which is only centred."""
    deviation = np.sqrt(np.mean(np.square(centred), axis=0))
    return np.where(deviation > _LEAST_DEVIATION, deviation, 1.0).astype(np.float32)


def _chunks(size: int, width: int) -> Iterator[np.ndarray]:
    return (np.arange(start, min(start + width, size)) for start in range(0, size, width))


def _smallest_graph(node_width: int, edge_width: int) -> StoredGraph:
    return StoredGraph(np.zeros((1, node_width)), np.zeros((0, edge_width)), np.zeros((0, 2), np.int64))


def _read_mdn_rnn_config(stored: Mapping[str, Any]) -> MdnRnnConfig:
    low, high = stored["log_sigma_range"]
    return MdnRnnConfig(**{**stored, "log_sigma_range": (low, high)})


def _read_tables(arrays: Mapping[str, np.ndarray]) -> tuple[Statistics, list[Scene]]:
    groups: dict[str, dict[str, np.ndarray]] = {}
    for key, value in arrays.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = value
    statistics = Statistics(**groups.pop("statistics"))
    return statistics, [Scene.from_arrays(groups[f"scene{number}"]) for number in range(len(groups))]
