"""What a test showed to be wrong is refused, and what it did not cover is excluded by the domain of the proof."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from taso_ext import CostModel, OnnxModel, RuleSet, State
from taso_ext.verify.prove import Outcome, prove_rule
from taso_ext.verify.rule_reader import read_rule
from taso_ext.verify.tested_domain import TestedDomain

INSTANCES = 12
FLOATS = {"float16": TensorProto.FLOAT16, "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE}


def proven(body: str, instances: int = INSTANCES) -> Outcome:
    return prove_rule(f"rule r\n{body}", instances=instances, glances=0)


def matches(body: str, proof: str, model: onnx.ModelProto) -> bool:
    rules = RuleSet.parse(f"rule r\n{body}  proof  {proof}\n")
    state = State(OnnxModel.load(model, clean="none").graph, rules, CostModel.roofline("xeon"))
    return bool(state.location_mask()[0].any())


def model_of(
    *nodes: onnx.NodeProto, dtype: int = TensorProto.FLOAT, weights: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """Returns a model of `nodes` from x [3] to y [3]."""
    x, y = (helper.make_tensor_value_info(name, dtype, [3]) for name in "xy")
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


WRONG = {
    "minus infinity times zero": """
  var    x: float
  source r = Relu(x); y = Mul(r, r)
  target r = Relu(x); y = Mul(r, x)
""",
    "equal operands": """
  var    a, b: float[...s]
  source g = Greater(a, b); y = Where(g, a, b)
  target g = Greater(b, a); n = Neg(b); y = Where(g, n, a)
""",
    "a slope above one": """
  var    x: float
  source y = LeakyRelu(x; alpha=a)
  target c = ConstantOfShape(; shape=[], value=a); t = Mul(x, c); y = Max(x, t)
""",
    "a slope that no one wrote": """
  var    x: float
  op     f: LeakyRelu | Elu
  source n = Neg(x); m = Neg(n); y = f(m)
  target z = ConstantOfShape(; shape=[], value=0.0); r = Relu(x); t = f(x); y = Max(r, t)
""",
    "a text that no one wrote": """
  var    x: float
  source y = Gelu(x; @r)
  target t = Gelu(x; approximate="tanh"); y = Max(t, t)
""",
    "a cube that overflows before its root": """
  var    x: float
  source r = Relu(x); y = Mul(r, r)
  target r = Relu(x); a = Mul(r, r); b = Mul(a, a); y = Sqrt(b)
""",
    "the zeros of a pad divided": """
  var    a, b: float[k]
  source p = Pad(a; mode="constant", pads=[0, 1], value=0.0); q = Pad(b; mode="constant", pads=[0, 1], value=0.0)
         y = Div(p, q)
  target d = Div(a, b); y = Pad(d; mode="constant", pads=[0, 1], value=0.0)
""",
    "a detour through half": """
  var    x: float
  source l = Log(x); y = Cast(l; to=10)
  target h = Cast(x; to=10); y = Log(h)
""",
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG.keys())
def test_wrong_rules_are_refused(body: str) -> None:
    outcome = proven(body, instances=40)
    assert outcome.proof is None
    assert outcome.refuted


TRUE = {
    "relu": "  var    x: float\n  source r = Relu(x); y = Relu(r)\n  target y = Relu(x)\n",
    "max": "  var    a, b: float[...s]\n  source y = Max(a, b)\n  target y = Max(b, a)\n",
    "padded": """
  var    a, b: float[k]
  source p = Pad(a; mode="constant", pads=[0, 1], value=0.0); q = Pad(b; mode="constant", pads=[0, 1], value=0.0)
         y = Mul(p, q)
  target d = Mul(a, b); y = Pad(d; mode="constant", pads=[0, 1], value=0.0)
""",
}


@pytest.mark.parametrize("body", TRUE.values(), ids=TRUE.keys())
def test_true_rules_hold_in_every_element_type(body: str) -> None:
    outcome = proven(body)
    assert outcome.proof is not None, outcome.refusal
    assert "dtype" not in outcome.proof_text


CLIP = """
  var    x: float[...]; l, h: weight float[]
  source t = Max(x, l); y = Min(t, h)
  target y = Clip(x, l, h)
