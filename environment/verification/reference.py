"""Models run by onnx.reference: where ONNX Runtime cannot run them, and in double precision, to judge rounding.

onnx.reference is written in NumPy and shares no code with ONNX Runtime. It is slow, and lacks some operators.
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from environment.inputs import Feeds, is_floating
from environment.verification.differences import Outputs
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.widening import widen

MOST_BYTES = 1 << 30
"""The largest size of all weights of a model that is evaluated here, because each of its copies holds them."""


class GlobalMaxPool(OpRun):
    """The operator that onnx.reference lacks."""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Reference:
    """A model that onnx.reference runs."""

    def __init__(self, model: CheckedModel, *, double: bool = False) -> None:
        """Prepares a model.

        Args:
          double: whether all floating numbers are double, instead of the types that the model gives them. Quantised
            models have no such form, because rounding is a part of what they compute.
        Raises:
          ModelError: the model is too large, or onnx.reference lacks an operator.
        """
        if model.nbytes > MOST_BYTES:
            raise ModelError(f"onnx.reference is not tried on weights of more than {MOST_BYTES >> 30} GiB")
        self._double = double
        try:
            proto = model.to_proto()
            self._evaluator = ReferenceEvaluator(
                widen(proto, onnx.TensorProto.DOUBLE) if double else proto, new_ops=[GlobalMaxPool]
            )
        except Exception as error:  # onnx.reference raises what NumPy and Python raise
            raise ModelError(f"onnx.reference cannot load the model: {one_paragraph(error)}") from error

    def run(self, names: list[str], feeds: Feeds) -> Outputs:
        """Returns the named outputs.

        Raises:
          ModelError: onnx.reference cannot run the model on these inputs.
        """
        given = {name: _widened(array) for name, array in feeds.items()} if self._double else dict(feeds)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return list(self._evaluator.run(names, given))
        except Exception as error:  # as above
            raise ModelError(f"onnx.reference cannot run the model: {one_paragraph(error)}") from error


def is_quantised(model: CheckedModel) -> bool:
    """Returns whether any operator of a model rounds to a few bits on purpose."""
    return any("Quantize" in node.op_type or "QLinear" in node.op_type for node in model.skeleton.graph.node)


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if is_floating(array.dtype) else array
