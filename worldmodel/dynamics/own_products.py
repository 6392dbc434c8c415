"""Products of many vectors with few matrices, of which each vector has its own."""

from __future__ import annotations

import tensorflow as tf

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
