"""Inlining a model's local functions."""

from __future__ import annotations

from dataclasses import replace

import onnx
import onnx.inliner

from taso_ext.detached import DetachedModel, for_inference
from taso_ext.shapes import infer_shapes


def inline_functions(detached: DetachedModel) -> DetachedModel:
    """The model with its local functions inlined; the model itself if it has none."""
    if not detached.skeleton.functions:
        return detached
    # onnxscript's own inliner refuses functions of another opset than the model's; converting those needs types.
    typed = infer_shapes(for_inference(detached))
    inlined = onnx.inliner.inline_local_functions(typed, convert_version=True)
    graph, before = inlined.graph, detached.skeleton.graph
    del graph.initializer[:]
    del graph.input[len(before.input) :]  # large tensors, for shape inference
    del graph.value_info[:]
    graph.value_info.extend(before.value_info)
    return replace(detached, skeleton=inlined)
