"""Rewrites that change an output are left out, and the rest is delivered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from environment import GraphSubstitutionEnv
from experiments.cli import main
from taso_ext import RuleSet

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 4] x) => (float[4, 4] y) {
  a = Neg(x) b = Neg(a) c = Abs(b) d = Neg(c) e = Neg(d) f = Relu(e) y = Abs(f)
}
"""
TRUE = "rule drop-double-negation\n  var    x: float\n  source t = Neg(x); y = Neg(t)\n  target y = x\n"
WRONG = "rule drop-abs\n  var    x: float\n  source y = Abs(x)\n  target y = x\n"
"""Right behind a Relu only."""
WITHOUT_KERNEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (double[4, 4] x) => (double[4, 4] y) { a = Neg(x) b = Neg(a) c = Abs(b) y = Softsign(c) }
"""
"""ONNX Runtime has no Softsign of doubles, but onnx.reference has one."""
UNKNOWN = """
<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
g (float[4, 4] x) => (float[4, 4] y) <float[4, 4] h> { h = mine.Own(x) a = Neg(h) b = Neg(a) y = Relu(b) }
"""
RANDOM = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 4] x) => (float[4, 4] y) { h = RandomNormalLike(x) a = Neg(h) b = Neg(a) y = Add(b, x) }
"""
DEAD = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 4] x) => (float[4, 4] y) { z = Sub(x, x) a = Neg(z) b = Neg(a) y = Relu(b) }
"""


def sealed(text: str) -> str:
    """Returns a rule with a proof that nothing stands behind."""
    proof = "finite-field(primes=2, shapes=64, error<2^-117)  onnxruntime(32)  domain()"
    return f"{text}  proof  {proof}  digest({RuleSet.parse(text).seal(0, proof)})\n"


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(
    capsys: pytest.CaptureFixture[str],
    model: str | onnx.ModelProto,
    *rules: str,
    flags: Sequence[str] = (),
    status: int = 0,
) -> tuple[onnx.ModelProto, str]:
    """Returns the result of a command that ends with `status`, and what was said."""
    onnx.save(onnx.parser.parse_model(model) if isinstance(model, str) else model, "model.onnx")
    Path("my.rules").write_text("".join(map(sealed, rules)), encoding="utf-8")
    command = ["optimise", "model.onnx", "-o", "out.onnx", "--rules", "my.rules", "--controller", "taso", "--force"]
    command += ["--costs", "roofline:rtx2070"]
    found = main([*command, *flags])
    said = capsys.readouterr()
    assert found == status, said.err
    return onnx.load("out.onnx"), " ".join(said.out.split())


def optimised(capsys: pytest.CaptureFixture[str], text: str, *rules: str) -> tuple[list[str], str]:
    """Returns the operators of the result, which was compared with the model, and what was said."""
    result, said = written(capsys, text, *rules)
    model = onnx.load("model.onnx")
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    before, after = (ReferenceEvaluator(each).run(None, feeds)[0] for each in (model, result))
    np.testing.assert_array_equal(before, after)
    return [node.op_type for node in result.graph.node], said


def test_one_bad_rewrite_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    operators, said = optimised(capsys, MODEL, TRUE, WRONG)
    assert operators == ["Abs", "Relu"], "where the wrong rule is right, it stays"
    assert "Rule 'drop-abs' was left out at location" in said


def test_a_rule_that_is_bad_twice_goes_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    twice = MODEL.replace("y = Abs(f)", "y = Abs(f) z = Abs(x)").replace(
        "(float[4, 4] y)", "(float[4, 4] y, float[4, 4] z)"
    )
    operators, said = optimised(capsys, twice, TRUE, WRONG)
    assert operators.count("Abs") == 3 and "Neg" not in operators
    assert "Rule 'drop-abs' was left out everywhere" in said


def test_a_model_of_which_nothing_can_be_rewritten_is_returned_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    one = '<ir_version: 10, opset_import: ["" : 21]> g (float[4, 4] x) => (float[4, 4] y) { a = Sin(x) y = Abs(a) }'
    operators, said = optimised(capsys, one, WRONG)
    assert operators == ["Sin", "Abs"] and "The result equals the model" in said


def test_where_onnx_runtime_lacks_an_operator_onnx_reference_judges(capsys: pytest.CaptureFixture[str]) -> None:
    result, said = written(capsys, WITHOUT_KERNEL, TRUE)
    assert [node.op_type for node in result.graph.node] == ["Abs", "Softsign"]
    assert "Verified in onnx.reference" in said and "Not measured end to end, because ONNX Runtime" in said
    result, said = written(capsys, WITHOUT_KERNEL, TRUE, WRONG)
    assert [node.op_type for node in result.graph.node] == ["Abs", "Softsign"]
    assert "Rule 'drop-abs' was left out" in said


LOW_RANK = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 256] x) => (float[4, 256] y) { t = MatMul(x, a) u = MatMul(t, b) n = Neg(u) y = Neg(n) }
"""
JOIN = """rule join-matmuls
  var    x: float[m, k]; a: weight float[k, l]; b: weight float[l, n]
  source t = MatMul(x, a); y = MatMul(t, b)
  target w = MatMul(a, b); y = MatMul(x, w)
"""


