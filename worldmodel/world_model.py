"""`WorldModel`: encoder, start graphs and MDN-RNN as one bundle that is saved and loaded together."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel import storage
from worldmodel.data.actions import ActionTable
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.graph_store import GraphLike
from worldmodel.data.trajectory import Trajectory
from worldmodel.dream.step import dream_step
from worldmodel.dynamics.mdn_rnn import MdnRnn
from worldmodel.dynamics.start_graphs import StartGraph, StartGraphInputs, Statistics
from worldmodel.encoder.embedding import Embeddings
from worldmodel.encoder.graph_encoder import GraphEncoder
from worldmodel.errors import IncompatibleWorldModel
from worldmodel.signature import Signature


class WorldModel:
    """A trained world model. `worldmodel.fit` makes it; `DreamEnv` and `LatentEnv` use it.

    Attributes:
      signature: the rule set and features that it was trained for.
      encoder: the network from graphs to raw embeddings; embeddings: its results, each graph encoded once.
      mdn_rnn: the dynamics.
      statistics: the statistics of the training data.
      start_graphs: the start graphs that it knows, by hash; those that it was trained on come first.
    """

    def __init__(
        self,
        signature: Signature,
        encoder: GraphEncoder,
        mdn_rnn: MdnRnn,
        statistics: Statistics,
        start_graphs: Sequence[StartGraph],
        *,
        embeddings: Embeddings | None = None,
    ) -> None:
        self.signature, self.encoder, self.mdn_rnn, self.statistics = signature, encoder, mdn_rnn, statistics
        self.start_graphs = {graph.start: graph for graph in start_graphs}
        self.embeddings = embeddings or Embeddings(encoder, signature.features)

    @property
    def latent_size(self) -> int:
        return self.encoder.config.latent

    @property
    def hidden_size(self) -> int:
        return self.mdn_rnn.config.hidden

    @property
    def table(self) -> ActionTable:
        """The actions of the only start graph."""
        return self.start_graph().table

    @property
    def num_actions(self) -> int:
        """A, the number of rewrites of the only start graph, without NO-OP."""
        return self.table.num_actions

    def start_graph(self, start: str | None = None) -> StartGraph:
        """Returns a start graph by its hash; without a hash, the only start graph.

        Raises:
          IncompatibleWorldModel: if the model knows no such graph, or several and no hash is given.
        """
        if start in self.start_graphs:
            return self.start_graphs[start]
        known = ", ".join(self.start_graphs)
        if start is not None:
            raise IncompatibleWorldModel(
                f"the world model does not know the start graph {start}, only {known}. Train it on episodes of that "
                "graph too, or adapt it to some (worldmodel.from_episodes.adapt)."
            )
        if len(self.start_graphs) != 1:
            raise IncompatibleWorldModel(
                f"the world model knows {len(self.start_graphs)} start graphs: bind() it to one of {known}."
            )
        (graph,) = self.start_graphs.values()
        return graph

    def with_start_graphs(self, start_graphs: Sequence[StartGraph]) -> WorldModel:
        """Returns a model with the same networks and other start graphs."""
        parts = self.signature, self.encoder, self.mdn_rnn, self.statistics
        return WorldModel(*parts, start_graphs, embeddings=self.embeddings.copy())

    def bind(self, start: str) -> WorldModel:
        """Returns this model with one of its start graphs as the only one, as dreams, collection and measures need it.

        Raises:
          IncompatibleWorldModel: if it knows no such graph.
        """
        return self.with_start_graphs([self.start_graph(start)])

    def inputs(self, graph: StartGraph) -> StartGraphInputs:
        """Returns a start graph as inputs of the networks."""
        statistics = self.statistics
        embedding = (graph.embedding - statistics.start_mean) / statistics.start_deviation
        return StartGraphInputs(
            actions=graph.action_inputs(),
            neighbours=tf.nest.map_structure(tf.constant, graph.neighbours),
            rewards=tf.nest.map_structure(tf.constant, graph.rewards),
            potential=tf.nest.map_structure(tf.constant, graph.potential),
            embedding=tf.constant(embedding[np.newaxis], tf.float32),
            cost=tf.constant(self._latent(graph.embedding, graph)[-1:], tf.float32),
            rule_changes=tf.constant(statistics.rule_changes),
        )

    def encode(self, graphs: Mapping[str, GraphLike], start_graph: StartGraph | None = None) -> dict[str, np.ndarray]:
        """Returns the latents [Z] of graphs by hash; every hash is encoded once in the life of this object.

        Args:
          start_graph: the start graph that the graphs belong to; None: the only one.
        """
        start_graph = start_graph or self.start_graph()
        return {h: self._latent(raw, start_graph) for h, raw in self.embeddings(graphs).items()}

    def _latent(self, raw: np.ndarray, start_graph: StartGraph) -> np.ndarray:
        return (raw - start_graph.centre) / self.statistics.deviation

    def episode_data(self, buffer: EpisodeBuffer) -> EpisodeData:
        """Returns episodes in terms of this model's latents and of the actions of their start graph.

        Raises:
          IncompatibleWorldModel: if the model does not know the start graph.
          ValueError: if the episodes do not all start from one graph.
        """
        starts = list(buffer.by_start())
        if len(starts) != 1:
            raise ValueError(f"expected episodes from one start graph, got {len(starts)}; part them with by_start()")
        graph = self.start_graph(starts[0])
        return EpisodeData(buffer, graph.table, self.encode(buffer.used_graphs(), graph))

    def teacher_forced(self, real: Trajectory) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the recurrent states before every step: hidden and cell [T + 1, B, H]; zero at time 0."""
        codes = self.mdn_rnn.action_codes(self.inputs(self.start_graph()))
        states = self.mdn_rnn.unroll(tf.constant(real.state[:-1]), tf.constant(real.action), codes)
        hidden, cell = (tf.pad(part, [[1, 0], [0, 0], [0, 0]]) for part in (states.hidden, states.cell))
        return hidden, cell

    @functools.cached_property
    def dream_step(self) -> Callable[..., Any]:
        """`worldmodel.dream.step.dream_step` with these dynamics, for any number of rows."""
        step = functools.partial(dream_step, self.mdn_rnn)
        return tf.function(lambda *arguments: step(*arguments), reduce_retracing=True, autograph=False)

    @functools.cached_property
    def compiled_dream_step(self) -> Callable[..., Any]:
        """`dream_step` compiled by XLA: much faster, but compiled anew for every number of rows."""
        step = functools.partial(dream_step, self.mdn_rnn)
        return tf.function(lambda *arguments: step(*arguments), jit_compile=True, autograph=False)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the model; a directory of that name is replaced only when the new one is complete."""
        storage.replace_directory(Path(directory), lambda temporary: storage.write(temporary, self._parts()))

    def _parts(self) -> storage.Parts:
        graphs = list(self.start_graphs.values())
        return storage.Parts(self.signature, self.encoder, self.mdn_rnn, self.statistics, graphs, self.embeddings.known)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], signature: Signature | None = None) -> WorldModel:
        """Reads a model that `save` has written.

        Args:
          signature: the signature of the environment at hand; checked if given.
        Raises:
          IncompatibleWorldModel: if the model was trained with another rule set or other features, has another format,
            or cannot be read.
        """
        path = Path(directory)
        with storage.readable(path):
            parts = storage.read(path, signature)
            embeddings = Embeddings(parts.encoder, parts.signature.features, parts.embeddings)
            model = cls(*parts[:5], embeddings=embeddings)
            model.create_variables()
            storage.read_weights(path, parts)
        return model

    def create_variables(self) -> None:
        """Creates all weights that do not exist yet, so that they can be assigned."""
        self.embeddings.create_variables()
        graph = next(iter(self.start_graphs.values()))
        codes = self.mdn_rnn.action_codes(self.inputs(graph))
        z, actions, bits = tf.zeros([1, self.latent_size]), tf.zeros([1], tf.int32), graph.table.mask(np.zeros((0, 2)))
        state = self.mdn_rnn.advance(z, actions, self.mdn_rnn.initial_state(1), codes)
        legal = past = tf.constant(bits[np.newaxis], tf.float32)
        self.mdn_rnn.predict(state.hidden, z, actions, legal, past, codes)
