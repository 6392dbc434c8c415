"""`WorldModel`: encoder, latent scaler, action table and MDN-RNN as one bundle that is saved and loaded together."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel.actions import ActionTable
from worldmodel.encoder import EncoderConfig, GraphEncoder
from worldmodel.episodes import EpisodeBuffer
from worldmodel.graph_store import GraphLike, GraphStore, StoredGraph
from worldmodel.graphs import FeatureSpec, graphs_tuple_signature, to_graphs_tuple
from worldmodel.mdn_rnn import MdnRnn, MdnRnnConfig
from worldmodel.npz import save_arrays
from worldmodel.rollout import StartStates
from worldmodel.sequences import SequenceBatch, SequenceData

FORMAT_VERSION = 1
ENCODE_BATCH = 16  # graphs a call: more brings nothing on a CPU, and BERT's activations stay in the cache


class IncompatibleWorldModel(ValueError):
    """A stored world model does not fit the environment at hand (rule set, feature version, format)."""


@dataclass(frozen=True)
class Signature:
    """What a world model was trained for; it is of no use for anything else.

    Attributes:
      rule_names: of the environment, in order: rule ids are positions in it.
      features: columns of the graph observations.
    """

    rule_names: tuple[str, ...]
    features: FeatureSpec

    def require(self, other: Signature, source: str) -> None:
        """Raises `IncompatibleWorldModel` unless `other`, what is at hand, equals this."""
        mine, theirs = (dataclasses.asdict(self.features) | {"rules": s.rule_names} for s in (self, other))
        theirs |= dataclasses.asdict(other.features)
        differing = [name for name in mine if mine[name] != theirs[name]]
        if differing:
            raise IncompatibleWorldModel(
                f"{source} was trained with other {', '.join(differing)}: {self._difference(other)}. "
                "Use the rule set and version it was trained with, or train a world model anew."
            )

    def _difference(self, other: Signature) -> str:
        mine, theirs = set(self.rule_names), set(other.rule_names)
        if self.rule_names == other.rule_names:
            return f"{self.features} there, {other.features} here"
        if mine == theirs:
            return "the same rules in another order"
        return (
            f"{len(mine)} rules there, {len(theirs)} here; only there: {sorted(mine - theirs)[:5]}, "
            f"only here: {sorted(theirs - mine)[:5]}"
        )


@dataclass(frozen=True)
class Scaler:
    """Standardises raw embeddings: z = (raw - mean) / deviation, both float32 [latent]."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, raw: np.ndarray) -> Scaler:
        """Fitted to raw embeddings [n, latent]; a dimension that does not vary is only centred."""
        deviation = raw.std(axis=0)
        return cls(raw.mean(axis=0), np.where(deviation > 1e-6, deviation, 1.0).astype(np.float32))

    def __call__(self, raw: np.ndarray) -> np.ndarray:
        return ((raw - self.mean) / self.deviation).astype(np.float32)


