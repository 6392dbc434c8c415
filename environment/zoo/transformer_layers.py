"""The layers of transformer encoders, as PyTorch's exporter writes the Hugging Face models.

Linear layers of sequences are MatMul + Add with the bias first, GELU is its erf form as Div/Erf/Add/Mul/Mul, and the
two transposes of the keys are fused into one.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from environment.zoo.layers import EMBEDDING_STD, Layers, require

QUERY_LAYOUT = [0, 2, 1, 3]  # [batch, token, head, unit] -> [batch, head, token, unit]
KEY_LAYOUT = [0, 2, 3, 1]  # the same with the last two swapped for the scores: [batch, head, unit, token]
MASKED = np.finfo(np.float32).min  # Hugging Face's models add it to the score of a masked token


@dataclass(frozen=True)
class TransformerLayers(Layers):
    """Layers of one residual stream [1, tokens, hidden].

    Attributes:
      tokens: length of the sequence.
      hidden: width of the residual stream, a multiple of `heads`.
      heads: attention heads of a block.
      epsilon: epsilon of every LayerNorm.
    """

    tokens: int
    hidden: int
    heads: int
    epsilon: float

    def __post_init__(self) -> None:
        require(
            self.hidden % self.heads == 0,
            f"expected a hidden width that is a multiple of the heads, got {self.hidden} and {self.heads}.",
        )

    def scope(self, module: str) -> str:
        """Returns the exporter's scope of a module: `encoder.layer.0.output.dense` -> `/encoder/layer.0/output/dense`.

        An index joins its container's name. The container has no scope, because a `ModuleList` is never called.
        """
        return "/" + re.sub(r"\.(?!\d)", "/", module)

    def projection(self, x: str, module: str, fan_in: int, fan_out: int) -> str:
        """Writes a linear layer without bias."""
        kernel = self.weights.linear_kernel(f"{module}.weight", fan_in, fan_out)
        return self.writer.node("MatMul", x, self.writer.weight(f"{module}.weight", kernel), scope=self.scope(module))

    def linear(self, x: str, module: str, fan_in: int, fan_out: int) -> str:
        x = self.projection(x, module, fan_in, fan_out)
        bias = self.weights.bias(f"{module}.bias", fan_out)
        return self.writer.node("Add", self.writer.weight(f"{module}.bias", bias), x, scope=self.scope(module))

    def lookup(self, indices: str, module: str, rows: int, *, std: float = EMBEDDING_STD) -> str:
        """Writes `torch.nn.Embedding`: a learned vector [hidden] for each index."""
        name = f"{module}.weight"
        table = self.writer.weight(name, self.weights.embedding(name, rows, self.hidden, std=std))
        return self.writer.node("Gather", table, indices, scope=self.scope(module))

    def gelu(self, x: str, module: str) -> str:
        """Writes x · (1 + erf(x / √2)) / 2, in the exporter's order of operations."""
        writer, scope = self.writer, self.scope(module)
        scaled = writer.node("Div", x, writer.constant(math.sqrt(2.0), np.float32, scope), scope=scope)
        error = writer.node("Erf", scaled, scope=scope)
        shifted = writer.node("Add", error, writer.constant(1.0, np.float32, scope), scope=scope)
        product = writer.node("Mul", x, shifted, scope=scope)
        return writer.node("Mul", product, writer.constant(0.5, np.float32, scope), scope=scope)

    def layer_norm(self, x: str, module: str, width: int | None = None) -> str:
        """Writes a LayerNorm over the last axis, of `width` values (default: the residual stream's)."""
        scale = self.weights.norm_scale(f"{module}.weight", width or self.hidden)
        shift = self.weights.bias(f"{module}.bias", width or self.hidden)
        return self.writer.node(
            "LayerNormalization",
            x,
            self.writer.weight(f"{module}.weight", scale),
            self.writer.weight(f"{module}.bias", shift),
            scope=self.scope(module),
            axis=-1,
            epsilon=self.epsilon,
        )

    @property
    def batch(self) -> int:
        """The number of sequences in the input; networks whose batch can be chosen override it."""
        return 1

    def attention_bias(self, attention_mask: str) -> str:
        """Writes 0 for tokens that may be attended to, the lowest float32 for others: [1, 1, 1, tokens].

        `attention_mask` is int64 [1, tokens], 1 or 0.
        """
        writer = self.writer
        mask = writer.node("Unsqueeze", attention_mask, writer.constant([1], np.int64))
        mask = writer.node("Unsqueeze", mask, writer.constant([2], np.int64))
        mask = writer.node("Cast", mask, to=TensorProto.FLOAT)
        hidden_tokens = writer.node("Sub", writer.constant(1.0, np.float32), mask)
        return writer.node("Mul", hidden_tokens, writer.constant(MASKED, np.float32))

    def attention(self, x: str, module: str, bias: str | None = None) -> str:
        """Writes scaled dot-product attention of all heads; `bias`, if any, is added to the scores."""
        query = self._heads(x, module, "query", QUERY_LAYOUT)
        key = self._heads(x, module, "key", KEY_LAYOUT)
        value = self._heads(x, module, "value", QUERY_LAYOUT)
        scores = self.scaled(self.writer.node("MatMul", query, key, scope=self.scope(module)), module)
        if bias is not None:
            scores = self.writer.node("Add", scores, bias, scope=self.scope(module))
        return self.attend(scores, value, module)

    def split_heads(self, x: str, module: str, rows: int | None = None) -> str:
        """Writes [1, rows, hidden] -> [1, rows, heads, hidden / heads]; `rows` is the number of tokens by default."""
        scope = self.scope(module)
        split = [self.batch, rows or self.tokens, self.heads, self.hidden // self.heads]
        return self.writer.node("Reshape", x, self.writer.constant(split, np.int64, scope), scope=scope, allowzero=0)

    def scaled(self, x: str, module: str) -> str:
        """Writes `x` divided by the square root of a head's width."""
        scope = self.scope(module)
        width = self.writer.constant(math.sqrt(self.hidden // self.heads), np.float32, scope)
        return self.writer.node("Div", x, width, scope=scope)

    def attend(self, scores: str, value: str, module: str) -> str:
        """Writes the softmax of scores [1, heads, tokens, tokens] times the values, with merged heads."""
        writer, scope = self.writer, self.scope(module)
        weights = writer.node("Softmax", scores, scope=scope, axis=-1)
        context = writer.node("MatMul", weights, value, scope=scope)
        context = writer.node("Transpose", context, scope=scope, perm=QUERY_LAYOUT)
        merged = writer.constant([self.batch, self.tokens, self.hidden], np.int64, scope)
        return writer.node("Reshape", context, merged, scope=scope, allowzero=0)

    def dense_residual(self, x: str, skip: str, module: str, fan_in: int) -> str:
        """Writes the linear layer `<module>.dense` back to the residual stream, and the sum with `skip`."""
        x = self.linear(x, f"{module}.dense", fan_in, self.hidden)
        return self.writer.node("Add", x, skip, scope=self.scope(module))

    def pre_norm_block(self, x: str, module: str, feed_forward: int) -> str:
        """Writes a block: attention and feed-forward, each after a LayerNorm and added to the residual stream.

        `feed_forward` is the width of the layer between. The names are those of the vision transformer.
        """
        attended = self.attention(self.layer_norm(x, f"{module}.layernorm_before"), f"{module}.attention.attention")
        x = self.dense_residual(attended, x, f"{module}.attention.output", self.hidden)
        wide = self.layer_norm(x, f"{module}.layernorm_after")
        wide = self.linear(wide, f"{module}.intermediate.dense", self.hidden, feed_forward)
        wide = self.gelu(wide, f"{module}.intermediate.intermediate_act_fn")
        return self.dense_residual(wide, x, f"{module}.output", feed_forward)

    def first_token(self, x: str, module: str) -> str:
        """Writes the state of the first token: [1, hidden]."""
        scope = self.scope(module)
        return self.writer.node("Gather", x, self.writer.constant(0, np.int64, scope), scope=scope, axis=1)

    def _heads(self, x: str, module: str, role: str, layout: list[int]) -> str:
        """Writes the projection of `x` into heads; `layout` permutes [batch, token, head, unit]."""
        x = self.split_heads(self.linear(x, f"{module}.{role}", self.hidden, self.hidden), module)
        return self.writer.node("Transpose", x, scope=self.scope(module), perm=layout)
