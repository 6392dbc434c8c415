"""A rule that does not apply is explained by its nearest match and by what does not hold there."""

from __future__ import annotations

import onnx.parser
import pytest

from environment.substitution.nearest_match import Explanation, explain
from taso_ext import OnnxModel, RuleSet

RULE = """rule scale-into-matmul
  var    x: float[..., m, k]; w: weight float[k, n]; c: weight float[]
  source t = MatMul(x, w); y = Mul(t, c)
  where  value(c) > 0 and n > 2
  target v = Mul(w, c); y = MatMul(x, v)
"""
POOL = """rule pool
  var    x: float[n, c, h, w]
  source p = AveragePool(x; ceil_mode=0, count_include_pad=1, dilations=[1, 1], kernel_shape=k, pads=q, strides=k)
         y = Relu(p)
  target r = Relu(x)
         y = AveragePool(r; ceil_mode=0, count_include_pad=1, dilations=[1, 1], kernel_shape=k, pads=q, strides=k)
"""


def explained(rule: str, body: str, node: str = "") -> Explanation:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {body}')
    for number, each in enumerate(model.graph.node):
        each.name = f"{each.op_type}{number}"
    return explain(OnnxModel.load(model, clean="none").graph, RuleSet.parse(rule), 0, node)


def product(factor: str = "2.0", columns: int = 3, more: str = "", outputs: str = "") -> str:
    values = ", ".join(["1"] * 4 * columns)
    weights = f"float[4, {columns}] w = {{{values}}}, float c = {{{factor}}}"
    return (
        f"(float[5, 4] x) => (float[5, {columns}] y{outputs}) <{weights}> {{ t = MatMul(x, w) y = Mul(t, c) {more} }}"
    )


def test_a_rule_that_applies_names_its_operators() -> None:
    found = explained(RULE, product())
    assert found.applies_to == (("MatMul0", "Mul1"),)
    assert found.lines() == ["scale-into-matmul applies at 1 place:", "  MatMul0, Mul1"]


@pytest.mark.parametrize(
    ("body", "failed"),
    [
        (product(factor="-2.0"), ("the condition value(c) > 0 and n > 2",)),
        ("(float[5, 4] x, float[4, 3] w) => (float[5, 3] y) <float c = {2.0}> { t = MatMul(x, w) y = Mul(t, c) }",
         ("the declaration w: weight float[k, n]",)),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_named(body: str, failed: tuple[str, ...]) -> None:
    found = explained(RULE, body)
    assert found.failed == failed and not found.missing and not found.refusal
    assert found.matched == {"t = MatMul(x, w)": "MatMul0 (MatMul)", "y = Mul(t, c)": "Mul1 (Mul)"}


def test_attributes_are_told_from_declarations() -> None:
    body = (
        "(float[1, 2, 4, 4] x) => (float[1, 2, 2, 2] y) {"
        " p = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x) y = Relu(p) }"
    )
    found = explained(POOL, body)
    assert [each.partition("(")[0] for each in found.failed] == ["the attributes of p = AveragePool"]


def test_a_result_that_is_read_elsewhere_refuses_the_match() -> None:
    found = explained(RULE, product(more="z = Relu(t)", outputs=", float[5, 3] z"))
    assert not found.failed and not found.missing and "another operator reads a result" in found.lines()[-1]


def test_missing_statements_are_named() -> None:
    body = "(float[5, 4] x) => (float[5, 4] y) <float c = {2.0}> { t = Relu(x) y = Mul(t, c) }"
    found = explained(RULE, body)
    assert found.missing == ("t = MatMul(x, w)",) and found.matched == {"y = Mul(t, c)": "Mul1 (Mul)"}
    assert "The nearest match has 1 of 2 statements:" in found.lines()[0]
    assert "no operator there fits" in explained(RULE, "(float[2] x) => (float[2] y) { y = Relu(x) }").lines()[0]


def test_an_operator_can_be_asked_about() -> None:
    body = product(more="z = Mul(x, c)", outputs=", float[5, 4] z")
    assert explained(RULE, body).applies_to
    found = explained(RULE, body, "Mul2")
    assert found.matched == {"y = Mul(t, c)": "Mul2 (Mul)"} and found.missing == ("t = MatMul(x, w)",)
    with pytest.raises(ValueError, match=r"there is no operator 'Mul3'.*did you mean 'Mul"):
        explained(RULE, body, "Mul3")
