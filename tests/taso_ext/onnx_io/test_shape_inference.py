"""Types of values are those that runtimes compute, also where onnx's inference is silent or differs."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.parser
import pytest

from taso_ext import OnnxModel
from taso_ext.onnx_io.checked_model import CheckedModel
from tests.conformance.runtimes import run_in_onnx_runtime


def dims(text: str) -> dict[str, tuple[int, ...] | None]:
    """Returns the shapes of a model's values by name, with and without what it declares."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    loaded = OnnxModel.load(model, clean="none")
    return {value.name: None if value.dims is None else tuple(value.dims) for value in loaded.graph.values().values()}


@pytest.mark.parametrize("declared", ["", "float[2,6,4] t, float[1] u, "])
def test_group_normalization_keeps_the_shape_of_its_operand(declared: str) -> None:
    """onnx infers nothing about it. A declared shape may be stale."""
    found = dims(
        f"g (float[2,6,4] x) => (float[2,6,4] y) <{declared}float[6] s = {{1,1,1,1,1,1}}> "
        "{ t = GroupNormalization<num_groups = 3>(x, s, s) u = Relu(t) y = Neg(u) }"
    )
    assert found["t"] == found["u"] == found["y"] == (2, 6, 4)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_windows_that_begin_in_the_right_padding_do_not_count(op: str) -> None:
    tried = 0
    for length, kernel, stride, before, after in itertools.product(
        (1, 2, 3, 4, 7), (1, 2, 3), (1, 2, 3), (0, 1), (0, 1)
    ):
        if before >= kernel or after >= kernel or length + before + after < kernel:
            continue
        tried += 1
        pool = f"{op}<ceil_mode = 1, kernel_shape = [{kernel}], strides = [{stride}], pads = [{before}, {after}]>"
        text = (
            f'<ir_version: 10, opset_import: ["" : 19]> g (float[1,1,{length}] x) => (float[1,1,n] y) '
            f"{{ t = {pool}(x) y = Relu(t) }}"
        )
        model = onnx.parser.parse_model(text)
        (real,) = run_in_onnx_runtime(model, {"x": np.ones((1, 1, length), np.float32)})
        types = CheckedModel.from_proto(model).types
        assert types["t"].dims == types["y"].dims == np.shape(real), (length, kernel, stride, before, after)
    assert tried > 80
