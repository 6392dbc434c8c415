"""Operators as opsets 1 to 6 define them, brought to their forms of opset 7.

Before opset 7, elementwise operators broadcast by the attributes `broadcast` and `axis`, some attributes were inputs or
the other way round, and BatchNormalization and Dropout had a training mode. onnx's version converter passes over some
of these differences, so the conversion is written out here, from the operators' documentation. What cannot be converted
faithfully is refused by name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, bodies, fresh_name, value_names
from taso_ext.onnx_io.shape_inference import infer_shapes, without_output_shapes
from taso_ext.onnx_io.weights.handles import lazy_tensor

OLDEST_OPSET = 7
"""The oldest opset that everything behind the reader knows."""

BROADCASTING = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
"""The operators that broadcast their second operand by attributes. Gemm, whose bias is broadcast, is not among them."""


class _Refusal(Exception):
    """A node that cannot be converted, with the reason."""


def raise_to_oldest(model: CheckedModel, name: str) -> CheckedModel:
    """Returns a model of at least `OLDEST_OPSET`: the given one, or one whose operators are converted.

    Raises:
      ModelError: an operator cannot be converted faithfully; the message names it and says why.
    """
    if model.opset >= OLDEST_OPSET:
        return model
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model.skeleton)
    del skeleton.graph.value_info[:]
    for entry in skeleton.opset_import:
        if entry.domain in DEFAULT_DOMAINS:
            entry.version = OLDEST_OPSET
    conversion = _Conversion(model)
    try:
        _replace_nodes(skeleton.graph, conversion, _BY_THEMSELVES)
        conversion.ranks = _ranks(CheckedModel(skeleton, conversion.constants | model.tensors, model.defaults))
        _replace_nodes(skeleton.graph, conversion, _BY_RANKS)
    except _Refusal as refusal:
        raise ModelError(
            f"{name} uses opset {model.opset}; at least opset {OLDEST_OPSET} is needed. {refusal} Export the network "
            "again with a newer opset."
        ) from None
    return CheckedModel(skeleton, conversion.constants | model.tensors, model.defaults)


def _replace_nodes(graph: onnx.GraphProto, conversion: _Conversion, menders: Mapping[str, _Mender]) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in bodies(node):
            _replace_nodes(body, conversion, menders)
        mend = menders.get(node.op_type) if node.domain in DEFAULT_DOMAINS else None
        _drop(node, "consumed_inputs")  # a hint about memory
        nodes += [node] if mend is None else mend(node, conversion)
    kept = [copy.deepcopy(node) for node in nodes]  # those of the graph end with its list
    del graph.node[:]
    graph.node.extend(kept)


@dataclass
class _Conversion:
    """The conversion of one model.

    Attributes:
      model: the model as it is.
      constants: the constants that converted nodes read, by name.
      ranks: the ranks of top-level values by name; None if a rank is unknown.
      names: all names that values have.
    """

    model: CheckedModel
    constants: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    ranks: Mapping[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = value_names(self.model.skeleton.graph) | {*self.model.tensors, *self.model.defaults}

    def rank(self, name: str, node: onnx.NodeProto) -> int:
        """Returns the rank of a value that a node reads."""
        rank = self.ranks.get(name)
        if rank is None:
            raise _Refusal(f"{_label(node)} needs the rank of '{name}' to be converted, but it is not known.")
        return rank

    def number_of_elements(self, name: str) -> int | None:
        """Returns the size of a constant; None if the value is no constant."""
        tensor = self.model.tensors.get(name)
        return None if tensor is None else int(tensor.size)

    def numbers(self, name: str, node: onnx.NodeProto) -> np.ndarray:
        """Returns the elements of a constant that a node reads, in one dimension."""
        if name not in self.model.tensors:
            raise _Refusal(f"{_label(node)} reads '{name}', which is computed; only a constant can be converted.")
        return np.asarray(self.model.tensors[name].numpy()).reshape(-1)

    def constant(self, array: np.ndarray, hint: str) -> str:
        """Returns the name of a new constant."""
        name = fresh_name(hint, self.names)
        self.constants[name] = lazy_tensor(numpy_helper.from_array(array, name))
        return name


def _ranks(model: CheckedModel) -> Mapping[str, int | None]:
    """Returns the ranks of the top-level values of a model whose operators in `_BY_RANKS` are not converted yet.

    onnx infers nothing about their old forms. Their results have the rank of their first operand.
    """
    proto = without_output_shapes(model.for_onnx())
    for node in proto.graph.node:
        if node.domain in DEFAULT_DOMAINS and node.op_type in _BY_RANKS:
            node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output, node.name))
    graph = infer_shapes(proto).graph
    known = {value.name: _rank(value.type) for value in (*graph.value_info, *graph.output, *graph.input)}
    return known | {name: len(tensor.shape.numpy()) for name, tensor in model.tensors.items()}


def _rank(kind: onnx.TypeProto) -> int | None:
    return len(kind.tensor_type.shape.dim) if kind.tensor_type.HasField("shape") else None


_Mender = Callable[[onnx.NodeProto, _Conversion], list[onnx.NodeProto]]
"""Returns the nodes of opset 7 that compute what a node computes, which it may change; raises _Refusal if none do."""


def _label(node: onnx.NodeProto) -> str:
    return f"The operator {node.op_type} '{node.name or next(iter(node.output), '')}'"


def _pop(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Removes an attribute and returns its value."""
    for position, attribute in enumerate(node.attribute):
        if attribute.name == name:
            value = helper.get_attribute_value(attribute)
            del node.attribute[position]
            return value
    return default


