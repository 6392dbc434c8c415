"""Onnxscript's passes are made for opset 18 and later: preparing older models, and taking back what is newer."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from taso_ext.onnx_io.cleanup.ir_form import nodes


def replace_old_dropouts(model: ir.Model) -> None:
    """Before opset 12 Dropout does nothing at inference; onnxscript only knows the newer one."""
    if model.opset_imports.get("", 0) >= 12:
        return
    for node in list(nodes(model, "Dropout")):
        if len(node.outputs) == 1 or (not node.outputs[1].uses() and not node.outputs[1].is_graph_output()):
            identity = ir.node("Identity", inputs=[node.inputs[0]], name=node.name)
            assert node.graph is not None, "nodes found in a graph belong to it"
            ir.convenience.replace_nodes_and_values(
                node.graph, node, [node], [identity], node.outputs[:1], identity.outputs
            )


def fit_to_opset(model: ir.Model) -> None:
    """Takes back what the passes write in the form of a newer opset."""
    opset = model.opset_imports.get("", 0)
    for node in nodes(model, "Reshape") if opset < 14 else ():
        node.attributes.pop("allowzero", None)  # it is only set where the shape holds no zero
    for node in nodes(model, "Split") if opset < 18 else ():
        node.attributes.pop("num_outputs", None)  # equal parts are what older opsets assume
    for node in list(nodes(model, "Gemm")) if opset < 11 else ():
        weight = node.inputs[1]
        if len(node.inputs) == 2 and weight is not None and weight.dtype is not None:
            node.resize_inputs(3)
            node.replace_input_with(2, _zero(model.graph, f"{node.outputs[0].name}_zero", weight.dtype))


def _zero(graph: ir.Graph, name: str, dtype: ir.DataType) -> ir.Value:
    tensor = ir.tensor(np.zeros(1, dtype=dtype.numpy()), name=name)
    value = ir.Value(name=name, const_value=tensor, shape=ir.Shape((1,)), type=ir.TensorType(dtype))
    graph.register_initializer(value)
    return value
