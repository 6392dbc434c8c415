"""The encoder of T5 as the Hugging Face `T5EncoderModel` exports, in inference mode.

Source: Raffel et al. 2020, "Exploring the limits of transfer learning", section 2.1: norms without mean and shift, no
biases, scores without a scale, and a bias of the scores that depends on the distance of two tokens and is shared by all
layers. Sizes from `t5-small/config.json`; operator forms as PyTorch's exporter writes them. The network has 35,330,816
parameters. Hugging Face draws the weights of the queries smaller by the root of a head's width, which stands in for
the scale, and those of the embedding with a variance of 1, since no norm follows it. So does this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from environment.zoo.layers import GraphWriter, SeededWeights, require
from environment.zoo.transformer_layers import KEY_LAYOUT, QUERY_LAYOUT, TransformerLayers


@dataclass(frozen=True)
class T5Config:
    """Sizes of a T5 encoder; the defaults are those of t5-small.

    Attributes:
      vocabulary: rows of the embedding table.
      buckets: classes of distances between tokens, a multiple of 4: half of them are of tokens that come later.
      longest: distance in tokens from which on all distances share a bucket.
      hidden: width of the residual stream, a multiple of `heads`.
      layers, heads: encoder blocks, and attention heads in each.
      feed_forward: width between the two linear layers of a block.
      sequence: tokens in the input.
      epsilon: epsilon of every norm.
    """

    vocabulary: int = 32128
    buckets: int = 32
    longest: int = 128
    hidden: int = 512
    layers: int = 6
    heads: int = 8
    feed_forward: int = 2048
    sequence: int = 128
    epsilon: float = 1e-6


T5_SMALL = T5Config()
T5_SMALL_TINY = T5Config(
    vocabulary=128, buckets=8, longest=16, hidden=64, layers=2, heads=2, feed_forward=128, sequence=16
)

NETWORKS = {"t5-small": T5_SMALL, "t5-small-tiny": T5_SMALL_TINY}


def build(name: str, config: T5Config) -> onnx.ModelProto:
    """Builds the network with batch 1.

    Inputs `input_ids`, `attention_mask`: int64 [1, sequence]. Output `last_hidden_state`: float32
    [1, sequence, hidden].
    """
    require(
        config.buckets % 4 == 0 and config.longest > config.buckets // 4,
        f"expected buckets that are a multiple of 4, and a longest distance of more than a quarter of it, got "
        f"{config.buckets} and {config.longest}.",
    )
    sizes = (config.sequence, config.hidden, config.heads, config.epsilon)
    net = _Network(GraphWriter(name), SeededWeights(name), *sizes, config)
    writer, tokens = net.writer, [1, config.sequence]
    input_ids = writer.input("input_ids", tokens, TensorProto.INT64)
    mask = net.attention_bias(writer.input("attention_mask", tokens, TensorProto.INT64))
    x = net.lookup(input_ids, "shared", config.vocabulary, std=1.0)
    bias = writer.node("Add", net.distance_bias("encoder.block.0.layer.0.SelfAttention"), mask, scope="/encoder")
    for layer in range(config.layers):
        x = net.block(x, bias, f"encoder.block.{layer}")
    writer.output("last_hidden_state", net.norm(x, "encoder.final_layer_norm"), [1, config.sequence, config.hidden])
    return writer.model()


def buckets_of_distances(tokens: int, buckets: int, longest: int) -> npt.NDArray[np.int64]:
    """Returns the bucket of the distance from each token (row) to each other one (column): int64 [tokens, tokens].

    Tokens that come later have the upper half of the buckets. In each half, the first half of the buckets is of one
    distance each, the others are of ranges that grow to `longest` in equal steps of the logarithm.
    """
    distances = np.arange(tokens)[None] - np.arange(tokens)[:, None]
    half, far = buckets // 2, np.abs(distances)
    exact = half // 2
    steps = np.log(np.maximum(far, 1) / exact) / math.log(longest / exact) * (half - exact)
    ranges = np.minimum(exact + steps.astype(np.int64), half - 1)
    return np.where(distances > 0, half, 0) + np.where(far < exact, far, ranges)


@dataclass(frozen=True)
class _Network(TransformerLayers):
    """The layers of a T5 encoder."""

    config: T5Config

    def distance_bias(self, module: str) -> str:
        """Writes what is added to the scores of every head by the distance of two tokens: [1, heads, tokens, tokens].

        The buckets are constants, since the length of the input is one.
        """
        module, config = f"{module}.relative_attention_bias", self.config
        scope = self.scope(module)
        table = self.weights.embedding(f"{module}.weight", config.buckets, self.heads, std=1.0)
        buckets = buckets_of_distances(self.tokens, config.buckets, config.longest)
        indices = self.writer.weight("relative_position_bucket", buckets)
        of_pairs = self.writer.node("Gather", self.writer.weight(f"{module}.weight", table), indices, scope=scope)
        of_heads = self.writer.node("Transpose", of_pairs, scope=scope, perm=[2, 0, 1])
        return self.writer.node("Unsqueeze", of_heads, self.writer.constant([0], np.int64, scope), scope=scope)

    def block(self, x: str, bias: str, module: str) -> str:
        """Writes an encoder block: attention and feed-forward, each after a norm and added to the residual stream."""
        attention, feed_forward = f"{module}.layer.0", f"{module}.layer.1"
        attended = self.self_attention(self.norm(x, f"{attention}.layer_norm"), bias, f"{attention}.SelfAttention")
        x = self.writer.node("Add", x, attended, scope=self.scope(attention))
        dense, width = f"{feed_forward}.DenseReluDense", self.config.feed_forward
        wide = self.projection(self.norm(x, f"{feed_forward}.layer_norm"), f"{dense}.wi", self.hidden, width)
        wide = self.writer.node("Relu", wide, scope=self.scope(f"{dense}.act"))
        narrow = self.projection(wide, f"{dense}.wo", width, self.hidden)
        return self.writer.node("Add", x, narrow, scope=self.scope(feed_forward))

    def norm(self, x: str, module: str) -> str:
        """Writes x / √(mean of x² + ε), times a learned scale, over the last axis, in the exporter's operators."""
        writer, scope = self.writer, self.scope(module)
        squares = writer.node("Pow", x, writer.constant(2.0, np.float32, scope), scope=scope)
        mean = writer.node("ReduceMean", squares, writer.constant([-1], np.int64, scope), scope=scope, keepdims=1)
        shifted = writer.node("Add", mean, writer.constant(self.epsilon, np.float32, scope), scope=scope)
        root = writer.node("Sqrt", shifted, scope=scope)
        inverse = writer.node("Div", writer.constant(1.0, np.float32, scope), root, scope=scope)
        scaled = writer.node("Mul", x, inverse, scope=scope)
        scale = writer.weight(f"{module}.weight", self.weights.norm_scale(f"{module}.weight", self.hidden))
        return writer.node("Mul", scale, scaled, scope=scope)

    def self_attention(self, x: str, bias: str, module: str) -> str:
        """Writes attention without biases of its layers and without a scale; `bias` is added to the scores."""
        writer, scope = self.writer, self.scope(module)
        weight = f"{module}.q.weight"
        kernel = self.weights.linear_kernel(weight, self.hidden, self.hidden)
        kernel /= np.float32(math.sqrt(self.hidden // self.heads))
        query = writer.node("MatMul", x, writer.weight(weight, kernel), scope=self.scope(f"{module}.q"))
        key, value = (self.projection(x, f"{module}.{role}", self.hidden, self.hidden) for role in "kv")
        query, key, value = (
            writer.node("Transpose", self.split_heads(each, module), scope=scope, perm=layout)
            for each, layout in ((query, QUERY_LAYOUT), (key, KEY_LAYOUT), (value, QUERY_LAYOUT))
        )
        scores = writer.node("Add", writer.node("MatMul", query, key, scope=scope), bias, scope=scope)
        return self.projection(self.attend(scores, value, module), f"{module}.o", self.hidden, self.hidden)
