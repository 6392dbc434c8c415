"""Every zoo network is a valid model of static shapes, the same bytes every time, whose outputs react to its inputs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import zoo

# The other full-size networks take up to several seconds each, and their tiny twins have the same layers.
QUICK = {name for name in zoo.names() if name.endswith("-tiny")} | {"squeezenet1.1", "resnet18", "nasrnn"}
NETWORKS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in zoo.names()]

# The number of values of each integer input, the same in the tiny networks.
CODES = {"input_ids": 128, "attention_mask": 2, "token_type_ids": 2, "labels": 10, "senders": 10, "receivers": 10}
CODES |= dict.fromkeys(["categories", "words", "source", "target"], 50)

MASKED = ["bert-base", "dalle-mini", "t5-small"]
BATCH_NORMED = ["resnet18", "resnet50", "resnext50", "inception-v3", "nasnet-a"]


@dataclass(frozen=True)
class Network:
    """A zoo graph with a session that runs it as written (unoptimised: the check is of the graph itself)."""

    name: str
    model: onnx.ModelProto
    session: onnxruntime.InferenceSession

    def run(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(output) for output in self.session.run(None, feeds)]


def unoptimised_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    model = zoo.build(request.param)
    return Network(request.param, model, unoptimised_session(model))


def random_feeds(session: onnxruntime.InferenceSession, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns unit normals for float inputs, ids of tokens and labels, and an attention mask that hides nothing."""
    generator = np.random.default_rng(seed)
    feeds = {}
    for node in session.get_inputs():
        if node.type == "tensor(float)":
            feeds[node.name] = generator.standard_normal(node.shape, dtype=np.float32)
        else:
            least, most = (1, 2) if node.name == "attention_mask" else (0, CODES[node.name])
            feeds[node.name] = generator.integers(least, most, node.shape)
    return feeds


def changed_in_one_place(name: str, values: np.ndarray) -> np.ndarray:
    """Returns `values` with one element moved by one, within the range of the input called `name`."""
    changed, middle = values.copy(), values.size // 2
    old = values.flat[middle]
    changed.flat[middle] = (old + 1) % CODES[name] if name in CODES else old + 1
    return changed


def test_model_is_valid_with_static_shapes(network: Network) -> None:
    # full_check copies the model through shape inference, which is slow at hundreds of megabytes.
    onnx.checker.check_model(network.model, full_check=network.name in QUICK)
    assert all(isinstance(dim, int) for node in network.session.get_inputs() for dim in node.shape)
    # A graph network reads one graph, whose nodes and edges are the first dimensions.
    assert zoo.family_of(network.name) == "graph_network" or all(n.shape[0] == 1 for n in network.session.get_inputs())


def test_declared_shapes_are_the_computed_ones(network: Network) -> None:
    outputs = network.run(random_feeds(network.session))
    for declared, output in zip(network.model.graph.output, outputs, strict=True):
        assert [dim.dim_value for dim in declared.type.tensor_type.shape.dim] == list(output.shape)


def test_names_are_unique_and_nothing_is_unused(network: Network) -> None:
    graph = network.model.graph
    produced = [name for node in graph.node for name in node.output] + [tensor.name for tensor in graph.initializer]
    consumed = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    assert len(set(produced)) == len(produced)
    assert len({node.name for node in graph.node}) == len(graph.node)
    assert set(produced) <= consumed
    assert {value.name for value in graph.input} <= consumed


def test_outputs_react_to_the_smallest_change(network: Network) -> None:
    """One pixel, one unit of a state, one token, one masked token: every output moves far beyond float rounding."""
    feeds = random_feeds(network.session)
    reference = network.run(feeds)
    for name, values in feeds.items():
        changed = network.run({**feeds, name: changed_in_one_place(name, values)})
        for before, after in zip(reference, changed, strict=True):
            assert np.abs(before - after).max() > 1e-4 * before.std(), f"{name} does not reach an output"


def activations(model: onnx.ModelProto) -> list[str]:
    """Returns the floats that are computed from the inputs, without those of the mask alone, which hides nothing."""
    reached = {value.name for value in model.graph.input} - {"attention_mask"}
    for node in model.graph.node:
        if reached & set(node.input):
            reached |= set(node.output)
    inferred = onnx.shape_inference.infer_shapes(model)
    kinds = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    floats = reached - {name for name, kind in kinds.items() if kind != onnx.TensorProto.FLOAT}
    return [name for node in model.graph.node for name in node.output if name in floats]


