"""Seeded weights for zoo graphs: random, reproducible, and scaled so that a signal survives every layer.

Real checkpoints are neither needed (no experiment depends on what a network has learned) nor wanted (hundreds of
megabytes to download). What matters is that outputs *react* to inputs, because a verification that compares two
constant outputs proves nothing. So every tensor is drawn with the variance that keeps activations near unit scale.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

BIAS_STD = 0.1  # visible next to unit-scale activations, too small to push them into saturation
NORM_STD = 0.1  # spread of LayerNorm scales around 1: distinct, so that a permuted scale is noticed
EMBEDDING_STD = 0.02  # BERT's initializer_range; the LayerNorm after the embeddings brings it to unit scale


class SeededWeights:
    """Draws the tensors of one graph; each depends only on the graph's name and its own, not on the order of calls."""

    def __init__(self, graph_name: str) -> None:
        self._graph_name = graph_name

    def relu_kernel(self, name: str, shape: Sequence[int]) -> Array:
        """Convolution kernel [out, in / group, *window] followed by a ReLU.

        Source: He et al. 2015, eq. 10: variance 2 / fan-in, since a ReLU halves the second moment.
        """
        return self._normal(name, shape, std=math.sqrt(2.0 / math.prod(shape[1:])))

    def linear_kernel(self, name: str, fan_in: int, fan_out: int, *, transposed: bool = False) -> Array:
        """Matrix [fan_in, fan_out] ([fan_out, fan_in] if `transposed`) that maps unit variance to unit variance.

        Source: LeCun et al. 1998, section 4.6: variance 1 / fan-in.
        """
        shape = (fan_out, fan_in) if transposed else (fan_in, fan_out)
        return self._normal(name, shape, std=math.sqrt(1.0 / fan_in))

    def embedding(self, name: str, rows: int, width: int) -> Array:
        """Embedding table [rows, width]."""
        return self._normal(name, (rows, width), std=EMBEDDING_STD)

    def bias(self, name: str, size: int) -> Array:
        """Bias vector [size], also used as the shift of a LayerNorm."""
        return self._normal(name, (size,), std=BIAS_STD)

    def norm_scale(self, name: str, size: int) -> Array:
        """Scale [size] of a LayerNorm, spread around one."""
        return np.float32(1.0) + self._normal(name, (size,), std=NORM_STD)

    def _normal(self, name: str, shape: Sequence[int], *, std: float) -> Array:
        digest = hashlib.sha256(f"{self._graph_name}/{name}".encode()).digest()
        generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        tensor = generator.standard_normal(tuple(shape), dtype=np.float32)
        tensor *= np.float32(std)
        return tensor
