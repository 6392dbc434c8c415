"""The zoo's networks are the published architectures, and their outputs react to their inputs."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import zoo

# Fires of SqueezeNet 1.1: squeeze and two expansions each, one ReLU per convolution, one Concat per fire; two more
# convolutions at the ends. Iandola et al. 2016, table 1, with the pools of version 1.1.
SQUEEZENET_OPERATORS = {"Conv": 26, "Relu": 26, "Concat": 8, "MaxPool": 3, "GlobalAveragePool": 1, "Flatten": 1}


def bert_operators(layers: int) -> dict[str, int]:
    """Operators of BertModel as PyTorch's exporter writes it, counted from Devlin et al. 2019, section 3.

    Per layer: 6 linear layers (MatMul and Add), 2 attention products, scale, mask, softmax, 4 head layouts (Reshape and
    Transpose: q, k, v, merge), erf-GELU, 2 residual sums with LayerNorm. Outside: 3 embeddings with 2 sums and a
    LayerNorm, 5 operators for the mask, 3 for the pooler.
    """
    per_layer = {"MatMul": 8, "Add": 6 + 1 + 1 + 2, "Div": 2, "Softmax": 1, "Reshape": 4, "Transpose": 4}
    per_layer |= {"Erf": 1, "Mul": 2, "LayerNormalization": 2}
    outside = {"Gather": 4, "Add": 2, "LayerNormalization": 1, "Unsqueeze": 2, "Cast": 1, "Sub": 1, "Mul": 1}
    outside |= {"Gemm": 1, "Tanh": 1}
    return dict(Counter({op: layers * count for op, count in per_layer.items()}) + Counter(outside))


@dataclass(frozen=True)
class Network:
    """A zoo graph with a session that runs it as written (unoptimised: the check is of the graph itself)."""

    name: str
    model: onnx.ModelProto
    session: onnxruntime.InferenceSession

    def run(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(output) for output in self.session.run(None, feeds)]


@pytest.fixture(scope="module", params=zoo.names())
def network(request: pytest.FixtureRequest) -> Network:
    model = zoo.build(request.param)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    serialized = model.SerializeToString()
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return Network(request.param, model, session)


def random_feeds(network: Network, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    shapes = {node.name: node.shape for node in network.session.get_inputs()}
    if "input" in shapes:
        return {"input": generator.standard_normal(shapes["input"], dtype=np.float32)}
    ids = shapes["input_ids"]
    return {
        "input_ids": generator.integers(0, 128, ids),
        "attention_mask": np.ones(ids, np.int64),
        "token_type_ids": generator.integers(0, 2, ids),
    }


def parameters(model: onnx.ModelProto) -> int:
    """Learned parameters: the floating-point initializers (position ids are an integer buffer)."""
    tensors = (t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    return sum(math.prod(tensor.dims) for tensor in tensors)


def operators(model: onnx.ModelProto) -> dict[str, int]:
    return dict(Counter(node.op_type for node in model.graph.node if node.op_type != "Constant"))


def test_architecture_matches_published_counts(network: Network) -> None:
    """Parameters: torchvision's metadata of squeezenet1_1; `num_parameters()` of Hugging Face's bert-base-uncased."""
    published = {"squeezenet1.1": 1_235_496, "bert-base": 109_482_240}
    if network.name in published:
        assert parameters(network.model) == published[network.name]
    expected = {
        "squeezenet1.1": SQUEEZENET_OPERATORS,
        "squeezenet1.1-tiny": {**SQUEEZENET_OPERATORS, "Conv": 8, "Relu": 8, "Concat": 2, "MaxPool": 2},
        "bert-base": bert_operators(12),
        "bert-base-tiny": bert_operators(2),
    }
    assert operators(network.model) == expected[network.name]


def test_model_is_valid_with_static_shapes(network: Network) -> None:
    # full_check copies the model through shape inference, slow at 438 MB; BERT's tiny twin has the same operators.
    onnx.checker.check_model(network.model, full_check=network.name != "bert-base")
    assert [node.shape for node in network.session.get_inputs()] == {
        "squeezenet1.1": [[1, 3, 224, 224]],
        "squeezenet1.1-tiny": [[1, 3, 32, 32]],
        "bert-base": [[1, 128]] * 3,
        "bert-base-tiny": [[1, 16]] * 3,
    }[network.name]


def test_declared_shapes_are_the_computed_ones(network: Network) -> None:
    outputs = network.run(random_feeds(network))
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


def test_outputs_are_finite_and_of_unit_scale(network: Network) -> None:
    """Signals neither vanish nor explode: a constant output would pass any comparison."""
    for output in network.run(random_feeds(network)):
        assert np.isfinite(output).all()
        assert 0.05 < output.std() < 20.0


def test_outputs_react_to_the_smallest_change(network: Network) -> None:
    """One pixel, one token, one masked token, one token type: every output moves far beyond float rounding."""
    feeds = random_feeds(network)
    reference = network.run(feeds)
    for name, values in feeds.items():
        index = (0, 1, 9, 9) if name == "input" else (0, 5)
        changed = values.copy()
        changed[index] = {"input": values[index] + 1, "input_ids": (values[index] + 1) % 128}.get(
            name, 1 - values[index]
        )
        for before, after in zip(reference, network.run({**feeds, name: changed}), strict=True):
            assert np.abs(before - after).max() > 1e-4 * before.std(), f"{name} does not reach an output"


def test_a_masked_token_is_ignored(network: Network) -> None:
    """The mask does what it says: the other tokens' states no longer depend on the masked one."""
    if "bert" not in network.name:
        pytest.skip("only BERT has a mask")
    feeds = random_feeds(network)
    feeds["attention_mask"][0, 5] = 0
    other = {**feeds, "input_ids": feeds["input_ids"].copy()}
    other["input_ids"][0, 5] = (feeds["input_ids"][0, 5] + 7) % 128
    before, after = (np.delete(network.run(inputs)[0], 5, axis=1) for inputs in (feeds, other))
    assert np.abs(before - after).max() < 1e-5


@pytest.mark.parametrize("name", [name for name in zoo.names() if name != "bert-base"])  # 438 MB twice proves no more
def test_building_is_deterministic(name: str) -> None:
    first, second = (zoo.build(name).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_tensors_are_drawn_independently() -> None:
    """No two weights of equal shape are equal, so a rewrite that swaps them is noticed."""
    graph = zoo.build("bert-base-tiny").graph
    contents = [tensor.raw_data for tensor in graph.initializer]
    assert len(set(contents)) == len(contents)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("squeezenet", "squeezenet1.1"),
        ("bert_base", "bert-base"),
        ("BERT-Base", "bert-base"),
        ("bert-tiny", "bert-base-tiny"),
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
