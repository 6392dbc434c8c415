"""A target that is nearer to the real result than the source is accepted, and no other inexact one is."""

from __future__ import annotations

import numpy as np
import pytest

from taso_ext._core import RuleSet
from taso_ext.verify.check import verify_rule
from taso_ext.verify.numeric.real_values import not_worse, real_results

ROOT = "rule r\n var x: float[n, 3]\n source q = Mul(x, x); y = Sqrt(q)\n target y = {}\n"


@pytest.mark.parametrize(("target", "true"), [("Abs(x)", True), ("Relu(x)", False), ("Neg(x)", False)])
def test_an_underflow_of_the_source_is_no_counterexample(target: str, true: bool) -> None:
    assert verify_rule(RuleSet.parse(ROOT.format(target)), 0, instances=4).ok == true


def test_an_underflow_of_the_target_is_one() -> None:
    text = "rule r\n var x: float[n, 3]\n source y = Abs(x)\n target q = Mul(x, x); y = Sqrt(q)\n"
    found = verify_rule(RuleSet.parse(text), 0, instances=4)
    assert found.counterexample is not None
    assert found.counterexample.stage == "differential"


def test_real_results_have_neither_underflow_nor_overflow() -> None:
    graph = RuleSet.parse(ROOT.format("Abs(x)")).instance(0, 0)
    assert graph is not None
    (x,) = [value for value in graph.values().values() if value.name.startswith("x")]
    numbers = np.full(x.dims, -1e-30, np.float32)
    numbers[0, 0] = 1e30
    results = real_results(graph, {x.name: numbers})
    assert results is not None
    np.testing.assert_allclose(results[0], np.abs(numbers.astype(np.float64)), rtol=1e-12)


def test_what_is_farther_from_the_real_result_or_not_finite_is_worse() -> None:
    source, real = np.zeros(4, np.float32), np.ones(4)
    assert not_worse(source, np.float32([0.5, 1.5, 2.5, np.nan]), real).tolist() == [True, True, False, False]
