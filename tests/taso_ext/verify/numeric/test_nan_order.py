"""NaN in an operator that orders elements proves nothing, and everywhere else it does."""

from __future__ import annotations

import numpy as np
import pytest

from taso_ext._core import Graph, RuleSet
from taso_ext.verify.check import verify_rule
from taso_ext.verify.numeric.float_session import FloatSession
from taso_ext.verify.numeric.nan_order import ordered_leaves, undefined_results

POOL = "MaxPool(x; ceil_mode=0, dilations=[1], kernel_shape=[2], pads=[0, 0], strides=[2])"
MAXIMUM = (
    "source c = Concat(x, z; axis=0); y = ReduceMax(c; axes=[0], keepdims=1)\n"
    " target u = ReduceMax(x; axes=[0], keepdims=1); v = ReduceMax(z; axes=[0], keepdims=1); y = {}"
)


def rules(text: str, variables: str = "x, z: float[n, 3]") -> RuleSet:
    return RuleSet.parse(f"rule r\n var {variables}\n {text}\n")


def graph_of(text: str, variables: str) -> Graph:
    graph = rules(text, variables).instance(0, 0)
    assert graph is not None
    return graph


@pytest.mark.parametrize(("target", "true"), [("Max(u, v)", True), ("Add(u, v)", False)])
def test_maxima_may_treat_nan_in_their_own_way(target: str, true: bool) -> None:
    assert verify_rule(rules(MAXIMUM.format(target)), 0, instances=4).ok == true


def test_nan_that_no_order_reads_is_not_hidden() -> None:
    text = (
        "source p = ReduceMax(x; axes=[0], keepdims=1); d = Sub(z, z); y = Add(p, d)\n"
        " target y = ReduceMax(x; axes=[0], keepdims=1)"
    )
    found = verify_rule(rules(text, "x: float[n, 3]; z: float[1, 3]"), 0, instances=8)
    assert found.counterexample is not None
    assert "'z" in found.counterexample.reason


def test_only_windows_with_nan_are_undefined() -> None:
    text = f"source p = {POOL}; y = Add(p, z)\n target q = {POOL}; y = Add(z, q)"
    graph = graph_of(text, "x: float[1, 1, 6]; z: float[1, 1, 3]")
    session = FloatSession(graph)
    (pooled,), (other,) = ([key for key in session.leaves if key.startswith(name)] for name in "xz")
    assert ordered_leaves(graph) == {pooled}
    x, z = np.arange(6, dtype=np.float32).reshape(1, 1, 6), np.zeros((1, 1, 3), np.float32)
    x[0, 0, 3] = np.nan
    undefined = undefined_results(session, ordered_leaves(graph), {pooled: x, other: z})
    assert undefined is not None
    assert undefined[0].ravel().tolist() == [False, True, False]
    z[...] = np.nan
    assert undefined_results(session, ordered_leaves(graph), {pooled: np.zeros_like(x), other: z}) is None
