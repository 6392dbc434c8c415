"""The conversion from normal form back to ONNX, as each opset writes an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx
from onnx import helper, numpy_helper

from taso_ext._core import Node
from taso_ext.onnx_io.canonical.algebra import REDUCTIONS, reduction_axes_are_input
from taso_ext.onnx_io.canonical.form import Attribute
from taso_ext.onnx_io.checked_model import ValueType


class Constants(Protocol):
    """The place for the constants and intermediate values that lowering needs."""

    def constant(self, array: np.ndarray, hint: str) -> str:
        """Returns the name of an initializer with these values."""

    def fresh_name(self, hint: str) -> str:
        """Returns an unused value name."""


@dataclass(frozen=True)
class NormalNode:
    """A node in normal form, with the names of its values in the exported model ("" = absent)."""

    op_type: str
    attributes: Mapping[str, Attribute]
    inputs: Sequence[str]
    outputs: Sequence[str]
    input_types: Sequence[ValueType]
    name: str = ""

    @property
    def rank(self) -> int:
        dims = self.input_types[0].dims
        assert dims is not None, "operators are only lifted from inputs of known rank"
        return len(dims)


Lowering = Callable[[NormalNode, int, Constants], list[onnx.NodeProto]]


def lower(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    """Returns the nodes of this opset that compute a node in normal form."""
    lowering = _LOWERINGS.get(node.op_type, _plain)
    return lowering(node, opset, constants)


def _node(node: NormalNode, inputs: Sequence[str], **attributes: Attribute) -> onnx.NodeProto:
    proto = helper.make_node(node.op_type, list(inputs), list(node.outputs), name=node.name or None)
    proto.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return proto


def _plain(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    return [_node(node, node.inputs, **node.attributes)]


def _int64(node: NormalNode, attribute: str, constants: Constants) -> str:
    values = np.asarray(node.attributes[attribute], dtype=np.int64)
    return constants.constant(values, f"{node.outputs[0]}_{attribute}")


def _without(node: NormalNode, *names: str) -> dict[str, Attribute]:
    return {name: value for name, value in node.attributes.items() if name not in names}


def _gemm(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    """Returns a Gemm node; before opset 11, the third operand is not optional and becomes zero."""
    inputs = list(node.inputs)
    if len(inputs) == 2 and opset < 11:
        zero = np.zeros(1, dtype=helper.tensor_dtype_to_np_dtype(node.input_types[0].dtype))
        inputs.append(constants.constant(zero, f"{node.outputs[0]}_zero"))
    return [_node(node, inputs, **node.attributes)]


def _reshape(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    shape = node.attributes["shape"]
    empty = isinstance(shape, list) and 0 in shape
    allow_zero = {"allowzero": 1} if empty and opset >= 14 else {}
    return [_node(node, [node.inputs[0], _int64(node, "shape", constants)], **allow_zero)]


def _split(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    if opset < 13:
        return _plain(node, opset, constants)
    return [_node(node, [node.inputs[0], _int64(node, "split", constants)], **_without(node, "split"))]


def _slice(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    if opset >= 10:
        lists = [_int64(node, name, constants) for name in ("starts", "ends", "axes", "steps")]
        return [_node(node, [node.inputs[0], *lists])]
    steps = node.attributes["steps"]
    if any(step != 1 for step in steps):  # type: ignore[union-attr]
        raise ValueError(f"a slice with steps {steps!r} needs opset 10, the model has {opset}")
    return [_node(node, node.inputs, **_without(node, "steps"))]


def _pad(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    if opset < 11:
        return _plain(node, opset, constants)
    inputs = [node.inputs[0], _int64(node, "pads", constants)]
    if node.attributes["value"] != 0.0:
        dtype = helper.tensor_dtype_to_np_dtype(node.input_types[0].dtype)
        inputs.append(constants.constant(np.asarray(node.attributes["value"], dtype), f"{node.outputs[0]}_value"))
    return [_node(node, inputs, mode="constant")]


def _reduce(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    if not reduction_axes_are_input(node.op_type, opset):
        return _plain(node, opset, constants)
    return [_node(node, [node.inputs[0], _int64(node, "axes", constants)], **_without(node, "axes"))]


def is_constant(node: Node) -> bool:
    """Returns whether a node is a constant that a rewrite made: it has no inputs, only attributes."""
    return node.op_type in _CONSTANTS and not node.inputs and "dtype" in node.attributes


def _constant(node: NormalNode, values: np.ndarray) -> list[onnx.NodeProto]:
    value = numpy_helper.from_array(values.astype(_dtype(node)))
    return [helper.make_node("Constant", [], list(node.outputs), name=node.name or None, value=value)]


def _dtype(node: NormalNode) -> np.dtype:
    dtype = node.attributes["dtype"]
    assert isinstance(dtype, int)
    return helper.tensor_dtype_to_np_dtype(dtype)


def _shape(node: NormalNode) -> list[int]:
    shape = node.attributes["shape"]
    assert isinstance(shape, list)
    return [int(size) for size in shape]


def _written_constant(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    return _constant(node, np.reshape(node.attributes["values"], _shape(node)))


def _constant_of_shape(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    value = np.asarray([node.attributes["value"]]).astype(_dtype(node))
    if opset < 9:
        return _constant(node, np.full(_shape(node), value[0]))
    proto = helper.make_node(
        "ConstantOfShape", [_int64(node, "shape", constants)], list(node.outputs), name=node.name or None
    )
    proto.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))
    return [proto]


def _eye_like(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    size = node.attributes["size"]
    assert isinstance(size, int)
    return _constant(node, np.eye(size))


def _softmax(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    """Returns the nodes of a softmax over one axis.

    Before opset 13, softmax runs over all axes from `axis` on, so the axis must first be moved to the end.
    """
    axis, dims = node.attributes["axis"], node.input_types[0].dims
    assert isinstance(axis, int) and dims is not None
    if opset >= 13 or all(size == 1 for size in dims[axis + 1 :]):
        return _plain(node, opset, constants)
    swap = list(range(len(dims)))
    swap[axis], swap[-1] = swap[-1], swap[axis]
    before, after = (constants.fresh_name(f"{node.outputs[0]}_{part}") for part in ("moved", "softmax"))
    return [
        helper.make_node("Transpose", [node.inputs[0]], [before], perm=swap),
        helper.make_node(node.op_type, [before], [after], name=node.name or None, axis=len(dims) - 1),
        helper.make_node("Transpose", [after], list(node.outputs), perm=swap),
    ]


def _pool(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    """Returns a pooling node without the attributes that the opset does not have.

    Raises:
      ValueError: such an attribute does not have its default value; a rewrite may have set it.
    """
    absent = [] if opset >= 10 else ["ceil_mode"]
    if opset < (10 if node.op_type == "MaxPool" else 19):
        absent.append("dilations")
    for name in absent:
        value = node.attributes[name]
        if value and set(value if isinstance(value, list) else [value]) != {int(name == "dilations")}:
            raise ValueError(
                f"{node.op_type} with {name}={value!r} needs a newer opset than {opset}, which the model has"
            )
    return [_node(node, node.inputs, **_without(node, *absent))]


def _expand(node: NormalNode, opset: int, constants: Constants) -> list[onnx.NodeProto]:
    return [_node(node, [node.inputs[0], _int64(node, "shape", constants)])]


_CONSTANTS: dict[str, Lowering] = {
    "Constant": _written_constant,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
}

_LOWERINGS: dict[str, Lowering] = {
    "Gemm": _gemm,
    "Reshape": _reshape,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Expand": _expand,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "MaxPool": _pool,
    "AveragePool": _pool,
    **dict.fromkeys(REDUCTIONS, _reduce),
    **_CONSTANTS,
}
