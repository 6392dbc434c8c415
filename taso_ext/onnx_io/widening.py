"""Models whose floating numbers have more bits than they were written with, so that they round less."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from taso_ext.onnx_io.operators import graphs_of

_FLOATS = (TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)
"""Floating types; every type can hold the numbers of those before it, but float16 not those of bfloat16."""
TYPE_ATTRIBUTES = frozenset(["to", "dtype", "output_dtype", "stash_type", "precision", "softmax_precision"])
"""Names of attributes whose number is an element type."""


def widen(proto: onnx.ModelProto, dtype: int) -> onnx.ModelProto:
    """Gives all narrower floats of a model an element type (onnx.TensorProto.FLOAT or DOUBLE), in place.

    Casts to narrower floats become casts to this type, so rounding that the model asks for is left out too.
    """
    _Widening(dtype).graph(proto.graph)
    for function in proto.functions:
        _Widening(dtype).nodes(function.node)
        _Widening(dtype).types(function.value_info)
    return proto


class _Widening:
    def __init__(self, dtype: int) -> None:
        self._dtype = dtype
        self._narrower = _FLOATS[: _FLOATS.index(dtype)]

    def graph(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._tensor(tensor)
        for values in (graph.input, graph.output, graph.value_info):
            self.types(values)
        self.nodes(graph.node)

    def nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            for attribute in node.attribute:
                self._attribute(node.op_type, attribute)

    def types(self, values: Iterable[onnx.ValueInfoProto]) -> None:
        for value in values:
            for kind in _tensor_types(value.type):
                if kind.elem_type in self._narrower:
                    kind.elem_type = self._dtype

    def _attribute(self, op_type: str, attribute: AttributeProto) -> None:
        if attribute.type == AttributeProto.TENSOR:
            self._tensor(attribute.t)
        elif attribute.type == AttributeProto.INT and attribute.name in TYPE_ATTRIBUTES:
            if attribute.i in self._narrower:
                attribute.i = self._dtype
        elif op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            array = np.asarray(numbers, helper.tensor_dtype_to_np_dtype(self._dtype))
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))
        for graph in graphs_of(attribute):
            self.graph(graph)

    def _tensor(self, tensor: TensorProto) -> None:
        if tensor.data_type in self._narrower:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(self._dtype))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _tensor_types(kind: onnx.TypeProto) -> Iterator[onnx.TypeProto.Tensor]:
    """Yields the types of the tensors that a value is or holds."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        yield kind.tensor_type
    elif which == "sequence_type":
        yield from _tensor_types(kind.sequence_type.elem_type)
    elif which == "optional_type":
        yield from _tensor_types(kind.optional_type.elem_type)
    elif which == "map_type":
        yield from _tensor_types(kind.map_type.value_type)
