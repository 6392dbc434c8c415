"""`CandidatePolicy`: a policy over the graphs that one rewrite leads to, and a value, trained end to end."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
import sonnet as snt
import tensorflow as tf

from controller.policies.categorical import Categorical, sampled
from controller.policies.layers import POLICY_GAIN, Mlp, Orthogonal, Torso, ValueNet
from controller.worlds.candidate_view import CandidateObservation, CandidateView
from controller.xrlflow.config import XrlflowConfig
from controller.xrlflow.encoder import CandidateEncoder, EncodedGraphs
from taso_ext.errors import ModelWarning


class Head(Protocol):
    """A network from the embeddings of candidates to logits and a value."""

    def __call__(self, encoded: EncodedGraphs, seen: CandidateObservation) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns logits float32 [S, C] of the candidates, with C at least that of the row with the most, and values
        float32 [S]; `encoded` are the kinds of candidates of `seen`."""


class PointerHead(snt.Module):
    """A head that scores every kind of candidate by itself; permuted candidates have permuted probabilities.

        score (c) = w · MLP(g[c], g[0], change[c])

    g are the embeddings of the graphs, of which number 0 is the present one, and change[c] is the sum of all nodes'
    embeddings less that of the present graph. The value also reads the mean of the candidates.
    """

    def __init__(self, config: XrlflowConfig, rng: np.random.Generator) -> None:
        super().__init__("pointer")
        self._change = snt.Linear(config.embedding, w_init=Orthogonal(rng), name="change")
        self._candidates = Torso(config.torso, rng, name="candidates")
        self._score = snt.Linear(1, with_bias=False, w_init=Orthogonal(rng, POLICY_GAIN), name="score")
        self._value = ValueNet(config.torso, rng, name="value")

    def __call__(self, encoded: EncodedGraphs, seen: CandidateObservation) -> tuple[tf.Tensor, tf.Tensor]:
        starts = tf.minimum(seen.kinds.row_starts(), tf.cast(tf.shape(encoded.state)[0], tf.int64) - 1)
        present = tf.gather(encoded.embedding, starts)  # in padding, of another row
        change = self._change(encoded.change)
        read = tf.concat([encoded.embedding, tf.gather(present, encoded.state), change], axis=1)
        hidden = self._candidates(read)
        scores = tf.gather(self._score(hidden)[:, 0], encoded.kind)
        logits = seen.candidates.with_flat_values(scores).to_tensor()
        number = tf.cast(seen.candidates.row_lengths(), tf.float32)[:, tf.newaxis]
        graphs = tf.cast(seen.kinds.flat_values, tf.float32)[:, tf.newaxis]
        mean = tf.math.segment_sum(graphs * hidden, encoded.state)
        mean = tf.pad(mean, [[0, tf.shape(number)[0] - tf.shape(mean)[0]], [0, 0]]) / tf.maximum(number, 1.0)
        return logits, self._value(tf.concat([present, mean, tf.math.log1p(number)], axis=1))


class FlatHead(snt.Module):
    """The published head: two networks read the embeddings of `slots` candidates side by side; empty slots are 0."""

    def __init__(self, config: XrlflowConfig, rng: np.random.Generator) -> None:
        super().__init__("flat")
        self._slots, self._size = config.slots, config.embedding
        self._policy = Mlp(config.torso, config.slots, rng, gain=POLICY_GAIN, name="policy")
        self._value = Mlp(config.torso, 1, rng, gain=1.0, name="value")

    def __call__(self, encoded: EncodedGraphs, seen: CandidateObservation) -> tuple[tf.Tensor, tf.Tensor]:
        embeddings = seen.candidates.with_flat_values(tf.gather(encoded.embedding, encoded.kind))
        slots = embeddings.to_tensor(shape=[None, self._slots, self._size])
        flat = tf.reshape(slots, [-1, self._slots * self._size])
        return self._policy(flat), self._value(flat)[:, 0]


class CandidatePolicy(snt.Module):
    """A policy π(candidate | state) and a value V(state).

    With the pointer as its head, no weight belongs to a graph.
    """

    has_location_critic = False

    def __init__(self, env: Any, config: XrlflowConfig, *, seed: int = 0) -> None:
        """
        Args:
          env: the real environment; it is reset.
          config: the kind and the sizes of the network.
          seed: the seed of the initial weights.
        """
        super().__init__("candidate_policy")
        self._config = config
        tf.random.set_seed(seed)  # the encoder's initialisers draw from TensorFlow's global generator
        self._encoder = CandidateEncoder(config)
        rng = np.random.default_rng(seed)
        self._head: Head = FlatHead(config, rng) if config.head == "flat" else PointerHead(config, rng)
        seen = self.view(env).reset()[0]
        self.distribution_and_value(seen)  # creates all weights, so that they can be restored
        if dropped := int(seen.dropped[0]):
            number = int(seen.candidates.row_lengths()[0]) - 1 + dropped
            warnings.warn(
                f"{dropped} of the {number} rewrites of the start graph cannot be chosen: there is no place for them. "
                f"{'xrlflow.slots' if config.head == 'flat' else 'environment.max_locations'} makes more places.",
                ModelWarning,
                stacklevel=2,
            )

    def view(self, env: Any) -> CandidateView:
        """Returns an environment as the policy sees it."""
        return CandidateView(env, reach=self._config.reach, most=self._config.most_candidates)

    def __call__(self, observation: CandidateObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Samples one candidate for each state; returns (number int32 [S], log-probability [S], value [S])."""
        return sampled(self.distribution_and_value(observation), seed)

    def distribution_and_value(self, observation: CandidateObservation) -> tuple[Categorical, tf.Tensor]:
        """Returns the distribution over each state's candidates, and values float32 [S] in the learner's units."""
        logits, value = self._head(self._encoder(observation), observation)
        lengths, number = observation.candidates.row_lengths(), tf.range(tf.shape(logits)[1], dtype=tf.int64)
        legal = number < lengths[:, tf.newaxis]
        if not self._config.noop:
            legal &= (number > 0) | (lengths[:, tf.newaxis] == 1)
        return Categorical(logits, legal), value
