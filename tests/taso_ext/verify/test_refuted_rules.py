"""Rules that look right but are wrong: each fails on shapes, attributes or numbers that networks seldom have."""

from __future__ import annotations

import pytest

from taso_ext.verify.prove import prove_rule

INSTANCES = 24
"""Graphs that a true rule is tested on here; proving one takes 128."""
FALSE = {
    "a logarithm of a sigmoid that other runtimes than ONNX Runtime saturate later": """
        var    x: float[...]
        source n = Neg(x); s = Sigmoid(n); y = Log(s)
        target o = ConstantOfShape(; shape=[], value=1.0); p = Sigmoid(x); d = Sub(o, p); y = Log(d)
        """,
    "channels shuffled behind a convolution, filters forth and not back": """
        var    x: float[i, c, h, v]; w: float[c, 1, k, l]
        source a = Reshape(x; shape=p); b = Transpose(a; perm=[0, 2, 1, 3, 4]); d = Reshape(b; shape=[i, c, h, v])
               y = Conv(d, w; @r, group=c)
        where  len(p) == 5 and p[0] == i and p[3] == h and p[4] == v
        target e = Reshape(w; shape=[p[1], p[2], k * l]); f = Transpose(e; perm=[1, 0, 2])
               g = Reshape(f; shape=[c, 1, k, l]); t = Conv(x, g; @r, group=c)
               m = Reshape(t; shape=[i, p[1], p[2], dims(y)[2], dims(y)[3]]); o = Transpose(m; perm=[0, 2, 1, 3, 4])
               y = Reshape(o; shape=dims(y))
        """,
    "means of means, the last of which are cut off": """
        var    x: float[i, c, ...l]
        source t = AveragePool(x; @r, kernel_shape=k, pads=p, strides=k)
               y = AveragePool(t; @r, kernel_shape=h, pads=p, strides=h)
        where  sum(p) == 0 and prod(attribute(@r, dilations)) == 1
        target y = AveragePool(x; @r, kernel_shape=k * h, pads=p, strides=k * h)
        """,
    "a reshape that only moves ones, before a broadcast": """
        var    x, y: float[...]
        source r = Reshape(y; shape=s); z = Add(x, r)
        target z = Add(x, y)
        """,
    "a reshape that splits an axis, along another of which an operand is broadcast": """
        var    x, y: float[...]
        source t = Mul(x, y); z = Reshape(t; shape=s)
        target r = Reshape(y; shape=s); z = Mul(x, r)
        """,
    "a batch axis of one that is reshaped away": """
        var    x: float[..., b, m, k]; y: float[..., 1, k, n]
        source t = Reshape(y; shape=s); z = MatMul(x, t)
        target z = MatMul(x, y)
        """,
    "a transposition that changes nothing where extents are equal": """
        var    x: float[m, n]; y: float[...]
        source t = Transpose(y; perm=[1, 0]); z = Add(x, t)
        target z = Add(x, y)
        """,
    "concatenations of operands that broadcast": """
        var    a, b, c, d: float[...]
        source t = Concat(a, b; axis=i); u = Concat(c, d; axis=i); y = Add(t, u)
        target v = Add(a, c); w = Add(b, d); y = Concat(v, w; axis=i)
        """,
    "a split at another place than that of the concatenation": """
        var    a, b, c: float[...]
        source t = Concat(a, b; axis=d); u = Add(t, c); y, z = Split(u; axis=d, split=s)
        target v, w = Split(c; axis=d, split=s); y = Add(a, v); z = Add(b, w)
        """,
    "a sum over an axis along which one operand is broadcast": """
        var    x, y: float[...]
        source t = Add(x, y); z = ReduceSum(t; axes=a, keepdims=1)
        target u = ReduceSum(x; axes=a, keepdims=1); v = ReduceSum(y; axes=a, keepdims=1); z = Add(u, v)
        """,
    "padding with a number that the function changes": """
        var    x: float
        source t = Pad(x; @r); y = Relu(t)
        target u = Relu(x); y = Pad(u; @r)
        """,
    "padding that counts in a mean": """
        var    x: float[b, c, h, w]
        source y = AveragePool(x; @r, count_include_pad=0)
        target y = AveragePool(x; @r, count_include_pad=1)
        """,
    "pools of pools": """
        var    x: float[b, c, ...s]
        source t = MaxPool(x; @r); y = MaxPool(t; @r)
        target y = MaxPool(x; @r)
        """,
    "grouped convolutions, joined as if they had one group": """
        var    x: float[b, m, ...i]; a: weight float[n, ...k]; c: weight float[p, ...k]
        source y = Conv(x, a; @r); z = Conv(x, c; @r)
        target w = Concat(a, c; axis=0); t = Conv(x, w; @r); y, z = Split(t; axis=1, split=[n, p])
        """,
    "a scale that is dropped": """
        var    x: float[m, k]; w: weight float[k, n]; s: weight float[]
        source t = Mul(x, s); y = MatMul(t, w)
        target y = MatMul(x, w)
        """,
    "an axis that is off by one": """
        var    x: float[a, b, c]
        source y = Softmax(x; axis=2)
        target y = Softmax(x; axis=1)
        """,
    "zero times NaN": """
        var    x, a: float[m, n]; z: weight float[]
        source t = Mul(x, z); y = Add(t, a)
        where  value(z) == 0
        target y = a
        """,
    "a softmax that overflows": """
        var    x: float[m, n]
        source y = Softmax(x; axis=1)
        target e = Exp(x); s = ReduceSum(e; axes=[1], keepdims=1); y = Div(e, s)
        """,
    "a root of a square without its sign": """
        var    x: float[m, n]
        source q = Mul(x, x); y = Sqrt(q)
        target y = Relu(x)
        """,
    "a quotient that is undefined where the source is not": """
        var    x: float[m, n]; z: weight float[]
        source y = Mul(x, z)
        where  value(z) == 0
        target t = Div(x, z); u = Mul(t, z); y = Mul(u, z)
        """,
    "a maximum of parts that is taken for their mean": """
        var    x: float[m, n]
        source y = ReduceMax(x; axes=[1], keepdims=1)
        target a, b = Split(x; axis=1, split=[1, n - 1])
               u = ReduceMax(a; axes=[1], keepdims=1); v = ReduceMax(b; axes=[1], keepdims=1); y = Min(u, v)
        """,
    "a mean of unequal parts": """
        var    a, b: float[...]
        source t = Concat(a, b; axis=d); y = ReduceMean(t; axes=[d], keepdims=1)
        target u = ReduceMean(a; axes=[d], keepdims=1); v = ReduceMean(b; axes=[d], keepdims=1)
               c = Concat(u, v; axis=d); y = ReduceMean(c; axes=[d], keepdims=1)
        """,
}

