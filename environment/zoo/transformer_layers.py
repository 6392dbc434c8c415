"""The layers of transformer encoders, as PyTorch's exporter writes the Hugging Face models.

Linear layers of sequences are MatMul + Add with the bias first, GELU is its erf form as Div/Erf/Add/Mul/Mul, and the
two transposes of the keys are fused into one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from environment.zoo.layers import Layers

QUERY_LAYOUT = [0, 2, 1, 3]  # [batch, token, head, unit] -> [batch, head, token, unit]
KEY_LAYOUT = [0, 2, 3, 1]  # the same with the last two swapped for the scores: [batch, head, unit, token]


@dataclass(frozen=True)
class TransformerLayers(Layers):
    """Layers of one residual stream [1, tokens, hidden].

    Attributes:
      tokens: length of the sequence.
      hidden: width of the residual stream, a multiple of `heads`.
      heads: attention heads of a block.
      epsilon: of every LayerNorm.
    """

    tokens: int
    hidden: int
    heads: int
    epsilon: float

    def scope(self, module: str) -> str:
        """`encoder.layer.0.output.dense` -> `/encoder/layer.0/output/dense`, the exporter's scope of the module.

        An index joins its container's name and nothing stands for the container: a `ModuleList` is never called.
        """
        return "/" + module.replace(".", "/").replace("/layer/", "/layer.")

    def linear(self, x: str, module: str, fan_in: int, fan_out: int) -> str:
        scope = self.scope(module)
        kernel = self.weights.linear_kernel(f"{module}.weight", fan_in, fan_out)
        bias = self.weights.bias(f"{module}.bias", fan_out)
        x = self.writer.node("MatMul", x, self.writer.weight(f"{module}.weight", kernel), scope=scope)
        return self.writer.node("Add", self.writer.weight(f"{module}.bias", bias), x, scope=scope)

    def gelu(self, x: str, module: str) -> str:
        """x · (1 + erf(x / √2)) / 2, in the exporter's order of operations."""
        writer, scope = self.writer, self.scope(module)
        scaled = writer.node("Div", x, writer.constant(math.sqrt(2.0), np.float32, scope), scope=scope)
        error = writer.node("Erf", scaled, scope=scope)
        shifted = writer.node("Add", error, writer.constant(1.0, np.float32, scope), scope=scope)
        product = writer.node("Mul", x, shifted, scope=scope)
        return writer.node("Mul", product, writer.constant(0.5, np.float32, scope), scope=scope)

    def layer_norm(self, x: str, module: str) -> str:
        scale = self.weights.norm_scale(f"{module}.weight", self.hidden)
        shift = self.weights.bias(f"{module}.bias", self.hidden)
        return self.writer.node(
            "LayerNormalization",
            x,
            self.writer.weight(f"{module}.weight", scale),
            self.writer.weight(f"{module}.bias", shift),
            scope=self.scope(module),
            axis=-1,
            epsilon=self.epsilon,
        )

    def attention(self, x: str, module: str, bias: str | None = None) -> str:
        """Scaled dot-product attention of all heads; `bias`, if any, is added to the scores before the softmax."""
        writer, scope = self.writer, self.scope(module)
        query = self._heads(x, module, "query", QUERY_LAYOUT)
        key = self._heads(x, module, "key", KEY_LAYOUT)
        value = self._heads(x, module, "value", QUERY_LAYOUT)
        scores = writer.node("MatMul", query, key, scope=scope)
        width = writer.constant(math.sqrt(self.hidden // self.heads), np.float32, scope)
        scores = writer.node("Div", scores, width, scope=scope)
        if bias is not None:
            scores = writer.node("Add", scores, bias, scope=scope)
        weights = writer.node("Softmax", scores, scope=scope, axis=-1)
        context = writer.node("MatMul", weights, value, scope=scope)
        context = writer.node("Transpose", context, scope=scope, perm=QUERY_LAYOUT)
        merged = writer.constant([1, self.tokens, self.hidden], np.int64, scope)
        return writer.node("Reshape", context, merged, scope=scope, allowzero=0)

    def dense_residual(self, x: str, skip: str, module: str, fan_in: int) -> str:
        """The linear layer `<module>.dense` back to the residual stream, and the sum with it."""
        x = self.linear(x, f"{module}.dense", fan_in, self.hidden)
        return self.writer.node("Add", x, skip, scope=self.scope(module))

    def first_token(self, x: str, module: str) -> str:
        """The state of the first token: [1, hidden]."""
        scope = self.scope(module)
        return self.writer.node("Gather", x, self.writer.constant(0, np.int64, scope), scope=scope, axis=1)

    def _heads(self, x: str, module: str, role: str, layout: list[int]) -> str:
        """Projects `x` and splits it into heads, in the given layout of [batch, token, head, unit]."""
        scope = self.scope(module)
        x = self.linear(x, f"{module}.{role}", self.hidden, self.hidden)
        split = self.writer.constant([1, self.tokens, self.heads, self.hidden // self.heads], np.int64, scope)
        x = self.writer.node("Reshape", x, split, scope=scope, allowzero=0)
        return self.writer.node("Transpose", x, scope=scope, perm=layout)
