"""Recurrent operators, unrolled: RNN, GRU and LSTM become the elementary operators of all their steps.

The table of gradients then needs no entry for them. Formulas and the order of gates are those of ONNX's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from environment.gradients.node_writer import NodeWriter
from environment.gradients.operation import Operation, Values
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, value_names

_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
"""The activations of one direction, if a node does not give them."""
_KNOWN = ("Sigmoid", "Tanh", "Relu")
_CELL_STATE, _PEEPHOLES = 6, 7
"""Inputs that only LSTM has."""


def unrolled(model: CheckedModel) -> CheckedModel:
    """Returns a model without recurrent operators; the model itself if it has none.

    Raises:
      ModelError: an operator clips, has sequences of several lengths, another layout or an activation with parameters,
        or a shape is not static.
    """
    graph = model.skeleton.graph
    if not any(_is_recurrent(node) for node in graph.node):
        return model
    skeleton, values = onnx.ModelProto(), Values(model, frozenset())
    writer = NodeWriter(value_names(graph) | model.tensors.keys() | model.defaults.keys(), model.opset)
    for node in graph.node:
        if _is_recurrent(node):
            _unroll(Operation.of(node, values, writer))
        else:
            writer.copy(node)
    skeleton.CopyFrom(model.skeleton)
    del skeleton.graph.node[:]
    skeleton.graph.node.extend(writer.nodes)
    return CheckedModel(skeleton, model.tensors, model.defaults)


def _is_recurrent(node: onnx.NodeProto) -> bool:
    return node.domain in DEFAULT_DOMAINS and node.op_type in _ACTIVATIONS


def _unroll(op: Operation) -> None:
    """Writes all steps of all directions, and gives the results the names of the operator's outputs."""
    _require_supported(op)
    names = [_decoded(name) for name in op.attribute("activations") or ()]
    count = len(_ACTIVATIONS[op.node.op_type])
    results = []
    for number in range(op.dims(op.inputs[1])[0]):
        activations = names[number * count : (number + 1) * count] or _ACTIVATIONS[op.node.op_type]
        if not set(activations) <= {*_KNOWN}:
            raise op.refusal(f"it has the activations {', '.join(activations)}; known are {', '.join(_KNOWN)}")
        results.append(_direction(op, number, activations))
    steps = [op.write("Concat", *(each[0][t] for each in results), axis=1) for t in range(op.dims(op.x)[0])]
    last = [
        op.write("Concat", *ends, axis=0) for ends in ([each[1] for each in results], [each[2] for each in results])
    ]
    for name, made in zip(op.node.output, [op.write("Concat", *steps, axis=0), *last], strict=False):
        if name:
            op.writer.copy(helper.make_node("Identity", [made], [name], name=f"{op.scope}/{name}"))