TRUE = {
    "a reshape that only moves ones, after the sum": """
        var    x, y: float[m, n]
        source r = Reshape(x; shape=s); t = Reshape(y; shape=s); z = Add(r, t)
        target u = Add(x, y); z = Reshape(u; shape=s)
        """,
    "concatenations of operands of one shape": """
        var    a, c: float[m, n]; b, d: float[m, k]
        source t = Concat(a, b; axis=1); u = Concat(c, d; axis=1); y = Add(t, u)
        target v = Add(a, c); w = Add(b, d); y = Concat(v, w; axis=1)
        """,
    "padding with zero, which the function keeps": """
        var    x: float
        source t = Pad(x; @r, value=0); y = Relu(t)
        target u = Relu(x); y = Pad(u; @r, value=0)
        """,
    "a norm of one element that divides by zero on both sides": """
        var    x: float[m, n]; g, b: weight float[n]
        source t = LayerNormalization(x, g, b; axis=-1, epsilon=e); y = Relu(t)
        target u = LayerNormalization(x, g; axis=-1, epsilon=e); v = Add(u, b); y = Relu(v)
        """,
    "a mask, which may be the lowest number": """
        var    x, m: float[b, n]; s: weight float[]
        source t = Div(x, s); u = Add(t, m); y = Softmax(u; axis=1)
        where  value(s) == 2
        target f = ConstantOfShape(; shape=[], value=0.5); v = Mul(x, f); w = Add(v, m); y = Softmax(w; axis=1)
        """,
}


@pytest.mark.parametrize("body", FALSE.values(), ids=FALSE)
def test_a_false_rule_is_refused_with_its_counterexample(body: str) -> None:
    outcome = prove_rule(f"rule false\n{body}")
    assert outcome.proof is None
    assert "changes the function" in outcome.refusal
    assert "--- source" in outcome.refusal


@pytest.mark.parametrize("body", TRUE.values(), ids=TRUE)
def test_a_true_rule_is_proven(body: str) -> None:
    outcome = prove_rule(f"rule true\n{body}", instances=INSTANCES)
    assert outcome.proof is not None, outcome.refusal
