"""Training graphs of whole networks: their gradients, the steps of optimisers, and what the engine makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tensorflow as tf

from environment import zoo
from environment.gradients import training_graph, training_model
from environment.gradients.optimisers import Adam, RmsProp, Sgd
from environment.inputs import input_specs, timing_feeds
from experiments.baselines.tensorflow.runtime import tensorflow_function
from taso_ext import OnnxModel
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.reading import read_model
from tests.environment.gradients.case import Arrays, run, session

TINY = [name for name in zoo.names() if name.endswith("-tiny")]
QUICK = {"squeezenet1.1-tiny", "resnet18-tiny", "bert-base-tiny", "nasrnn-tiny"}
UNGROUPED = "resnext50-tiny"
"""A network whose grouped convolutions TensorFlow cannot differentiate on a CPU."""


def networks(*left_out: str) -> list[Any]:
    """Returns the tiny networks; all but the quick ones are checked on request only."""
    names = [name for name in TINY if name not in left_out]
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in names]


def random_feeds(model: onnx.ModelProto, seed: int = 0) -> Arrays:
    """Returns inputs, and targets that make a loss that depends on every output."""
    specs = input_specs(read_model(model))
    return timing_feeds(specs, np.random.default_rng(seed))


@pytest.mark.parametrize("name", networks(UNGROUPED))
def test_gradients_are_those_of_tensorflow(name: str) -> None:
    model = zoo.build(name)
    training = training_graph(model)
    feeds = random_feeds(training)
    found = run(training, feeds)
    loss, expected = _by_tensorflow(with_norms_of_the_batch(model), training, feeds)
    np.testing.assert_allclose(found.pop("loss"), loss, rtol=1e-4)
    assert found.keys() == expected.keys()
    largest = max(np.abs(gradient).max() for gradient in expected.values())
    for key, gradient in expected.items():
        scale = np.abs(gradient).max() + 1e-3 * largest  # a bias before a norm has a gradient of rounding errors
        np.testing.assert_allclose(found[key], gradient, rtol=0, atol=2e-3 * scale, err_msg=key)


@pytest.mark.parametrize("name", ["nmt-tiny", "bert-base-tiny"])
def test_gradients_that_are_added_up_as_they_come_are_the_same(name: str) -> None:
    model = zoo.build(name)
    sums, chains = (training_graph(model, accumulate=each) for each in (False, True))
    feeds = random_feeds(sums)
    found, expected = run(chains, feeds), run(sums, feeds)
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        np.testing.assert_allclose(found[key], gradient, rtol=0, atol=1e-5 * (np.abs(gradient).max() + 1e-3))
    late = [sum(n.name.startswith("/training/gradients/") for n in each.graph.node) for each in (sums, chains)]
    assert late[1] == 0 and (late[0] > 0) == (name == "nmt-tiny")  # no weight of BERT is read twice


def with_norms_of_the_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model with batch norms written out, by the mean and the variance of the batch."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    for node in model.graph.node:
        if node.op_type != "BatchNormalization":
            changed.graph.node.append(node)
            continue
        x, scale, shift, *_ = node.input
        epsilon = np.float32(onnx.helper.get_node_attr_value(node, "epsilon"))
        values = {"axes": np.array([0, 2, 3]), "by_channel": np.array([1, -1, 1, 1]), "epsilon": epsilon}
        written = [
            *((("Constant", [], key), {"value": onnx.numpy_helper.from_array(value)}) for key, value in values.items()),
            (("ReduceMean", [x, "axes"], "mean"), {}),
            (("Sub", [x, "mean"], "centred"), {}),
            (("Mul", ["centred", "centred"], "square"), {}),
            (("ReduceMean", ["square", "axes"], "variance"), {}),
            (("Add", ["variance", "epsilon"], "positive"), {}),
            (("Sqrt", ["positive"], "deviation"), {}),
            (("Div", ["centred", "deviation"], "normed"), {}),
            (("Reshape", [scale, "by_channel"], "gain"), {}),
            (("Reshape", [shift, "by_channel"], "offset"), {}),
            (("Mul", ["normed", "gain"], "scaled"), {}),
            (("Add", ["scaled", "offset"], "result"), {}),
        ]
        outer = {x: x, scale: scale, shift: shift, "result": node.output[0]}
        for (op_type, inputs, output), attributes in written:
            names = [outer.get(name, f"{node.name}/{name}") for name in (*inputs, output)]
            changed.graph.node.append(onnx.helper.make_node(op_type, names[:-1], names[-1:], **attributes))
    return changed


def _by_tensorflow(model: onnx.ModelProto, training: onnx.ModelProto, feeds: Arrays) -> tuple[float, Arrays]:
    """Returns the mean square loss and its gradients, by a TensorFlow function of inputs and weights."""
    names = [output.name.removesuffix(".gradient") for output in training.graph.output if output.name != "loss"]
    checked = read_model(model)
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(checked.skeleton)
    for key in names:
        tensor = checked.tensors[key]
        dims = [int(size) for size in tensor.shape]  # type: ignore[arg-type]
        skeleton.graph.input.append(onnx.helper.make_tensor_value_info(key, tensor.dtype.value, dims))
    rest = {key: tensor for key, tensor in checked.tensors.items() if key not in names}
    function = tensorflow_function(CheckedModel(skeleton, rest), xla=False)
    weights = {key: tf.constant(checked.tensors[key].numpy()) for key in names}
    inputs = {value.name: tf.constant(feeds[value.name]) for value in model.graph.input}
    with tf.GradientTape() as tape:
        tape.watch(weights)
        outputs = function(*({**inputs, **weights}[value.name] for value in skeleton.graph.input))
        loss = tf.add_n(
            [
                tf.reduce_mean((output - feeds[f"{value.name}.target"]) ** 2)
                for value, output in zip(model.graph.output, outputs, strict=True)
            ]
        )
    gradients = tape.gradient(loss, weights)
    return float(loss), {f"{key}.gradient": tf.convert_to_tensor(each).numpy() for key, each in gradients.items()}


def slope(opened: Any, feeds: Arrays, weight: str, value: np.ndarray, direction: np.ndarray, step: float) -> float:
    """Returns the slope of the loss along a unit vector, by a central difference."""
    below, above = (
        float(opened.run(["loss"], {**feeds, weight: value + np.float32(sign * step) * direction})[0])
        for sign in (-1, 1)
    )
    return (above - below) / (2 * step)


@pytest.mark.parametrize("name", [*sorted(QUICK), UNGROUPED])
def test_gradients_are_slopes_of_the_loss(name: str) -> None:
    """Along the part of each weight's gradient that a random half of its elements make, the slope is its length."""
    training, generator = training_graph(zoo.build(name)), np.random.default_rng(0)
    feeds = random_feeds(training)
    opened, found = session(training), run(training, feeds)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in training.graph.initializer}
    ratios = []
    for key, gradient in found.items():
        weight = key.removesuffix(".gradient")
        if key == "loss" or np.abs(gradient).max() < 1e-4:
            continue
        part = gradient * (generator.random(gradient.shape) < 0.5)
        length = float(np.linalg.norm(part))
        if length < 0.2 * np.linalg.norm(gradient):
            continue
        step = min(0.003, 0.001 * float(found["loss"]) / length)
        measured = slope(opened, feeds, weight, weights[weight], part / np.float32(length), step)
        ratios.append(measured / length)
    assert len(ratios) > 0.5 * (len(found) - 1)
    assert np.median(ratios) == pytest.approx(1, abs=0.005)
    assert np.mean(np.abs(np.array(ratios) - 1) < 0.03) > 0.85  # some steps pass kinks of ReLUs and of maxima


