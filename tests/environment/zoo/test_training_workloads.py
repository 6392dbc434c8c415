"""The networks whose training graphs are fused and placed are the published ones: parameters, shapes and functions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import zoo
from taso_ext.onnx_io.checked_model import CheckedModel

Arrays = dict[str, np.ndarray]


def parameters(model: onnx.ModelProto, *left_out: str) -> int:
    """Counts the elements of initializers, but for those whose names contain one of the texts."""
    tensors = [tensor for tensor in model.graph.initializer if not any(text in tensor.name for text in left_out)]
    return sum(math.prod(tensor.dims) for tensor in tensors)


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node if node.op_type != "Constant")


def dims(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def weights(model: onnx.ModelProto) -> Arrays:
    return {t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer}


def run(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    return list(onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds))


def test_mnasnet_has_the_published_number_of_parameters() -> None:
    """Source: the metadata of torchvision's MNASNet1_0_Weights. A block has 3 convolutions. There are 16 blocks."""
    model = zoo.build("mnasnet")
    assert parameters(model, ".running_") == 4_383_312
    counts = operators(model)
    assert counts["Conv"] == 3 * 16 + 4 and counts["Add"] == 2 + 2 + 2 + 1 + 3
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    depthwise = [node for node in convolutions if onnx.helper.get_node_attr_value(node, "group") > 1]
    kernels = Counter(onnx.helper.get_node_attr_value(node, "kernel_shape")[0] for node in depthwise)
    assert kernels == {3: 1 + 3 + 2 + 1, 5: 3 + 3 + 4}


def test_unet_has_the_layers_and_sizes_of_its_figure() -> None:
    """Two 3x3 convolutions with biases a level on the way down and up, four up-convolutions, a 1x1 at the end."""
    model = zoo.build("unet")
    widths = [64, 128, 256, 512, 1024]
    expected = 0
    for before, after in zip([1, *widths], widths, strict=False):
        expected += 9 * before * after + after + 9 * after * after + after
    for width in widths[:-1]:  # the up-convolution halves the channels, the copy doubles them again
        expected += 4 * 2 * width * width + width + 9 * 2 * width * width + width + 9 * width * width + width
    assert parameters(model) == expected + 64 * 2 + 2
    expected_operators = {"Conv": 19, "Relu": 18, "MaxPool": 4, "ConvTranspose": 4, "Slice": 4, "Concat": 4}
    assert operators(model) == expected_operators
    assert dims(model.graph.output[0]) == [1, 2, 388, 388]


@pytest.mark.parametrize(
    ("size", "reason"), [(45, "an even number of pixels"), (12, "a window of 3 pixels finds 2 left")]
)
def test_an_image_that_does_not_fit_a_unet_is_an_error(size: int, reason: str) -> None:
    with pytest.raises(zoo.ZooError, match=f"unet-tiny cannot be built.*{reason}"):
        zoo.build("unet-tiny", image_size=size)


def test_ssd_mobilenet_has_the_published_parameters_boxes_and_classes() -> None:
    """Source: OpenVINO's Open Model Zoo, ssd_mobilenet_v1_coco: 6.807 million, with norms folded into convolutions.

    A folded norm leaves a bias for each channel, as many as the norm's own shifts. 1,917 is the number of anchors of
    TensorFlow's object detection API for maps of 19, 10, 5, 3, 2 and 1.
    """
    model = zoo.build("ssd-mobilenet")
    assert round(parameters(model, ".running_", ".norm.weight") / 1e6, 3) == 6.807
    assert [dims(value) for value in model.graph.output] == [[1, 1917, 4], [1, 1917, 91]]
    assert 1917 == 19**2 * 3 + 6 * (10**2 + 5**2 + 3**2 + 2**2 + 1**2)


def test_dlrm_has_the_layers_of_its_script_and_its_products() -> None:
    model = zoo.build("dlrm")
    layers = [(13, 512), (512, 256), (256, 64), (64, 16), (16 + 27 * 26 // 2, 512), (512, 256), (256, 1)]
    assert parameters(model) == 26 * 10_000 * 16 + sum(a * b + b for a, b in layers)
    tiny = zoo.build("dlrm-tiny:batch=3")
    generator, arrays = np.random.default_rng(0), weights(tiny)
    numbers, categories = generator.standard_normal((3, 5), dtype=np.float32), generator.integers(0, 50, (3, 4))

    def layer(x: np.ndarray, name: str) -> np.ndarray:
        return np.asarray(x @ arrays[f"{name}.weight"].T + arrays[f"{name}.bias"])

    dense = np.maximum(layer(np.maximum(layer(numbers, "bottom.0"), 0), "bottom.2"), 0)
    vectors = [dense, *(arrays[f"emb_l.{i}.weight"][categories[:, i]] for i in range(4))]
    pairs = [(vectors[i] * vectors[j]).sum(axis=1) for i in range(5) for j in range(i)]
    logit = layer(np.maximum(layer(np.concatenate([dense, np.stack(pairs, 1)], 1), "top.0"), 0), "top.2")
    (found,) = run(tiny, {"numbers": numbers, "categories": categories})
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logit)), atol=1e-5)


