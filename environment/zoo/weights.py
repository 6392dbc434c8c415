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
NORM_STD = 0.1  # spread of a norm's scales and deviations around 1: distinct, so that a permuted one is noticed
CENTRING = 0.4  # share of its mean that a filter loses: outputs react to inputs, and rounding errors do not grow
EMBEDDING_STD = 0.02  # BERT's initializer_range; the LayerNorm after the embeddings brings it to unit scale


class SeededWeights:
    """Draws the tensors of one graph; each depends only on the graph's name and its own, not on the order of calls."""

    def __init__(self, graph_name: str) -> None:
        self._graph_name = graph_name

    def conv_kernel(self, name: str, shape: Sequence[int]) -> Array:
        """Convolution kernel [out, in / group, *window] that maps unit variance to unit variance."""
        return self._normal(name, shape, std=math.sqrt(1.0 / math.prod(shape[1:])))

    def relu_kernel(self, name: str, shape: Sequence[int]) -> Array:
        """Convolution kernel [out, in / group, *window] followed by a ReLU.

        Source: He et al. 2015, eq. 10: variance 2 / fan-in, since a ReLU halves the second moment.
        """
        return self._normal(name, shape, std=math.sqrt(2.0 / math.prod(shape[1:])))

    def centred_kernel(self, name: str, shape: Sequence[int]) -> Array:
        """Convolution kernel [out, in / group, *window] between a ReLU and a batch norm, its filters partly centred.

        What a ReLU lets through has a mean that depends little on the network's input and would grow from layer to
        layer until it drowns what does. A trained batch norm has measured that mean and takes it away; here, where the
        statistics are drawn, the filters do, since they sum to less. To zero would be too much: networks as deep as
        Inception v3 then amplify rounding errors some hundredfold.

        Source: Brock et al. 2021, "Characterizing signal propagation", section 4: the mean of a rectified unit normal
        is 1 / √(2π), its second moment 1 / 2; the variance of the kernel makes up for what is taken away.
        """
        remaining = 1.0 - (1.0 - (1.0 - CENTRING) ** 2) / math.pi
        kernel = self._normal(name, shape, std=math.sqrt(2.0 / remaining / math.prod(shape[1:])))
        filters = kernel.reshape(shape[0], -1)
        filters -= np.float32(CENTRING) * filters.mean(axis=1, keepdims=True)
        return kernel

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
        """Bias vector [size], also used as the shift of a norm and as the running mean of a batch norm."""
        return self._normal(name, (size,), std=BIAS_STD)

    def norm_scale(self, name: str, size: int, *, centre: float = 1.0) -> Array:
        """Scale [size] of a norm, spread around `centre`."""
        return np.float32(centre) + self._normal(name, (size,), std=NORM_STD)

    def norm_variance(self, name: str, size: int) -> Array:
        """Running variance [size] of a batch norm: squares of standard deviations that are spread around one."""
        return np.square(np.float32(1.0) + self._normal(name, (size,), std=NORM_STD))

    def _normal(self, name: str, shape: Sequence[int], *, std: float) -> Array:
        digest = hashlib.sha256(f"{self._graph_name}/{name}".encode()).digest()
        generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        tensor = generator.standard_normal(tuple(shape), dtype=np.float32)
        tensor *= np.float32(std)
        return tensor