def _decoded(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _require_supported(op: Operation) -> None:
    if op.attribute("clip") is not None:
        raise op.refusal("it clips")
    if op.attribute("layout"):
        raise op.refusal("it has the batch first (layout 1)")
    if op.attribute("input_forget"):
        raise op.refusal("it couples its gates (input_forget)")
    lengths = op.constant_input(4)
    if lengths is not None and (lengths != op.dims(op.x)[0]).any():
        raise op.refusal("its sequences have several lengths")


def _direction(op: Operation, number: int, activations: Sequence[str]) -> tuple[list[str], str, str]:
    """Writes the steps of one direction.

    Returns:
      The results of the steps [1, 1, batch, hidden] in the order of time, and the last hidden and cell state
      [1, batch, hidden].
    """
    steps, batch, _ = op.dims(op.x)
    hidden = op.dims(op.inputs[2])[-1]
    weight, recurrent = (op.transposed(_of_direction(op, place, number), [1, 0]) for place in (1, 2))
    gates = op.dims(op.inputs[1])[1]
    read = op.write("MatMul", op.x, weight)
    of_hidden = op.filled(0, [gates])
    if op.has(3):
        of_input, of_hidden = op.parts(_of_direction(op, 3, number), [gates, gates], 0)
        read = op.write("Add", read, of_input)
    moments = [op.reshaped(each, [batch, gates]) for each in op.parts(read, [1] * steps, 0)]
    state, cell = (
        _of_direction(op, place, number) if op.has(place) else op.filled(0, [batch, hidden])
        for place in (5, _CELL_STATE)
    )
    peepholes = op.parts(_of_direction(op, _PEEPHOLES, number), [hidden] * 3, 0) if op.has(_PEEPHOLES) else []
    backwards = op.attribute("direction") == "reverse" or number == 1
    results = [""] * steps
    for t in reversed(range(steps)) if backwards else range(steps):
        step = _Step(op, moments[t], state, cell, recurrent, of_hidden, activations, peepholes)
        state, cell = _CELLS[op.node.op_type](step)
        results[t] = op.reshaped(state, [1, 1, batch, hidden])
    return results, op.reshaped(state, [1, batch, hidden]), op.reshaped(cell, [1, batch, hidden])


def _of_direction(op: Operation, place: int, number: int) -> str:
    """Returns the part of an input that belongs to a direction, without the axis of the directions."""
    return op.write("Gather", op.inputs[place], op.writer.constant(number, "int64"), axis=0)


@dataclass(frozen=True)
class _Step:
    """What one step of a cell reads.

    Attributes:
      op: the operator.
      x: what the weights make of the input, with its bias [batch, gates].
      state, cell: the states before the step [batch, hidden].
      recurrent, bias: weights of the state, transposed [hidden, gates], and their bias [gates].
      activations: their operators.
      peepholes: three vectors [hidden], or none.
    """

    op: Operation
    x: str
    state: str
    cell: str
    recurrent: str
    bias: str
    activations: Sequence[str]
    peepholes: Sequence[str]

    @property
    def of_state(self) -> str:
        return self.sum(self.op.write("MatMul", self.state, self.recurrent), self.bias)

    def gates(self, value: str, axis: int = 1) -> list[str]:
        """Returns the gates of a value along an axis."""
        hidden = self.op.dims(self.op.inputs[2])
        return self.op.parts(value, [hidden[-1]] * (hidden[1] // hidden[-1]), axis)

    def sum(self, first: str, *others: str) -> str:
        for other in others:
            first = self.op.write("Add", first, other)
        return first

    def product(self, first: str, second: str) -> str:
        return self.op.write("Mul", first, second)

    def activated(self, number: int, value: str) -> str:
        return self.op.write(self.activations[number], value)


def _rnn(step: _Step) -> tuple[str, str]:
    """RNN: the new state is f(·)."""
    return step.activated(0, step.sum(step.x, step.of_state)), step.cell


def _gru(step: _Step) -> tuple[str, str]:
    """GRU: z = f(·), r = f(·), h = g(·), and the new state (1 - z) ⊙ h + z ⊙ state."""
    op = step.op
    (xz, xr, xh), (hz, hr, hh) = step.gates(step.x), step.gates(step.of_state)
    update, reset = step.activated(0, step.sum(xz, hz)), step.activated(0, step.sum(xr, hr))
    if op.attribute("linear_before_reset"):
        kept = step.product(reset, hh)
    else:
        own, bias = step.gates(step.recurrent)[2], step.gates(step.bias, axis=0)[2]
        kept = step.sum(op.write("MatMul", step.product(reset, step.state), own), bias)
    fresh = step.product(op.write("Sub", op.number(1), update), step.activated(1, step.sum(xh, kept)))
    return step.sum(fresh, step.product(update, step.state)), step.cell


def _lstm(step: _Step) -> tuple[str, str]:
    """LSTM: the new cell is forget ⊙ cell + input ⊙ g(·), and the new state output ⊙ h(new cell)."""
    into, out, forget, candidate = step.gates(step.sum(step.x, step.of_state))
    if step.peepholes:
        into = step.sum(into, step.product(step.peepholes[0], step.cell))
        forget = step.sum(forget, step.product(step.peepholes[2], step.cell))
    kept = step.product(step.activated(0, forget), step.cell)
    cell = step.sum(kept, step.product(step.activated(0, into), step.activated(1, candidate)))
    if step.peepholes:
        out = step.sum(out, step.product(step.peepholes[1], cell))
    return step.product(step.activated(0, out), step.activated(2, cell)), cell


_CELLS: dict[str, Callable[[_Step], tuple[str, str]]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
"""What writes the new hidden state and the new cell state of a step."""
