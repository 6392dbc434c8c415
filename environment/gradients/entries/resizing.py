"""The gradient of Resize, which is linear in each axis by itself.

What Resize does to one axis is a matrix [size before, size behind], whatever its mode. The matrix is what onnx's
reference implementation makes of unit vectors, so that the modes need no formulas here. The gradient is the product of
the cotangent and the transposed matrix, axis by axis.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from environment.gradients.operation import Operation
from environment.gradients.rule import Gradients, Rule

_ATTRIBUTES = (
    "antialias",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "mode",
    "nearest_mode",
)
"""The attributes that decide what is done to one axis."""


def resize(op: Operation) -> Gradients:
    """Resize in all modes.

    Raises:
      ModelError: it crops, or keeps the aspect ratio, or its scales or sizes are computed at run time.
    """
    if op.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise op.refusal("it crops a region of interest")
    if op.attribute("keep_aspect_ratio_policy") != "stretch":
        raise op.refusal("it keeps the aspect ratio")
    dims, value = list(op.dims(op.y)), op.cotangent
    for axis, scale in _scales(op).items():
        before, behind = op.dims(op.x)[axis], dims[axis]
        matrix = _matrix(op, before, behind, scale)
        if before == behind and np.array_equal(matrix, np.eye(before)):
            continue
        order = [*(each for each in range(len(dims)) if each != axis), axis]
        turned = op.write("MatMul", op.transposed(value, order), op.writer.constant(matrix.T, op.dtype))
        value = op.transposed(turned, [order.index(each) for each in range(len(dims))])
        dims[axis] = before
    return [value]


def _scales(op: Operation) -> dict[int, float | None]:
    """Returns the scale of each axis that is resized; None where the sizes say it."""
    rank = len(op.dims(op.x))
    axes = [axis % rank for axis in op.attribute("axes") or range(rank)]
    given = op.constant_input(2)
    if given is None or not given.size:
        return dict.fromkeys(axes)
    return dict(zip(axes, given.reshape(-1).tolist(), strict=True))


def _matrix(op: Operation, before: int, behind: int, scale: float | None) -> np.ndarray:
    """Returns what Resize makes of the unit vectors of one axis: [before, behind]."""
    attributes = {name: value for name in _ATTRIBUTES if (value := op.attribute(name)) is not None}
    names = ["x", "", "scales"] if scale is not None else ["x", "", "", "sizes"]
    node = helper.make_node("Resize", names, ["y"], axes=[1], **attributes)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [before, before]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [1]),
        helper.make_tensor_value_info("sizes", TensorProto.INT64, [1]),
    ]
    graph = helper.make_graph([node], "axis", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", op.writer.opset)])
    feeds = {"x": np.eye(before, dtype=np.float32), "scales": np.array([scale or 1], np.float32)}
    (found,) = ReferenceEvaluator(model).run(None, {**feeds, "sizes": np.array([behind], np.int64)})
    return np.asarray(found)


RULES = {"Resize": Rule(resize)}
