"""NasRNN: the recurrent cell that neural architecture search found, unrolled over a few steps.

Source of the cell: Zoph and Le 2017, "Neural Architecture Search with Reinforcement Learning", the cell of base 8 found
on Penn Treebank, as TensorFlow implements it for this paper (`tf.contrib.rnn.NASCell`, by default without bias and
projection): eight combinations of the input and the hidden state, each of two matrices, then a tree of sums, products,
sigmoids, tanhs and ReLUs, into which the cell state enters.

Source of the unrolled graph: TASO's benchmark (Jia et al. 2019, `examples/nasrnn.py`): hidden 512, 5 steps, the sixteen
matrices kept apart. TASO's stand-in has no cell state, only sums for combinations, another tree, and new matrices in
every step. This is the published cell, and all steps share its 16 · 512² = 4,194,304 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from environment.zoo.layers import GraphWriter, Layers, SeededWeights

# For each of the eight combinations, the operator that joins its two products, and the function of the result: the
# first layer of the cell.
COMBINATIONS = (
    ("Add", "Sigmoid"),
    ("Add", "Relu"),
    ("Add", "Sigmoid"),
    ("Mul", "Relu"),
    ("Add", "Tanh"),
    ("Add", "Sigmoid"),
    ("Add", "Tanh"),
    ("Add", "Sigmoid"),
)


@dataclass(frozen=True)
class NasRnnConfig:
    """Sizes of an unrolled NAS cell.

    Attributes:
      hidden: width of the inputs and of both states.
      steps: number of times that the cell is applied.
      batch: sequences in the input.
    """

    hidden: int = 512
    steps: int = 5
    batch: int = 1


NETWORKS = {"nasrnn": NasRnnConfig(), "nasrnn-tiny": NasRnnConfig(hidden=16, steps=2)}


def build(name: str, config: NasRnnConfig) -> onnx.ModelProto:
    """Builds the network.

    Inputs `input`: float32 [batch, steps, hidden]; `hidden_state`, `cell_state`: float32 [batch, hidden], the states
    before the first step. Outputs `output` and `last_cell_state`: float32 [batch, hidden], the states after the last.
    """
    net = _Network(GraphWriter(name), SeededWeights(name), config)
    writer, state = net.writer, [config.batch, config.hidden]
    sequence = writer.input("input", [config.batch, config.steps, config.hidden])
    hidden, cell = writer.input("hidden_state", state), writer.input("cell_state", state)
    kernels = net.kernels()
    for step in range(config.steps):
        x = writer.node("Gather", sequence, writer.constant(step, np.int64), axis=1)
        hidden, cell = net.step(x, hidden, cell, kernels)
    writer.output("output", hidden, state)
    writer.output("last_cell_state", cell, state)
    return writer.model()


@dataclass(frozen=True)
class _Network(Layers):
    """The parts of a NAS cell."""

    config: NasRnnConfig

    def kernels(self) -> list[tuple[str, str]]:
        """Writes two matrices [hidden, hidden] for each combination, for the input and for the hidden state."""
        return [(self._matrix(f"cell.kernel.{i}"), self._matrix(f"cell.recurrent.{i}")) for i in range(8)]

    def step(self, x: str, hidden: str, cell: str, kernels: list[tuple[str, str]]) -> tuple[str, str]:
        """Writes one step of the cell and returns the next hidden state and the next cell state."""
        first = [
            self._activated(*join, self._cell("MatMul", x, kernel), self._cell("MatMul", hidden, recurrent))
            for join, (kernel, recurrent) in zip(COMBINATIONS, kernels, strict=True)
        ]
        product = self._activated("Mul", "Tanh", first[0], first[1])
        gate = self._activated("Add", "Tanh", first[2], first[3])
        left = self._activated("Mul", "Tanh", first[4], first[5])
        right = self._activated("Add", "Sigmoid", first[6], first[7])
        cell = self._cell("Mul", self._activated("Add", "Tanh", product, cell), gate)
        return self._activated("Mul", "Tanh", cell, self._activated("Add", "Tanh", left, right)), cell

    def _activated(self, join: str, activation: str, left: str, right: str) -> str:
        return self._cell(activation, self._cell(join, left, right))

    def _cell(self, op_type: str, *inputs: str) -> str:
        return self.writer.node(op_type, *inputs, scope="/cell")

    def _matrix(self, name: str) -> str:
        return self.writer.weight(name, self.weights.linear_kernel(name, self.config.hidden, self.config.hidden))
