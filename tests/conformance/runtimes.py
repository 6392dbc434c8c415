"""Functions that run a test case's model, in ONNX Runtime or in the standard's reference implementation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from taso_ext.onnx_io.session import is_plain, newest_runnable_ir, newest_runnable_opset

NEWEST_RUNNABLE_OPSET = newest_runnable_opset()
"""The newest opset of ONNX Runtime. A newer model is run as one of this opset if that is valid, so that the operators
that did not change are compared all the same."""

_STAND_INS = {
    **dict.fromkeys((TensorProto.UINT4, TensorProto.UINT2), TensorProto.UINT8),
    **dict.fromkeys((TensorProto.INT4, TensorProto.INT2), TensorProto.INT8),
}
"""The types that replace integers which arrays cannot hold; unusual floats become float32."""


def run_in_onnx_runtime(model: onnx.ModelProto, feeds: Mapping[str, object]) -> list[object]:
    """Returns the outputs of ONNX Runtime without any optimisation."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    adapted, arrays = _with_plain_interface(_as_older_opset(model), feeds)
    session = ort.InferenceSession(adapted.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, arrays))


def run_in_reference(model: onnx.ModelProto, feeds: Mapping[str, object]) -> list[object]:
    """Returns the outputs of `onnx.reference`."""
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def _as_older_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    opset = max((entry.version for entry in model.opset_import if entry.domain == ""), default=0)
    older = onnx.ModelProto()
    older.CopyFrom(model)
    older.ir_version = min(older.ir_version, newest_runnable_ir())
    for entry in older.opset_import:
        entry.version = min(entry.version, NEWEST_RUNNABLE_OPSET) if entry.domain == "" else entry.version
    try:
        onnx.checker.check_model(older, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        if opset > NEWEST_RUNNABLE_OPSET:
            raise RuntimeError(f"needs an operator of opset {opset}") from None
    return older


def _with_plain_interface(
    model: onnx.ModelProto, feeds: Mapping[str, object]
) -> tuple[onnx.ModelProto, dict[str, object]]:
    """Returns the model with casts at inputs and outputs of types that NumPy lacks, and what to feed it."""
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    arrays, before, after = dict(feeds), [], []
    for value in plain.graph.input:
        dtype = value.type.tensor_type.elem_type
        if value.name in feeds and _is_unusual(dtype):
            before.append(helper.make_node("Cast", [f"{value.name}__plain"], [value.name], to=dtype))
            stand_in = _STAND_INS.get(dtype, TensorProto.FLOAT)
            arrays[f"{value.name}__plain"] = np.asarray(arrays.pop(value.name)).astype(
                helper.tensor_dtype_to_np_dtype(stand_in)
            )
            value.name, value.type.tensor_type.elem_type = f"{value.name}__plain", stand_in
    for value in plain.graph.output:
        dtype = value.type.tensor_type.elem_type
        if _is_unusual(dtype):
            stand_in = _STAND_INS.get(dtype, TensorProto.FLOAT)
            after.append(helper.make_node("Cast", [value.name], [f"{value.name}__plain"], to=stand_in))
            value.name, value.type.tensor_type.elem_type = f"{value.name}__plain", stand_in
    nodes = [*before, *plain.graph.node, *after]
    del plain.graph.node[:]
    plain.graph.node.extend(nodes)
    return plain, arrays


def _is_unusual(dtype: int) -> bool:
    """Returns whether a tensor type is one that ONNX has and NumPy has not."""
    return dtype not in (TensorProto.UNDEFINED, TensorProto.STRING) and not is_plain(dtype)
