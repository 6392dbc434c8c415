"""Linear controllers over a table of actions, many of them in one batch."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from worldmodel.data.trajectory import LatentObservation
from worldmodel.world_model import WorldModel

NOOP_BIAS = -2.0
"""Bias of NO-OP in the first controller; that of a rewrite is 0. An episode that NO-OP ends early shows little."""
LEAST_SPREAD = 1e-3
"""Principal components whose spread is below this share of the largest one are noise, and count as 0."""


def principal_components(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of rows [n, width] and the projection on their principal components, each of unit variance.

    Returns:
      (float32 [width], float32 [width, count]); columns beyond the rank of the rows are 0.
    """
    mean = rows.mean(axis=0)
    _, spread, directions = np.linalg.svd(rows - mean, full_matrices=False)
    rank = int(np.sum(spread > LEAST_SPREAD * max(spread[0], np.finfo(np.float32).tiny)))
    kept, projection = min(rank, count), np.zeros((rows.shape[1], count), np.float32)
    projection[:, :kept] = (directions[:kept] / spread[:kept, np.newaxis]).T * np.sqrt(len(rows))
    return mean.astype(np.float32), projection


class LinearScores:
    """Scores of A rewrites and NO-OP that are linear in z and h.

        score(a) = ⟨W x, k[a]⟩ + b[kind(a)],   x = (f, 1)

    f are the first F principal components of [z, h], and k[a] are the first K of the world model's embeddings of all
    actions, divided by √F and √K. Both are fixed: only W and b are parameters, (F + 1) · K and one for each kind of
    action (a rule at one site, a rule everywhere, NO-OP). With F = 16 and K = 32 these are 544 and some tens, where a
    matrix from z and h to the scores of some hundred actions would have 10⁵. CMA-ES needs few.

    Attributes:
      num_parameters: n.
      centre, projection: variables [Z + H] and [Z + H, F], which make f of [z, h]; zero until they are assigned.
      initial: float64 [n], the parameters of the first controller.
    """

    def __init__(self, embedded: np.ndarray, kinds: np.ndarray, *, inputs: int, features: int, keys: int) -> None:
        """
        Args:
          embedded: float [A + 1, width], the embeddings of the actions; NO-OP is the last one.
          kinds: int [A + 1], the kind of every action, numbered from 0 without gaps.
          inputs: Z + H.
          features, keys: F and K.
        """
        mean, projection = principal_components(embedded, keys)
        self._keys = tf.constant((embedded - mean) @ projection / np.sqrt(keys), tf.float32)
        self._kinds = tf.constant(kinds, tf.int32)
        self._shape = features + 1, keys
        self.num_parameters = (features + 1) * keys + int(kinds.max()) + 1
        self.centre = tf.Variable(tf.zeros([inputs]), trainable=False)
        self.projection = tf.Variable(tf.zeros([inputs, features]), trainable=False)
        self.initial = np.zeros(self.num_parameters)
        self.initial[(features + 1) * keys + kinds[-1]] = NOOP_BIAS

    @classmethod
    def for_world_model(cls, world_model: WorldModel, *, features: int, keys: int) -> LinearScores:
        """Builds scores of the actions of a world model's only start graph."""
        graph = world_model.start_graph()
        embedded = world_model.mdn_rnn.action_codes(world_model.inputs(graph)).embedded.numpy()
        _, kinds = np.unique(graph.table.kinds, return_inverse=True)  # most rules match nowhere in a graph
        inputs = world_model.latent_size + world_model.hidden_size
        return cls(embedded, kinds, inputs=inputs, features=features, keys=keys)

    def best(self, observation: LatentObservation, parameters: tf.Tensor) -> tf.Tensor:
        """Returns the legal action with the highest score in each row, the first one among equals: int32 [B].

        Args:
          parameters: float32 [B, n], the parameters of each row's controller.
        """
        features, keys = self._shape
        seen = tf.matmul(tf.concat([observation.z, observation.h], axis=1) - self.centre, self.projection)
        seen = tf.pad(seen * (features - 1) ** -0.5, [[0, 0], [0, 1]], constant_values=1.0)
        weights = tf.reshape(parameters[:, : features * keys], [-1, features, keys])
        query = tf.einsum("bf,bfk->bk", seen, weights)
        biases = tf.gather(parameters[:, features * keys :], self._kinds, axis=1)
        scores = tf.matmul(query, self._keys, transpose_b=True) + biases
        return tf.argmax(tf.where(observation.action_mask, scores, -np.inf), axis=1, output_type=tf.int32)


class LinearPolicy:
    """P linear controllers as a `worldmodel.data.trajectory.Policy`, each of which plays an equal share of the rows.

    Attributes:
      parameters: variable [P, n].
    """

    def __init__(self, scores: LinearScores, controllers: int) -> None:
        """
        Args:
          scores: what the controllers have in common.
          controllers: P; it divides the number of rows that they play.
        """
        self._scores, self._controllers = scores, controllers
        self.parameters = tf.Variable(tf.zeros([controllers, scores.num_parameters]), trainable=False)

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Chooses the best actions; see `Policy`. Log-probabilities and values are 0."""
        rows = tf.shape(observation.z)[0]
        controller = tf.range(rows) * self._controllers // rows
        action = self._scores.best(observation, tf.gather(self.parameters, controller))
        nothing = tf.zeros([rows])
        return action, nothing, nothing