def graph_network(model: onnx.ModelProto, feeds: Arrays, steps: int) -> list[np.ndarray]:
    """Algorithm 1 of Battaglia et al. 2018 by loops over edges and nodes, in float64."""
    arrays = weights(model)

    def perceptron(x: np.ndarray, name: str) -> np.ndarray:
        for layer in (0, 1):
            x = np.maximum(x @ arrays[f"{name}.{layer}.weight"] + arrays[f"{name}.{layer}.bias"], 0)
        normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return np.asarray(normed * arrays[f"{name}.norm.weight"] + arrays[f"{name}.norm.bias"])

    parts = ("edges", "nodes", "globals")
    encoded = [perceptron(feeds[part], f"encoder.{part}") for part in parts]
    latent = encoded
    for _ in range(steps):
        edges, nodes, whole = (np.concatenate(pair, 1) for pair in zip(encoded, latent, strict=True))
        ends = list(zip(feeds["receivers"], feeds["senders"], strict=True))
        read = [np.concatenate([edges[e], nodes[r], nodes[s], whole[0]]) for e, (r, s) in enumerate(ends)]
        new_edges = perceptron(np.stack(read), "core.edges")
        received = np.zeros((len(nodes), new_edges.shape[1]))
        for edge, (receiver, _) in zip(new_edges, ends, strict=True):
            received[receiver] += edge
        read = [np.concatenate([received[n], nodes[n], whole[0]]) for n in range(len(nodes))]
        new_nodes = perceptron(np.stack(read), "core.nodes")
        read = [np.concatenate([new_edges.mean(0), new_nodes.mean(0), whole[0]])]
        latent = [new_edges, new_nodes, perceptron(np.stack(read), "core.globals")]
    decoded = [perceptron(each, f"decoder.{part}") for part, each in zip(parts, latent, strict=True)]
    return [
        each @ arrays[f"output.{part}.weight"].T + arrays[f"output.{part}.bias"]
        for part, each in zip(parts, decoded, strict=True)
    ]


def test_the_graph_network_computes_algorithm_1() -> None:
    model, generator = zoo.build("graph-network-tiny"), np.random.default_rng(0)
    feeds = {
        value.name: generator.integers(0, 10, dims(value))
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64
        else generator.standard_normal(dims(value), dtype=np.float32)
        for value in model.graph.input
    }
    for found, expected in zip(run(model, feeds), graph_network(model, feeds, 2), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm(x: np.ndarray, states: list[tuple[np.ndarray, np.ndarray]], arrays: Arrays, module: str) -> np.ndarray:
    """One step of several layers in float64, as TensorFlow's `BasicLSTMCell`; changes the states."""
    for layer, (hidden, cell) in enumerate(states):
        gates = np.concatenate([x, hidden], 1) @ arrays[f"{module}.{layer}.kernel"] + arrays[f"{module}.{layer}.bias"]
        entry, candidate, forget, exit_ = np.split(gates, 4, axis=1)
        cell = cell * sigmoid(forget + 1) + sigmoid(entry) * np.tanh(candidate)
        x = np.tanh(cell) * sigmoid(exit_)
        states[layer] = (x, cell)
    return x


def test_rnnlm_computes_its_cells() -> None:
    model, generator = zoo.build("rnnlm-tiny:batch=2"), np.random.default_rng(0)
    arrays, words = weights(model), generator.integers(0, 50, (2, 3))
    hidden, cell = (generator.standard_normal((2, 2, 16), dtype=np.float32) for _ in range(2))
    states = [(hidden[:, i].astype(float), cell[:, i].astype(float)) for i in range(2)]
    tops = [lstm(arrays["embedding.weight"][words[:, t]], states, arrays, "lstm") for t in range(3)]
    expected = np.stack(tops, 1) @ arrays["classifier.weight"] + arrays["classifier.bias"]
    (found,) = run(model, {"words": words, "hidden_state": hidden, "cell_state": cell})
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_nmt_computes_its_cells_and_attention() -> None:
    model, generator = zoo.build("nmt-tiny:batch=2"), np.random.default_rng(0)
    arrays, (source, target) = weights(model), generator.integers(0, 50, (2, 2, 3))
    hidden, cell = (generator.standard_normal((2, 2, 16), dtype=np.float32) for _ in range(2))
    states = [(hidden[:, i].astype(float), cell[:, i].astype(float)) for i in range(2)]
    notes = np.stack(
        [lstm(arrays["encoder.embedding.weight"][source[:, t]], states, arrays, "encoder") for t in range(3)], 1
    )

    def attended(state: np.ndarray) -> np.ndarray:
        """Bahdanau et al. 2015, appendix A.1.2: e_j = vᵀ tanh(W s + U h_j), and the mean of h_j by softmax of e_j."""
        keys, asked = notes @ arrays["attention.memory.weight"], state @ arrays["attention.query.weight"]
        energies = np.tanh(keys + asked[:, None]) @ arrays["attention.scores.weight"]
        shares = np.exp(energies) / np.exp(energies).sum(axis=1, keepdims=True)
        return np.asarray((shares * notes).sum(axis=1))

    context, read = attended(states[-1][0]), []
    for t in range(3):
        word = arrays["decoder.embedding.weight"][target[:, t]]
        top = lstm(np.concatenate([word, context], 1), states, arrays, "decoder")
        context = attended(top)
        read.append(np.concatenate([top, context], 1))
    expected = np.stack(read, 1) @ arrays["classifier.weight"] + arrays["classifier.bias"]
    (found,) = run(model, {"source": source, "target": target, "hidden_state": hidden, "cell_state": cell})
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["rnnlm-tiny:batch=2", "nmt-tiny:batch=2"])
def test_parts_of_the_classifier_compute_what_it_computes(name: str) -> None:
    whole, parts = zoo.build(name), zoo.build(f"{name},outputs=3")
    generator = np.random.default_rng(0)
    feeds = {
        value.name: generator.integers(0, 50, dims(value))
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64
        else generator.standard_normal(dims(value), dtype=np.float32)
        for value in whole.graph.input
    }
    assert [value.name for value in parts.graph.output] == ["output.0", "output.1", "output.2"]
    np.testing.assert_allclose(np.concatenate(run(parts, feeds), 1), run(whole, feeds)[0], atol=1e-5)
    with pytest.raises(zoo.ZooError, match="divide the 3 steps"):
        zoo.build(f"{name},outputs=2")


