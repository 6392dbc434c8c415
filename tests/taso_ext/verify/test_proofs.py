"""Proofs record what was shown, they are enforced, and an edit of the rule or its proof is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto

from taso_ext import CostModel, RuleSet, State
from taso_ext._core import Graph, GraphBuilder
from taso_ext.verify.prove import prove_rule
from taso_ext.verify.rule_file import read_rule_file, with_proofs

RULE = "rule min-commutes\n  var    x, y: float[...]\n  source z = Min(x, y)\n  target z = Min(y, x)\n"
"""A rule whose proof has a domain, because no axiom is about Min."""
NEXT = "\n# Another one.\n\nrule other\n  var    x: float[m, n]\n  source y = Neg(x); z = Neg(y)\n  target z = x\n"
INSTANCES = 12


@pytest.fixture(scope="module")
def proof_text() -> str:
    """Proves the first rule once for the whole module."""
    return prove_rule(RULE, instances=INSTANCES).proof_text


@pytest.fixture
def proven(tmp_path: Path, proof_text: str) -> Path:
    """Writes a file of two rules, the first with its proof, and returns its path."""
    path = tmp_path / "some.rules"
    path.write_text(RULE + NEXT)
    path.write_text(with_proofs(path, {"min-commutes": proof_text}))
    return path


def test_recording_a_proof_changes_nothing_else(proven: Path) -> None:
    first, second = read_rule_file(proven)
    assert (first.text, first.is_current) == (RULE, True)
    assert not second.proof
    assert proven.read_text().replace(f"  proof  {first.proof}\n", "") == RULE + NEXT
    again = prove_rule(RULE, instances=2 * INSTANCES).proof_text
    proven.write_text(with_proofs(proven, {"min-commutes": again, "other": again}))
    assert [entry.proof for entry in read_rule_file(proven)] == [again, again]
    assert [entry.is_current for entry in read_rule_file(proven)] == [True, False]
    assert "# Another one.\n\nrule other" in proven.read_text()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("Min(y, x)", "Min(x, y)", "stale"),
        ("within(rank(x), 0,", "within(rank(x), 1,", "stale"),
        ("shapes=", "shapes=9", "stale"),
        ("digest(", "digest(0", "stale"),
        ("onnxruntime(", "unheard-of(", "unknown clause 'unheard-of'"),
        ("domain(", "domain", "cannot be read"),
        ("finite-field", "finite field", "cannot be read"),
        ("  digest(", "  domain() digest(", "two clauses 'domain'"),
    ],
)
def test_edited_rules_and_proofs_are_refused(proven: Path, old: str, new: str, complaint: str) -> None:
    text = proven.read_text()
    RuleSet.parse(text).require_proof(0)
    assert old in text
    proven.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=complaint) as error:
        RuleSet.load(str(proven))
    place = f"{proven}:5:3"
    assert str(error.value).startswith(place)
    assert f"rlflow rules verify {proven} --write" in str(error.value)


def test_a_rule_without_proof_is_refused_only_where_proofs_are_asked_for(proven: Path) -> None:
    assert len(RuleSet.load(str(proven), proven=False)) == 2
    with pytest.raises(ValueError, match=f"{proven}:10:6: rule 'other': expected a proof, but there is none"):
        RuleSet.load(str(proven))


def test_line_breaks_in_a_proof_do_not_matter(proven: Path) -> None:
    text = proven.read_text()
    broken = text.replace("  onnxruntime", "\n      onnxruntime")
    assert broken != text
    RuleSet.parse(broken).require_proof(0)


def add_of_rank(rank: int) -> Graph:
    builder = GraphBuilder()
    operands = [builder.input(name, TensorProto.FLOAT, [2] * rank) for name in "ab"]
    builder.output(builder.node("", "Min", {}, operands, [("c", TensorProto.FLOAT, [2] * rank)])[0])
    return builder.build()


@pytest.mark.parametrize("rank", range(8))
def test_a_rule_matches_nothing_outside_its_domain(rank: int) -> None:
    proof = "proof domain(within(rank(x), 1, 4), rank(x) != 2)"
    states = [State(add_of_rank(rank), RuleSet.parse(RULE + end), CostModel.roofline("xeon")) for end in ("", proof)]
    bare, restricted = (len(state.legal_actions()) for state in states)
    assert bare > 0
    assert (restricted > 0) == (rank in (1, 3, 4))


def concat(count: int) -> Graph:
    builder = GraphBuilder()
    operands = [builder.input(f"x{i}", TensorProto.FLOAT, [2, 3]) for i in range(count)]
    (joined,) = builder.node("", "Concat", {"axis": 0}, operands, [("c", TensorProto.FLOAT, [2 * count, 3])])
    builder.output(builder.node("", "Relu", {}, [joined], [("y", TensorProto.FLOAT, [2 * count, 3])])[0])
    return builder.build()


@pytest.mark.parametrize("count", range(2, 7))
def test_the_length_of_a_list_can_be_restricted(count: int) -> None:
    rules = RuleSet.parse(
        "rule spread\n  var *x: float\n  source t = Concat(*x; axis=d); y = Relu(t)\n"
        "  target *u = Relu(*x); y = Concat(*u; axis=d)\n  proof domain(within(count(x), 3, 5))\n"
    )
    state = State(concat(count), rules, CostModel.roofline("xeon"))
    assert (len(state.legal_actions()) > 0) == (3 <= count <= 5)


def conv_then_neg(group: int, pad: int) -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorProto.FLOAT, [1, 6, 5])
    weight = builder.weight("w", "w", TensorProto.FLOAT, [6, 6 // group, 1])
    attributes = {"dilations": [1], "group": group, "kernel_shape": [1], "pads": [pad, 0], "strides": [1]}
    (t,) = builder.node("", "Conv", attributes, [x, weight], [("t", TensorProto.FLOAT, [1, 6, 5 + pad])])
    builder.output(builder.node("", "Neg", {}, [t], [("y", TensorProto.FLOAT, [1, 6, 5 + pad])])[0])
    return builder.build()


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@pytest.mark.parametrize("pad", [0, 1, 2])
def test_attributes_that_a_rule_does_not_name_can_be_restricted(group: int, pad: int) -> None:
    rules = RuleSet.parse(
        "rule negate-weight\n  var x: float; w: weight float\n  source t = Conv(x, w; @r); y = Neg(t)\n"
        "  target v = Neg(w); y = Conv(x, v; @r)\n"
        "  proof domain(within(attribute(@r, group), 2, 3), within(attribute(@r, pads), 0, 1))\n"
    )
    state = State(conv_then_neg(group, pad), rules, CostModel.roofline("xeon"))
    assert (len(state.legal_actions()) > 0) == (group in (2, 3) and pad <= 1)


@pytest.mark.parametrize(
    ("domain", "complaint"),
    [
        ("within(rank(x), 1, 4", "expected a proof"),
        ("rank(q) == 1", "'q' is not defined"),
        ("attribute(@r, group) == 1", "'@r' is not bound"),
        ("rank(x) == 1; rank(x) == 2", "expected ','"),
        ("count(x) == 1", "both with and without"),
    ],
)
def test_a_domain_that_cannot_be_understood_is_refused(domain: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.rules"
    path.write_text(f"{RULE}  proof domain({domain})\n")
    with pytest.raises(ValueError, match=complaint) as error:
        RuleSet.load(str(path))
    assert str(error.value).startswith(f"{path}:5:3")


TANH_BY_SIGMOID = """rule tanh-by-sigmoid
  var    x: float[...]
  source y = Tanh(x)
  target d = Add(x, x); s = Sigmoid(d); t = Add(s, s); o = ConstantOfShape(; shape=[], value=1.0); y = Sub(t, o)
