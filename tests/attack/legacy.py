"""Models of opsets 1 to 6, each with a model of a newer opset that computes the same.

Two models are written side by side from the documentation of the operators, because neither ONNX Runtime nor
onnx.reference runs the old forms: the new model says what the old one computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.attack.bodies import FLOAT

OPSET = 13
CHANNELS, SIDE = 3, 4
SHAPE = (2, CHANNELS, SIDE, SIDE)


class Pair:
    """The operators of both models; values have the same names in both.

    Attributes:
      old, new: the nodes of the two models.
    """

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        self.rng, self.opset = rng, opset
        self.old: list[onnx.NodeProto] = []
        self.new: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def constant(self, array: Any) -> str:
        name = self.fresh()
        self.weights[name] = np.asarray(array)
        return name

    def same(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        return self.both((op_type, inputs, attributes), (op_type, inputs, attributes))

    def both(self, old: tuple[str, Any, dict[str, Any]], new: tuple[str, Any, dict[str, Any]]) -> str:
        """Adds an operator to each model and returns the name of both results."""
        name = self.fresh()
        for nodes, (op_type, inputs, attributes) in ((self.old, old), (self.new, new)):
            nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def only_new(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = self.fresh()
        self.new.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name


def _broadcast(pair: Pair, x: str) -> str:
    operator = str(pair.rng.choice(["Add", "Sub", "Mul", "Div"]))
    axis = int(pair.rng.integers(0, 4))
    length = int(pair.rng.integers(1, 5 - axis))
    dims = SHAPE[axis : axis + length]
    weight = pair.rng.uniform(0.5, 2.0, dims).astype(np.float32)
    old = pair.constant(weight)
    new = pair.constant(weight.reshape(*dims, *[1] * (4 - axis - length)))
    attributes: dict[str, Any] = {"broadcast": 1}
    if axis + length < 4 or pair.rng.random() < 0.5:
        attributes["axis"] = axis
    return pair.both((operator, [x, old], attributes), (operator, [x, new], {}))


def _activation(pair: Pair, x: str) -> str:
    kinds: dict[str, dict[str, float]] = {
        **{name: {} for name in ("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Exp", "Floor", "Ceil")},
        "LeakyRelu": {"alpha": 0.3},
        "Elu": {"alpha": 0.7},
        "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    }
    operator = list(kinds)[pair.rng.integers(len(kinds))]
    hint = {"consumed_inputs": [0]} if pair.opset < 6 and pair.rng.random() < 0.5 else {}
    return pair.both((operator, [x], kinds[operator] | hint), (operator, [x], kinds[operator]))


def _clip(pair: Pair, x: str) -> str:
    low, high = np.float32(-0.5), np.float32(0.75)
    limits = [pair.constant(low), pair.constant(high)]
    return pair.both(("Clip", [x], {"min": float(low), "max": float(high)}), ("Clip", [x, *limits], {}))


def _normalisation(pair: Pair, x: str) -> str:
    weights = [pair.constant(pair.rng.uniform(0.5, 2.0, CHANNELS).astype(np.float32)) for _ in range(4)]
    hint = {"consumed_inputs": [0, 0, 0, 1, 1]} if pair.opset < 6 else {}
    old = {"is_test": 1, "epsilon": 1e-3, "spatial": 1} | hint
    operands = [x, *weights]
    return pair.both(("BatchNormalization", operands, old), ("BatchNormalization", operands, {"epsilon": 1e-3}))


def _dropout(pair: Pair, x: str) -> str:
    hint = {"consumed_inputs": [0]} if pair.opset < 6 else {}
    return pair.both(("Dropout", [x], {"is_test": 1, "ratio": 0.4} | hint), ("Identity", [x], {}))


def _reshape(pair: Pair, x: str) -> str:
    flat, full = np.array([2, -1]), np.array(SHAPE)
    for target in (flat, full):
        shape = pair.constant(target)
        old = ("Reshape", [x], {"shape": target.tolist()}) if pair.opset < 5 else ("Reshape", [x, shape], {})
        x = pair.both(old, ("Reshape", [x, shape], {}))
    return x


def _concat(pair: Pair, x: str) -> str:
    """Opset 1 joins along axis 1 if nothing else is said; the channels are taken apart again."""
    attributes = {} if pair.opset < 4 else {"axis": 1}
    joined = pair.both(("Concat", [x, x], attributes), ("Concat", [x, x], {"axis": 1}))
    starts, ends, axes = (pair.constant(np.array([number])) for number in (1, 1 + CHANNELS, 1))
    old = {"starts": [1], "ends": [1 + CHANNELS], "axes": [1]}
    return pair.both(("Slice", [joined], old), ("Slice", [joined, starts, ends, axes], {}))


def _pad(pair: Pair, x: str) -> str:
    pads = [0, 0, 1, 0, 0, 0, 0, 2]
    name = "paddings" if pair.opset < 2 else "pads"
    amounts, value = pair.constant(np.array(pads)), pair.constant(np.float32(0.5))
    padded = pair.both(("Pad", [x], {name: pads, "value": 0.5}), ("Pad", [x, amounts, value], {}))
    starts, ends, axes = (pair.constant(np.array(v)) for v in ([0, 1], [SIDE, 1 + SIDE], [2, 3]))
    old = {"starts": [0, 1], "ends": [SIDE, 1 + SIDE], "axes": [2, 3]}
    return pair.both(("Slice", [padded], old), ("Slice", [padded, starts, ends, axes], {}))


def _softmax(pair: Pair, x: str) -> str:
    """Softmax before opset 13 flattens from its axis on."""
    axis = int(pair.rng.integers(1, 4))
    attributes = {} if axis == 1 and pair.rng.random() < 0.5 else {"axis": axis}
    before = pair.constant(np.array([int(np.prod(SHAPE[:axis])), -1]))
    after = pair.constant(np.array(SHAPE))
    flat = pair.only_new("Reshape", x, before)
    soft = pair.only_new("Softmax", flat, axis=1)
    return pair.both(("Softmax", [x], attributes), ("Reshape", [soft, after], {}))


def _power(pair: Pair, x: str) -> str:
    weight = pair.constant(np.float32([2.0]))
    return pair.both(("Pow", [x, weight], {"broadcast": 1}), ("Pow", [x, weight], {}))


def _reduce(pair: Pair, x: str) -> str:
    operator = str(pair.rng.choice(["ReduceMean", "ReduceMax", "ReduceMin"]))
    axis = int(pair.rng.integers(1, 4))
    mean = pair.same(operator, x, axes=[axis], keepdims=1)
    full = pair.constant(np.zeros(SHAPE, np.float32))
    ones = pair.both(("Sum", [full, full], {}), ("Sum", [full, full], {}))
    shape = pair.constant(np.array(SHAPE))
    wide = pair.only_new("Expand", mean, shape)
    repeated = {"axis": axis}
    copies = [mean] * SHAPE[axis]
    spread = pair.both(("Concat", copies, repeated), ("Identity", [wide], {}))
    return pair.same("Add", spread, ones)


def _convolution(pair: Pair, x: str) -> str:
    kernel = pair.constant((0.3 * pair.rng.standard_normal((CHANNELS, CHANNELS, 3, 3))).astype(np.float32))
    return pair.same("Conv", x, kernel, pads=[1, 1, 1, 1], kernel_shape=[3, 3])


def _prelu(pair: Pair, x: str) -> str:
    """Opsets below 7 give each channel its slope."""
    slope = pair.rng.uniform(0.1, 0.9, CHANNELS).astype(np.float32)
    old, new = pair.constant(slope), pair.constant(slope.reshape(CHANNELS, 1, 1))
    return pair.both(("PRelu", [x, old], {}), ("PRelu", [x, new], {}))


FRAGMENTS = (
    *(_broadcast, _broadcast, _broadcast, _activation, _clip, _normalisation, _dropout, _reshape, _concat, _pad),
    *(_softmax, _power, _reduce, _convolution, _prelu),
)


def legacy_model(rng: np.random.Generator) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Returns a model of opset 1 to 6, and one of opset 13 that computes the same."""
    opset = int(rng.integers(1, 7))
    pair = Pair(rng, opset)
    value = "x"
    for _ in range(rng.integers(1, 6)):
        value = FRAGMENTS[rng.integers(len(FRAGMENTS))](pair, value)
    value = pair.same("Identity", value)
    return _model(pair, pair.old, value, opset, 3), _model(pair, pair.new, value, OPSET, 8)


def _model(pair: Pair, nodes: list[onnx.NodeProto], output: str, opset: int, ir_version: int) -> onnx.ModelProto:
    read = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(array, name) for name, array in pair.weights.items() if name in read]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)]
    if ir_version < 4:  # initializers had to be inputs
        inputs += [helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in weights]
    graph = helper.make_graph(nodes, "legacy", inputs, [helper.make_tensor_value_info(output, FLOAT, SHAPE)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
