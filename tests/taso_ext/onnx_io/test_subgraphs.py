"""Bodies as models of their own: what is known of them, and that a model stays the same when they are put back."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnx.parser
import pytest

from environment.verification import verify
from taso_ext import OnnxModel
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import value_names
from taso_ext.onnx_io.session import create_session
from taso_ext.onnx_io.subgraphs import Place, body_at, places, with_body

LOOP = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 3] x) => (float[2, 3] y)
<int64 n = {4}, float[3, 3] w = {1,2,0, 0,1,0, 1,0,1}> {
  h0 = Relu(x)
  y = Loop <body = b (int64 i, bool c, float[a, 3] h) => (bool d, float[a, 3] k) {
    d = Identity(c) t = MatMul(h, w) u = Add(t, h0) k = Tanh(u)
  }> (n, , h0)
}
"""
IF = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 3] x, bool c, bool d) => (float[r, 3] y) {
  z = Tanh(x)
  y = If (c) <
    then_branch = t () => (float[2, 3] o) { a = Neg(z) o = Neg(a) },
    else_branch = e () => (float[q, 3] p) {
      k = Exp(z)
      p = If (d) <
        then_branch = t () => (float[4, 3] a) { b = Neg(k) a = Concat <axis = 0> (b, z) },
        else_branch = e () => (float[2, 3] b) { b = Sub(k, x) }
      >
    }
  >
}
"""
SCAN = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[3] s, float[3, 4] x) => (float[3] y, float[4, 3] z) {
  y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1],
    body = b (float[3] h, float[3] e) => (float[3] k, float[3] o) {
    k = Add(h, e) o = Neg(k)
  }> (s, x)
}
"""
GROWING = LOOP.replace("k = Tanh(u)", "k = Concat <axis = 0> (h, h)").replace("float[2, 3] y", "float[r, 3] y")


def exported(text: str) -> CheckedModel:
    model = OnnxModel.load(onnx.parser.parse_model(text))
    return model.export_checked(model.graph)


def through_the_engine(model: CheckedModel) -> CheckedModel:
    """Returns the model with each body imported, cleaned and exported again, the inner ones too."""
    for place in places(model):
        body = OnnxModel.load(body_at(model, place))
        model = with_body(model, place, through_the_engine(body.export_checked(body.graph)))
    return model


@pytest.mark.parametrize("text", [LOOP, IF, SCAN], ids=["Loop", "If", "Scan"])
def test_bodies_that_were_taken_out_and_put_back_compute_the_same(text: str) -> None:
    before = exported(text)
    after = through_the_engine(before)
    onnx.checker.check_model(after.to_proto(), full_check=True)
    found = verify(before, after)
    assert found.equal and found.comparable and found.reacts, found.reason


def test_a_body_computes_alone_what_it_computes_inside() -> None:
    model = exported(LOOP)
    body = body_at(model, Place("Loop", "y", "body"))
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    start = np.maximum(x, 0)
    state = start
    for i in range(4):
        feeds = {"i": np.array(i), "c": np.array(True), "h": state, "h0": start}
        _, state = create_session(body, "disabled").run(None, feeds)
    np.testing.assert_allclose(create_session(model, "disabled").run(None, {"x": x})[0], state, rtol=1e-6)


def test_captured_constants_are_weights_and_other_captured_values_are_inputs() -> None:
    body = body_at(exported(LOOP), Place("Loop", "y", "body"))
    assert "w" in body.tensors and [each.name for each in body.skeleton.graph.input] == ["i", "c", "h", "h0"]
    assert body.types["h"].dims == (2, 3), "the shape of a carried value that follows from itself is known"


@pytest.mark.parametrize(
    ("text", "reason"),
    [(GROWING, "may differ from one iteration"), (LOOP.replace("float[2, 3] x", "float[2, m] x"), "is not known")],
    ids=["growing", "symbolic"],
)
def test_a_body_whose_shapes_are_not_known_is_refused(text: str, reason: str) -> None:
    model = CheckedModel.from_proto(onnx.parser.parse_model(text))
    with pytest.raises(ModelError, match=reason):
        body_at(model, Place("Loop", "y", "body"))


def test_names_of_a_new_body_hide_no_others() -> None:
    """The new body calls its values and constants what others in the model are called."""
    model = exported(LOOP)
    place = Place("Loop", "y", "body")
    new = onnx.parser.parse_model("""
      <ir_version: 10, opset_import: ["" : 21]>
      g (int64 i, bool c, float[2, 3] h, float[2, 3] h0) => (bool d, float[2, 3] k)
      <float[3, 3] w = {2,0,0, 0,2,0, 0,0,2}> { d = Identity(c) x = MatMul(h, w) y = Sub(x, h0) n = Neg(y) k = Abs(n) }
    """)
    after = with_body(model, place, CheckedModel.from_proto(new))
    onnx.checker.check_model(after.to_proto(), full_check=True)
    body = next(each.g for each in after.skeleton.graph.node[-1].attribute)
    outer = {"x", "y", "n", "h0", *model.tensors}
    assert not outer & (value_names(body)), "a local value would hide an outer one"
    x = np.ones((2, 3), np.float32)
    state = x
    for _ in range(4):
        state = abs(-(2 * state - x))
    np.testing.assert_allclose(create_session(after, "disabled").run(None, {"x": x})[0], state)


def test_constants_that_nothing_reads_any_more_are_removed() -> None:
    """ONNX Runtime refuses large ones."""
    model = exported(LOOP)
    new = onnx.parser.parse_model("""
      <ir_version: 10, opset_import: ["" : 21]>
      g (int64 i, bool c, float[2, 3] h, float[2, 3] h0) => (bool d, float[2, 3] k) { d = Identity(c) k = Abs(h) }
    """)
    after = with_body(model, Place("Loop", "y", "body"), CheckedModel.from_proto(new))
    assert after.tensors.keys() == {"n"}


def test_a_body_of_another_opset_is_refused() -> None:
    model = exported(LOOP)
    place = Place("Loop", "y", "body")
    body = body_at(model, place)
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(body.skeleton)
    skeleton.opset_import[0].version = 22
    with pytest.raises(ModelError, match="opset 22"):
        with_body(model, place, dataclasses.replace(body, skeleton=skeleton))
