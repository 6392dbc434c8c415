"""Rules whose results depend on elements of an operand, or on vectors: true ones are proven, wrong ones are not."""

from __future__ import annotations

import numpy as np
import pytest

from taso_ext import RuleSet
from taso_ext.verify.prove import Outcome, prove_rule
from taso_ext.verify.rule_reader import read_rule
from taso_ext.verify.valued_operands import domains_of, valued_variables

RESIZED = """var x: float[n, c, h, w]; r, s, z: weight any
  source y = Resize(x, r, s, z; coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="{}")
  where  dims(y) == [n, c, h, 2 * w]
"""
REPEATED = "  target t = Reshape(x; shape=[n, c, h, w, 1]); u = Concat(t, t; axis=4); y = Reshape(u; shape=dims(y))"
ROWS = "var x: any[n, m]; i: weight any[]\n source y = Gather(x, i; axis=0)\n where value(i) == -1\n target "

TRUE = {
    "tile": "var x: any[m, n]; r: weight any[2]\n source y = Tile(x, r)\n"
    " target t = Reshape(x; shape=[1, m, 1, n]); u = Expand(t; shape=[dims(y)[0] / m, m, dims(y)[1] / n, n])\n"
    "  y = Reshape(u; shape=dims(y))",
    "mean of tile": "var x: float[m]; r: weight any\n source t = Tile(x, r); y = ReduceMean(t; axes=[0], keepdims=1)\n"
    " target y = ReduceMean(x; axes=[0], keepdims=1)",
    "gather": ROWS + "t = Slice(x; axes=[0], starts=[n - 1], ends=[n], steps=[1]); y = Reshape(t; shape=[m])",
    "gather of moved indices": "var x: any[1, m]; i: any[k, l]\n source j = Reshape(i; shape=[k * l])\n"
    " y = Gather(x, j; axis=0)\n target y = Expand(x; shape=[k * l, m])",
    "gather of a computed index": "var x: float[n]\n source i = ArgMax(x; axis=0, keepdims=0)\n"
    " y = Gather(x, i; axis=0)\n target y = ReduceMax(x; axes=[0], keepdims=0)",
    "resize by sizes": RESIZED.format("floor") + REPEATED,
    "resize by scales": "var x: float[n, c, h, w]; r, s: weight any\n source y = Resize(x, r, s; @a)\n"
    " where value(s) == 1\n target y = x",
    "dropout": "var x: float[...]; r: weight float[]\n source t = Dropout(x, r; @s); y = Relu(t)\n target y = Relu(x)",
    "row": "var a, b: float[k]\n source y = MatMul(a, b)\n"
    " target t = Mul(a, b); y = ReduceSum(t; axes=[0], keepdims=0)",
    "column": "var a: float[m, k]; b: float[k]\n source y = MatMul(a, b)\n"
    " target c = Reshape(b; shape=[k, 1]); t = MatMul(a, c); y = Reshape(t; shape=[m])",
}
WRONG = {
    "tile": "var x: any[m, n]; r: weight any[2]\n source y = Tile(x, r)\n"
    " target t = Reshape(x; shape=[m, 1, n, 1]); u = Expand(t; shape=[m, dims(y)[0] / m, n, dims(y)[1] / n])\n"
    "  y = Reshape(u; shape=dims(y))",
    "sum of tile": "var x: float[m]; r: weight any\n source t = Tile(x, r); y = ReduceSum(t; axes=[0], keepdims=1)\n"
    " target y = ReduceSum(x; axes=[0], keepdims=1)",
    "gather": ROWS + "t = Slice(x; axes=[0], starts=[0], ends=[1], steps=[1]); y = Reshape(t; shape=[m])",
    "gather of negative indices": "var x: any[n, m]; i: any[]\n source y = Gather(x, i; axis=0)\n where n == 2\n"
    " target t = Slice(x; axes=[0], starts=[1], ends=[2], steps=[1]); y = Reshape(t; shape=[m])",
    "gather of all": "var x: any[n, m]; i: weight any[n]\n source y = Gather(x, i; axis=0)\n target y = x",
    "resize by sizes": RESIZED.format("ceil") + REPEATED,
    "resize by scales": "var x: float[n, c, h, w]; r, s: weight any\n source y = Resize(x, r, s; @a)\n"
    " where dims(y) == dims(x)\n target y = x",
    "dropout": "var x: float[...]; r: weight float[]\n source y = Dropout(x, r; @s)\n where within(value(r), 0, 1)\n"
    " target c = ConstantOfShape(; shape=[], value=1.0 - value(r)); y = Mul(x, c)",
    "row": "var a: float[k]; b: float[k, k]\n source y = MatMul(a, b)\n"
    " target t = Mul(b, a); y = ReduceSum(t; axes=[1], keepdims=0)",
    "column": "var a: float[k, k]; b: float[k]\n source y = MatMul(a, b)\n"
    " target c = Reshape(b; shape=[1, k]); t = MatMul(c, a); y = Reshape(t; shape=[k])",
}


def prove(body: str) -> Outcome:
    return prove_rule(f"rule r\n  {body}\n", instances=12, glances=24)


@pytest.mark.parametrize("body", TRUE.values(), ids=TRUE)
def test_true_rules_are_proven_and_run(body: str) -> None:
    outcome = prove(body)
    assert outcome.proof is not None, outcome.refusal
    assert outcome.proof.float_shapes > 0


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_wrong_rules_have_counterexamples(body: str) -> None:
    assert prove(body).refuted


def test_vectors_are_drawn_only_where_the_rule_says_so() -> None:
    body = "var a, b, c: float[...]\n source t = MatMul(a, c); u = MatMul(b, c); y = Add(t, u)\n"
    rules = RuleSet.parse(f"rule r\n  {body} target s = Add(a, b); y = MatMul(s, c)\n")
    graphs = [rules.instance(0, seed) for seed in range(100)]
    ranks = {len(value.dims or ()) for graph in graphs if graph for value in graph.values().values()}
    assert min(ranks) == 2


def test_domains_follow_from_shapes_and_moves() -> None:
    rule = "rule r\n  " + TRUE["gather of moved indices"] + "\n"
    assert valued_variables(read_rule(rule)) == {"i"}
    graph = RuleSet.parse(rule).instance(0, 1)
    assert graph is not None
    (domain,) = domains_of(graph).values()
    drawn = domain.draw(np.random.default_rng(0), (50,))
    assert set(drawn) == {-1.0, 0.0}


@pytest.mark.parametrize("seed", range(20))
def test_scales_give_the_shape_that_the_engine_drew(seed: int) -> None:
    graph = RuleSet.parse(f"rule r\n  {WRONG['resize by scales']}\n".replace("dims(y) == dims(x)", "n >= 1")).instance(
        0, seed
    )
    if graph is None:  # the target replaces only equal shapes
        return
    values, (node,) = graph.values(), graph.nodes()
    before, after = (np.asarray(values[id_].dims) for id_ in (node.inputs[0], node.outputs[0]))
    scales = domains_of(graph)[node.inputs[2]].draw(np.random.default_rng(seed), before.shape).astype(np.float32)
    assert (np.floor(before.astype(np.float32) * scales) == after).all()
