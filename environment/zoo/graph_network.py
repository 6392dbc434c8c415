"""A graph network that encodes, processes and decodes the edges, nodes and globals of a graph.

Source: Battaglia et al. 2018, "Relational inductive biases, deep learning, and graph networks", figure 6c and algorithm
1, as the authors' demos build it (github.com/google-deepmind/graph_nets, demos/models.py). Perceptrons have two layers
with a ReLU after each, and a LayerNorm at the end. The core reads the encoded graph beside its own last result, and has
the same weights in every step. A node reads the sum of the edges that it receives. The globals read the means of edges
and nodes instead of their sums, because sums over a graph of this size hide everything else. The width of 128 and the
10 steps are those of Sanchez-Gonzalez et al. 2020, "Learning to Simulate Complex Physics with Graph Networks".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto

from environment.zoo.layers import GraphWriter, Layers, SeededWeights


@dataclass(frozen=True)
class GraphNetworkConfig:
    """Sizes of a graph network and of its input.

    Attributes:
      nodes, edges: sizes of the graph.
      features: width of the input and output of edges, nodes and globals.
      width: width of every layer inside.
      layers: linear layers of a perceptron.
      steps: number of times that the core is applied.
    """

    nodes: int = 256
    edges: int = 1024
    features: int = 8
    width: int = 128
    layers: int = 2
    steps: int = 10


NETWORKS = {
    "graph-network": GraphNetworkConfig(),
    "graph-network-tiny": GraphNetworkConfig(nodes=10, edges=24, features=4, width=16, steps=2),
}


class Graph(NamedTuple):
    """The values of a graph's attributes: edges [edges, width], nodes [nodes, width], globals [1, width]."""

    edges: str
    nodes: str
    globals: str


class Perceptron(NamedTuple):
    """The names of the weights of a perceptron: those of linear layers and their biases, and of the norm at the end."""

    layers: Sequence[tuple[str, str]]
    norm: tuple[str, str]


def build(name: str, config: GraphNetworkConfig) -> onnx.ModelProto:
    """Builds the network.

    Inputs `edges`: float32 [edges, features], `nodes`: float32 [nodes, features], `globals`: float32 [1, features],
    `senders` and `receivers`: int64 [edges], the nodes that an edge joins. Outputs `edges_out`, `nodes_out` and
    `globals_out` of the shapes of the inputs.
    """
    net = _Network(GraphWriter(name), SeededWeights(name), config)
    writer, width = net.writer, config.width
    sizes = {"edges": config.edges, "nodes": config.nodes, "globals": 1}
    given = Graph(*(writer.input(part, [count, config.features]) for part, count in sizes.items()))
    senders, receivers = (writer.input(part, [config.edges], TensorProto.INT64) for part in ("senders", "receivers"))
    encoded = latent = net.independent(given, "encoder", config.features)
    # An edge reads itself, both ends and the globals; a node its edges, itself and the globals. Each attribute but the
    # new ones is twice as wide, because the encoded graph is beside the latent one.
    reads = {"edges": 8 * width, "nodes": 5 * width, "globals": 4 * width}
    core = [net.perceptron(f"core.{part}", count) for part, count in reads.items()]
    for _ in range(config.steps):
        both = Graph(*(net.joined(pair, "/core") for pair in zip(encoded, latent, strict=True)))
        latent = net.step(both, core, senders, receivers)
    decoded = net.independent(latent, "decoder", width)
    for part, value in decoded._asdict().items():
        result = net.gemm(value, f"output.{part}", width, config.features)
        writer.output(f"{part}_out", result, [sizes[part], config.features])
    return writer.model()


@dataclass(frozen=True)
class _Network(Layers):
    """The parts of a graph network."""

    config: GraphNetworkConfig

    def independent(self, graph: Graph, module: str, width: int) -> Graph:
        """Writes a perceptron for each kind of attribute, which reads nothing else."""
        return Graph(
            *(
                self.applied(self.perceptron(f"{module}.{part}", width), value, f"/{module}/{part}")
                for part, value in graph._asdict().items()
            )
        )

    def step(self, graph: Graph, core: Sequence[Perceptron], senders: str, receivers: str) -> Graph:
        """Writes a full graph network block: edges first, then nodes, then globals."""
        ends = [self.writer.node("Gather", graph.nodes, each, scope="/core", axis=0) for each in (receivers, senders)]
        read = [graph.edges, *ends, self.spread(graph.globals, self.config.edges)]
        edges = self.applied(core[0], self.joined(read, "/core/edges"), "/core/edges")
        read = [self.received(edges, receivers), graph.nodes, self.spread(graph.globals, self.config.nodes)]
        nodes = self.applied(core[1], self.joined(read, "/core/nodes"), "/core/nodes")
        read = [self.mean(edges), self.mean(nodes), graph.globals]
        return Graph(edges, nodes, self.applied(core[2], self.joined(read, "/core/globals"), "/core/globals"))

    def perceptron(self, module: str, width: int) -> Perceptron:
        """Writes the weights of a perceptron that reads vectors of a width."""
        layers = []
        for layer in range(self.config.layers):
            kernel, bias = f"{module}.{layer}.weight", f"{module}.{layer}.bias"
            self.writer.weight(kernel, self.weights.linear_kernel(kernel, width, self.config.width))
            self.writer.weight(bias, self.weights.bias(bias, self.config.width))
            layers.append((kernel, bias))
            width = self.config.width
        scale, shift = f"{module}.norm.weight", f"{module}.norm.bias"
        self.writer.weight(scale, self.weights.norm_scale(scale, width))
        self.writer.weight(shift, self.weights.bias(shift, width))
        return Perceptron(layers, (scale, shift))

    def applied(self, perceptron: Perceptron, x: str, scope: str) -> str:
        """Writes linear layers with a ReLU after each, and a LayerNorm."""
        for kernel, bias in perceptron.layers:
            x = self.writer.node("Gemm", x, kernel, bias, scope=scope, alpha=1.0, beta=1.0)
            x = self.writer.node("Relu", x, scope=scope)
        return self.writer.node("LayerNormalization", x, *perceptron.norm, scope=scope, axis=-1, epsilon=1e-5)

    def joined(self, values: Sequence[str], scope: str) -> str:
        return self.writer.node("Concat", *values, scope=scope, axis=1)

    def spread(self, value: str, count: int) -> str:
        """Writes `count` copies of the globals, one a row."""
        shape = self.writer.constant([count, 2 * self.config.width], np.int64, "/core")
        return self.writer.node("Expand", value, shape, scope="/core")

    def received(self, edges: str, receivers: str) -> str:
        """Writes the sum of the edges that each node receives: [nodes, width]."""
        config, scope = self.config, "/core/nodes"
        zero = onnx.numpy_helper.from_array(np.zeros(1, np.float32))
        dims = self.writer.constant([config.nodes, config.width], np.int64, scope)
        empty = self.writer.node("ConstantOfShape", dims, scope=scope, value=zero)
        column = self.writer.constant([config.edges, 1], np.int64, scope)
        shape = self.writer.constant([config.edges, config.width], np.int64, scope)
        rows = self.writer.node("Reshape", receivers, column, scope=scope, allowzero=0)
        places = self.writer.node("Expand", rows, shape, scope=scope)
        return self.writer.node("ScatterElements", empty, places, edges, scope=scope, axis=0, reduction="add")

    def mean(self, values: str) -> str:
        axes = self.writer.constant([0], np.int64, "/core/globals")
        return self.writer.node("ReduceMean", values, axes, scope="/core/globals", keepdims=1)