def test_the_gradient_of_a_sum_of_losses_is_the_sum_of_gradients() -> None:
    model = zoo.build("nasrnn-tiny")
    parts = [["output"], ["last_cell_state"], ["output", "last_cell_state"]]
    graphs = [training_graph(model, outputs=outputs) for outputs in parts]
    feeds = random_feeds(graphs[2])
    first, second, both = (
        run(graph, {value.name: feeds[value.name] for value in graph.graph.input if value.name in feeds})
        for graph in graphs
    )
    for key, value in both.items():
        np.testing.assert_allclose(value, first.get(key, 0) + second.get(key, 0), rtol=1e-4, atol=1e-7)


def test_cross_entropy_is_that_of_tensorflow() -> None:
    for name, axis in (("squeezenet1.1-tiny", -1), ("csrnet-tiny", 1)):
        model = zoo.build(name)
        training = training_graph(model, loss="cross-entropy", axis=axis)
        feeds = random_feeds(training)
        logits = tf.constant(session(model).run(["output"], {"input": feeds["input"]})[0])
        labels = feeds["output.labels"] % logits.shape[axis]
        found = run(training, {**feeds, "output.labels": labels})
        moved = logits if axis == -1 else tf.transpose(logits, [0, 2, 3, 1])
        expected = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, moved))
        np.testing.assert_allclose(found["loss"], expected, rtol=1e-4, atol=1e-6)


def test_the_gradient_of_cross_entropy_is_the_slope_of_the_loss() -> None:
    training = training_graph(zoo.build("squeezenet1.1-tiny"), loss="cross-entropy")
    feeds = random_feeds(training)
    found, opened = run(training, feeds), session(training)
    gradient = found["classifier.1.bias.gradient"]
    bias = next(t for t in training.graph.initializer if t.name == "classifier.1.bias")
    length = float(np.linalg.norm(gradient))
    values = onnx.numpy_helper.to_array(bias)
    measured = slope(opened, feeds, bias.name, values, gradient / np.float32(length), 0.01)
    assert measured == pytest.approx(length, rel=0.01)


