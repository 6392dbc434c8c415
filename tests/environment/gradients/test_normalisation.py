"""What training computes otherwise than inference: statistics of the batch, dropout, and which maximum is taken."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from environment.gradients import training_graph
from tests.environment.gradients.case import Case, run, session


def model_of(nodes: list[onnx.NodeProto], output: str, **weights: np.ndarray) -> onnx.ModelProto:
    """Returns a model of weights alone, with one output of floats."""
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    kind = helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "model", [], [kind], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("ratio", [0.25, 0.9, 0.0])
def test_what_dropout_drops_has_no_gradient(ratio: float) -> None:
    """The gradient of the sum is 1 / (1 - ratio) where the loss counts an element, and 0 elsewhere."""
    x = np.linspace(1, 2, 4000).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["ratio"], value=numpy_helper.from_array(np.float32(ratio))),
        helper.make_node("Dropout", ["x", "ratio"], ["y"], name="drop"),
    ]
    found = run(training_graph(model_of(nodes, "y", x=x), loss="sum"), {})
    gradient = found["x.gradient"]
    kept = gradient > 0
    np.testing.assert_allclose(gradient[kept], 1 / (1 - ratio), rtol=1e-6)
    assert (gradient[~kept] == 0).all()
    np.testing.assert_allclose(found["loss"], (x * gradient).sum(), rtol=1e-4)
    # A fair draw leaves five standard deviations less often than once in a million.
    assert abs(kept.mean() - (1 - ratio)) <= 5 * np.sqrt(ratio * (1 - ratio) / x.size)


def test_dropout_draws_anew_in_each_run() -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["y"], name="drop")]
    opened = session(training_graph(model_of(nodes, "y", x=np.ones(200, np.float32)), loss="sum"))
    first, second = (opened.run(["x.gradient"], {})[0] for _ in range(2))
    assert (first != second).any()


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_equal_elements_of_a_pool_give_their_gradient_to_the_one_that_the_pool_took(pads: list[int]) -> None:
    x = np.random.default_rng(0).integers(0, 2, (2, 3, 6, 6)).astype(np.float32)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads}
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], **attributes)]
    gradient = run(training_graph(model_of(nodes, "y", x=x), loss="sum"), {})["x.gradient"]
    both = model_of([helper.make_node("MaxPool", ["x"], ["y", "places"], **attributes)], "y", x=x)
    both.graph.output.append(helper.make_tensor_value_info("places", onnx.TensorProto.INT64, None))
    taken = run(both, {})["places"]
    expected = np.bincount(taken.ravel(), minlength=x.size).reshape(x.shape)
    np.testing.assert_array_equal(gradient, expected)


def test_equal_operators_are_differentiated_once() -> None:
    """The forward pass computes them once, and the cotangents of both come together there."""
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 6), dtype=np.float32)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["left"], **attributes),
        helper.make_node("Exp", ["left"], ["between"]),
        helper.make_node("MaxPool", ["x"], ["right"], **attributes),
        helper.make_node("Mul", ["right", "between"], ["y"]),
    ]
    once = [*nodes[:2], helper.make_node("Mul", ["left", "between"], ["y"])]
    found, expected = (run(training_graph(model_of(each, "y", x=x), loss="sum"), {}) for each in (nodes, once))
    np.testing.assert_array_equal(found["x.gradient"], expected["x.gradient"])


def test_running_statistics_move_towards_those_of_the_batch() -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, 3, 5), dtype=np.float32)
    mean, variance, ones = np.float32([1, 2, 3]), np.float32([4, 5, 6]), np.ones(3, np.float32)
    node = helper.make_node("BatchNormalization", ["x", "gain", "shift", "mean", "variance"], ["y"], momentum=0.75)
    weights = {"x": x, "gain": ones, "shift": 0 * ones, "mean": mean, "variance": variance}
    found = run(training_graph(model_of([node], "y", **weights), loss="sum", optimiser="sgd"), {})
    np.testing.assert_allclose(found["mean.updated"], 0.75 * mean + 0.25 * x.mean(axis=(0, 2)), rtol=1e-5)
    np.testing.assert_allclose(found["variance.updated"], 0.75 * variance + 0.25 * x.var(axis=(0, 2)), rtol=1e-5)


def test_an_output_that_no_loss_reads_has_a_cotangent_of_zeros() -> None:
    """The parts of a Split that are not used, and the Indices of a MaxPool, which have no gradient."""
    x = np.arange(6, dtype=np.float32)
    nodes = [
        helper.make_node("Split", ["x"], ["y", "unused"], num_outputs=2),
        helper.make_node("Identity", ["unused"], ["also_unused"]),
    ]
    found = run(training_graph(model_of(nodes, "y", x=x), loss="sum"), {})
    np.testing.assert_array_equal(found["x.gradient"], [1, 1, 1, 0, 0, 0])


def test_mode_names_of_other_paddings_are_refused() -> None:
    case = Case("Pad", "Pad", [np.ones((2, 3), np.float32), np.array([0, 1, 0, 1])], lambda x: x, {"mode": "edge"})
    with pytest.raises(ValueError, match=r"gradient of the operator Pad 'operator' .* in the mode 'edge'"):
        training_graph(case.model())
