"""The engine refuses rewrites to operators of a wrong element type, and to constants that the element type lacks."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from taso_ext import CostModel, OnnxModel, RuleSet, State


def matches(rule: str, body: str, **weights: np.ndarray) -> int:
    """Returns at how many locations of a model a rule is legal."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {body}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    rules = RuleSet.parse(f"rule r\n{rule}\n")
    state = State(OnnxModel.load(model, clean="none").graph, rules, CostModel.roofline("xeon"))
    return int(state.location_mask().sum())


@pytest.mark.parametrize(
    ("dtype", "source", "target", "legal"),
    [
        ("uint8", "y = Sub(a, b)", "n = Neg(b); y = Add(a, n)", False),
        ("int8", "y = Sub(a, b)", "n = Neg(b); y = Add(a, n)", True),
        ("bool", "y = Or(a, b)", "y = Max(a, b)", False),
        ("int32", "y = Max(a, b)", "s = Sqrt(a); t = Sqrt(b); y = Max(s, t)", False),
        ("float16", "y = Max(a, b)", "s = Sqrt(a); t = Sqrt(b); y = Max(s, t)", True),
        ("uint8", "y = Max(a, b)", "s = Relu(a); y = Max(s, b)", False),
        ("float", "y = Max(a, b)", "s = Celu(a; alpha=1.0); y = Max(s, b)", True),
        ("float16", "y = Max(a, b)", "s = Celu(a; alpha=1.0); y = Max(s, b)", False),
    ],
)
def test_operators_have_only_element_types_that_they_take(dtype: str, source: str, target: str, legal: bool) -> None:
    op = source.split()[2].partition("(")[0]
    body = f"({dtype}[2] a, {dtype}[2] b) => ({dtype}[2] y) {{ y = {op}(a, b) }}"
    assert matches(f"  var    a, b: any\n  source {source}\n  target {target}", body) == legal


@pytest.mark.parametrize(
    ("dtype", "value", "legal"),
    [
        ("float16", "1e9", False),
        ("float16", "65504.0", True),
        ("float16", "1e-5", False),  # a number of few bits
        ("float16", "1e-12", False),
        ("float16", "0.0", True),
        ("float16", "0.044715", True),
        ("bfloat16", "1e9", True),
        ("float", "1e-5", True),
        ("double", "1e-42", True),
    ],
)
def test_constants_are_made_only_if_the_element_type_holds_them(dtype: str, value: str, legal: bool) -> None:
    body = f"({dtype}[2] x) => ({dtype}[2] y) {{ y = Relu(x) }}"
    target = f"c = ConstantOfShape(; shape=[], value={value}); y = Mul(x, c)"
    assert matches(f"  var    x: float\n  source y = Relu(x)\n  target {target}", body) == legal
    target = f"c = Constant(; shape=[2], values=[1.0, {value}]); y = Mul(x, c)"
    assert matches(f"  var    x: float\n  source y = Relu(x)\n  target {target}", body) == legal


@pytest.mark.parametrize(
    ("dtype", "value", "legal"), [("float", "0.01", True), ("double", "0.01", False), ("double", "0.25", True)]
)
def test_attributes_do_not_round_the_constants_of_doubles(dtype: str, value: str, legal: bool) -> None:
    """ONNX has attributes of float32 alone."""
    body = f"({dtype}[2] x) => ({dtype}[2] y) <{dtype} c = {{{value}}}> {{ m = Mul(x, c) y = Max(x, m) }}"
    rule = "  var    x: float; c: weight float[]\n  source m = Mul(x, c); y = Max(x, m)\n"
    assert matches(f"{rule}  target y = LeakyRelu(x; alpha=value(c))", body) == legal


@pytest.mark.parametrize(
    ("condition", "value", "dtype", "legal"),
    [
        ("value(c) == 2", 2.0, np.float32, True),
        ("value(c) == 2", 2.0000002, np.float32, False),
        ("value(c) == 1", 1.0000002, np.float64, False),
        ("value(c) == 0", 1e-45, np.float32, False),
        ("value(c) == 0", 1e-300, np.float64, False),
        ("value(c) == 0", -0.0, np.float32, True),
        ("value(c) == sqrt(2)", 2**0.5, np.float32, True),
        ("value(c) == sqrt(2)", 2**0.5, np.float64, True),
        ("value(c) == sqrt(2)", float(np.float32(2**0.5)), np.float64, True),  # rounded by the exporter
        ("value(c) == sqrt(2)", 1.4142, np.float32, False),
        ("value(c) == sqrt(2)", 2**0.5 * (1 + 1e-9), np.float64, False),
        ("value(c) == 0.044715", 0.044715, np.float32, True),
    ],
)
def test_constants_equal_what_they_were_meant_to_be(condition: str, value: float, dtype: type, legal: bool) -> None:
    array = np.array(value, dtype)
    kind = "double" if dtype is np.float64 else "float"
    body = f"({kind}[2] x) => ({kind}[2] y) {{ y = Mul(x, c) }}"
    rule = f"  var    x: float; c: weight float[]\n  source y = Mul(x, c)\n  where  {condition}\n  target y = Relu(x)"
    assert matches(rule, body, c=array) == legal


def test_groups_divide_the_channels() -> None:
    rule = """  var    x: float; g, b: weight float[k]
  source y = InstanceNormalization(x, g, b; epsilon=e)
  target y = GroupNormalization(x, g, b; epsilon=e, num_groups=3)"""
    for channels, legal in ((2, False), (6, True)):
        weights = {name: np.ones(channels, np.float32) for name in "gb"}
        kind = f"float[1, {channels}, 4]"
        body = f"({kind} x) => ({kind} y) {{ y = InstanceNormalization<epsilon: float = 0.5>(x, g, b) }}"
        assert matches(rule, body, **weights) == legal


@pytest.mark.parametrize("condition", ["a == 1.0 / 6", "1.0 / 6 == a"])
def test_attributes_equal_what_they_were_meant_to_be(condition: str) -> None:
    """Whichever side of the condition they stand on."""
    body = "(float[2] x) => (float[2] y) { y = LeakyRelu<alpha: float = 0.16666667>(x) }"
    rule = f"  var    x: float\n  source y = LeakyRelu(x; alpha=a)\n  where  {condition}\n  target y = Relu(x)"
    assert matches(rule, body) == 1
    assert matches(rule, body.replace("0.16666667", "0.1667")) == 0
