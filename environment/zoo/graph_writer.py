"""A thin builder over `onnx.helper`, so that a network reads like its forward pass.

    writer = GraphWriter("tiny")
    x = writer.input("input", [1, 3, 8, 8])
    w = writer.weight("features.0.weight", kernel)
    y = writer.node("Relu", writer.node("Conv", x, w, scope="/features/0", kernel_shape=[3, 3]), scope="/features/1")
    writer.output("output", y, [1, 4, 6, 6])
    model = writer.model()

Names follow PyTorch's exporter: node `/features/0/Conv`, its value `/features/0/Conv_output_0`; a second operator of
one type in one scope is `Conv_1`. Attributes and helper constants are static, so no shape is computed at run time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18  # PyTorch's exporter writes 18 by default; LayerNormalization exists since 17
IR_VERSION = 8  # the IR of opset 18's release, accepted by every ONNX Runtime since 1.14


class GraphWriter:
    """Collects inputs, weights and nodes in execution order, and closes them into a ModelProto."""

    def __init__(self, name: str) -> None:
        opset = helper.make_opsetid("", OPSET)
        self._model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="rlflow-zoo", opset_import=[opset])
        self._graph = self._model.graph
        self._graph.name = name
        self._names_taken: Counter[str] = Counter()

    def input(self, name: str, dims: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        """Declares a graph input of static shape `dims`; `dtype` is a TensorProto enum."""
        self._graph.input.append(helper.make_tensor_value_info(name, dtype, list(dims)))
        return name

    def output(self, name: str, value: str, dims: Sequence[int], dtype: int = TensorProto.FLOAT) -> None:
        """Declares `value` as a graph output called `name`: its producer is renamed, as exporters do.

        Raises:
          ValueError: if `value` is not the output of a node.
        """
        found = False
        for node in self._graph.node:
            for port, produced in enumerate(node.output):
                if produced == value:
                    node.output[port] = name
                    found = True
            for port, consumed in enumerate(node.input):
                if consumed == value:
                    node.input[port] = name
        if not found:
            raise ValueError(f"output {name!r} needs the output of a node, got {value!r}, which no node produces")
        self._graph.output.append(helper.make_tensor_value_info(name, dtype, list(dims)))

    def weight(self, name: str, tensor: npt.NDArray[Any]) -> str:
        """Adds `tensor` as an initializer."""
        # Filled in place: numpy_helper.from_array and append would copy BERT's 438 MB twice more.
        proto = self._graph.initializer.add(name=name, dims=tensor.shape)
        proto.data_type = helper.np_dtype_to_tensor_dtype(tensor.dtype)
        proto.raw_data = tensor.tobytes()
        return name

    def constant(self, value: npt.ArrayLike, dtype: type[np.generic], scope: str = "") -> str:
        """Adds a small literal (a shape, an index, √2) as a `Constant` node, apart from the learned parameters."""
        tensor = numpy_helper.from_array(np.asarray(value, dtype))
        return self.node("Constant", scope=scope, value=tensor)

    def node(self, op_type: str, *inputs: str, scope: str = "", **attributes: Any) -> str:
        """Adds a single-output node named after its module path `scope` and returns the name of its value."""
        stem = f"{scope}/{op_type}"
        count = self._names_taken[stem]
        self._names_taken[stem] += 1
        name = f"{stem}_{count}" if count else stem
        value = f"{name}_output_0"
        self._graph.node.append(helper.make_node(op_type, list(inputs), [value], name=name, **attributes))
        return value

    def model(self) -> onnx.ModelProto:
        """The finished model; the writer must not be used afterwards, since they share the graph."""
        return self._model