def test_no_layer_vanishes_explodes_or_ignores_the_input(network: Network) -> None:
    """A constant or saturated layer would hide every error in what comes before it."""
    opened = onnx.ModelProto()
    opened.CopyFrom(network.model)
    outputs, names = {output.name for output in opened.graph.output}, activations(opened)
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in outputs)
    session = unoptimised_session(opened)
    runs = (session.run(names, random_feeds(session, seed)) for seed in (0, 1))
    for name, *values in zip(names, *runs, strict=True):
        shown = values[0] > -1e30  # the others are scores that a causal mask hides
        first, second = (each[shown] for each in values)
        magnitude = np.abs(first).mean()  # 1 / n for a softmax over n tokens, otherwise around one
        assert 0.002 < magnitude < 20.0, name
        assert first.std() > 0.03 * magnitude or first.size == 1, name
        assert np.abs(first - second).mean() > 0.01 * first.std(), name


@pytest.mark.parametrize(
    "name",
    [f"{name}-tiny" for name in MASKED] + [pytest.param(name, marks=pytest.mark.full) for name in MASKED],
)
def test_a_masked_token_is_ignored(name: str) -> None:
    """The states of the other tokens no longer depend on the masked one."""
    session = unoptimised_session(zoo.build(name))
    feeds = random_feeds(session)
    feeds["attention_mask"][0, 5] = 0
    other = {**feeds, "input_ids": feeds["input_ids"].copy()}
    other["input_ids"][0, 5] = (feeds["input_ids"][0, 5] + 7) % 128
    before, after = (np.delete(session.run(None, inputs)[0], 5, axis=1) for inputs in (feeds, other))
    assert np.abs(before - after).max() < 1e-5


@pytest.mark.parametrize("name", BATCH_NORMED)
def test_no_batch_norm_is_trivial(name: str) -> None:
    """Scales, shifts, means and variances all differ from channel to channel."""
    graph = zoo.build(f"{name}-tiny").graph
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    norms = [node for node in graph.node if node.op_type == "BatchNormalization"]
    assert norms
    for norm in norms:
        scale, shift, mean, variance = (tensors[parameter] for parameter in norm.input[1:])
        assert (variance > 0).all()
        for values in (scale, shift, mean, variance):
            assert len(np.unique(values)) == len(values)


def digest(name: str) -> str:
    return hashlib.sha256(zoo.build(name).SerializeToString(deterministic=True)).hexdigest()


@pytest.mark.parametrize("name", NETWORKS)
def test_building_is_deterministic(name: str) -> None:
    assert digest(name) == digest(name)


def test_another_process_builds_the_same_bytes() -> None:
    """Weights depend on the name alone: not on the order of building, nor on what Python hashes by chance."""
    names = [name for name in zoo.names() if name.endswith("-tiny")]
    code = (
        "import hashlib, sys\nfrom environment import zoo\n"
        "for name in reversed(sys.argv[1:]):\n"
        "    print(name, hashlib.sha256(zoo.build(name).SerializeToString(deterministic=True)).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code, *names]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert dict(line.split() for line in printed.splitlines()) == {name: digest(name) for name in names}


@pytest.mark.parametrize("name", [name for name in zoo.names() if name.endswith("-tiny")])
def test_tensors_are_drawn_independently(name: str) -> None:
    """No two weights of equal shape are equal, so a rewrite that swaps them is noticed."""
    contents = [tensor.raw_data for tensor in zoo.build(name).graph.initializer]
    assert len(set(contents)) == len(contents)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("squeezenet", "squeezenet1.1"),
        ("bert_base", "bert-base"),
        ("BERT-Base", "bert-base"),
        ("bert-tiny", "bert-base-tiny"),
        ("resnet-50", "resnet50"),
        ("inceptionv3", "inception-v3"),
        ("vit", "vit-base"),
        ("nasneta", "nasnet-a"),
        ("DALL-E", "dalle-mini"),
        ("transducer", "transformer-transducer"),
        ("mnasnet1_0", "mnasnet"),
        ("u-net", "unet"),
        ("mobilenet-ssd", "ssd-mobilenet"),
    ],
)
def test_unknown_name_suggests_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(zoo.ZooError, match=f"'{wrong}'; did you mean '{nearest}'"):
        zoo.build(wrong)


