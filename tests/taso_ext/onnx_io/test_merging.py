"""One model for all sizes: what follows the operand is written so, and what depends on the size is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from taso_ext import OnnxModel
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.merging import DependsOnSizeError, merged

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
SIZES = (4, 3, 7)


def at_sizes(text: Callable[[int], str]) -> list[CheckedModel]:
    """Returns exports of a model whose text depends on the size n of a dimension."""
    models = [OnnxModel.load(onnx.parser.parse_model(HEAD + text(size)), clean="none") for size in SIZES]
    return [model.export_checked(model.graph) for model in models]


def constants(model: CheckedModel) -> list[list[int]]:
    return [tensor.numpy().tolist() for tensor in model.tensors.values()]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (lambda n: f"(float[{n}, 6] x) => (float[{n}, 2, 3] y) <int64[3] s = {{{n}, 2, 3}}> {{ y = Reshape(x, s) }}",
         [0, 2, 3]),
        (lambda n: f"(float[{n}, 6] x) => (float[{2 * n}, 3] y) <int64[2] s = {{{2 * n}, 3}}> {{ y = Reshape(x, s) }}",
         [-1, 3]),
        (lambda n: f"(float[6, {n}] x) => (float[2, {3 * n}] y) <int64[2] s = {{2, {3 * n}}}> {{ y = Reshape(x, s) }}",
         [2, -1]),
        (lambda n: f"(float[{n}, 1] x) => (float[{n}, 5] y) <int64[2] s = {{{n}, 5}}> {{ y = Expand(x, s) }}", [1, 5]),
    ],
    ids=["copied", "what remains", "behind", "expand"],
)  # fmt: skip
def test_sizes_that_follow_the_operand_are_written_so(text: Callable[[int], str], written: list[int]) -> None:
    assert constants(merged(at_sizes(text))) == [written]


def test_a_merged_model_runs_at_every_size() -> None:
    def text(n: int) -> str:
        return (
            f"(float[{n}, 6] x) => (float[{3 * n}, 1] y) <int64[3] s = {{{n}, 2, 3}}, int64[1] a = {{1}}, "
            f"int64[1] b = {{100}}, int64[1] c = {{0}}, int64[2] r = {{{3 * n}, 1}}> "
            "{ t = Reshape(x, s) u = Slice(t, a, b, a) v = Slice(u, c, b, c) y = Reshape(v, r) }"
        )

    with pytest.raises(DependsOnSizeError, match="Slice"):  # an end of 100 is not the end of the largest ones
        merged(at_sizes(lambda n: text(n if n < 7 else 700)))
    general = merged(at_sizes(text)).to_proto()
    for value in (*general.graph.input, *general.graph.output):
        value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=[onnx.TensorShapeProto.Dimension()] * 2))
    x = np.arange(66, dtype=np.float32).reshape(11, 6)
    found = ReferenceEvaluator(general).run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, x.reshape(11, 2, 3)[:, 1:].reshape(33, 1))


def _two_unknown(n: int) -> str:
    sizes = f"<int64[1] s = {{{n * n}}}, int64[2] r = {{{n}, {n}}}>"
    return f"(float[{n}, {n}] x) => (float[{n}, {n}] y) {sizes} {{ t = Reshape(x, s) y = Reshape(t, r) }}"


def _number(n: int) -> str:
    return f"(float[{n}, 6] x) => (float[{n}, 6] y) <float f = {{{n}.5}}> {{ y = Mul(x, f) }}"


def _attribute(n: int) -> str:
    return f"(float[{n}, 6] x) => (float[{n}, 6] y) {{ y = Softmax <axis = {n % 2}> (x) }}"


def _operators(n: int) -> str:
    rest = "u = Neg(t) y = Neg(u)" if n > 4 else "y = Abs(t)"
    return f"(float[{n}, 6] x) => (float[{n}, 6] y) {{ t = Neg(x) {rest} }}"


@pytest.mark.parametrize(
    ("text", "named"),
    [(_two_unknown, "Reshape 'y'"), (_number, "Mul 'y'"), (_attribute, "Softmax 'y'"), (_operators, "Abs 'y'")],
)
def test_what_depends_on_the_size_is_named(text: Callable[[int], str], named: str) -> None:
    with pytest.raises(DependsOnSizeError, match=f"{named} depends on it"):
        merged(at_sizes(text))


def test_graphs_inside_operators_are_merged_too() -> None:
    def text(n: int, factor: int = 2) -> str:
        return (
            f"(float[{n}, 6] x, bool c) => (float[{n}, 6] y) <float f = {{{factor}}}> {{ y = If (c) < "
            f"then_branch = t () => (float[{n}, 6] o) {{ o = Mul(x, f) }}, "
            f"else_branch = e () => (float[{n}, 6] p) {{ p = Neg(x) }} > }}"
        )

    model = merged(at_sizes(text))
    branches = [attribute.g for attribute in model.skeleton.graph.node[0].attribute]
    assert not any(branch.output[0].type.tensor_type.HasField("shape") for branch in branches)
    with pytest.raises(DependsOnSizeError, match="Mul 'o'"):
        merged(at_sizes(lambda n: text(n, factor=n)))
