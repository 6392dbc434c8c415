"""Models in which there is nothing to do are returned as they are, by every kind of controller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from experiments.cli import main

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
TEXTS = {
    "identity alone": "(float[2] x) => (float[2] y) { y = Identity(x) }",
    "no operators": "(float[2] x) => (float[2] x) { }",
    "no elements": "(float[0, 3] x) => (float[0, 3] y) { t = Relu(x) u = Neg(t) v = Neg(u) y = Relu(v) }",
    "a weight without elements": "(float[2, 0] x) => (float[2, 3] y) <float[0, 3] w = {}> { y = MatMul(x, w) }",
    "an initializer as output": "(float[2] x) => (float[2] y, float[2] w) <float[2] w = {1, 2}> { y = Relu(x) }",
    "a rewrite to nothing": "(float x) => (float y) { t = Neg(x) y = Neg(t) }",
}


def constants_only() -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(np.ones(3, np.float32)))
    graph = helper.make_graph([constant], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def undeclared_shape() -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD + "(float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


MODELS = {
    **{name: onnx.parser.parse_model(HEAD + text) for name, text in TEXTS.items()},
    "constants alone": constants_only(),
    "an output of undeclared shape": undeclared_shape(),
}


@pytest.mark.filterwarnings("default:.*does not declare the shape.*:taso_ext.errors.ModelWarning")
@pytest.mark.parametrize("controller", ["greedy", "taso", "ppo"])
@pytest.mark.parametrize("name", MODELS)
def test_there_is_always_a_result(
    name: str, controller: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if controller == "ppo" and name in ("no elements", "a rewrite to nothing"):
        pytest.skip("there is something to learn, which takes long")
    model = MODELS[name]
    onnx.save(model, "m.onnx")
    command = ["optimise", "m.onnx", "-o", "out.onnx", "--controller", controller, "--set", "measure.pairs=2"]
    command += ["--costs", "roofline:rtx2070"]
    assert main(command) == 0, capsys.readouterr().err
    result = onnx.load("out.onnx")
    onnx.checker.check_model(result, full_check=True)
    feeds = {
        value.name: np.ones([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
    }
    expected, found = (ReferenceEvaluator(each).run(None, feeds) for each in (model, result))
    for before, after in zip(expected, found, strict=True):
        np.testing.assert_array_equal(before, after)
    assert ("equals the model" in capsys.readouterr().out) == (name != "a rewrite to nothing")
