"""ONNX operators over exact numbers, read in the engine's normal form: attributes complete, axes not negative.

Operators without a kernel are opaque: every element of a result is a random function of all operands together.
"""

from __future__ import annotations

from taso_ext.onnx_io.operators import RANDOM_OPERATORS
from taso_ext.verify.exact.functions import FUNCTION_KERNELS
from taso_ext.verify.exact.layout import LAYOUT_KERNELS
from taso_ext.verify.exact.linear import LINEAR_KERNELS
from taso_ext.verify.exact.norms import NORM_KERNELS
from taso_ext.verify.exact.operator_call import Call, Kernel, UnsupportedOperatorError
from taso_ext.verify.exact.tensor import FieldTensor

KERNELS: dict[str, Kernel] = {**LINEAR_KERNELS, **LAYOUT_KERNELS, **FUNCTION_KERNELS, **NORM_KERNELS}


def evaluate_call(call: Call) -> list[FieldTensor]:
    """Outputs of one operator.

    Raises:
      UnsupportedOperatorError: for random operators and unusual forms.
      NotInvertibleError: if a divisor is zero in this field.
    """
    if call.op_type in RANDOM_OPERATORS:
        raise UnsupportedOperatorError(f"{call.op_type} is random: equality of graphs that contain it is not defined")
    try:
        results = KERNELS.get(call.op_type, _opaque)(call)
    except (KeyError, IndexError, TypeError, ValueError) as error:  # attributes or shapes that no valid operator has
        if isinstance(error, UnsupportedOperatorError):
            raise
        raise UnsupportedOperatorError(f"{call.op_type} has a form that is not evaluated: {error!r}") from error
    return results


def _opaque(call: Call) -> list[FieldTensor]:
    operands = [None if value is None else value.parts[0] for value in call.inputs]
    results = []
    for port, dims in enumerate(call.output_dims):
        images = [f.opaque(f"{call.key()}/{port}", operands, dims) for f in call.arithmetic.functions]
        results.append(call.arithmetic.hashed(images))
    return results


__all__ = ["KERNELS", "Call", "UnsupportedOperatorError", "evaluate_call"]