"""
VARIANCE_BY_MOMENTS = """rule variance-by-moments
  var    x: float[n, k]
  source m = ReduceMean(x; axes=[1], keepdims=1); d = Sub(x, m); q = Mul(d, d)
         y = ReduceMean(q; axes=[1], keepdims=1)
  where  k > 1
  target p = Mul(x, x); s = ReduceMean(p; axes=[1], keepdims=1); m = ReduceMean(x; axes=[1], keepdims=1)
         t = Mul(m, m); y = Sub(s, t)
"""


def test_a_proof_says_that_small_results_are_less_exact() -> None:
    outcome = prove_rule(TANH_BY_SIGMOID, instances=8, glances=8)
    assert "largest)" in outcome.proof_text


def test_results_that_vanish_beside_an_offset_are_not_merely_less_exact() -> None:
    outcome = prove_rule(VARIANCE_BY_MOMENTS, instances=8, glances=8)
    assert outcome.refuted


def test_an_attribute_that_a_rule_computes_may_be_rounded() -> None:
    """1 − β is 1 for some of the drawn β."""
    text = """rule complement-of-hard-sigmoid
  var    x: float; i: weight float[]
  source s = HardSigmoid(x; alpha=a, beta=b); y = Sub(i, s)
  where  value(i) == 1
  target y = HardSigmoid(x; alpha=0.0 - a, beta=1.0 - b)