def test_unknown_name_without_a_near_one_lists_the_zoo() -> None:
    with pytest.raises(zoo.ZooError, match=", ".join(zoo.names())):
        zoo.build("xyzzy")


def test_listing_names_builds_and_imports_nothing() -> None:
    """The registry is lazy: `rlflow --help` lists names without paying for the builders."""
    code = (
        "import sys; from environment import zoo; zoo.names();"
        "print([m for m in sys.modules if m.startswith('environment.zoo.') or m == 'tensorflow'])"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert listed.stdout.strip() == "[]"


def test_a_network_can_be_built_otherwise() -> None:
    """It can be deeper or take other inputs; shared weights are the same, and so is the next default network."""
    usual, deeper = zoo.build("bert-base-tiny"), zoo.build("bert-base-tiny", layers=3)
    counts = [sum(node.op_type == "Softmax" for node in model.graph.node) for model in (usual, deeper)]
    assert counts == [2, 3]
    weights = [{tensor.name: tensor.raw_data for tensor in model.graph.initializer} for model in (usual, deeper)]
    shared = weights[0].keys() & weights[1].keys()
    assert len(shared) > 20 and all(weights[0][name] == weights[1][name] for name in shared)
    wide = zoo.build("squeezenet1.1-tiny", image_size=48)
    assert [d.dim_value for d in wide.graph.input[0].type.tensor_type.shape.dim][-2:] == [48, 48]
    onnx.checker.check_model(wide, full_check=True)
    assert zoo.build("bert-base-tiny").SerializeToString() == usual.SerializeToString()
    with pytest.raises(TypeError, match="layer"):
        zoo.build("bert-base-tiny", layer=3)
    assert zoo.build("bert-base-tiny:layers=3").SerializeToString() == deeper.SerializeToString()
    assert zoo.contains("bert-base-tiny:layers=3,sequence=8") and zoo.family_of("bert-base-tiny:layers=3") == "bert"


def test_every_network_has_a_tiny_one_of_its_structure() -> None:
    assert [
        zoo.tiny(name) for name in ("resnet50", "resnet50-tiny", "minilm-l6", "generated-7", "bert-base:layers=6")
    ] == [*("resnet50-tiny", "resnet50-tiny", "bert-base-tiny", "composed-0-tiny", "bert-base-tiny")]
    assert all(zoo.tiny(name) in zoo.names() for name in zoo.names())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet50-tiny:groups=33", "groups that divide the channels of layer1.0.conv2, got 33 groups, and 8 channels"),
        ("inception-v3-tiny:divisor=100", "expected channels for .*, got 0"),
        ("inception-v3-tiny:image_size=3", "a window of 3 pixels finds 1 left"),
        ("squeezenet1.1-tiny:image_size=7", "a window of 3 pixels finds 1 left"),
        ("bert-base-tiny:heads=3", "a multiple of the heads, got 64 and 3"),
        ("bert-base-tiny:sequence=33", "at most 32 positions, got 33"),
        ("vit-base-tiny:patch=33", "a multiple of the patch, got 32 and 33"),
        ("composed-0-tiny:image_size=33", "a multiple of 8, got 33"),
        ("t5-small-tiny:buckets=5", "a multiple of 4, .* got 5 and 16"),
    ],
)
def test_sizes_that_do_not_fit_one_another_are_one_clear_error(name: str, reason: str) -> None:
    with pytest.raises(zoo.ZooError, match=f"^{name} cannot be built, because its sizes do not fit .*: .*{reason}"):
        zoo.build(name)
    assert zoo.contains(name)  # so a command says this, and not that there is no such network


@pytest.mark.parametrize("sizes", ["layer=3", "layers", "layers=", "layers=x", "layers=0", "layers=3,", ""])
def test_sizes_that_a_network_does_not_have_are_one_clear_error(sizes: str) -> None:
    assert not zoo.contains(f"bert-base-tiny:{sizes}")
    with pytest.raises(zoo.ZooError, match=r"expected sizes as in bert-base-tiny:vocabulary=8, of which .*, layers"):
        zoo.build(f"bert-base-tiny:{sizes}")
