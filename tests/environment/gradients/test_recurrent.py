"""Recurrent operators: what they are unrolled to computes the same as ONNX Runtime, and gradients are its slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from environment.gradients import training_graph
from environment.gradients.recurrent import unrolled
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from tests.environment.gradients.case import run

STEP = 2e-3
"""Of the finite differences."""
STEPS, BATCH, WIDTH, HIDDEN = 4, 2, 3, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
CASES: list[tuple[str, set[str], dict[str, Any]]] = [
    ("RNN", set(), {}),
    ("RNN", {"bias", "state"}, {"direction": "bidirectional", "activations": ["Relu", "Tanh"]}),
    ("GRU", {"bias"}, {}),
    ("GRU", {"bias", "state"}, {"linear_before_reset": 1, "direction": "reverse"}),
    ("GRU", {"bias", "state"}, {"direction": "bidirectional"}),
    ("LSTM", set(), {}),
    ("LSTM", {"bias", "state", "cell"}, {"direction": "bidirectional"}),
    ("LSTM", {"bias", "state", "cell", "peepholes"}, {"direction": "reverse"}),
]
BY_CASE = pytest.mark.parametrize(("op_type", "given", "attributes"), CASES)


def model_of(op_type: str, given: set[str], attributes: dict[str, Any]) -> onnx.ModelProto:
    """Returns a model of one operator whose operands are all weights."""
    directions, gates = 1 + (attributes.get("direction") == "bidirectional"), GATES[op_type] * HIDDEN
    shapes = {
        "x": (STEPS, BATCH, WIDTH),
        "w": (directions, gates, WIDTH),
        "r": (directions, gates, HIDDEN),
        "bias": (directions, 2 * gates),
        "": (),
        "state": (directions, BATCH, HIDDEN),
        "cell": (directions, BATCH, HIDDEN),
        "peepholes": (directions, 3 * HIDDEN),
    }
    names = [name if name in {"x", "w", "r", *given} else "" for name in shapes]
    while not names[-1]:
        names.pop()
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(size=shapes[name]).astype(np.float32), name) for name in names if name
    ]
    outputs = ["y", "last", *(["memory"] if op_type == "LSTM" else [])]
    node = helper.make_node(op_type, names, outputs, name="operator", hidden_size=HIDDEN, **attributes)
    graph = helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name=name) for name in outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


@BY_CASE
def test_what_it_is_unrolled_to_computes_the_same(op_type: str, given: set[str], attributes: dict[str, Any]) -> None:
    model = model_of(op_type, given, attributes)
    found = unrolled(CheckedModel.from_proto(model)).to_proto()
    assert op_type not in {node.op_type for node in found.graph.node}
    onnx.checker.check_model(found, full_check=True)
    expected, values = run(model, {}), run(found, {})
    assert expected.keys() == values.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=0, atol=2e-6)


@BY_CASE
def test_gradients_are_slopes_of_the_operator_itself(op_type: str, given: set[str], attributes: dict[str, Any]) -> None:
    """The loss of ONNX Runtime's own operator differs by the gradient times the step, along a random direction."""
    model, rng = model_of(op_type, given, attributes), np.random.default_rng(1)
    training = training_graph(model, loss="mean-square")
    targets = {
        value.name: rng.normal(size=[dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in training.graph.input
        if value.name.endswith(".target")
    }
    found = run(training, targets)

    def loss() -> float:
        outputs = run(model, {})
        return sum(float(np.mean((outputs[name] - targets[f"{name}.target"]) ** 2.0)) for name in outputs)

    assert found["loss"] == pytest.approx(loss(), rel=1e-5)
    for weight in model.graph.initializer:
        value = numpy_helper.to_array(weight)
        direction = rng.choice([-1.0, 1.0], value.shape).astype(np.float32)
        sides = []
        for step in (STEP, -STEP):
            weight.CopyFrom(numpy_helper.from_array(value + np.float32(step) * direction, weight.name))
            sides.append(loss())
        weight.CopyFrom(numpy_helper.from_array(value, weight.name))
        slope = float(np.sum(found[f"{weight.name}.gradient"] * direction))
        assert (sides[0] - sides[1]) / (2 * STEP) == pytest.approx(slope, rel=2e-2, abs=2e-3)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"clip": 1.0}, "it clips"),
        ({"activations": ["Softplus"]}, "it has the activations Softplus"),
    ],
)
def test_what_cannot_be_unrolled_is_refused(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=f"gradient of the operator RNN 'operator' cannot be written: {reason}"):
        training_graph(model_of("RNN", set(), attributes))