def _drop(node: onnx.NodeProto, *names: str) -> None:
    for name in names:
        _pop(node, name)


def _put(node: onnx.NodeProto, name: str, value: object) -> None:
    """Adds an attribute unless the node has it."""
    if all(attribute.name != name for attribute in node.attribute):
        node.attribute.append(helper.make_attribute(name, value))


def _broadcasting(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    """Aligns the second operand with the axes of the first one from `axis` on; without `axis`, with the last ones."""
    broadcast, axis = _pop(node, "broadcast", 0), _pop(node, "axis")
    if not broadcast or axis is None or conversion.number_of_elements(node.input[1]) == 1:
        return [node]
    rank, other = (conversion.rank(name, node) for name in node.input[:2])
    if other == 0:
        return [node]
    behind = rank - int(axis) - other
    if int(axis) < 0 or behind < 0:
        raise _Refusal(
            f"{_label(node)} broadcasts a tensor of rank {other} along axis {axis} of one of rank {rank}, where it "
            "does not fit."
        )
    return _with_axes(node, list(range(other, other + behind)), conversion)


def _with_axes(node: onnx.NodeProto, axes: Sequence[int], conversion: _Conversion) -> list[onnx.NodeProto]:
    """Returns the node with its second operand unsqueezed."""
    if not axes:
        return [node]
    aligned = fresh_name(f"{node.input[1]}_aligned", conversion.names)
    unsqueeze = helper.make_node("Unsqueeze", [node.input[1]], [aligned], axes=list(axes))
    node.input[1] = aligned
    return [unsqueeze, node]


def _p_relu(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    """Aligns a slope for each channel with axis 1."""
    if conversion.number_of_elements(node.input[1]) == 1 or conversion.rank(node.input[1], node) != 1:
        return [node]
    return _with_axes(node, range(1, conversion.rank(node.input[0], node) - 1), conversion)


def _inference_only(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    if not _pop(node, "is_test", 0):
        raise _Refusal(f"{_label(node)} is in training mode (is_test=0), which depends on chance or on the batch.")
    return [node]


def _gemm(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    _drop(node, "broadcast")  # a bias that fits is broadcast in the same way
    return [node]


def _cast(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    to = _pop(node, "to")
    if isinstance(to, bytes):
        try:
            to = onnx.TensorProto.DataType.Value(to.decode().upper())
        except ValueError:
            raise _Refusal(f"{_label(node)} casts to {to!r}, which is no type.") from None
    _put(node, "to", to)
    return [node]


def _concat(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    _put(node, "axis", 1)
    return [node]


def _pad(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    pads = _pop(node, "paddings")
    if pads is not None:
        _put(node, "pads", pads)
    return [node]


def _reshape(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    shape = _pop(node, "shape")
    if len(node.input) == 1:
        node.input.append(conversion.constant(np.asarray(shape if shape is not None else [], np.int64), "shape"))
    return [node]


def _selu(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    if conversion.model.opset < 6:  # the defaults have more digits from then on
        _put(node, "alpha", 1.6732)
        _put(node, "gamma", 1.0507)
    return [node]


def _split(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    if len(node.input) > 1:
        sizes = conversion.numbers(node.input.pop(), node)
        _put(node, "split", [int(size) for size in sizes])
    return [node]


def _tile(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    if conversion.model.opset < 6:
        axis, tiles = (int(conversion.numbers(name, node)[0]) for name in (node.input.pop(), node.input.pop()))
        repeats = np.ones(conversion.rank(node.input[0], node), np.int64)
        if not 0 <= axis < len(repeats):
            raise _Refusal(f"{_label(node)} repeats axis {axis} of a tensor of rank {len(repeats)}.")
        repeats[axis] = tiles
        node.input.append(conversion.constant(repeats, "repeats"))
    return [node]


def _upsample(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    height, width = _pop(node, "height_scale", 1.0), _pop(node, "width_scale", 1.0)
    _put(node, "scales", [1.0, 1.0, height, width])
    return [node]


def _lp_pool(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    p = _pop(node, "p")
    if p is not None:
        if float(p) != int(p):
            raise _Refusal(f"{_label(node)} has the norm p={p}; newer opsets have integers only.")
        _put(node, "p", int(p))
    return [node]


def _recurrent(node: onnx.NodeProto, conversion: _Conversion) -> list[onnx.NodeProto]:
    _drop(node, "output_sequence")  # newer opsets compute the outputs that have names
    return [node]


_BY_RANKS: Mapping[str, _Mender] = {**dict.fromkeys(BROADCASTING, _broadcasting), "PRelu": _p_relu, "Tile": _tile}
"""What depends on ranks, so that all else is converted first."""
_BY_THEMSELVES: Mapping[str, _Mender] = {
    **dict.fromkeys(("BatchNormalization", "Dropout"), _inference_only),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    **dict.fromkeys(("LpPool", "GlobalLpPool"), _lp_pool),
    "Cast": _cast,
    "Concat": _concat,
    "Gemm": _gemm,
    "Pad": _pad,
    "Reshape": _reshape,
    "Selu": _selu,
    "Split": _split,
    "Upsample": _upsample,
}
