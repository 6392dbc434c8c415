"""Graphs inside operators are rewritten too, as far as the result then computes the same and the clock agrees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from environment.verification import verify
from experiments.cli import main
from experiments.pipeline import bodies
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import all_nodes
from tests.experiments.pipeline.result.test_export import TRUE, WRONG, sealed
from tests.experiments.pipeline.test_select import Clock

LOOP = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 4] x) => (float[4, 4] y) <int64 n = {3}> {
  s = Sin(x)
  y = Loop <body = b (int64 i, bool c, float[4, 4] h) => (bool d, float[4, 4] k) {
    d = Identity(c) a = Neg(h) e = Neg(a) k = Add(e, s)
  }> (n, , s)
}
"""
SCAN = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 4] x) => (float[4, 4] y) <float[4] s = {0, 0, 0, 0}> {
  t, y = Scan <num_scan_inputs = 1, body = b (float[4] h, float[4] e) => (float[4] k, float[4] o) {
    k = Add(h, e) a = Neg(k) f = Neg(a) o = Sin(f)
  }> (s, x)
}
"""
NESTED = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 4] x) => (float[4, 4] y) <float zero = {0}> {
  z = Tanh(x)
  m = ReduceMax <keepdims = 0> (x)
  c = Greater(m, zero)
  y = If (c) <
    then_branch = t () => (float[4, 4] o) { a = Neg(z) b = Neg(a) o = Cos(b) },
    else_branch = e () => (float[4, 4] p) {
      k = Exp(z)
      p = If (c) <
        then_branch = f () => (float[4, 4] q) { a = Neg(k) b = Neg(a) q = Cos(b) },
        else_branch = h () => (float[4, 4] r) { a = Neg(k) b = Neg(a) r = Sin(b) }
      >
    }
  >
}
"""


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def optimised(
    capsys: pytest.CaptureFixture[str], text: str, *rules: str, flags: Sequence[str] = ()
) -> tuple[list[str], str]:
    """Returns the operators of the result, also the inner ones, and what was said; the result was compared."""
    onnx.save(onnx.parser.parse_model(text), "model.onnx")
    Path("my.rules").write_text("".join(map(sealed, rules)), encoding="utf-8")
    command = ["optimise", "model.onnx", "-o", "out.onnx", "--rules", "my.rules", "--controller", "taso", "--force"]
    if "--costs" not in flags and "--controller" not in flags:
        command += ["--costs", "roofline:rtx2070"]
    assert main([*command, *flags]) == 0
    before, after = (CheckedModel.from_proto(onnx.load(name)) for name in ("model.onnx", "out.onnx"))
    assert verify(before, after, seed=1).equal
    onnx.checker.check_model(after.to_proto(), full_check=True)
    return [node.op_type for node in all_nodes(after.skeleton.graph)], " ".join(capsys.readouterr().out.split())


def figures() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for run in Path("runs").iterdir():
        yield tuple(json.loads((run / name).read_text()) for name in ("result.json", "actions.json"))  # type: ignore


@pytest.mark.parametrize(("text", "count"), [(LOOP, 1), (SCAN, 1), (NESTED, 3)], ids=["Loop", "Scan", "nested If"])
def test_bodies_are_rewritten(text: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    operators, said = optimised(capsys, text, TRUE)
    assert "Neg" not in operators
    assert f"In subgraphs: {count} rewrite{'s' * (count > 1)}: drop-double-negation ({count})" in said
    assert "The result equals the model" not in said and "Verified in ONNX Runtime" in said
    ((result, log),) = figures()
    assert result["rules_in_subgraphs"] == {"drop-double-negation": count} and log["subgraphs"]


def test_a_resumed_run_replays_the_rewrites_of_bodies(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    optimised(capsys, NESTED, TRUE)
    first = Path("out.onnx").read_bytes()

    def no_search(*arguments: object) -> None:
        raise AssertionError("a finished search is only read")

    monkeypatch.setattr(bodies, "new_controller", no_search)
    optimised(capsys, NESTED, TRUE)
    assert Path("out.onnx").read_bytes() == first


def test_a_bad_rewrite_of_a_branch_that_no_input_takes_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The condition is the same for all inputs, so that only the branch as a model of its own shows the fault."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[4, 4] x) => (float[4, 4] y) <float low = {-1e30}> {
      z = Tanh(x) m = ReduceMax <keepdims = 0> (x) c = Greater(m, low)
      y = If (c) <
        then_branch = t () => (float[4, 4] o) { o = Cos(z) },
        else_branch = e () => (float[4, 4] p) { k = Neg(z) l = Neg(k) a = Abs(l) p = Sin(a) }
      >
    }
    """
    operators, said = optimised(capsys, text, TRUE, WRONG)
    assert "Abs" in operators and "Neg" not in operators
    assert "In the else_branch of If 'y': Rule 'drop-abs' was left out at location" in said


def test_a_body_with_which_the_whole_model_differs_stays_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here nothing is verified but the whole model."""
    text = LOOP.replace("k = Add(e, s)", "u = MatMul(e, s) f = Abs(u) k = MatMul(f, s)")
    monkeypatch.setattr(bodies, "without_faults", lambda run, part, record: bodies.Exported(part.model.source, record))
    operators, said = optimised(capsys, text, TRUE, WRONG)
    assert "Abs" in operators and "In subgraphs" not in said
    assert "The body of Loop 'y' stays as it is, because rewritten the output 'y' differs" in said


def test_a_body_of_unknown_shape_stays_as_it_is_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    growing = LOOP.replace("k = Add(e, s)", "k = Concat <axis = 0> (e, h)").replace("float[4, 4] y", "float[r, 4] y")
    operators, said = optimised(
        capsys, growing.replace("float[4, 4] h) => (bool d, float[4, 4] k)", "h) => (d, k)"), TRUE
    )
    assert operators.count("Neg") == 2
    assert "The body of Loop 'y' stays as it is, because" in said


@pytest.mark.parametrize(("ratio", "kept"), [(0.8, True), pytest.param(1.0, False, marks=pytest.mark.full)])
def test_by_the_clock_bodies_are_kept_only_if_the_result_is_faster(
    ratio: float, kept: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies.racing, "race", Clock([ratio]))
    monkeypatch.setattr("experiments.pipeline.optimise.confirmed", lambda selected, measured: selected)
    operators, said = optimised(capsys, LOOP, TRUE, flags=["--controller", "climb", "--time", "1", "--device", "cpu"])
    assert ("Neg" not in operators) == kept
    assert ("One subgraph could be rewritten, but that is not faster by the clock." in said) != kept