def adam(w: np.ndarray, g: np.ndarray, state: list[np.ndarray], count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Algorithm 1 of Kingma and Ba 2015."""
    m, v = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * g * g
    return w - 0.001 * (m / (1 - 0.9**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8), [m, v]


def rmsprop(w: np.ndarray, g: np.ndarray, state: list[np.ndarray], count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    v = 0.9 * state[0] + 0.1 * g * g
    m = 0.9 * state[1] + 0.001 * g / np.sqrt(v + 1e-10)
    return w - m, [v, m]


def sgd(w: np.ndarray, g: np.ndarray, state: list[np.ndarray], count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    return w - 0.01 * g, []


@pytest.mark.parametrize(
    ("name", "kind", "formula"), [("sgd", Sgd(), sgd), ("adam", Adam(), adam), ("rmsprop", RmsProp(), rmsprop)]
)
def test_three_steps_are_those_of_numpy(name: str, kind: Any, formula: Any) -> None:
    """What a step returns as `X.updated` is fed as `X` to the next one; gradients come from a graph of their own."""
    model = zoo.build("nasrnn-tiny")
    step, gradients = session(training_graph(model, optimiser=name)), session(training_graph(model))
    feeds = random_feeds(training_graph(model))
    outputs = [output.name for output in step.get_outputs()]
    weights = {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}
    states = {key: [np.zeros_like(value) for _ in kind.remembers] for key, value in weights.items()}
    fed: Arrays = {}
    for count in (1, 2, 3):
        now = {key: value.astype(np.float32) for key, value in weights.items()}
        names = [f"{key}.gradient" for key in weights]
        found = dict(zip(weights, gradients.run(names, {**feeds, **now}), strict=True))
        for key, gradient in found.items():
            weights[key], states[key] = formula(weights[key], gradient.astype(np.float64), states[key], count)
        results = dict(zip(outputs, step.run(outputs, {**feeds, **fed}), strict=True))
        fed = {key.removesuffix(".updated"): value for key, value in results.items() if key != "loss"}
        for key, value in weights.items():
            np.testing.assert_allclose(fed[key], value, rtol=0, atol=1e-4 * np.abs(value).max())
    assert name != "adam" or fed["step"] == 3


def test_an_optimiser_makes_the_loss_smaller() -> None:
    """Ten steps with batch norms, whose statistics move as well."""
    opened = session(training_graph(zoo.build("resnet18-tiny:batch=4"), loss="cross-entropy", optimiser="adam"))
    generator = np.random.default_rng(0)
    fed = {
        "input": generator.standard_normal((4, 3, 32, 32), dtype=np.float32),
        "output.labels": np.array([0, 1, 2, 3]),
    }
    outputs, losses = [output.name for output in opened.get_outputs()], []
    for _ in range(10):
        results = dict(zip(outputs, opened.run(outputs, fed), strict=True))
        losses.append(float(results.pop("loss")))
        fed |= {key.removesuffix(".updated"): value for key, value in results.items()}
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.8 * losses[0]
    assert "bn1.running_mean" in fed


@pytest.mark.parametrize("optimiser", [None, "adam"])
@pytest.mark.parametrize("name", networks())
def test_training_graphs_are_valid_and_the_engine_keeps_what_they_compute(name: str, optimiser: str | None) -> None:
    model = training_graph(zoo.build(name), optimiser=optimiser)
    onnx.checker.check_model(model, full_check=True)
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    loaded = OnnxModel.load(model)
    feeds = random_feeds(model)
    before, after = run(model, feeds), run(loaded.export(loaded.graph), feeds)
    for key, value in before.items():
        if key.removesuffix(".updated") in zoo_weights(model):
            continue  # Adam divides a gradient by its size, also where both are rounding errors
        scale = np.abs(value).max() + 1e-4
        np.testing.assert_allclose(after[key] / scale, value / scale, rtol=0, atol=2e-3, err_msg=key)


def zoo_weights(model: onnx.ModelProto) -> set[str]:
    """Returns the weights that an optimiser changes."""
    return {t.name.removesuffix(".first_moment") for t in model.graph.initializer if t.name.endswith(".first_moment")}


def test_weights_are_not_copied() -> None:
    """The training graph holds the tensors of the model that it is made of."""
    given = read_model(zoo.build("resnet18-tiny"))
    made = training_model(given, optimiser="adam")
    assert all(made.defaults[key] is tensor for key, tensor in given.tensors.items() if key in made.defaults)


def test_weights_that_are_named_are_trained_alone() -> None:
    whole, part = (training_graph(zoo.build("resnet18-tiny"), train=train) for train in (None, ["fc.*", "layer2.*"]))
    outputs = [output.name for output in part.graph.output]
    assert outputs[0] == "loss" and len(outputs) > 3
    assert all(name.startswith(("fc.", "layer2.")) for name in outputs[1:])
    assert len(part.graph.node) < len(whole.graph.node)
    feeds = random_feeds(whole)
    expected, found = run(whole, feeds), run(part, feeds)
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)


def _model(op_type: str, domain: str = "", dims: Any = (2,), width: int = 2) -> onnx.ModelProto:
    helper = onnx.helper
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["scaled"], name="scale"),
        helper.make_node(op_type, ["scaled"], ["y"], name="middle", domain=domain),
    ]
    kinds = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name in ("x", "y")]
    weight = onnx.numpy_helper.from_array(np.ones(width, np.float32), "w")
    graph = helper.make_graph(nodes, "model", kinds[:1], kinds[1:], [weight])
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (_model("Acosh"), {}, r"gradient of the operator Acosh of the node 'middle' is not known\..*--train"),
        (_model("Odd", "mine"), {}, r"that of 'y', the result of the operator mine\.Odd 'middle', is not known"),
        (_model("Floor"), {}, r"the loss of the given model depends on none of the weights"),
        (_model("Exp", dims=["n"], width=1), {}, r"the shape of every value, but that of 'y', .*, is not known.*--dim"),
        (_model("Exp"), {"loss": "mean-squares"}, r"no loss is called 'mean-squares' \(did you mean 'mean-square'\?\)"),
        (_model("Exp"), {"optimiser": "adm"}, r"no optimiser is called 'adm' \(did you mean 'adam'\?\)"),
        (_model("Exp"), {"outputs": ["z"]}, r"no output of floats called 'z'; it has y\."),
        (_model("Exp"), {"train": ["v*"]}, r"no weight called 'v\*'.* It has w\."),
        (_model("Exp"), {"loss": "cross-entropy", "axis": 1}, r"the shape \[2\], and no axis 1 of classes.*--axis"),
    ],
)
def test_what_cannot_be_done_is_one_clear_error(model: onnx.ModelProto, settings: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        training_graph(model, **settings)


def test_a_symbolic_dimension_can_have_a_size() -> None:
    graph = training_graph(_model("Exp", dims=["n"], width=1), dims={"n": 2})
    assert set(run(graph, random_feeds(graph))) == {"loss", "w.gradient"}


@pytest.mark.parametrize("opset", [11, 12])
def test_models_of_older_opsets_are_raised(opset: int) -> None:
    """In opset 11, axes are attributes and Softmax works on a matrix."""
    x = np.random.default_rng(0).standard_normal((2, 1, 3, 4), dtype=np.float32)
    helper = onnx.helper
    older = [
        helper.make_node("Squeeze", ["w"], ["squeezed"], axes=[1]),
        helper.make_node("Softmax", ["squeezed"], ["shares"], axis=2),
        helper.make_node("ReduceMean", ["shares"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Mul", ["mean", "x"], ["y"]),
    ]
    newer = [
        helper.make_node("Constant", [], ["axes"], value_ints=[1]),
        helper.make_node("Squeeze", ["w", "axes"], ["squeezed"]),
        helper.make_node("Softmax", ["squeezed"], ["shares"], axis=2),
        helper.make_node("ReduceMean", ["shares", "axes"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "x"], ["y"]),
    ]
    graphs = []
    for nodes, version in ((older, opset), (newer, 18)):
        kinds = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 4]) for name in ("x", "y")]
        graph = helper.make_graph(nodes, "model", kinds[:1], kinds[1:], [onnx.numpy_helper.from_array(x, "w")])
        opsets = [helper.make_opsetid("", version)]
        graphs.append(training_graph(helper.make_model(graph, opset_imports=opsets, ir_version=8)))
    feeds = random_feeds(graphs[1])
    found, expected = (run(graph, feeds) for graph in graphs)
    assert {each.version for each in graphs[0].opset_import} == {18}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-7)


@pytest.mark.full
def test_training_graphs_of_all_networks_have_the_documented_sizes() -> None:
    """Operators, without constants, of the model, of its gradients, and of a step of Adam."""
    rows = []
    for name in (name for name in zoo.names() if name not in TINY):
        model = zoo.build(name)
        graphs = [training_model(model, optimiser=optimiser).skeleton for optimiser in (None, "adam")]
        sizes = [sum(node.op_type != "Constant" for node in each.graph.node) for each in (model, *graphs)]
        rows.append(f"| `{name}` | {' | '.join(f'{size:,}' for size in sizes)} |")
    print("\n".join(rows))
    page = (Path(__file__).parents[3] / "docs/how-to/training-graphs.md").read_text(encoding="utf-8")
    assert set(rows) <= set(page.splitlines())
