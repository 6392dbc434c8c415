"""A language model and a translator of LSTMs, unrolled over their steps: RNNLM and NMT.

Source of the cell: Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000, as TensorFlow's
`BasicLSTMCell` computes it: one product of the joined input and hidden state, split into input gate, candidate, forget
gate and output gate, and a forget gate that is opened by 1.

RNNLM is the language model of Zaremba et al. 2014, "Recurrent Neural Network Regularization", section 4.1, with its
10,000 words, and with the sizes that Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement
Learning", place: two layers of 2048. Dropout is removed.

NMT is the translator of Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
with its additive attention (appendix A.1.2), whose context goes into the next step of the decoder. The sizes are those
of Mirhoseini et al.: an encoder and a decoder of two LSTM layers of 1024, which read one direction. The vocabularies
have 32,000 word pieces (Wu et al. 2016, section 4.1: 8,000 to 32,000).

Both papers' graphs have 40 unrolled steps and a batch of 64: `rnnlm:batch=64`, `nmt:batch=64`. All steps share their
weights. With `outputs=40`, every step is classified by itself, as where each softmax has a device of its own.

Names of operators tell layers and steps: `/decoder/layers.1/step.7/MatMul`, `/attention/step.7/Softmax`,
`/classifier/step.7/MatMul`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto

from environment.zoo.layers import GraphWriter, Layers, SeededWeights, require


@dataclass(frozen=True)
class RnnlmConfig:
    """Sizes of a language model.

    Attributes:
      vocabulary: number of words.
      hidden: width of embeddings and states.
      layers: number of LSTM layers.
      steps: number of words that are read.
      batch: sequences in the input.
      outputs: in how many parts the steps are classified, a divisor of `steps`; each part is an output.
    """

    vocabulary: int = 10_000
    hidden: int = 2048
    layers: int = 2
    steps: int = 40
    batch: int = 1
    outputs: int = 1


@dataclass(frozen=True)
class NmtConfig:
    """Sizes of a translator.

    Attributes:
      vocabulary: number of word pieces, of each language.
      hidden: width of embeddings, states and attention.
      layers: number of LSTM layers, of the encoder and of the decoder.
      steps: number of word pieces that are read, and that are written.
      batch: pairs of sentences in the input.
      outputs: as in `RnnlmConfig`, of the steps of the decoder.
    """

    vocabulary: int = 32_000
    hidden: int = 1024
    layers: int = 2
    steps: int = 40
    batch: int = 1
    outputs: int = 1


NETWORKS: dict[str, RnnlmConfig | NmtConfig] = {
    "rnnlm": RnnlmConfig(),
    "rnnlm-tiny": RnnlmConfig(vocabulary=50, hidden=16, steps=3),
    "nmt": NmtConfig(),
    "nmt-tiny": NmtConfig(vocabulary=50, hidden=16, steps=3),
}


class State(NamedTuple):
    """The state of an LSTM layer: two values [batch, hidden]."""

    hidden: str
    cell: str


class Cell(NamedTuple):
    """The weights of an LSTM layer [inputs + hidden, 4 · hidden] and [4 · hidden], and what opens its forget gate."""

    kernel: str
    bias: str
    opening: str


def build(name: str, config: RnnlmConfig | NmtConfig) -> onnx.ModelProto:
    """Builds one of the networks.

    Inputs `words` of an RNNLM, `source` and `target` of an NMT: int64 [batch, steps]; `hidden_state` and `cell_state`:
    float32 [batch, layers, hidden], the states before the first step (of the encoder). Output `output`: float32 [batch,
    steps, vocabulary], the logits of the next word (of the target). Of several outputs, each has a part of the steps:
    `output.0`, `output.1` and so on.

    Raises:
      ValueError: the number of outputs does not divide that of the steps.
    """
    require(
        config.steps % config.outputs == 0,
        f"expected outputs that divide the {config.steps} steps, got {config.outputs}.",
    )
    net = _Network(GraphWriter(name), SeededWeights(name), config)
    states = net.language_model(config) if isinstance(config, RnnlmConfig) else net.translator(config)
    net.classify(states)
    return net.writer.model()


@dataclass(frozen=True)
class _Network(Layers):
    """The parts of recurrent networks."""

    config: RnnlmConfig | NmtConfig

    def language_model(self, config: RnnlmConfig) -> list[str]:
        """Writes an RNNLM up to the last states of all steps."""
        words = self.words("words", "embedding")
        states, cells = self.first_states(), self.cells("lstm", config.hidden)
        found = []
        for number, word in enumerate(words):
            states = self.step(word, states, cells, "/lstm", number)
            found.append(states[-1].hidden)
        return found

    def translator(self, config: NmtConfig) -> list[str]:
        """Writes an NMT up to what its classifier reads: the last states of all steps, and their contexts."""
        source, target = self.words("source", "encoder.embedding"), self.words("target", "decoder.embedding")
        states, cells = self.first_states(), self.cells("encoder", config.hidden)
        memory = []
        for number, word in enumerate(source):
            states = self.step(word, states, cells, "/encoder", number)
            memory.append(self.row(states[-1].hidden))
        annotations = self.writer.node("Concat", *memory, scope="/attention", axis=1)
        keys = self.product(annotations, "attention.memory", config.hidden)
        query, scores = self.kernel("attention.query", config.hidden), self.kernel("attention.scores", 1)
        cells, found = self.cells("decoder", 2 * config.hidden), []
        context = self.attended(states[-1].hidden, annotations, keys, query, scores, "/attention/step.0")
        for number, word in enumerate(target):
            read = self.writer.node("Concat", word, context, scope=f"/decoder/layers.0/step.{number}", axis=1)
            states = self.step(read, states, cells, "/decoder", number)
            scope = f"/attention/step.{number + 1}"
            context = self.attended(states[-1].hidden, annotations, keys, query, scores, scope)
            found.append(self.writer.node("Concat", states[-1].hidden, context, scope=scope, axis=1))
        return found

    def first_states(self) -> list[State]:
        """Declares the states before the first step as inputs; returns those of each layer."""
        dims = [self.config.batch, self.config.layers, self.config.hidden]
        hidden, cell = self.writer.input("hidden_state", dims), self.writer.input("cell_state", dims)
        return [State(self.part(hidden, layer), self.part(cell, layer)) for layer in range(self.config.layers)]

    def attended(self, state: str, annotations: str, keys: str, query: str, scores: str, scope: str) -> str:
        """Writes the mean of the annotations [batch, steps, hidden] by weights vᵀ tanh(W s + U h): [batch, hidden]."""
        node = self.writer.node
        asked = node("MatMul", self.row(state), query, scope=scope)
        energies = node("Tanh", node("Add", keys, asked, scope=scope), scope=scope)
        shares = node("Softmax", node("MatMul", energies, scores, scope=scope), scope=scope, axis=1)
        turned = node("Transpose", shares, scope=scope, perm=[0, 2, 1])
        mean = node("MatMul", turned, annotations, scope=scope)
        return node("Squeeze", mean, self.writer.constant([1], np.int64, scope), scope=scope)

    def cells(self, module: str, width: int) -> list[Cell]:
        """Writes the kernel and the bias of each layer; the first one reads inputs of a width."""
        hidden, found = self.config.hidden, []
        opening = self.writer.constant(1, np.float32, f"/{module}")
        for layer in range(self.config.layers):
            name = f"{module}.{layer}"
            kernel = self.weights.linear_kernel(f"{name}.kernel", width + hidden, 4 * hidden)
            bias = self.weights.bias(f"{name}.bias", 4 * hidden)
            weights = self.writer.weight(f"{name}.kernel", kernel), self.writer.weight(f"{name}.bias", bias)
            found.append(Cell(*weights, opening))
            width = hidden
        return found

    def step(self, x: str, states: Sequence[State], cells: Sequence[Cell], scope: str, number: int) -> list[State]:
        """Writes one step of all layers."""
        following: list[State] = []
        for layer, (state, cell) in enumerate(zip(states, cells, strict=True)):
            following.append(self.cell(x, state, cell, f"{scope}/layers.{layer}/step.{number}"))
            x = following[-1].hidden
        return following

    def cell(self, x: str, state: State, weights: Cell, scope: str) -> State:
        """Writes one step of one layer: c' = σ(f + 1) · c + σ(i) · tanh(j), and h' = σ(o) · tanh(c')."""

        def node(op_type: str, *inputs: str) -> str:
            return self.writer.node(op_type, *inputs, scope=scope)

        joined = self.writer.node("Concat", x, state.hidden, scope=scope, axis=1)
        gates = node("Add", node("MatMul", joined, weights.kernel), weights.bias)
        entry, candidate, forget, exit_ = self.writer.split(gates, 4, axis=1, scope=scope)
        opened = node("Sigmoid", node("Add", forget, weights.opening))
        kept = node("Mul", state.cell, opened)
        cell = node("Add", kept, node("Mul", node("Sigmoid", entry), node("Tanh", candidate)))
        return State(node("Mul", node("Sigmoid", exit_), node("Tanh", cell)), cell)

    def words(self, name: str, module: str) -> list[str]:
        """Declares an input of words, int64 [batch, steps]; returns their embeddings [batch, hidden], step by step."""
        config, weight = self.config, f"{module}.weight"
        words = self.writer.input(name, [config.batch, config.steps], TensorProto.INT64)
        table = self.writer.weight(weight, self.weights.embedding(weight, config.vocabulary, config.hidden, std=1.0))
        embedded = self.writer.node("Gather", table, words, scope=f"/{module}", axis=0)
        return [self.part(embedded, step) for step in range(config.steps)]

    def part(self, value: str, place: int) -> str:
        """Writes one place of the second axis, which goes away."""
        return self.writer.node("Gather", value, self.writer.constant(place, np.int64), axis=1)

    def row(self, value: str) -> str:
        """Writes [batch, hidden] as [batch, 1, hidden]."""
        return self.writer.node("Unsqueeze", value, self.writer.constant([1], np.int64))

    def kernel(self, module: str, width: int) -> str:
        """Writes a matrix [hidden, width]."""
        name = f"{module}.weight"
        return self.writer.weight(name, self.weights.linear_kernel(name, self.config.hidden, width))

    def product(self, x: str, module: str, width: int) -> str:
        return self.writer.node("MatMul", x, self.kernel(module, width), scope=self.scope(module))

    def classify(self, states: Sequence[str]) -> None:
        """Writes the linear layer of each part of the steps, and the outputs."""
        config, kernel, bias = self.config, "classifier.weight", "classifier.bias"
        width = config.hidden * (2 if isinstance(config, NmtConfig) else 1)
        kernel = self.writer.weight(kernel, self.weights.linear_kernel(kernel, width, config.vocabulary))
        bias = self.writer.weight(bias, self.weights.bias(bias, config.vocabulary))
        steps = config.steps // config.outputs
        for part in range(config.outputs):
            scope = "/classifier" if config.outputs == 1 else f"/classifier/step.{part}"
            rows = [self.row(state) for state in states[part * steps : (part + 1) * steps]]
            joined = self.writer.node("Concat", *rows, scope=scope, axis=1) if len(rows) > 1 else rows[0]
            product = self.writer.node("MatMul", joined, kernel, scope=scope)
            logits = self.writer.node("Add", product, bias, scope=scope)
            name = "output" if config.outputs == 1 else f"output.{part}"
            self.writer.output(name, logits, [config.batch, steps, config.vocabulary])
