"""Real numbers of many digits decide where prime fields have only random functions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from taso_ext._core import CostModel, Graph, RuleSet, State
from taso_ext.verify.exact import functions
from taso_ext.verify.exact.finite_field import FieldAgreement, TooLargeError, compare_exactly, find_difference
from taso_ext.verify.exact.reals import KNOWN, LongArithmetic, context, first_difference
from tests.taso_ext.verify.exact.test_function_laws import RUNTIMES, function_of, numbers_for

ONE, TWO = ("{} = ConstantOfShape(; shape=[], value={}); ".format(*each) for each in (("i", 1.0), ("c", 2.0)))
VARIABLES = {"x": "float[2, 3]", "z": "float[2, 3]", "k": "weight float[]"}

TRUE = {
    "tanh by a sigmoid": f"source y = Tanh(x)\n target {ONE}{TWO}"
    "d = Mul(x, c); s = Sigmoid(d); t = Mul(s, c); y = Sub(t, i)",
    "logarithm of a product": "source l = Log(x); m = Log(z); y = Add(l, m)\n target p = Mul(x, z); y = Log(p)",
    "logarithm of a softmax": "source s = Softmax(x; axis=1); y = Log(s)\n target y = LogSoftmax(x; axis=1)",
    "stable softplus": f"source y = Softplus(x)\n target {ONE}"
    "r = Relu(x); s = Abs(x); n = Neg(s); e = Exp(n); f = Add(e, i); l = Log(f); y = Add(r, l)",
    "sine of a sum": "source s = Add(x, z); y = Sin(s)\n"
    " target d = Sin(x); e = Cos(z); f = Cos(x); g = Sin(z); p = Mul(d, e); q = Mul(f, g); y = Add(p, q)",
    "power of a product": "source p = Pow(x, k); q = Pow(z, k); y = Mul(p, q)\n target m = Mul(x, z); y = Pow(m, k)",
    "rounding down commutes with an integer": "source s = Add(x, k); y = Floor(s)\n where value(k) == 1\n"
    " target f = Floor(x); y = Add(f, k)",
    "maximum before a function that saturates": "source e = Erf(x); y = ReduceMax(e; axes=[1], keepdims=0)\n"
    " target m = ReduceMax(x; axes=[1], keepdims=0); y = Erf(m)",
}
WRONG = {
    "tanh by another sigmoid": f"source y = Tanh(x)\n target {ONE}{TWO}s = Sigmoid(x); t = Mul(s, c); y = Sub(t, i)",
    "logarithm of a square, also of a negative number": "source p = Mul(x, x); y = Log(p)\n"
    f" target {TWO}l = Log(x); y = Mul(l, c)",
    "power by a logarithm, also of a negative number": "source y = Pow(x, z)\n"
    " target l = Log(x); m = Mul(l, z); y = Exp(m)",
    "logarithm of a sum": "source l = Log(x); m = Log(z); y = Add(l, m)\n target p = Add(x, z); y = Log(p)",
    "rounding down and a sign": "source n = Neg(x); y = Floor(n)\n target f = Floor(x); y = Neg(f)",
    "rounding before a factor": "source s = Mul(x, k); y = Round(s)\n where value(k) == 2\n"
    " target f = Round(x); y = Mul(f, k)",
    "sine of another sum": "source s = Add(x, z); y = Sin(s)\n"
    " target d = Sin(x); e = Cos(z); f = Cos(x); g = Sin(z); p = Mul(d, e); q = Mul(f, g); y = Sub(p, q)",
}


def rewritten(text: str, shape: str = "[2, 3]") -> tuple[Graph, Graph]:
    """Returns an instance of a rule, which is given without `var`, before and after it is rewritten."""
    used = [name for name in VARIABLES if re.search(rf"[(, ]{name}[,;)]", text)]
    variables = "; ".join(f"{name}: {VARIABLES[name].replace('[2, 3]', shape)}" for name in used)
    rules = RuleSet.parse(f"rule r\n var {variables}\n {text}\n")
    source = rules.instance(0, 1)
    assert source is not None
    state = State(source, rules, CostModel.roofline("rtx2070"))
    state.step(0, int(np.flatnonzero(state.location_mask()[0])[0]))
    return source, state.graph


def agreement(text: str) -> FieldAgreement:
    return compare_exactly(*rewritten(text))


@pytest.mark.parametrize("name", TRUE)
def test_laws_of_real_functions_hold(name: str) -> None:
    assert find_difference(*rewritten(TRUE[name])) is not None, "the fields alone do not know this law"
    found = agreement(TRUE[name])
    assert found.mismatch is None
    assert found.in_reals


@pytest.mark.parametrize("name", WRONG)
def test_other_laws_do_not(name: str) -> None:
    assert agreement(WRONG[name]).mismatch is not None


def test_what_the_fields_know_does_not_need_real_numbers() -> None:
    found = agreement("source y = Mul(x, z)\n target y = Mul(z, x)")
    assert found.mismatch is None
    assert not found.in_reals


@pytest.mark.parametrize(("error", "same"), [(0.0, True), (1e-5, False)])
def test_a_constant_that_a_rule_computes_and_rounds_stands_for_what_it_computes(error: float, same: bool) -> None:
    p, q = 0.7364291, 0.1934857
    found = agreement(
        f"source a = LeakyRelu(x; alpha={p}); b = LeakyRelu(x; alpha={q}); y = Add(a, b)\n"
        f" target m = LeakyRelu(x; alpha={(p + q) / 2 * (1 + error)}); y = Add(m, m)"
    )
    assert (found.mismatch is None) == same


NORM_OF_CONCAT = (
    "source c = Concat(x, z; axis=0); y = ReduceL2(c; axes=[0], keepdims=1)\n"
    " target u = ReduceL2(x; axes=[0], keepdims=1); v = ReduceL2(z; axes=[0], keepdims=1); t = Concat(u, v; axis=0)\n"
    " y = ReduceL2(t; axes=[0], keepdims=1)"
)


@pytest.mark.parametrize("text", [TRUE["tanh by a sigmoid"], NORM_OF_CONCAT], ids=["random function", "random root"])
def test_graphs_that_are_too_large_are_not_compared(text: str) -> None:
    with pytest.raises(TooLargeError):
        compare_exactly(*rewritten(text, "[200, 300]"))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("op_type", sorted(each for each in KNOWN if "[" not in each and each != "Pow"))
def test_functions_of_many_digits_are_the_operators(op_type: str, runtime: str) -> None:
    numbers = np.concatenate([numbers_for(op_type), np.float32([-1.5, -0.5, 0.5, 1.5, 2.5])])
    numbers = numbers[np.abs(numbers) < 1] if op_type in ("Asin", "Acos", "Atanh") else numbers
    long = KNOWN[op_type](np.asarray([context.mpf(float(each)) for each in numbers], object)).astype(np.float64)
    with np.errstate(all="ignore"):
        got = function_of(op_type, runtime)(numbers)
    defined = np.isfinite(got)
    assert np.array_equal(np.isfinite(long), defined)
    np.testing.assert_allclose(got[defined], long[defined], rtol=1e-4, atol=1e-6)


def test_every_declared_function_is_known_or_has_no_definition_there() -> None:
    declared = functions.ODD | functions.EVEN | functions.ROUNDINGS | (functions.FREE - {"Mod", "BitShift"})
    assert declared <= set(KNOWN)


def test_an_undefined_target_differs_and_an_undefined_source_says_nothing() -> None:
    numbers = LongArithmetic.of(0)
    one = numbers.integers(np.ones(2, np.int64))
    root = (-one).sqrt()
    margin = [one.parts[0] * 0]
    assert first_difference([one], [one], margin) is None
    assert first_difference([one], [root], margin) is not None
    with pytest.raises(ArithmeticError, match="undefined"):
        first_difference([root], [one], margin)