class WorldModel:
    """A trained world model; `dream.DreamEnv` and `latent_env.LatentEnv` are played with it.

    Attributes:
      signature: the rule set and features it was trained for.
      table: its actions.
      encoder, scaler: graphs to standardised latents.
      mdn_rnn: the dynamics.
    """

    def __init__(
        self,
        signature: Signature,
        table: ActionTable,
        encoder: GraphEncoder,
        scaler: Scaler,
        mdn_rnn: MdnRnn,
        *,
        latents: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """`latents`: standardised latents that are known already, by graph hash."""
        self.signature, self.table = signature, table
        self.encoder, self.scaler, self.mdn_rnn = encoder, scaler, mdn_rnn
        self._embed = embedder(encoder, signature.features)
        self._latents: dict[str, np.ndarray] = dict(latents or {})

    @property
    def latent_size(self) -> int:
        return self.encoder.config.latent

    @property
    def hidden_size(self) -> int:
        return self.mdn_rnn.config.hidden

    @property
    def num_actions(self) -> int:
        """A, NO-OP not counted."""
        return self.table.num_actions

    def encode(self, graphs: Mapping[str, GraphLike]) -> dict[str, np.ndarray]:
        """Standardised latents [latent] of graphs by hash; every hash is encoded once in the life of this object."""
        new = [graph_hash for graph_hash in graphs if graph_hash not in self._latents]
        if new:
            raw = embed_all(self._embed, (graphs[graph_hash] for graph_hash in new))
            self._latents.update(zip(new, self.scaler(raw), strict=True))
        return {graph_hash: self._latents[graph_hash] for graph_hash in graphs}

    def sequences(self, buffer: EpisodeBuffer) -> SequenceData:
        """The episodes of `buffer` over this model's latents and table."""
        return SequenceData(buffer, self.table, self.encode(used_graphs(buffer)))

    def teacher_forced(self, batch: SequenceBatch) -> tuple[tf.Tensor, tf.Tensor]:
        """Recurrent states with which every step begins: hidden and cell [T + 1, B, hidden]; zero at time 0."""
        codes = self.mdn_rnn.action_codes()
        states = self.mdn_rnn.unroll(tf.constant(batch.z[:-1]), tf.constant(batch.actions), codes)
        hidden, cell = (tf.pad(part, [[1, 0], [0, 0], [0, 0]]) for part in (states.hidden, states.cell))
        return hidden, cell

    def start_states(self, buffer: EpisodeBuffer, *, max_states: int = 4096, seed: int = 0) -> StartStates:
        """States that dreams may start from: the real ones of `buffer` at any depth that have something to rewrite.

        Args:
          max_states: if there are more, as many are drawn; every episode's first state goes before deeper ones.
          seed: of the draw.
        """
        data = self.sequences(buffer)
        parts = [self._starts_of(data.batch(rows)) for rows in _chunks(len(data), 64)]
        z, hidden, cell, mask, depth = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.random.default_rng(seed).permutation(len(depth))
        kept = np.sort(order[np.argsort(depth[order] > 0, kind="stable")][:max_states])
        return StartStates(*(tf.constant(values[kept]) for values in (z, hidden, cell, mask, depth)))

    def _starts_of(self, batch: SequenceBatch) -> tuple[np.ndarray, ...]:
        hidden, cell = (part.numpy()[:-1] for part in self.teacher_forced(batch))
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
        }
        (directory / "world_model.json").write_text(json.dumps(description, indent=1))
        scaler = {"scaler_mean": self.scaler.mean, "scaler_deviation": self.scaler.deviation}
        save_arrays(directory / "tables.npz", {**self.table.to_arrays(), **scaler})
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
        stored = _read_signature(description["signature"])
        if signature is not None:
            stored.require(signature, f"the world model {directory}")
        with np.load(directory / "tables.npz") as arrays:
            table = ActionTable.from_arrays(arrays)
            scaler = Scaler(arrays["scaler_mean"], arrays["scaler_deviation"])
        encoder = GraphEncoder(EncoderConfig(**description["encoder"]), stored.features)
        mdn_rnn = _empty_mdn_rnn(_read_mdn_rnn_config(description["mdn_rnn"]), table, encoder.config.latent)
        model = cls(stored, table, encoder, scaler, mdn_rnn)
        model._create_variables()
        model._checkpoint().read(str(directory / "weights")).assert_consumed()
        return model

    def _create_variables(self) -> None:
        widths = len(self.signature.features.node_features), len(self.signature.features.edge_features)
        self.encoder(to_graphs_tuple([_smallest_graph(*widths)]))
        codes = self.mdn_rnn.action_codes()
        z, actions, mask = tf.zeros([1, self.latent_size]), tf.zeros([1], tf.int32), tf.zeros([1, self.num_actions + 1])
        state = self.mdn_rnn.advance(z, actions, self.mdn_rnn.initial_state(1), codes)
        self.mdn_rnn.predict(state.hidden, z, actions, mask, codes)


def used_graphs(buffer: EpisodeBuffer) -> Mapping[str, GraphLike]:
    """The graphs that the episodes of `buffer` visit, in order of first visit, read from the store when asked for."""
    return _Subset(buffer.graphs, dict.fromkeys(h for episode in buffer for h in episode.hashes))


class _Subset(Mapping[str, GraphLike]):
    def __init__(self, graphs: GraphStore, hashes: Mapping[str, None]) -> None:
        self._graphs, self._hashes = graphs, hashes

    def __getitem__(self, graph_hash: str) -> GraphLike:
        return self._graphs[graph_hash]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hashes)

    def __len__(self) -> int:
        return len(self._hashes)


def embedder(encoder: GraphEncoder, features: FeatureSpec) -> Any:
    """The encoder as a `tf.function` with one trace for graphs of all sizes: GraphsTuple to raw embeddings."""
    return tf.function(encoder, input_signature=[graphs_tuple_signature(features)], autograph=False)


def embed_all(embed: Any, graphs: Iterable[GraphLike]) -> np.ndarray:
    """Raw embeddings of at least one graph, a few at a time: float32 [n, latent]."""
    remaining = iter(graphs)
    batches = iter(lambda: list(itertools.islice(remaining, ENCODE_BATCH)), [])
    return np.concatenate([embed(to_graphs_tuple(batch)).numpy() for batch in batches])


def _chunks(size: int, width: int) -> Iterator[np.ndarray]:
    return (np.arange(start, min(start + width, size)) for start in range(0, size, width))


def _smallest_graph(node_width: int, edge_width: int) -> StoredGraph:
    return StoredGraph(np.zeros((1, node_width)), np.zeros((0, edge_width)), np.zeros((0, 2), np.int64))


def _read_signature(stored: Mapping[str, Any]) -> Signature:
    features = stored["features"]
    lists = {name: tuple(features[name]) for name in ("node_features", "edge_features")}
    return Signature(tuple(stored["rule_names"]), FeatureSpec(**(features | lists)))


def _read_mdn_rnn_config(stored: Mapping[str, Any]) -> MdnRnnConfig:
    low, high = stored["log_sigma_range"]
    return MdnRnnConfig(**{**stored, "log_sigma_range": (low, high)})


def _empty_mdn_rnn(config: MdnRnnConfig, table: ActionTable, latent: int) -> MdnRnn:
    """A model of the right sizes whose every variable a checkpoint will overwrite."""
    actions = table.num_actions + 1
    return MdnRnn(
        config,
        table,
        latent,
        neighbours=np.zeros((actions, config.neighbours), np.int32),
        reward_table=np.zeros(actions, np.float32),
        reward_spread=np.zeros(actions, np.float32),
        reward_scale=1.0,
    )
