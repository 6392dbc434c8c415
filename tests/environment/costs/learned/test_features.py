"""Operations, bytes and features of kernels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto

from environment.costs.learned.features import NAMES, estimate, family_of, features
from environment.costs.learned.prior import shipped_prior
from environment.costs.learned.work import FAMILIES, work
from environment.costs.measured.benchmark import REFERENCE_KERNEL
from environment.costs.measured.kernel import Kernel, Operand
from environment.costs.measured.kernel_prices import price_key


def kernel(op_type: str, *operands: Operand, domain: str = "", **attributes: object) -> Kernel:
    return Kernel(domain, op_type, 13, json.dumps(attributes), operands, (True,))


def floats(*dims: int, weight: bool = False) -> Operand:
    return Operand(TensorProto.FLOAT, dims, weight)


def ints(*values: int) -> Operand:
    return Operand(TensorProto.INT64, (len(values),), True, values)


X = floats(1, 32, 8, 6)


@pytest.mark.parametrize(
    ("made", "flops", "written"),
    [
        (kernel("MatMul", floats(4, 8, 16), floats(16, 3, weight=True)), 2 * 4 * 8 * 16 * 3, 4 * 8 * 3),
        (kernel("Gemm", floats(16, 8), floats(3, 16), transA=1, transB=1), 2 * 8 * 16 * 3, 8 * 3),
        (kernel("FusedMatMul", floats(2, 4, 8, 16), floats(2, 4, 16, 5)), 2 * 8 * 8 * 16 * 5, 8 * 8 * 5),
        (
            kernel("FusedMatMul", floats(1, 4, 12, 12), floats(12, 1, 4, 36), transBatchB=1),
            2 * 4 * 12 * 12 * 36,
            4 * 12 * 36,
        ),
        (
            kernel("FusedMatMul", floats(16, 2, 4, 8), floats(2, 4, 16, 5), transBatchA=1, transA=1),
            2 * 8 * 8 * 16 * 5,
            8 * 8 * 5,
        ),
        (
            kernel("Conv", X, floats(64, 16, 3, 3, weight=True), group=2, pads=[1, 1, 1, 1], strides=[2, 2]),
            2 * 64 * 4 * 3 * 16 * 9,
            64 * 4 * 3,
        ),
        (kernel("MaxPool", X, kernel_shape=[2, 2], strides=[2, 2]), 32 * 4 * 3 * 4, 32 * 4 * 3),
        (kernel("GlobalAveragePool", X), 32 * 8 * 6, 32),
        (kernel("Add", floats(4, 1, 8), floats(5, 1)), 4 * 5 * 8, 4 * 5 * 8),
        (kernel("Transpose", X, perm=[0, 2, 3, 1]), 0, 32 * 8 * 6),
        (kernel("Concat", X, X, X, axis=1), 0, 3 * 32 * 8 * 6),
        (kernel("Slice", X, ints(0), ints(4), ints(2), ints(2)), 0, 32 * 2 * 6),
        (kernel("Gather", floats(100, 16, weight=True), Operand(TensorProto.INT64, (1, 7)), axis=0), 0, 7 * 16),
        (kernel("Pad", X, ints(0, 0, 1, 1, 0, 0, 1, 1)), 0, 32 * 10 * 8),
        (kernel("ReduceMean", X, ints(2, 3)), 32 * 8 * 6, 32),
        (kernel("Expand", floats(1, 5, 1), ints(3, 5, 4)), 0, 3 * 5 * 4),
        (kernel("Reshape", X, ints(32, 48)), 0, 0),
        (
            kernel("Attention", floats(1, 12, 128, 64), floats(1, 12, 128, 64), floats(1, 12, 128, 64)),
            None,
            12 * 128 * 64,
        ),
    ],
    ids=lambda value: value.op_type if isinstance(value, Kernel) else "",
)
def test_operations_and_results(made: Kernel, flops: float | None, written: float) -> None:
    found = work(made)
    assert found.written_bytes == 4 * written
    assert flops is None or found.flops == flops


def test_what_lies_side_by_side() -> None:
    assert work(kernel("Transpose", floats(2, 3, 4, 5), perm=[1, 0, 2, 3])).run == 20
    assert work(kernel("Transpose", floats(2, 3, 4, 5), perm=[0, 1, 3, 2])).run == 1
    assert work(kernel("Split", floats(2, 6, 5), axis=1)).run == 30
    assert work(kernel("Slice", floats(2, 6, 5), ints(1), ints(4), ints(1))).run == 15


def test_every_recorded_kernel_has_finite_features() -> None:
    rows = features([each.key for each in shipped_prior().kernels])
    assert rows.shape[1] == len(NAMES) and np.isfinite(rows).all()
    assert len(np.unique(family_of(rows))) == len(FAMILIES) - 1, "no recorded operator is of a family of its own"


def test_an_unknown_operator_counts_as_a_pass_over_its_operand() -> None:
    found = work(kernel("Sinusoid", X, domain="mine"))
    assert found.family == "other" and found.written_bytes == X.nbytes
    rows = features([price_key(kernel("Sinusoid", X, domain="mine"), 4), price_key(kernel("Sinusoid"), 4)])
    assert np.isfinite(rows).all()


def test_the_formula_is_near_1_for_the_reference_kernel() -> None:
    assert abs(estimate(features([price_key(REFERENCE_KERNEL, 1)]))[0]) < np.log(3)
