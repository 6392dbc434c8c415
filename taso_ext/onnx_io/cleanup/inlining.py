"""Inlining a model's local functions."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import onnx
import onnx.inliner

from taso_ext.onnx_io.detached import DetachedModel, for_inference
from taso_ext.onnx_io.shapes import infer_shapes
from taso_ext.onnx_io.subgraphs import all_nodes, inner_nodes


def inline_functions(detached: DetachedModel) -> DetachedModel:
    """The model with its local functions inlined; the model itself if it has none."""
    if not detached.skeleton.functions:
        return detached
    # onnxscript's own inliner refuses functions of another opset than the model's; converting those needs types.
    typed = infer_shapes(_with_defaults(for_inference(detached)))
    inlined = onnx.inliner.inline_local_functions(typed, convert_version=True)
    graph, before = inlined.graph, detached.skeleton.graph
    del graph.initializer[:]
    del graph.input[len(before.input) :]  # large tensors, for shape inference
    del graph.value_info[:]
    graph.value_info.extend(before.value_info)
    return replace(detached, skeleton=inlined)


def _with_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, changed: every call gives all attributes, since the inliner forgets the functions' defaults."""
    defaults = {
        (function.domain, function.name, function.overload): function.attribute_proto for function in model.functions
    }
    nodes = chain(all_nodes(model.graph), *(inner_nodes(function.node) for function in model.functions))
    for node in nodes:
        given = {attribute.name for attribute in node.attribute}
        called = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(attribute for attribute in called if attribute.name not in given)
    return model
