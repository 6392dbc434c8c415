"""Every default rule keeps the function, and the verifier rejects rules that do not."""

from __future__ import annotations

import pytest

from taso_ext._core import RuleSet
from taso_ext.verify import RuleVerification, verify_rule
from taso_ext.verify.rule_file import Rounding

DEFAULT = RuleSet.default()
INSTANCES = 64  # of which a few have extents that are all equal, so that a wrong permutation fits
SAMPLE, FLOAT_SAMPLE = 8, 2  # instances; `rlflow rules verify` tests more


def verify_text(text: str) -> RuleVerification:
    """Verifies the single rule of a rule file."""
    return verify_rule(RuleSet.parse(text), 0, instances=INSTANCES)


@pytest.mark.parametrize("index", range(len(DEFAULT)), ids=DEFAULT.names)
def test_default_rule_keeps_the_function(index: int) -> None:
    """Finite fields and ONNX Runtime test random instances that the engine rewrites at every legal location."""
    verification = verify_rule(DEFAULT, index, instances=SAMPLE, float_instances=FLOAT_SAMPLE, other_types=False)
    assert verification.ok, str(verification)
    # An instance that repeats proves nothing new; dimensions and attributes must really vary.
    assert len(verification.instances) >= SAMPLE // 4, str(verification)
    # Zero-padded kernels and convolutions with padding multiply infinities by zero, and fast convolutions spread them
    # over a tile. Nothing else may.
    pads = "Pad(" in DEFAULT.text(index) or "Conv(" in DEFAULT.text(index)
    assert not verification.spreads_nonfinite or pads or verification.measure is not Rounding.ELEMENT


WRONG_ALGEBRA = {
    "a multiplicand is dropped": """
        rule wrong
          var    x, a: float[...]
          source y = Mul(x, a)
          target y = x
        """,
    "Sub is not associative": """
        rule wrong
          var    x, y, z: float[...]
          source t = Sub(x, y); u = Sub(t, z)
          target v = Sub(y, z); u = Sub(x, v)
        """,
    "Sub is not commutative": """
        rule wrong
          var    x, y: float[...]
          source z = Sub(x, y)
          target z = Sub(y, x)
        """,
    "merged weights stand in the wrong order": """
        rule wrong
          var    x: float[..., m, k]; a: weight float[k, n]; b: weight float[k, p]
          source y = MatMul(x, a); z = MatMul(x, b)
          target w = Concat(b, a; axis=-1); t = MatMul(x, w)
                 y, z = Split(t; axis=-1, split=[n, p])
        """,
    "the parts of a split change places": """
        rule wrong
          var    x: float[..., m, k]; a: weight float[k, n]; b: weight float[k, p]
          source y = MatMul(x, a); z = MatMul(x, b)
          target w = Concat(a, b; axis=-1); t = MatMul(x, w)
                 z, y = Split(t; axis=-1, split=[p, n])
        """,
    "split sizes are not those of the concatenation": """
        rule wrong
          var    x: any[m]; y: any[n]
          source t = Concat(x, y; axis=0); u, v = Split(t; axis=0, split=s)
          where  s[0] == n
          target u = y; v = x
        """,
    "permutations are composed in the wrong order": """
        rule wrong
          var    x: any[a, b, c]
          source t = Transpose(x; perm=p); y = Transpose(t; perm=q)
          target y = Transpose(x; perm=permute(q, p))
        """,
    "a permutation is inverted": """
        rule wrong
          var    x: any[m, m, m]
          source y = Transpose(x; perm=p)
          target y = Transpose(x; perm=inverse(p))
        """,
    "a reshape is taken for a transpose": """
        rule wrong
          var    x: any[m, n]
          source y = Transpose(x; perm=[1, 0])
          target y = Reshape(x; shape=[n, m])
        """,
    "ReLU is not additive": """
        rule wrong
          var    x, y: float[...]
          source t = Add(x, y); z = Relu(t)
          target u = Relu(x); v = Relu(y); z = Add(u, v)
        """,
    "a nonlinear operator is replaced by another": """
        rule wrong
          var    x: float[...]
          source y = Tanh(x)
          target y = Erf(x)
        """,
    "softmax does not commute with a scale": """
        rule wrong
          var    x: float[m, n]; s: weight float[]
          source t = Mul(x, s); y = Softmax(t; axis=1)
          target u = Softmax(x; axis=1); y = Mul(u, s)
        """,
    "softmax runs along the other axis": """
        rule wrong
          var    x: float[m, n]
          source y = Softmax(x; axis=1)
          target y = Softmax(x; axis=0)
        """,
    "an enlarged kernel is off centre": """
        rule wrong
          var    x: float[b, c, h, v]; w: weight float[n, c, 1, 1]
          source y = Conv(x, w; kernel_shape=[1, 1], pads=[0, 0, 0, 0], strides=[1, 1], dilations=[1, 1], group=1)
          target u = Pad(w; pads=[0, 0, 0, 0, 0, 0, 2, 2])
                 y = Conv(x, u; kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], group=1)
        """,
    "a bias is applied twice": """
        rule wrong
          var    x: float[b, m, ...i]; a, e: weight float[n, ...k]; c: weight float[n]
          source u = Conv(x, a, c; @r); v = Conv(x, e; @r); y = Add(u, v)
          target w = Add(a, e); d = Add(c, c); y = Conv(x, w, d; @r)
        """,
    "channels of grouped convolutions are joined": """
        rule wrong
          var    x: float[b, m, ...i]; a: weight float[n, ...k]; c: weight float[p, ...k]
          source y = Conv(x, a; @r, group=2); z = Conv(x, c; @r, group=2)
          target w = Concat(a, c; axis=0); t = Conv(x, w; @r, group=2)
                 y, z = Split(t; axis=1, split=[n, p])
        """,
    "a scale of the rows is folded into the columns": """
        rule wrong
          var    x: float[k, k]; w: weight float[k, k]; s: weight float[k]
          source t = Mul(x, s); y = MatMul(t, w)
          target v = Mul(w, s); y = MatMul(x, v)
        """,
    "matrix products do not commute": """
        rule wrong
          var    a, b: float[m, m]
          source y = MatMul(a, b)
          target y = MatMul(b, a)
        """,
}


