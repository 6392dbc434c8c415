"""Element types that do not go together, which `onnx.checker` does not look at."""

from __future__ import annotations

import onnx

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.detached import DetachedModel, for_inference
from taso_ext.onnx_io.shapes import forget_inferable_shapes


def require_consistent_types(detached: DetachedModel, name: str) -> None:
    """Checks the operands of standard operators against each other, and outputs against their declared types.

    Raises:
      ModelError: names the operator, or the output and both types.
    """
    declared = {value.name: value.type.tensor_type.elem_type for value in detached.skeleton.graph.output}
    model = for_inference(forget_inferable_shapes(detached))
    for value in model.graph.output:
        value.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"{name} is not a valid ONNX model: its types contradict each other, {one_paragraph(error)} "
            f"Correct the exporter, or export the model again."
        ) from error
    for value in inferred.graph.output:
        found, stated = value.type.tensor_type.elem_type, declared[value.name]
        if found and stated and found != stated:
            raise ModelError(
                f"{name} is not a valid ONNX model: it declares the output '{value.name}' as {_text(stated)}, but "
                f"computes {_text(found)}. Correct the exporter, or export the model again."
            )


def _text(dtype: int) -> str:
    names = onnx.TensorProto.DataType
    return names.Name(dtype) if dtype in names.values() else str(dtype)
