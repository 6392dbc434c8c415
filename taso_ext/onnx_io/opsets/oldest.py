"""Models older than what the normal forms cover, raised to the oldest opset that they do."""

from __future__ import annotations

from dataclasses import replace

import onnx
import onnx.version_converter

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.detached import DetachedModel, for_inference
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS
from taso_ext.onnx_io.weights.handles import lazy_tensor

OLDEST_OPSET = 7
"""Opset 7 brought NumPy broadcasting; before it, elementwise operators mean something else."""


def raise_to_oldest(model: DetachedModel, name: str) -> DetachedModel:
    """A model of at least `OLDEST_OPSET`: the model itself, or one that onnx's version converter has raised.

    Raises:
      ModelError: the converter does not know an operator of the model.
    """
    old = [entry.version for entry in model.skeleton.opset_import if entry.domain in DEFAULT_DOMAINS]
    if not old or old[0] >= OLDEST_OPSET:
        return model
    try:
        converted = onnx.version_converter.convert_version(for_inference(model), OLDEST_OPSET)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"{name} uses opset {old[0]}; at least opset {OLDEST_OPSET} is needed, because older elementwise operators "
            f"broadcast differently, and onnx.version_converter cannot raise it: {one_paragraph(error)} "
            f"Export the network again with a newer opset."
        ) from error
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model.skeleton)
    for field in ("node", "value_info"):
        skeleton.graph.ClearField(field)
    skeleton.graph.node.extend(converted.graph.node)
    del skeleton.opset_import[:]
    skeleton.opset_import.extend(converted.opset_import)
    added = {tensor.name: lazy_tensor(tensor) for tensor in converted.graph.initializer}
    return replace(model, skeleton=skeleton, tensors=added | model.tensors)
