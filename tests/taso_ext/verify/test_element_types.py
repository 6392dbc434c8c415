"""Rules on tensors of any type are tested in types that their operators admit, and match in these alone."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from taso_ext import CostModel, RuleSet, State
from taso_ext._core import GraphBuilder
from taso_ext.verify.element_types import FLOATING, UntypedRuleError, type_classes
from taso_ext.verify.numeric.discrete import INTEGERS
from taso_ext.verify.prove import Outcome, prove_rule
from taso_ext.verify.rule_reader import read_rule

DE_MORGAN = "rule r\n var p, q: any\n source t = And(p, q); y = Not(t)\n target u = Not(p); v = Not(q); y = {}(u, v)\n"
LATTICE = "rule r\n var a, b: any[2, n]\n source u = Max(a, b); y = Max(u, b)\n target y = Max(b, a)\n"
CHOICE = (
    "rule r\n var c: any[2, n]; x, z: float[2, n]\n source u = Where(c, x, z); y = Where(c, u, z)\n target y = {}\n"
)


def proven(text: str) -> Outcome:
    return prove_rule(text, instances=12, glances=6)


def types_of(outcome: Outcome) -> set[str]:
    """Returns the types that the domain of a proof allows for some variable."""
    assert outcome.proof is not None, outcome.refusal
    [condition] = [each for each in outcome.proof.domain if "dtype(" in each and "==" in each]
    return {each.split('"')[1] for each in condition.split(" or ")}


@pytest.mark.parametrize(("op", "true"), [("Or", True), ("And", False), ("Equal", False)])
def test_laws_of_truths_are_tested_on_truths(op: str, true: bool) -> None:
    outcome = proven(DE_MORGAN.format(op))
    assert outcome.refuted == (not true)
    assert not true or types_of(outcome) == {"bool"}


def test_laws_of_numbers_are_tested_on_integers_too() -> None:
    assert types_of(proven(LATTICE)) >= {*FLOATING, "int32", "int64"}


@pytest.mark.parametrize(
    "text",
    [
        "source a = Max(x, z); b = Min(x, z); y = Sub(a, b)\n target d = Sub(x, z); y = Abs(d)",  # it wraps around
        "source d = Sub(x, z); y = Abs(d)\n target d2 = Sub(z, x); y = Abs(d2)",  # not for unsigned numbers
    ],
)
def test_what_fails_on_integers_matches_floating_numbers_alone(text: str) -> None:
    found = types_of(proven(f"rule r\n var x, z: any[2, n]\n {text}\n"))
    assert found >= set(FLOATING)
    assert "uint8" not in found


@pytest.mark.parametrize(("target", "true"), [("Where(c, x, z)", True), ("Where(c, z, x)", False)])
def test_truths_may_choose_between_floating_numbers(target: str, true: bool) -> None:
    outcome = proven(CHOICE.format(target))
    assert outcome.refuted == (not true)
    assert not true or types_of(outcome) == {"bool"}


def test_a_choice_is_no_product_with_a_mask() -> None:
    """0·∞ and 0·NaN are NaN, where the choice of the other operand is finite."""
    outcome = proven(
        "rule r\n var c: any[2, n]; x: float[2, n]; z: weight float[]\n source y = Where(c, x, z)\n"
        " where value(z) == 0\n target m = Cast(c; to=1); y = Mul(x, m)\n"
    )
    assert outcome.proof is None
    assert "infinity" in outcome.refusal or "nan in the target" in outcome.refusal


@pytest.mark.parametrize("dtype", [TensorProto.INT64, TensorProto.FLOAT, TensorProto.STRING])
def test_the_matcher_keeps_to_the_types_of_the_proof(dtype: int) -> None:
    text = (
        "rule r\n var a, b: any[2, n]\n source u = Max(a, b); y = Neg(u)\n"
        " target u2 = Neg(a); v = Neg(b); y = Min(u2, v)\n"
    )
    outcome = proven(text)
    allowed = types_of(outcome)
    builder = GraphBuilder()
    a, b = (builder.input(name, dtype, (2, 3)) for name in "ab")
    (u,) = builder.node("", "Max", {}, [a, b], [("u", dtype, (2, 3))])
    builder.output(builder.node("", "Neg", {}, [u], [("y", dtype, (2, 3))])[0])
    rules = RuleSet.parse(f"{text} proof {outcome.proof_text}\n")
    matches = State(builder.build(), rules, CostModel.roofline("rtx2070")).location_mask()[0].any()
    assert bool(matches) == (TensorProto.DataType.Name(dtype).lower() in allowed)


def test_types_follow_from_the_operators_of_both_sides() -> None:
    rule = read_rule(
        "rule r\n var c: any; a, b, d: any[2]; x: float\n"
        " source t = Where(c, a, b); e = Equal(t, d); y = Cast(e; to=1); z = Mul(x, y)\n target z = Mul(y, x)\n"
    )
    found = {each.variables: (each.kind, each.integers) for each in type_classes(rule)}
    assert found == {("c",): (("bool",), ()), ("a", "b", "d"): (FLOATING, INTEGERS)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'var a, b: any\n source y = BitShift(a, b; direction="LEFT")\n target y = BitShift(a, b; direction="LEFT")',
            "nor",
        ),
        ("var *a: any\n source y = Max(*a)\n target y = Max(*a)", "list"),
        ("var a: any\n source y = com.microsoft.BiasGelu(a, a)\n target y = com.microsoft.BiasGelu(a, a)", "not known"),
    ],
)
def test_rules_without_known_types_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UntypedRuleError, match=reason):
        type_classes(read_rule(f"rule r\n {text}\n"))


def test_the_proof_names_the_types_of_a_cast_that_were_run() -> None:
    text = (
        "rule r\n var x: float[2, n]\n source c = Cast(x; to=t); y = Neg(c)\n target n1 = Neg(x); y = Cast(n1; to=t)\n"
    )
    outcome = proven(text)
    assert outcome.proof is not None, outcome.refusal
    [condition] = [each for each in outcome.proof.domain if each.startswith("t ==")]
    assert {int(each.split("==")[1]) for each in condition.split(" or ")} <= {1, 10, 11}


def test_a_source_that_the_runtime_does_not_run_says_nothing_about_a_rule() -> None:
    """ONNX Runtime has no InstanceNormalization of rank 2; the rule is judged by the other ranks."""
    text = (
        "rule r\n var x: float[n, c, ...]; s, o: weight float[c]\n"
        " source y = InstanceNormalization(x, s, o; epsilon=e)\n where e == 0.001\n"
        " target y = InstanceNormalization(x, s, {}; epsilon=e)\n"
    )
    assert proven(text.format("o")).proof is not None
    assert proven(text.format("s")).refuted
