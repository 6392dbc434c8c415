"""In the analytic cost model, moving data costs the bytes that are read and written."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import pytest
from onnx import TensorProto

from taso_ext import CostModel, GraphBuilder

Dims = tuple[int, ...]
WHOLE, PARTS = (1, 8, 4, 4), [(1, 3, 4, 4), (1, 5, 4, 4)]


@pytest.mark.parametrize(
    ("op_type", "attributes", "inputs", "outputs"),
    [
        ("Split", {"axis": 1, "split": [3, 5]}, [WHOLE], PARTS),  # the parts are contiguous in memory
        ("Split", {"axis": 1, "split": [3, 5]}, [(2, 8)], [(2, 3), (2, 5)]),
        ("Concat", {"axis": 1}, PARTS, [WHOLE]),
        ("Transpose", {"perm": [0, 2, 3, 1]}, [WHOLE], [(1, 4, 4, 8)]),
    ],
    ids=["contiguous split", "split", "concat", "transpose"],
)
def test_moving_activations_costs_their_bytes_and_a_launch(
    op_type: str, attributes: dict[str, Any], inputs: Sequence[Dims], outputs: Sequence[Dims]
) -> None:
    builder = GraphBuilder()
    operands = [builder.input(f"x{i}", TensorProto.FLOAT, list(dims)) for i, dims in enumerate(inputs)]
    results = [(f"y{i}", TensorProto.FLOAT, list(dims)) for i, dims in enumerate(outputs)]
    for value in builder.node("", op_type, attributes, operands, results):
        builder.output(value)
    graph = builder.build()
    for device in CostModel.devices():
        cost = graph.cost(CostModel.roofline(device))
        assert cost.memory_bytes == 4 * sum(map(prod, [*inputs, *outputs]))
        assert cost.kernel_launches == 1 and cost.flops == 0 and cost.ms > 0
