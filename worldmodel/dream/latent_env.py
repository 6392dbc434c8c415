"""`LatentEnv`: the real environment seen through the encoder and the MDN-RNN, as a dream would show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from environment import GraphSubstitutionEnv
from worldmodel.data.episodes import RewriteEnv
from worldmodel.data.past import past_after
from worldmodel.data.trajectory import LatentObservation
from worldmodel.dream.step import DreamState
from worldmodel.dream.structure import Structure
from worldmodel.errors import IllegalAction, IncompatibleWorldModel
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel


class LatentEnv:
    """A wrapper of `GraphSubstitutionEnv`; its observations have exactly the form of `DreamEnv`'s, with batch 1.

        env = LatentEnv(GraphSubstitutionEnv("squeezenet1.1"), world_model)
        observation, info = env.reset(seed=0)
        observation, reward, terminated, truncated, info = env.step(action)     # action: index into the ActionTable

    The LSTM consumes every (z, action) that is really taken, so `h` is exact; it is zero after `reset`. Legal real
    actions that the table does not hold cannot be taken: they are masked, and counted in `info["untabled_actions"]`.

    Attributes: latent_size, hidden_size, num_actions (A, NO-OP not counted), table (the actions), env (the real one),
    structure (see the argument).
    """

    def __init__(self, env: RewriteEnv, world_model: WorldModel, structure: Structure | None = None) -> None:
        """
        Args:
          world_model: a model that is bound to the start graph of the environment.
          structure: numbers the graphs, so that dreams with exactly known legal rewrites can go on from `state`.
        Raises:
          IncompatibleWorldModel: if the model was trained with another rule set or, in case of a
            `GraphSubstitutionEnv`, with other features.
        """
        only_names = Signature(tuple(env.rule_names), world_model.signature.features)
        at_hand = Signature.of(env) if isinstance(env, GraphSubstitutionEnv) else only_names
        world_model.signature.require(at_hand, "the world model")
        self._start_graph = world_model.start_graph()
        self.env, self.table, self.structure = env, self._start_graph.table, structure
        self._graph = 0
        self.latent_size, self.hidden_size = world_model.latent_size, world_model.hidden_size
        self.num_actions = self.table.num_actions
        self._world_model = world_model
        codes = world_model.mdn_rnn.action_codes(world_model.inputs(self._start_graph))
        self._advance = tf.function(
            lambda z, action, state: world_model.mdn_rnn.advance(z, action, state, codes), autograph=False
        )
        self._z: tf.Tensor = tf.zeros([1, self.latent_size])
        self._mask = np.zeros(self.num_actions + 1, bool)
        self._past = np.zeros(self.num_actions + 1, bool)
        self._state = world_model.mdn_rnn.initial_state(1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[LatentObservation, dict[str, Any]]:
        """Starts an episode of the real environment.

        Args:
          options: those of the real environment's `reset`, such as `max_steps`.
        Raises:
          ValueError: see the real environment's `reset`.
          IncompatibleWorldModel: if it starts from another graph than the model is bound to.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        if info["graph_hash"] != self._start_graph.start:
            raise IncompatibleWorldModel(
                f"the environment starts from the graph {info['graph_hash']}, but the world model is bound to "
                f"{self._start_graph.start}. Bind it to that one (bind), or adapt it to episodes of it."
            )
        self._state, self._graph = self._world_model.mdn_rnn.initial_state(1), 0
        self._past = np.zeros(self.num_actions + 1, bool)
        return self._observe(observation, info)

    def step(self, action: int) -> tuple[LatentObservation, float, bool, bool, dict[str, Any]]:
        """Takes action `action` in [0, A] (A is NO-OP) in the real environment.

        Returns:
          (observation, reward, terminated, truncated, info). `info` is that of the real environment, with
          "untabled_actions" and "action" (the [rule, location] that was taken) added.
        Raises:
          IllegalAction: the action is outside [0, A], or not legal in this state.
        """
        if not 0 <= action <= self.num_actions:
            raise IllegalAction(f"action {action} is none of 0 to {self.num_actions}, of which the last is NO-OP")
        pair = self.table.decode(np.array([action]))[0]
        if not self._mask[action]:
            raise IllegalAction(
                f"action {action} (rule {pair[0]} at location {pair[1]}) is illegal in this state; "
                f"choose one of the {self._mask.sum()} that the observation's action_mask allows"
            )
        self._state = self._advance(self._z, tf.constant([action], tf.int32), self._state)
        observation, reward, terminated, truncated, info = self.env.step(pair)
        if self.structure is not None:
            self._graph = int(self.structure.along([action], self._graph)[-1])
        latent, info = self._observe(observation, info)
        self._past = past_after(self._past, self._taken(action, info), self._mask)
        return latent, float(reward), bool(terminated), bool(truncated), {**info, "action": pair}

    @property
    def state(self) -> DreamState:
        """The present state as a dream would continue from it, with one row."""
        mask, past = (tf.constant(bits[np.newaxis]) for bits in (self._mask, self._past))
        graph = () if self.structure is None else tf.constant([self._graph], tf.int64)
        return DreamState(self._z, self._state.hidden, self._state.cell, mask, past, graph=graph)

    def _taken(self, action: int, info: Mapping[str, Any]) -> np.ndarray:
        """Returns the single rewrites of the last step: bool [A + 1]."""
        taken = np.zeros(self.num_actions + 1, bool)
        if self.table.is_everywhere[action]:
            found = self.table.encode(np.array(info["rewrites"], np.int32).reshape(-1, 2))
            taken[found[found >= 0]] = True
        else:
            taken[action] = True
        return taken

    def _observe(self, observation: dict[str, Any], info: dict[str, Any]) -> tuple[LatentObservation, dict[str, Any]]:
        graph_hash = info["graph_hash"]
        latents = self._world_model.encode({graph_hash: observation["graph"]}, self._start_graph)
        self._z = tf.constant(latents[graph_hash][np.newaxis])
        legal = self.env.legal_actions()
        self._mask = self.table.mask(legal)
        untabled = int(np.sum(self.table.encode(legal) < 0))
        latent = LatentObservation(self._z, self._state.hidden, tf.constant(self._mask[np.newaxis]))
        return latent, {**info, "untabled_actions": untabled}
