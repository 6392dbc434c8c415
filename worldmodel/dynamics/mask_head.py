"""The head that predicts which rewrites are legal after a step. A bit keeps its value unless the step changes it."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from worldmodel.config import PAYS_PERCENT, MdnRnnConfig, MdnRnnTrainingConfig
from worldmodel.dynamics.heads import RealSteps, Seen
from worldmodel.dynamics.start_graphs import ActionCodes, ModelSizes

SELDOM = 0.02
"""Share of the states of a batch, some hundreds, below which a rewrite counts as seldom legal."""


class Neighbourhood(snt.Module):
    """Reads the bits in an action's slots and predicts how they change; each rule has weights of its own.

    Args:
      rows: number of rules that have a neighbourhood, plus one for all others, whose slots are empty (row 0).
      slots: P, the number of slots.
      hidden: width of what `read` returns.
    """

    def __init__(self, rows: int, slots: int, hidden: int, name: str | None = None) -> None:
        super().__init__(name=name)
        scatter = snt.initializers.TruncatedNormal(stddev=1.0 / slots**0.5)
        self._read = tf.Variable(scatter([rows, slots, hidden], tf.float32), name="read")
        # The slots come last so that `write` sums along memory, which is twice as fast.
        self._write = tf.Variable(scatter([rows, hidden, slots], tf.float32), name="write")
        self._bias = tf.Variable(tf.zeros([rows, slots]), name="bias")

    @property
    def tables(self) -> dict[str, list[tf.Variable]]:
        """The weights of every slot: "slots" of shape [rows, P, ...], "slots last" of shape [rows, ..., P]."""
        return {"slots": [self._read, self._bias], "slots last": [self._write]}

    def read(self, actions: tf.Tensor, mask: tf.Tensor, codes: ActionCodes) -> tf.Tensor:
        """Returns a summary [n, hidden] of the bits around actions int32 [n] in the masks float32 [n, A + 1]."""
        slots = tf.gather(codes.inputs.neighbours.slots, actions)
        bits = 2.0 * tf.gather(mask, slots, batch_dims=1) - 1.0
        present = tf.cast(slots < tf.shape(mask)[1] - 1, tf.float32)
        return product_with_own(bits * present, tf.gather(codes.inputs.neighbours.rows, actions), self._read)

    def write(self, logits: tf.Tensor, actions: tf.Tensor, features: tf.Tensor, codes: ActionCodes) -> tf.Tensor:
        """Returns `logits` [n, A] plus the changes of each action's slots that `features` [n, hidden] predict."""
        rows, slots = (
            tf.gather(codes.inputs.neighbours.rows, actions),
            tf.gather(codes.inputs.neighbours.slots, actions),
        )
        change = product_with_own(features, rows, self._write) + tf.gather(self._bias, rows)
        n, width = tf.shape(logits)[0], tf.shape(logits)[1] + 1
        places = tf.range(n)[:, tf.newaxis] * width + slots  # empty slots point at the last column, which is cut off
        written = tf.math.unsorted_segment_sum(tf.reshape(change, [-1]), tf.reshape(places, [-1]), n * width)
        return logits + tf.reshape(written, [n, width])[:, :-1]