@pytest.mark.parametrize("text", WRONG_ALGEBRA.values(), ids=WRONG_ALGEBRA)
def test_wrong_rule_is_rejected_with_a_counterexample(text: str) -> None:
    verification = verify_text(text)
    assert not verification.ok
    assert verification.counterexample is not None, str(verification)
    assert verification.counterexample.stage == "exact"


def test_counterexample_can_be_replayed() -> None:
    """Its seed and its location identify the graphs that it shows."""
    rules = RuleSet.parse(WRONG_ALGEBRA["a permutation is inverted"])
    first, again = (verify_rule(rules, 0, instances=INSTANCES).counterexample for _ in range(2))
    assert first is not None
    assert first == again
    assert "Transpose" in first.source
    assert first.source != first.target
    assert f"instance {first.instance_seed} rewritten at location {first.location}" in str(first)


def test_rule_that_hides_infinities_is_rejected() -> None:
    """x · (a − a) → a − a holds in every field, but makes ∞ · 0 finite."""
    verification = verify_text("""
        rule hides-infinities
          var    x: float[k]; a: float[k]
          source n = Sub(a, a); y = Mul(x, n)
          target y = Sub(a, a)
        """)
    assert verification.counterexample is not None
    assert verification.counterexample.stage == "differential"
    assert "infinity" in verification.counterexample.reason


def test_rule_that_overflows_earlier_is_rejected() -> None:
    """x · a → x² · a / x holds in every field, but x² overflows at 1e30, where the source is finite."""
    verification = verify_text("""
        rule overflows
          var    x: float[m, n]; a: weight float[n]
          source y = Mul(x, a)
          target s = Mul(x, x); t = Mul(s, a); y = Div(t, x)
        """)
    assert verification.counterexample is not None
    assert verification.counterexample.stage == "differential"


def test_rule_that_never_applies_is_not_verified() -> None:
    """The lack of a counterexample is no proof: a rule without a legal instance fails."""
    verification = verify_rule(
        RuleSet.parse("""
            rule never
              var    x, y: float[m]
              source z = Add(x, y)
              where  m != m
              target z = Add(y, x)
            """),
        0,
        instances=1,
    )
    assert verification.counterexample is None
    assert not verification.ok
    assert "cannot be verified" in str(verification)


def test_a_source_that_always_divides_by_zero_is_said_to() -> None:
    text = "rule r\n  var    x, a: float[...]\n  source d = Sub(x, x); y = Div(a, d)\n"
    text += "  target n = Neg(x); s = Add(x, n); y = Div(a, s)\n"
    verification = verify_rule(RuleSet.parse(text), 0, instances=4)
    assert not verification.ok and "divides by zero on every random instance" in str(verification)


def test_a_declared_kernel_without_channels_has_no_instance() -> None:
    """Drawing such a kernel divided by its channels, which ended the process."""
    text = "rule r\n  var    x: float[2, 1, 1, 1]; w: weight float[2, 0, 1, 1]\n  source y = Mul(x, w)\n"
    rules = RuleSet.parse(f"{text}  where  is_identity_kernel(w)\n  target y = Mul(w, x)\n")
    assert "cannot be verified" in str(verify_rule(rules, 0, instances=2))


@pytest.mark.parametrize(
    "target",
    [
        "c = ConstantOfShape(; shape=[10000000, 10000000], value=0.0); s = ReduceSum(c; axes=[0, 1], keepdims=0)",
        "e = Expand(x; shape=[30000, 30000, 4, 4]); s = ReduceMin(e; axes=[0, 1], keepdims=0)",
    ],
)
def test_huge_tensors_are_never_built(target: str) -> None:
    text = f"rule r\n  var    x: float[4, 4]\n  source t = Neg(x); y = Neg(t)\n  target {target}; y = Add(x, s)\n"
    verification = verify_rule(RuleSet.parse(text), 0, instances=4)
    assert not verification.ok and "elements together, and at most 3e+07 are compared" in str(verification)


def test_verification_ends_in_time() -> None:
    verification = verify_rule(DEFAULT, 0, instances=1000, seconds=0.05)
    assert not verification.ok and 0 < verification.rewrites < 1000
    assert "takes more than 0.05 seconds" in str(verification)


def test_unknown_rule_index_is_refused() -> None:
    with pytest.raises(IndexError):
        verify_rule(DEFAULT, len(DEFAULT))
