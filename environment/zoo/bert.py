"""BERT (uncased) as the Hugging Face `BertModel` exports: embeddings, mask, encoder and pooler, in inference mode.

Source: Devlin et al. 2019, "BERT", section 3; sizes from `bert-base-uncased/config.json`; operator forms as PyTorch's
exporter writes them (linear layers as MatMul + Add with the bias first, erf-GELU as Div/Erf/Add/Mul/Mul, the two
transposes of the keys fused into one). 109,482,240 parameters with the pooler and without the pre-training heads, the
figure Hugging Face's `num_parameters()` gives (the paper rounds to 110 M).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from environment.zoo.graph_writer import GraphWriter
from environment.zoo.weights import SeededWeights


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT encoder; the defaults are those of bert-base-uncased.

    Attributes:
      vocabulary, positions, token_types: rows of the three embedding tables.
      hidden: width of the residual stream, a multiple of `heads`.
      layers, heads: encoder blocks, and attention heads in each.
      feed_forward: width between the two linear layers of a block.
      sequence: tokens in the input, at most `positions`.
      epsilon: of every LayerNorm.
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


BERT_BASE = BertConfig()
BERT_BASE_TINY = BertConfig(vocabulary=128, positions=32, hidden=64, layers=2, heads=2, feed_forward=128, sequence=16)

QUERY_LAYOUT = [0, 2, 1, 3]  # [batch, token, head, unit] -> [batch, head, token, unit]
KEY_LAYOUT = [0, 2, 3, 1]  # the same with the last two swapped for the scores: [batch, head, unit, token]


def build_bert(name: str, config: BertConfig) -> onnx.ModelProto:
    """Builds the network with batch 1.

    Inputs `input_ids`, `attention_mask`, `token_type_ids`: int64 [1, sequence]. Outputs `last_hidden_state`: float32
    [1, sequence, hidden] and `pooler_output`: float32 [1, hidden].
    """
    net = _Network(GraphWriter(name), SeededWeights(name), config)
    writer = net.writer
    tokens = [1, config.sequence]
    input_ids = writer.input("input_ids", tokens, TensorProto.INT64)
    attention_mask = writer.input("attention_mask", tokens, TensorProto.INT64)
    token_type_ids = writer.input("token_type_ids", tokens, TensorProto.INT64)
    bias = net.attention_bias(attention_mask)
    hidden = net.embeddings(input_ids, token_type_ids)
    for layer in range(config.layers):
        hidden = net.block(hidden, bias, f"encoder.layer.{layer}")
    pooled = net.pooler(hidden)
    writer.output("last_hidden_state", hidden, [1, config.sequence, config.hidden])
    writer.output("pooler_output", pooled, [1, config.hidden])
    return writer.model()


@dataclass(frozen=True)
class _Network:
    """The layers of a BERT, written to one graph with one source of weights."""

    writer: GraphWriter
    weights: SeededWeights
    config: BertConfig

    def attention_bias(self, attention_mask: str) -> str:
        """0 where a token may be attended to, the lowest float32 where not: [1, 1, 1, sequence]."""
        writer = self.writer
        mask = writer.node("Unsqueeze", attention_mask, writer.constant([1], np.int64))
        mask = writer.node("Unsqueeze", mask, writer.constant([2], np.int64))
        mask = writer.node("Cast", mask, to=TensorProto.FLOAT)
        hidden_tokens = writer.node("Sub", writer.constant(1.0, np.float32), mask)
        return writer.node("Mul", hidden_tokens, writer.constant(np.finfo(np.float32).min, np.float32))

    def embeddings(self, input_ids: str, token_type_ids: str) -> str:
        config, scope = self.config, "/embeddings"
        positions = np.arange(config.sequence, dtype=np.int64)[None]
        position_ids = self.writer.weight("embeddings.position_ids", positions)
        words = self._lookup("word_embeddings", config.vocabulary, input_ids)
        types = self._lookup("token_type_embeddings", config.token_types, token_type_ids)
        x = self.writer.node("Add", words, types, scope=scope)
        x = self.writer.node("Add", x, self._lookup("position_embeddings", config.positions, position_ids), scope=scope)
        return self.layer_norm(x, "embeddings.LayerNorm")

    def block(self, x: str, bias: str, module: str) -> str:
        """One encoder block: attention and feed-forward, each followed by its residual sum and LayerNorm."""
        attended = self.attention(x, bias, f"{module}.attention.self")
        x = self._residual(attended, x, self.config.hidden, f"{module}.attention.output")
        wide = self.linear(x, self.config.hidden, self.config.feed_forward, f"{module}.intermediate.dense")
        wide = self.gelu(wide, _scope(f"{module}.intermediate.intermediate_act_fn"))
        return self._residual(wide, x, self.config.feed_forward, f"{module}.output")

    def attention(self, x: str, bias: str, module: str) -> str:
        """Scaled dot-product attention of all heads; `bias` is added to the scores before the softmax."""
        writer, scope, width = self.writer, _scope(module), self.config.hidden // self.config.heads
        query = self._heads(x, module, "query", QUERY_LAYOUT)
        key = self._heads(x, module, "key", KEY_LAYOUT)
        value = self._heads(x, module, "value", QUERY_LAYOUT)
        scores = writer.node("MatMul", query, key, scope=scope)
        scores = writer.node("Div", scores, writer.constant(math.sqrt(width), np.float32, scope), scope=scope)
        scores = writer.node("Add", scores, bias, scope=scope)
        weights = writer.node("Softmax", scores, scope=scope, axis=-1)
        context = writer.node("MatMul", weights, value, scope=scope)
        context = writer.node("Transpose", context, scope=scope, perm=QUERY_LAYOUT)
        merged = writer.constant([1, self.config.sequence, self.config.hidden], np.int64, scope)
        return writer.node("Reshape", context, merged, scope=scope, allowzero=0)

    def pooler(self, hidden: str) -> str:
        """A dense layer with tanh over the first token: [1, hidden]."""
        writer, scope, width = self.writer, "/pooler", self.config.hidden
        first = writer.node("Gather", hidden, writer.constant(0, np.int64, scope), scope=scope, axis=1)
        kernel = self.weights.linear_kernel("pooler.dense.weight", width, width, transposed=True)
        bias = self.weights.bias("pooler.dense.bias", width)
        dense = writer.node(
            "Gemm",
            first,
            writer.weight("pooler.dense.weight", kernel),
            writer.weight("pooler.dense.bias", bias),
            scope=f"{scope}/dense",
            alpha=1.0,
            beta=1.0,
            transB=1,
        )
        return writer.node("Tanh", dense, scope=f"{scope}/activation")

    def linear(self, x: str, fan_in: int, fan_out: int, module: str) -> str:
        scope = _scope(module)
        kernel = self.weights.linear_kernel(f"{module}.weight", fan_in, fan_out)
        bias = self.weights.bias(f"{module}.bias", fan_out)
        x = self.writer.node("MatMul", x, self.writer.weight(f"{module}.weight", kernel), scope=scope)
        return self.writer.node("Add", self.writer.weight(f"{module}.bias", bias), x, scope=scope)

    def gelu(self, x: str, scope: str) -> str:
        """x · (1 + erf(x / √2)) / 2, in the exporter's order of operations."""
        writer = self.writer
        scaled = writer.node("Div", x, writer.constant(math.sqrt(2.0), np.float32, scope), scope=scope)
        error = writer.node("Erf", scaled, scope=scope)
        shifted = writer.node("Add", error, writer.constant(1.0, np.float32, scope), scope=scope)
        product = writer.node("Mul", x, shifted, scope=scope)
        return writer.node("Mul", product, writer.constant(0.5, np.float32, scope), scope=scope)

    def layer_norm(self, x: str, module: str) -> str:
        scale = self.weights.norm_scale(f"{module}.weight", self.config.hidden)
        shift = self.weights.bias(f"{module}.bias", self.config.hidden)
        return self.writer.node(
            "LayerNormalization",
            x,
            self.writer.weight(f"{module}.weight", scale),
            self.writer.weight(f"{module}.bias", shift),
            scope=_scope(module),
            axis=-1,
            epsilon=self.config.epsilon,
        )

    def _residual(self, x: str, skip: str, fan_in: int, module: str) -> str:
        x = self.linear(x, fan_in, self.config.hidden, f"{module}.dense")
        x = self.writer.node("Add", x, skip, scope=_scope(module))
        return self.layer_norm(x, f"{module}.LayerNorm")

    def _heads(self, x: str, module: str, role: str, layout: list[int]) -> str:
        """Projects `x` and splits it into heads, in the given layout of [batch, token, head, unit]."""
        config, scope = self.config, _scope(module)
        x = self.linear(x, config.hidden, config.hidden, f"{module}.{role}")
        split = [1, config.sequence, config.heads, config.hidden // config.heads]
        x = self.writer.node("Reshape", x, self.writer.constant(split, np.int64, scope), scope=scope, allowzero=0)
        return self.writer.node("Transpose", x, scope=scope, perm=layout)

    def _lookup(self, table: str, rows: int, indices: str) -> str:
        weight_name = f"embeddings.{table}.weight"
        weight = self.writer.weight(weight_name, self.weights.embedding(weight_name, rows, self.config.hidden))
        return self.writer.node("Gather", weight, indices, scope=f"/embeddings/{table}")


def _scope(module: str) -> str:
    """`encoder.layer.0.output.dense` -> `/encoder/layer.0/output/dense`, the exporter's scope of the module."""
    return "/" + module.replace(".", "/").replace("/layer/", "/layer.")
