"""DLRM, a ranking model: embeddings of categories, and the products of each pair of them.

Source: Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and Recommendation Systems", section
2; the sizes are those of the authors' script for Criteo's Kaggle data (github.com/facebookresearch/dlrm,
bench/dlrm_s_criteo_kaggle.sh): 13 numbers and 26 categories, embeddings of 16, layers 512-256-64-16 below and 512-256-1
above. The script's tables have up to ten million rows; here each table has 10,000 rows, as after hashing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from environment.zoo.layers import GraphWriter, Layers, SeededWeights


@dataclass(frozen=True)
class DlrmConfig:
    """Sizes of a DLRM.

    Attributes:
      numbers: numeric features.
      categories: categorical features, each with a table of its own.
      rows, width: sizes of a table.
      bottom: widths of the layers of the numeric features, without the last one, which is `width`.
      top: widths of the layers of the products; the last one is 1.
      batch: examples in the input.
    """

    numbers: int = 13
    categories: int = 26
    rows: int = 10_000
    width: int = 16
    bottom: Sequence[int] = (512, 256, 64)
    top: Sequence[int] = (512, 256, 1)
    batch: int = 1


NETWORKS = {
    "dlrm": DlrmConfig(),
    "dlrm-tiny": DlrmConfig(numbers=5, categories=4, rows=50, width=8, bottom=(16,), top=(16, 1)),
}


def build(name: str, config: DlrmConfig) -> onnx.ModelProto:
    """Builds the network.

    Inputs `numbers`: float32 [batch, numbers], and `categories`: int64 [batch, categories]. Output `output`: float32
    [batch, 1], a probability.
    """
    net = _Network(GraphWriter(name), SeededWeights(name))
    writer, vectors = net.writer, 1 + config.categories
    numbers = writer.input("numbers", [config.batch, config.numbers])
    categories = writer.input("categories", [config.batch, config.categories], TensorProto.INT64)
    dense = net.perceptron(numbers, "bottom", config.numbers, (*config.bottom, config.width))
    features = [dense, *(net.embedded(categories, number, config) for number in range(config.categories))]
    joined = writer.node("Concat", *features, scope="/interaction", axis=1)
    stacked = net.reshaped(joined, [config.batch, vectors, config.width])
    turned = writer.node("Transpose", stacked, scope="/interaction", perm=[0, 2, 1])
    products = writer.node("MatMul", stacked, turned, scope="/interaction")
    flat = net.reshaped(products, [config.batch, vectors**2])
    rows, columns = np.tril_indices(vectors, -1)  # each pair once, without a vector's product with itself
    pairs = writer.constant(rows * vectors + columns, np.int64, "/interaction")
    picked = writer.node("Gather", flat, pairs, scope="/interaction", axis=1)
    read = writer.node("Concat", dense, picked, scope="/interaction", axis=1)
    logit = net.perceptron(read, "top", config.width + len(rows), config.top, last="Sigmoid")
    writer.output("output", logit, [config.batch, 1])
    return writer.model()


class _Network(Layers):
    """The parts of a DLRM."""

    def embedded(self, categories: str, number: int, config: DlrmConfig) -> str:
        """Writes the look-up of one category: [batch, width]."""
        scope, name = f"/emb_l.{number}", f"emb_l.{number}.weight"
        row = self.writer.node("Gather", categories, self.writer.constant(number, np.int64, scope), scope=scope, axis=1)
        table = self.writer.weight(name, self.weights.embedding(name, config.rows, config.width, std=0.5))
        return self.writer.node("Gather", table, row, scope=scope)

    def perceptron(self, x: str, module: str, width: int, layers: Sequence[int], last: str = "Relu") -> str:
        """Writes linear layers, each with a ReLU; the last one has the function `last`."""
        for number, size in enumerate(layers):
            x = self.gemm(x, f"{module}.{2 * number}", width, size)
            function = last if number == len(layers) - 1 else "Relu"
            x = self.writer.node(function, x, scope=self.scope(f"{module}.{2 * number + 1}"))
            width = size
        return x

    def reshaped(self, x: str, dims: Sequence[int]) -> str:
        return self.writer.node("Reshape", x, self.writer.constant(dims, np.int64), scope="/interaction", allowzero=0)