@pytest.mark.parametrize("name", ["nmt-tiny", "inception-v3-tiny", "bert-base-tiny:training=adam", "resnet18-tiny"])
def test_an_outline_is_the_network_without_its_values(name: str) -> None:
    built, outlined = CheckedModel.from_proto(zoo.build(name)), zoo.outline(name)
    assert outlined.skeleton.graph.node == built.skeleton.graph.node
    assert {key: tuple(each.shape.numpy()) for key, each in (outlined.tensors | outlined.defaults).items()} == {
        key: tuple(each.shape.numpy()) for key, each in (built.tensors | built.defaults).items()
    }
    assert zoo.build(name) == zoo.build(name)  # values are back


def lstm_parameters(reads: int, hidden: int) -> int:
    return 4 * hidden * (reads + hidden) + 4 * hidden


@pytest.mark.full
def test_full_size_recurrent_networks_have_the_parameters_of_their_layers() -> None:
    """Two layers of 2048 and 1024 (Mirhoseini et al. 2017), embeddings, attention, and a classifier."""
    rnnlm, nmt = zoo.build("rnnlm"), zoo.build("nmt")
    assert parameters(rnnlm) == 2 * 10_000 * 2048 + 10_000 + 2 * lstm_parameters(2048, 2048)
    layers = 3 * lstm_parameters(1024, 1024) + lstm_parameters(2048, 1024)
    attention, classifier = 2 * 1024**2 + 1024, 2048 * 32_000 + 32_000
    assert parameters(nmt) == 2 * 32_000 * 1024 + layers + attention + classifier
    assert [sum(node.op_type == "Split" for node in model.graph.node) for model in (rnnlm, nmt)] == [80, 160]


@pytest.mark.parametrize("training", ["gradients", "sgd", "adam", "rmsprop"])
def test_a_name_may_ask_for_the_training_graph(training: str) -> None:
    model = zoo.build(f"resnet18-tiny:batch=2,training={training}")
    outputs = {output.name for output in model.graph.output}
    assert "loss" in outputs
    kind = ".gradient" if training == "gradients" else ".updated"
    assert sum(name.endswith(kind) for name in outputs) > 20
    assert {each.dim_value for value in model.graph.input[:1] for each in value.type.tensor_type.shape.dim[:1]} == {2}


def test_another_training_is_one_sentence() -> None:
    assert not zoo.contains("resnet18-tiny:training=lion")
    assert zoo.contains("resnet18-tiny:training=adam,batch=2")
    with pytest.raises(zoo.ZooError, match=r"expected one training=gradients or .*, got lion"):
        zoo.build("resnet18-tiny:training=lion")
    with pytest.raises(zoo.ZooError, match="no zoo graph is called"):
        zoo.build("resnet18-tiny:color=3,training=adam")
