"""BERT (uncased) as the Hugging Face `BertModel` exports: embeddings, mask, encoder and pooler, in inference mode.

Source: Devlin et al. 2019, "BERT", section 3; sizes from `bert-base-uncased/config.json`; operator forms as PyTorch's
exporter writes them. The network has 109,482,240 parameters with the pooler and without the pre-training heads, the
number that Hugging Face's `num_parameters()` gives (the paper rounds to 110 M). MiniLM and BERT-Tiny have 22,713,216
and 4,385,920.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from environment.zoo.layers import GraphWriter, SeededWeights, require
from environment.zoo.transformer_layers import TransformerLayers


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT encoder; the defaults are those of bert-base-uncased.

    Attributes:
      vocabulary, positions, token_types: rows of the three embedding tables.
      hidden: width of the residual stream, a multiple of `heads`.
      layers, heads: encoder blocks, and attention heads in each.
      feed_forward: width between the two linear layers of a block.
      sequence: tokens in the input, at most `positions`.
      epsilon: epsilon of every LayerNorm.
      batch: sequences in the input.
    """

    vocabulary: int = 30522
    positions: int = 512
    token_types: int = 2
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward: int = 3072
    sequence: int = 128
    epsilon: float = 1e-12
    batch: int = 1


BERT_BASE = BertConfig()
BERT_BASE_TINY = BertConfig(vocabulary=128, positions=32, hidden=64, layers=2, heads=2, feed_forward=128, sequence=16)

MINILM_L6 = BertConfig(hidden=384, layers=6, heads=12, feed_forward=1536)
"""The sizes of all-MiniLM-L6-v2: those of MiniLM-L12-H384 (Wang et al. 2020) with every second layer."""
BERT_L2_H128 = BertConfig(hidden=128, layers=2, heads=2, feed_forward=512)
"""The smallest of Google's BERT miniatures (Turc et al. 2019), called BERT-Tiny."""

NETWORKS = {
    "bert-base": BERT_BASE,
    "bert-base-tiny": BERT_BASE_TINY,
    "minilm-l6": MINILM_L6,
    "bert-l2-h128": BERT_L2_H128,
}


def build(name: str, config: BertConfig) -> onnx.ModelProto:
    """Builds the network.

    Inputs `input_ids`, `attention_mask`, `token_type_ids`: int64 [batch, sequence]. Outputs `last_hidden_state`:
    float32 [batch, sequence, hidden] and `pooler_output`: float32 [batch, hidden].
    """
    require(
        config.sequence <= config.positions,
        f"expected a sequence of at most {config.positions} positions, got {config.sequence}.",
    )
    sizes = (config.sequence, config.hidden, config.heads, config.epsilon)
    net = _Network(GraphWriter(name), SeededWeights(name), *sizes, config)
    writer = net.writer
    tokens = [config.batch, config.sequence]
    input_ids = writer.input("input_ids", tokens, TensorProto.INT64)
    attention_mask = writer.input("attention_mask", tokens, TensorProto.INT64)
    token_type_ids = writer.input("token_type_ids", tokens, TensorProto.INT64)
    bias = net.attention_bias(attention_mask)
    hidden = net.embeddings(input_ids, token_type_ids)
    for layer in range(config.layers):
        hidden = net.block(hidden, bias, f"encoder.layer.{layer}")
    pooled = net.pooler(hidden)
    writer.output("last_hidden_state", hidden, [config.batch, config.sequence, config.hidden])
    writer.output("pooler_output", pooled, [config.batch, config.hidden])
    return writer.model()


@dataclass(frozen=True)
class _Network(TransformerLayers):
    """The layers of a BERT."""

    config: BertConfig

    @property
    def batch(self) -> int:
        return self.config.batch

    def embeddings(self, input_ids: str, token_type_ids: str) -> str:
        config, scope = self.config, "/embeddings"
        positions = np.arange(config.sequence, dtype=np.int64)[None]
        position_ids = self.writer.weight("embeddings.position_ids", positions)
        words = self.lookup(input_ids, "embeddings.word_embeddings", config.vocabulary)
        types = self.lookup(token_type_ids, "embeddings.token_type_embeddings", config.token_types)
        x = self.writer.node("Add", words, types, scope=scope)
        places = self.lookup(position_ids, "embeddings.position_embeddings", config.positions)
        x = self.writer.node("Add", x, places, scope=scope)
        return self.layer_norm(x, "embeddings.LayerNorm")

    def block(self, x: str, bias: str, module: str) -> str:
        """Writes an encoder block: attention and feed-forward, each followed by its residual sum and LayerNorm."""
        attended = self.attention(x, f"{module}.attention.self", bias)
        x = self.dense_residual(attended, x, f"{module}.attention.output", self.hidden)
        x = self.layer_norm(x, f"{module}.attention.output.LayerNorm")
        wide = self.linear(x, f"{module}.intermediate.dense", self.hidden, self.config.feed_forward)
        wide = self.gelu(wide, f"{module}.intermediate.intermediate_act_fn")
        x = self.dense_residual(wide, x, f"{module}.output", self.config.feed_forward)
        return self.layer_norm(x, f"{module}.output.LayerNorm")

    def pooler(self, x: str) -> str:
        """Writes a dense layer with tanh over the first token: [1, hidden]."""
        dense = self.gemm(self.first_token(x, "pooler"), "pooler.dense", self.hidden, self.hidden)
        return self.writer.node("Tanh", dense, scope="/pooler/activation")
