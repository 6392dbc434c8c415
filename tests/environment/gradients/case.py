"""One operator, or a few, with random operands: its gradients by a training graph, and the loss as a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from environment.gradients import training_graph

OPSET = 18
Arrays = dict[str, np.ndarray]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Returns a session that runs the model as it is, on one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # initializers that are inputs, which is the point
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Returns the outputs by name."""
    opened = session(model)
    names = [output.name for output in opened.get_outputs()]
    return dict(zip(names, opened.run(names, dict(feeds)), strict=True))


@dataclass(frozen=True)
class Case:
    """A function of operands `x0`, `x1`, …, as an ONNX operator and as TensorFlow has it.

    Attributes:
      name: the name of the test.
      op_type: the operator.
      operands: their values; floats are differentiated, others are constants, and None is an input that is not given.
      function: the same function in TensorFlow, of all operands that are given.
      attributes: those of the operator.
      fixed: positions of operands of floats that are constants.
      outputs: the number of outputs; the loss reads all of floats that the function returns.
      opset: the version of the operator.
    """

    name: str
    op_type: str
    operands: Sequence[np.ndarray | None]
    function: Callable[..., Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fixed: Sequence[int] = ()
    outputs: int = 1
    opset: int = OPSET

    @property
    def trained(self) -> list[int]:
        return [
            position
            for position, operand in enumerate(self.operands)
            if operand is not None and operand.dtype.kind == "f" and position not in self.fixed
        ]

    def model(self) -> onnx.ModelProto:
        """Returns the model: the operator alone, its trained operands as initializers, the others as constants."""
        graph = onnx.GraphProto(name=self.name)
        names = []
        for position, operand in enumerate(self.operands):
            names.append("" if operand is None else f"x{position}")
            if position in self.trained:
                graph.initializer.append(numpy_helper.from_array(operand, f"x{position}"))
            elif operand is not None:
                tensor = numpy_helper.from_array(operand)
                graph.node.append(helper.make_node("Constant", [], [f"x{position}"], value=tensor))
        results = [f"y{port}" for port in range(self.outputs)]
        graph.node.append(helper.make_node(self.op_type, names, results, name="operator", **self.attributes))
        graph.output.extend(onnx.ValueInfoProto(name=result) for result in results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)

    def training(self) -> onnx.ModelProto:
        """Returns the training graph of the mean square of all outputs, which weights their elements differently."""
        return training_graph(self.model(), loss="mean-square")

    def targets(self, seed: int = 0) -> Arrays:
        """Returns random targets for the outputs."""
        generator = np.random.default_rng(seed)
        graph = self.training().graph
        return {
            value.name: generator.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(
                helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            )
            for value in graph.input
            if value.name.endswith(".target")
        }