"""
    assert prove_rule(text, instances=24, glances=60).proof is not None


ROUND = """rule move-one-out-of-round
  var    x: float[...]; c: weight float[]
  source t = Add(x, c); y = Round(t)
  where  value(c) == 1
  target r = Round(x); y = Add(r, c)
"""
SPLIT_ATTENTION = """rule split-masked-attention
  var    q: float[b, h, s, d]; k: float[b, h, t, d]; v: float[b, h, t, e]; m: weight float[s, t]
  source y = Attention(q, k, v, m; is_causal=0, scale=c, softcap=0.0)
  target f = ConstantOfShape(; shape=[], value=c); r = Mul(q, f); w = Transpose(k; perm=[0, 1, 3, 2])
         u = MatMul(r, w); a = Add(u, m); p = Softmax(a; axis=-1); y = MatMul(p, v)
"""
WINOGRAD = """rule correlate-in-two-parts
  var    x: float[n, c, h, w]; k: weight float[o, c, 1, 1]
  source y = Conv(x, k; kernel_shape=[1, 1], strides=[2, 1], dilations=[1, 1], group=1, pads=[0, 0, 0, 0])
  where  c >= 200 and o >= 32 and dims(x)[2] == 2
  target t = Conv(x, k; kernel_shape=[1, 1], strides=[1, 1], dilations=[1, 1], group=1, pads=[0, 0, 0, 0])
         y = Slice(t; axes=[2], starts=[1], ends=[2], steps=[1])
"""


@pytest.mark.parametrize("text", [ROUND, WINOGRAD], ids=["jumps", "large"])
def test_neither_a_jump_nor_a_large_graph_hides_a_difference(text: str) -> None:
    assert prove_rule(text, instances=24, glances=40).refuted


def test_a_mask_that_hides_a_whole_row_is_tried() -> None:
    assert "is_finite(m)" in prove_rule(SPLIT_ATTENTION, instances=24, glances=8).proof_text


def test_a_domain_leaves_out_numbers_that_are_nearer_to_zero_than_all_that_were_drawn() -> None:
    text = """rule scale-behind-pad
  var    x: float[...]; c: weight float[]
  source u = Mul(x, c); y = Pad(u; @r, value=v)
  where  value(c) != 0
  target t = Pad(x; @r, value=v / value(c)); y = Mul(t, c)
"""
    proof = prove_rule(text, instances=24, glances=40).proof
    assert proof is not None
    (condition,) = (each for each in proof.domain if "value(c)" in each)
    assert condition.count("within(value(c)") == 2


def test_wrong_rules_have_no_proof() -> None:
    outcome = prove_rule(RULE.replace("z = Min(y, x)", "z = Sub(y, x)"), instances=INSTANCES)
    assert outcome.proof is None
    assert "changes the function" in outcome.refusal


def test_a_rule_for_all_dtypes_needs_no_condition_on_types_unless_it_divides() -> None:
    """A product may wrap around in integers, so that dividing does not give the factor back."""
    text = "rule r\n  var    x: any[2, n]; c: weight any[]\n  source {}\n  where  value(c) == 2\n  target {}\n"
    ring = prove_rule(text.format("y = Mul(x, c)", "y = Add(x, x)"), instances=INSTANCES, glances=INSTANCES)
    assert ring.proof is not None
    assert "dtype" not in ring.proof_text
    quotient = prove_rule(text.format("p = Mul(x, c); y = Div(p, c)", "y = x"), instances=INSTANCES, glances=INSTANCES)
    assert 'dtype(x) == "double"' in quotient.proof_text
    assert "int32" not in quotient.proof_text


def test_a_rule_that_axioms_imply_has_no_domain(tmp_path: Path) -> None:
    outcome = prove_rule(RULE.replace("Min", "Add"), instances=INSTANCES)
    assert outcome.proof is not None
    assert (outcome.proof.axioms, outcome.proof.domain) == (("add-commutes",), ())
    path = tmp_path / "some.rules"
    path.write_text(f"{RULE.replace('Min', 'Add')}  proof  {outcome.proof_text}\n")
    assert RuleSet.load(str(path), proven=True).clauses(0)["axioms"] == "add-commutes"
    assert "domain" not in outcome.proof_text
