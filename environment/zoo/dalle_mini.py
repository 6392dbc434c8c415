"""The text encoder of DALL·E mini, in inference mode: it reads the caption and runs once for each image.

Source of the layers: Dayma et al. 2021, "DALL·E Mini" (github.com/borisdayma/dalle-mini, `DalleBart`), a BART (Lewis et
al. 2020) with learned positions whose blocks have NormFormer's LayerNorms before and after the attention and inside the
feed-forward part (Shleifer et al. 2021), a feed-forward part gated by a GELU (Shazeer 2020), and no bias in any linear
layer. The layer names are those of its PyTorch port (github.com/kuprel/min-dalle, `DalleBartEncoder`), in which every
LayerNorm has a scale and a shift.

Source of the sizes: the graph that X-RLflow calls DALL-E (He et al. 2023), which is this encoder for 16 tokens in 8
blocks of width 768, with 12 heads and feed-forward 2048. The published checkpoint has 12 blocks of width 1024, with 16
heads and feed-forward 2730. X-RLflow's stand-in has neither embeddings, norms nor softmax, and a ReLU instead of the
GELU. Vocabulary and positions are those of the checkpoint. The image decoder, which runs once per image token and reads
the encoder's output, is not part of the graph, nor is the VQGAN.

The operators have the forms that PyTorch's exporter writes. The mask is a second input, as in the original. It becomes
the finite bias of Hugging Face's models; with the original's -inf, the softmax is NaN if everything is masked. The
network has 95,347,712 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from environment.zoo.layers import GraphWriter, SeededWeights, require
from environment.zoo.transformer_layers import KEY_LAYOUT, QUERY_LAYOUT, TransformerLayers


@dataclass(frozen=True)
class DalleMiniConfig:
    """Sizes of a DALL·E mini text encoder; the defaults are those of X-RLflow's graph.

    Attributes:
      vocabulary, positions: rows of the two embedding tables.
      hidden: width of the residual stream, a multiple of `heads`.
      layers, heads: encoder blocks, and attention heads in each.
      feed_forward: width of the gate and of what it gates.
      sequence: tokens in the input, at most `positions`.
      epsilon: epsilon of every LayerNorm.
    """

    vocabulary: int = 50264
    positions: int = 64
    hidden: int = 768
    layers: int = 8
    heads: int = 12
    feed_forward: int = 2048
    sequence: int = 16
    epsilon: float = 1e-5


DALLE_MINI = DalleMiniConfig()
DALLE_MINI_TINY = DalleMiniConfig(
    vocabulary=128, positions=24, hidden=48, layers=2, heads=3, feed_forward=80, sequence=12
)

NETWORKS = {"dalle-mini": DALLE_MINI, "dalle-mini-tiny": DALLE_MINI_TINY}


def build(name: str, config: DalleMiniConfig) -> onnx.ModelProto:
    """Builds the network with batch 1.

    Inputs `input_ids`, `attention_mask`: int64 [1, sequence]. Output `encoder_state`: float32 [1, sequence, hidden].
    """
    require(
        config.sequence <= config.positions,
        f"expected a sequence of at most {config.positions} positions, got {config.sequence}.",
    )
    sizes = (config.sequence, config.hidden, config.heads, config.epsilon)
    net = _Network(GraphWriter(name), SeededWeights(name), *sizes, config.feed_forward, config)
    tokens = [1, config.sequence]
    input_ids = net.writer.input("input_ids", tokens, TensorProto.INT64)
    bias = net.attention_bias(net.writer.input("attention_mask", tokens, TensorProto.INT64))
    x = net.embeddings(input_ids)
    for layer in range(config.layers):
        x = net.block(x, bias, f"layers.{layer}")
    net.writer.output("encoder_state", net.layer_norm(x, "final_ln"), [1, config.sequence, config.hidden])
    return net.writer.model()


@dataclass(frozen=True)
class GatedAttentionLayers(TransformerLayers):
    """The layers of an encoder block.

    Attributes:
      feed_forward: width of the gate and of what it gates.
    """

    feed_forward: int

    def block(self, x: str, bias: str | None, module: str) -> str:
        """Writes an encoder block: attention, then the gated feed-forward part, each added to the residual stream.

        `bias`, if any, is added to the scores of the attention before the softmax.
        """
        scope = self.scope(module)
        attended = self.layer_norm(x, f"{module}.pre_self_attn_layer_norm")
        attended = self.self_attention(attended, bias, f"{module}.self_attn")
        attended = self.layer_norm(attended, f"{module}.self_attn_layer_norm")
        x = self.writer.node("Add", x, attended, scope=scope)
        return self.writer.node("Add", x, self.gated_feed_forward(x, f"{module}.glu"), scope=scope)

    def self_attention(self, x: str, bias: str | None, module: str) -> str:
        """Writes scaled dot-product attention without biases; the scale is applied to the queries."""
        writer, scope = self.writer, self.scope(module)
        query, key, value = (self.split_heads(self._square(x, f"{module}.{role}_proj"), module) for role in "qkv")
        query = writer.node("Transpose", self.scaled(query, module), scope=scope, perm=QUERY_LAYOUT)
        key = writer.node("Transpose", key, scope=scope, perm=KEY_LAYOUT)
        value = writer.node("Transpose", value, scope=scope, perm=QUERY_LAYOUT)
        scores = writer.node("MatMul", query, key, scope=scope)
        if bias is not None:
            scores = writer.node("Add", scores, bias, scope=scope)
        return self._square(self.attend(scores, value, module), f"{module}.out_proj")

    def gated_feed_forward(self, x: str, module: str) -> str:
        """Writes the product of a wide linear layer and the GELU of another, and a linear layer back to the stream.

        One LayerNorm comes first, another follows the product.
        """
        wide = self.feed_forward
        x = self.layer_norm(x, f"{module}.ln0")
        gate = self.gelu(self.projection(x, f"{module}.fc0", self.hidden, wide), f"{module}.gelu")
        gated = self.projection(x, f"{module}.fc1", self.hidden, wide)
        product = self.writer.node("Mul", gate, gated, scope=self.scope(module))
        return self.projection(self.layer_norm(product, f"{module}.ln1", wide), f"{module}.fc2", wide, self.hidden)

    def _square(self, x: str, module: str) -> str:
        return self.projection(x, module, self.hidden, self.hidden)


@dataclass(frozen=True)
class _Network(GatedAttentionLayers):
    """The layers of a DALL·E mini text encoder."""

    config: DalleMiniConfig

    def embeddings(self, input_ids: str) -> str:
        """Writes the normalised sum of the embeddings of tokens and of positions: [1, tokens, hidden]."""
        token_indices = self.writer.weight("token_indices", np.arange(self.tokens, dtype=np.int64)[None])
        words = self.lookup(input_ids, "embed_tokens", self.config.vocabulary)
        places = self.lookup(token_indices, "embed_positions", self.config.positions)
        return self.layer_norm(self.writer.node("Add", words, places), "layernorm_embedding")