@pytest.mark.parametrize(("most", "operators"), [("1.5", ["MatMul", "MatMul"]), ("150", ["MatMul"])])
def test_rewrites_that_make_the_file_too_large_are_left_out(
    most: str, operators: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, rng = onnx.parser.parse_model(LOW_RANK), np.random.default_rng(0)
    for name, dims in {"a": (256, 1), "b": (1, 256)}.items():
        array = rng.standard_normal(dims).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    result, said = written(capsys, model, TRUE, JOIN, flags=["--max-growth", most])
    assert [node.op_type for node in result.graph.node] == operators
    assert ("Rule 'join-matmuls' was left out at 1 place, because OUT would be" in said) == (len(operators) == 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [(UNKNOWN, "runs on none of the inputs"), (RANDOM, "other values each time"), (DEAD, "did not react")],
    ids=["unknown operator", "random", "dead"],
)
def test_what_cannot_be_verified_is_delivered_and_said_first(
    text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result, said = written(capsys, text, TRUE, status=3)
    assert "Neg" not in [node.op_type for node in result.graph.node]
    assert said.startswith("Not verified: ") and reason in said and "Verified in" not in said
    report = next(Path("runs").glob("*/report.md")).read_text(encoding="utf-8")
    assert report.splitlines()[2].startswith("Not verified: ")
    written(capsys, text, TRUE, flags=["--unverified"], status=0)


@pytest.mark.parametrize("everywhere", ["true", "false"])
def test_single_rewrites_of_a_step_everywhere_are_left_out(everywhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Greedy takes a rule everywhere, as one step; of its rewrites only the bad one goes."""
    chosen = ["--controller", "greedy", "--set", f"environment.everywhere={everywhere}"]
    result, said = written(capsys, MODEL, TRUE, WRONG, flags=chosen)
    assert [node.op_type for node in result.graph.node] == ["Abs", "Relu"], "where the wrong rule is right, it stays"
    assert "Rule 'drop-abs' was left out at location" in said
    run = next(Path("runs").glob("*"))
    log = json.loads((run / "actions.json").read_text())["actions"]
    graph_hash = json.loads((run / "result.json").read_text())["graph_hash"]
    env = GraphSubstitutionEnv("model.onnx", rules="my.rules", everywhere=False)
    assert env.replay([(each["rule"], each["location"]) for each in log]).hash == graph_hash
    evaluation = json.loads((run / "checkpoints" / "evaluation.json").read_text())["deterministic"]
    assert any(evaluation["everywhere"]) == (everywhere == "true")