class MaskHead(snt.Module):
    """Predicts the logit of every rewrite being legal after the step: [n, A].

    A query of low rank reaches every bit. The neighbourhood reaches the bits near the action. If
    `MdnRnnConfig.features` is "state", there is only the query.
    """

    learns_noop = False

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self.neighbourhood: Neighbourhood | None = None
        self._query = snt.Linear(config.mask_rank)
        self._keys = snt.Linear(config.mask_rank, w_init=snt.initializers.TruncatedNormal(stddev=0.05))
        if config.features == "step":
            self.neighbourhood = Neighbourhood(sizes.neighbourhoods, sizes.slots, config.neighbour_hidden)
            self._inertia = tf.Variable(config.inertia, dtype=tf.float32, name="inertia")

    def keys(self, embedded: tf.Tensor) -> tf.Tensor:
        """Returns the keys [A, mask_rank] of all rewrites from their embeddings [A + 1, width], NO-OP last."""
        return self._keys(embedded[:-1])

    def predict(self, seen: Seen) -> tf.Tensor:
        logits = tf.matmul(self._query(seen.shared), seen.mask_keys, transpose_b=True)
        if self.neighbourhood is None:
            return logits
        logits += self._inertia * (2.0 * seen.legal[:, :-1] - 1.0)
        return self.neighbourhood.write(logits, seen.action, seen.local, seen.codes)

    def target(self, seen: Seen, real: RealSteps) -> tf.Tensor:
        return real.next_legal[:, :-1]

    def loss(self, prediction: tf.Tensor, target: tf.Tensor, seen: Seen) -> dict[str, tf.Tensor]:
        """Returns `mask`, the cross-entropy in nats, summed over the bits, and `emphasised_mask`, over some of them.

        These are the bits of rewrites that pay, which a policy needs, and of those that are seldom legal, which are
        learned last.
        """
        nats = tf.nn.sigmoid_cross_entropy_with_logits(target, prediction)
        often = tf.reduce_mean(target, axis=0)
        matter = (seen.codes.inputs.rewards.mean[:-1] > PAYS_PERCENT) | ((often > 0.0) & (often < SELDOM))
        emphasised = tf.reduce_sum(nats * tf.cast(matter, tf.float32), axis=-1)
        return {"mask": tf.reduce_sum(nats, axis=-1), "emphasised_mask": emphasised}

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        return {"mask": config.mask_weight, "emphasised_mask": config.mask_weight * config.mask_emphasis}


def next_mask(mask_logits: tf.Tensor, threshold: float | tf.Tensor) -> tf.Tensor:
    """Returns the mask bool [n, A + 1] of the actions whose logits [n, A] exceed a threshold; NO-OP is always legal."""
    return tf.pad(mask_logits > threshold, [[0, 0], [0, 1]], constant_values=True)


TILE = 32
"""Vectors in a tile. Larger tiles would be emptier, and smaller ones would read the matrices more often."""
FEW = 128
"""Up to this many vectors, tiles do not pay. The number is known beforehand only in a dream that XLA compiles."""


def product_with_own(vectors: tf.Tensor, which: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
    """Returns vectors[i] · matrices[which[i]] for every i.

    Args:
      vectors: float32 [n, I].
      which: int32 [n] in [0, M).
      matrices: float32 [M, I, O].
    Returns:
      [n, O].
    """
    if vectors.shape[0] is not None and vectors.shape[0] <= FEW:
        return tf.reduce_sum(tf.gather(matrices, which) * vectors[..., tf.newaxis], axis=1)
    return _tiled_product(vectors, which, matrices)


def _tiled_product(vectors: tf.Tensor, which: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
    """Returns the same in a number of operations that depends on shapes only, which compilers need."""
    n, num_matrices = tf.shape(vectors)[0], tf.shape(matrices)[0]
    most_tiles = tf.minimum(n, n // TILE + num_matrices)
    order = tf.argsort(which, stable=True)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(which), which, num_matrices)
    tiles = (counts + TILE - 1) // TILE
    ends = tf.cumsum(tiles)
    sorted_which = tf.gather(which, order)
    place_among_equals = tf.range(n) - tf.gather(tf.cumsum(counts, exclusive=True), sorted_which)
    sorted_places = TILE * tf.gather(ends - tiles, sorted_which) + place_among_equals
    places = tf.gather(sorted_places, tf.math.invert_permutation(order))
    of_tile = tf.searchsorted(ends, tf.range(most_tiles), side="right")
    packed = tf.math.unsorted_segment_sum(vectors, places, TILE * most_tiles)
    tiled = tf.reshape(packed, [most_tiles, TILE, vectors.shape[1]])
    products = tf.matmul(tiled, tf.gather(matrices, tf.minimum(of_tile, num_matrices - 1)))
    return tf.gather(tf.reshape(products, [TILE * most_tiles, matrices.shape[2]]), places)