"""


def test_a_rule_that_zero_weights_refute_asks_for_others() -> None:
    body = "  var    x: float[k]; c: weight float[k]\n  source t = Mul(x, c); y = Div(t, c)\n  target y = x\n"
    outcome = proven(body)
    assert outcome.proof is not None, outcome.refusal
    assert "is_nonzero(c)" in outcome.proof.domain
    nodes = helper.make_node("Mul", ["x", "c"], ["t"]), helper.make_node("Div", ["t", "c"], ["y"])
    for values, fits in (([1, 2, -3], True), ([1, 0, 2], False), ([1, np.inf, 2], False), ([0, 0, 0], False)):
        model = model_of(*nodes, weights={"c": np.array(values, np.float32)})
        assert matches(body, outcome.proof_text, model) == fits


def test_a_rule_that_weights_of_nan_refute_asks_for_finite_ones() -> None:
    outcome = proven(CLIP)
    assert outcome.proof is not None, outcome.refusal
    assert {"is_finite(l)", "is_finite(h)"} <= {*outcome.proof.domain}
    nodes = helper.make_node("Max", ["x", "l"], ["t"]), helper.make_node("Min", ["t", "h"], ["y"])
    for high, fits in ((3, True), (np.nan, False), (np.inf, False)):
        bounds = {"l": np.float32(1), "h": np.float32(high)}
        model = model_of(*nodes, weights={name: np.array(value) for name, value in bounds.items()})
        assert matches(CLIP, outcome.proof_text, model) == fits


def test_an_intermediate_result_that_overflows_in_half_excludes_it() -> None:
    body = """
  var    x: float[..., k]
  source r = Relu(x); y = ReduceMax(r; axes=[-1], keepdims=1)
  target r = Relu(x); c = ConstantOfShape(; shape=[], value=1000.0); d = ConstantOfShape(; shape=[], value=0.001)
         s = Mul(r, c); t = ReduceMax(s; axes=[-1], keepdims=1); y = Mul(t, d)
"""
    outcome = proven(body)
    assert outcome.proof is not None, outcome.refusal
    assert 'dtype(x) != "float16"' in outcome.proof.domain
    nodes = helper.make_node("Relu", ["x"], ["r"]), helper.make_node("ReduceMax", ["r"], ["y"])
    for name, dtype in FLOATS.items():
        model = model_of(*nodes, dtype=dtype)
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
        assert matches(body, outcome.proof_text, model) == (f'dtype(x) != "{name}"' not in outcome.proof.domain)


def test_attributes_that_were_not_drawn_are_refused() -> None:
    body = (
        "  var    x, z: float[...s]\n  source t = Min(x, z); y = Celu(t; @r)\n  target t = Min(z, x); y = Celu(t; @r)\n"
    )
    rules, domain = RuleSet.parse(f"rule r\n{body}"), TestedDomain(read_rule(f"rule r\n{body}"))
    for seed in range(24):
        graph = rules.instance(0, seed)
        assert graph is not None
        domain.observe(graph)
    assert "only(@r, alpha)" in domain.conditions()
    for alpha, fits in ((0.75, True), (1e30, False)):
        nodes = helper.make_node("Min", ["x", "c"], ["t"]), helper.make_node("Celu", ["t"], ["y"], alpha=alpha)
        model = model_of(*nodes, weights={"c": np.ones(3, np.float32)})
        assert matches(body, f"domain({', '.join(domain.conditions())})", model) == fits


def test_numbers_nearer_to_zero_than_any_that_was_drawn_are_refused() -> None:
    body = "  var    x: float[...s]; c: weight float[]\n  source y = Mul(x, c)\n  where  value(c) >= 0\n"
    body += "  target y = Mul(c, x)\n"
    rules, domain = RuleSet.parse(f"rule r\n{body}"), TestedDomain(read_rule(f"rule r\n{body}"))
    for seed in range(99):
        graph = rules.instance(0, seed)
        assert graph is not None
        domain.observe(graph)
    for number, fits in ((0.0, True), (0.75, True), (1e-30, False)):
        model = model_of(helper.make_node("Mul", ["x", "c"], ["y"]), weights={"c": np.array(number, np.float32)})
        assert matches(body, f"domain({', '.join(domain.conditions())})", model) == fits


@pytest.mark.parametrize(
    ("condition", "alpha", "fits"),
    [
        ("within(attribute(f, alpha, 1.0), 0.0, 2.0)", None, True),
        ("within(attribute(f, alpha, 1.0), 0.0, 2.0)", 1.5, True),
        ("within(attribute(f, alpha, 1.0), 0.0, 2.0)", 2.5, False),
        ("attribute(f, alpha) > 0", None, False),
        ("only(f, alpha)", 1.5, True),
        ("only(f, beta)", 1.5, False),
        ("only(f)", None, True),
        ('dtype(x) == "float"', None, True),
        ('dtype(y) != "float"', None, False),
    ],
)
def test_attributes_of_operator_variables_can_be_restricted(condition: str, alpha: float | None, fits: bool) -> None:
    body = (
        "  var    x: float[...]\n  op     f: Relu | Elu\n  source t = Neg(x); y = f(t)\n  target u = f(x); y = Neg(u)\n"
    )
    last = ["Relu", ["t"], ["y"]] if alpha is None else ["Elu", ["t"], ["y"]]
    node = helper.make_node(*last, **({} if alpha is None else {"alpha": alpha}))
    assert matches(body, f"domain({condition})", model_of(helper.make_node("Neg", ["x"], ["t"]), node)) == fits
