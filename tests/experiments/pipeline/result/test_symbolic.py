"""Symbolic dimensions stay symbolic in OUT if nothing depends on their sizes, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from environment.inputs import input_specs, random_feeds
from experiments.cli import main
from experiments.pipeline.loading import cases
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.dimensions import bind_dims, open_dims
from taso_ext.onnx_io.operators import all_nodes
from taso_ext.onnx_io.session import create_session
from tests.experiments.pipeline.result.test_export import TRUE, sealed

PYTORCH = Path(__file__).parents[3] / "taso_ext" / "samples" / "data" / "pytorch"
HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
MEAN = """rule mean-of-double-negation-by-sum
  var    x: float[m, k]
  source a = Neg(x); b = Neg(a); y = ReduceMean(b; axes=[0], keepdims=1)
  target s = ReduceSum(x; axes=[0], keepdims=1); f = ConstantOfShape(; shape=[], value=1.0 / m); y = Mul(s, f)
"""
"""What it makes depends on the size of the first axis."""
OF_FOUR = (
    "rule drop-double-negation-of-four\n  var    x: float[4, k]\n  source t = Neg(x); y = Neg(t)\n  target y = x\n"
)
"""It applies at one size alone."""
NEGATIONS = HEAD + "(float[batch, 6] x) => (float[batch, 6] y) { a = Sin(x) b = Neg(a) c = Neg(b) y = Tanh(c) }"
AVERAGED = HEAD + (
    "(float[batch, 600] x) => (float[1, 600] y) <int64[1] axis = {0}> { a = Neg(x) b = Neg(a) y = ReduceMean(b, axis) }"
)
RESHAPED = HEAD + (
    "(float[batch, 6] x) => (float[batch, 2, 3] y) <int64[2] r = {2, 3}, int64[1] begin = {0}, int64[1] end = {1}> "
    "{ a = Neg(x) b = Neg(a) s = Shape(b) n = Slice(s, begin, end) t = Concat <axis = 0> (n, r) y = Reshape(b, t) }"
)


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def optimised(
    capsys: pytest.CaptureFixture[str], model: str | Path, flags: Sequence[str], *rules: str
) -> tuple[CheckedModel, str]:
    """Returns the result and what was said."""
    proto = onnx.load(model) if isinstance(model, Path) else onnx.parser.parse_model(model)
    onnx.save(proto, "model.onnx")
    if rules:
        Path("my.rules").write_text("".join(map(sealed, rules)), encoding="utf-8")
        flags = [*flags, "--rules", "my.rules"]
    quick = ["--controller", "taso", "--costs", "roofline:xeon", "--set", "measure.pairs=2", "--force"]
    assert main(["optimise", "model.onnx", "-o", "out.onnx", *quick, *flags]) == 0
    result = CheckedModel.from_proto(onnx.load("out.onnx"))
    onnx.checker.check_model(result.to_proto(), full_check=True)
    return result, " ".join(capsys.readouterr().out.split())


def names(model: CheckedModel) -> set[str]:
    return {dim.name for dim in open_dims(model.skeleton.graph)}


def operators(model: CheckedModel) -> list[str]:
    return [node.op_type for node in all_nodes(model.skeleton.graph)]


def assert_equal_at(result: CheckedModel, **sizes: int) -> None:
    """Runs the model and the result at sizes of which neither the search nor the verification knows."""
    model = CheckedModel.from_proto(onnx.load("model.onnx"))
    feeds = random_feeds(input_specs(bind_dims(model, sizes, "model")), np.random.default_rng(3))
    before, after = (create_session(each, "disabled").run(None, feeds) for each in (model, result))
    for wanted, found in zip(before, after, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["residual_cnn-torchscript", "residual_cnn-dynamo"])
@pytest.mark.parametrize("batch", [1, 4])
def test_the_batch_of_a_convolutional_network_stays_symbolic(
    name: str, batch: int, capsys: pytest.CaptureFixture[str]
) -> None:
    result, said = optimised(capsys, PYTORCH / f"{name}.onnx", [f"--dim=batch={batch}"])
    assert names(result) == {"batch"}
    assert f"'batch' is symbolic in OUT; verified at batch={batch}; batch=3; batch=5" in said
    for size in (2, 9):
        assert_equal_at(result, batch=size)


@pytest.mark.parametrize("name", ["decoder-torchscript", "decoder-dynamo"])
def test_a_transformer_keeps_all_its_dimensions_if_it_is_asked_to(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--dim=batch=2", "--dim=length=8"]
    fixed, said = optimised(capsys, PYTORCH / f"{name}.onnx", flags)
    assert names(fixed) == {"batch"}, "its mask is a constant of the length"
    assert "'length' is fixed to 8 in OUT, because" in said and "depends on it" in said
    kept, said = optimised(capsys, PYTORCH / f"{name}.onnx", [*flags, "--symbolic=keep"])
    assert names(kept) == {"batch", "length"} and "are symbolic in OUT; verified at" in said
    for batch, length in ((4, 2), (1, 12)):
        assert_equal_at(kept, batch=batch, length=length)
    assert_equal_at(fixed, batch=7, length=8)


def test_a_shape_that_was_folded_follows_its_operand(capsys: pytest.CaptureFixture[str]) -> None:
    result, _ = optimised(capsys, RESHAPED, ["--dim=batch=8"], TRUE)
    assert operators(result) == ["Reshape"] and names(result) == {"batch"}
    assert_equal_at(result, batch=2)


def test_a_dimension_on_which_the_model_itself_depends_is_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    text = NEGATIONS.replace("y = Tanh(c)", "d = Reshape(c, s) y = Tanh(d)").replace(
        ") {", ") <int64[3] s = {4, 2, 3}> {", 1
    )
    result, said = optimised(capsys, text.replace("6] y", "2, 3] y"), ["--dim=batch=4"], TRUE)
    assert not names(result) and "Neg" not in operators(result)
    assert "'batch' is fixed to 4 in OUT, because the model runs at no other sizes of it that were tried." in said


@pytest.mark.parametrize(
    ("text", "rule", "size", "reason"),
    [
        (AVERAGED, MEAN, 8, "the operator Mul 'y' depends on it"),
        (NEGATIONS, OF_FOUR, 4, "the rewrite 'drop-double-negation-of-four' cannot be made at batch=3"),
    ],
    ids=["constant", "condition"],
)
def test_rewrites_on_which_a_size_depends_are_made_unless_the_dimension_is_to_stay(
    text: str, rule: str, size: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed, said = optimised(capsys, text, [f"--dim=batch={size}"], rule)
    assert not names(fixed) and f"'batch' is fixed to {size} in OUT, because {reason}." in said
    assert "Neg" not in operators(fixed)
    kept, said = optimised(capsys, text, [f"--dim=batch={size}", "--symbolic=keep"], rule)
    assert names(kept) == {"batch"} and "was left out at 1 place: 'batch' could not stay symbolic." in said
    assert_equal_at(kept, batch=5)


def test_the_search_for_a_symbolic_result_uses_no_rule_that_needs_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    """The rule of one size comes first and would be taken."""
    result, said = optimised(capsys, NEGATIONS, ["--dim=batch=4", "--symbolic=keep"], OF_FOUR, TRUE)
    assert names(result) == {"batch"} and "Neg" not in operators(result)
    assert "drop-double-negation 1" in said and "left out" not in said


def test_a_wrong_graph_is_noticed_at_other_sizes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the graph of the size of --dim is taken for that of all sizes; it names this size in a Reshape."""
    monkeypatch.setattr(cases, "merged", lambda models: models[0])
    result, said = optimised(capsys, RESHAPED, ["--dim=batch=8"], TRUE)
    assert not names(result) and operators(result) == ["Reshape"]
    assert "'batch' is fixed to 8 in OUT, because at batch=3" in said
    assert_equal_at(result, batch=8)


@pytest.mark.parametrize("rule", [TRUE, OF_FOUR], ids=["rewritten", "as it is"])
def test_all_dimensions_can_be_fixed(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    result, _ = optimised(capsys, NEGATIONS, ["--dim=batch=8", "--symbolic=fix"], rule)
    assert [dim.dim_value for dim in result.skeleton.graph.input[0].type.tensor_type.shape.dim] == [8, 6]


def test_a_model_without_rewrites_keeps_its_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    result, said = optimised(capsys, NEGATIONS, ["--dim=batch=8"], OF_FOUR)
    assert names(result) == {"batch"} and "the result equals the model" in said


def test_bodies_are_rewritten_at_all_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        HEAD
        + """(float[batch, 6] x) => (float[batch, 6] y) <int64 n = {3}> {
      s = Sin(x)
      y = Loop <body = b (int64 i, bool c, float[batch, 6] h) => (bool d, float[batch, 6] k) {
        d = Identity(c) a = Neg(h) e = Neg(a) k = Add(e, s)
      }> (n, , s)
    }"""
    )
    result, _ = optimised(capsys, text, ["--dim=batch=8"], TRUE)
    assert names(result) == {"batch"} and "Neg" not in operators(result)
    assert_equal_at(result, batch=2)
