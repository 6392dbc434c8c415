"""The zoo's networks are the published architectures: parameters, operators and, where NumPy can tell, functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import zoo

FULL_SIZE = zoo.published_names()

# Sources: the metadata of Torchvision's weights (Inception v3: 27,161,264 less the 3,326,696 of the auxiliary head),
# Hugging Face's `num_parameters()` of bert-base-uncased, Keras's cells for NASNet-A, 16 matrices of 512 x 512 for the
# NAS cell. Nobody published the last two in these sizes: test_transformers.py counts them by formula.
PARAMETERS = {
    "squeezenet1.1": 1_235_496,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnext50": 25_028_904,
    "inception-v3": 23_834_568,
    "nasnet-a": 17_083_560,
    "bert-base": 109_482_240,
    "vit-base": 86_567_656,
    "nasrnn": 4_194_304,
    "dalle-mini": 95_347_712,
    "transformer-transducer": 48_634_909,
}
INPUTS = {
    "squeezenet1.1": [[1, 3, 224, 224]],
    "resnet18": [[1, 3, 224, 224]],
    "resnet50": [[1, 3, 224, 224]],
    "resnext50": [[1, 3, 224, 224]],
    "inception-v3": [[1, 3, 299, 299]],
    "nasnet-a": [[1, 3, 224, 224]],
    "bert-base": [[1, 128]] * 3,
    "vit-base": [[1, 3, 224, 224]],
    "nasrnn": [[1, 5, 512], [1, 512], [1, 512]],
    "dalle-mini": [[1, 16]] * 2,
    "transformer-transducer": [[1, 80, 512], [1, 32]],
}

CLASSIFIER = {"GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1}


def squeezenet_operators(fires: int, pools: int) -> Counter[str]:
    """Counts the operators of a SqueezeNet.

    A fire module has a squeeze, two expansions and a Concat. Every convolution has a ReLU, and one is at either end.
    Source: Iandola et al. 2016, table 1, with the pools of version 1.1.
    """
    convolutions = 3 * fires + 2
    counts = {"Conv": convolutions, "Relu": convolutions, "Concat": fires, "MaxPool": pools}
    return Counter({**counts, "GlobalAveragePool": 1, "Flatten": 1})


def resnet_operators(blocks: int, convolutions: int, projections: int) -> Counter[str]:
    """Counts the operators of a ResNet.

    A block has its convolutions, as many norms and ReLUs, and one sum. There is a stem, and a projection (convolution
    and norm) where the shape changes. Source: He et al. 2016, table 1.
    """
    convs = 1 + blocks * convolutions + projections
    counts = {"Conv": convs, "BatchNormalization": convs, "Relu": 1 + blocks * convolutions, "Add": blocks}
    return Counter({**counts, "MaxPool": 1, **CLASSIFIER})


def inception_operators(stem: int, stem_pools: int, blocks: str) -> Counter[str]:
    """Counts the operators of an Inception v3, whose `blocks` are letters from A to E.

    Every convolution has a norm and a ReLU. The convolutions, average pools, max pools and Concats of a block are those
    of Szegedy et al. 2016, figures 5, 10, 6, 10 and 7; a block E fans out twice.
    """
    of_block = {"A": (7, 1, 0, 1), "B": (4, 0, 1, 1), "C": (10, 1, 0, 1), "D": (6, 0, 1, 1), "E": (9, 1, 0, 3)}
    convs, means, maxima, concats = (sum(column) for column in zip(*(of_block[kind] for kind in blocks), strict=True))
    counts = {"Conv": stem + convs, "BatchNormalization": stem + convs, "Relu": stem + convs}
    pools = {"AveragePool": means, "MaxPool": stem_pools + maxima, "Concat": concats}
    return Counter({**counts, **pools, **CLASSIFIER})


def nasnet_operators(normal: int, reduction: int, projected: int, halved: int) -> Counter[str]:
    """Counts the operators of a NASNet-A.

    A cell has 5 sums, 5 separable convolutions (ReLU, depthwise, pointwise, norm, all twice) and a Concat, and projects
    its newer input (ReLU, convolution, norm). Its older input is projected likewise, or halved (ReLU; two average pools
    and two convolutions, one pair of them shifted by a Pad; Concat, norm), or fits. A normal cell has 3 average pools,
    a reduction cell 2 average pools and 2 max pools. Outside are a stem and a last ReLU. Source: Zoph et al. 2018,
    figure 4.
    """
    cells = normal + reduction
    counts = {
        "Conv": 1 + 20 * cells + cells + projected + 2 * halved,
        "BatchNormalization": 1 + 10 * cells + cells + projected + halved,
        "Relu": 2 + 10 * cells + cells + projected + halved,
        "Add": 5 * cells,
        "AveragePool": 3 * normal + 2 * reduction + 2 * halved,
        "MaxPool": 1 + 2 * reduction,
        "Concat": cells + halved,
        "Pad": halved,
    }
    return Counter({**counts, **CLASSIFIER})


def transformer_operators(layers: int) -> Counter[str]:
    """Counts the operators of the blocks of a transformer encoder.

    A block has 6 linear layers (MatMul and Add), 2 attention products, a scale, a softmax, 4 head layouts (Reshape and
    Transpose: q, k, v, merge), an erf-GELU, 2 residual sums and 2 LayerNorms.
    Source: Vaswani et al. 2017, section 3, as PyTorch's exporter writes it.
    """
    block = {"MatMul": 8, "Add": 6 + 1 + 2, "Div": 2, "Softmax": 1, "Reshape": 4, "Transpose": 4}
    block |= {"Erf": 1, "Mul": 2, "LayerNormalization": 2}
    return Counter({operator: layers * count for operator, count in block.items()})


def bert_operators(layers: int) -> Counter[str]:
    """Counts the operators of a BERT.

    The mask is added to the scores of every layer. Outside are 3 embeddings with 2 sums and a LayerNorm, 5 operators
    for the mask and 3 for the pooler. Source: Devlin et al. 2019, section 3.
    """
    outside = {"Gather": 4, "Add": 2 + layers, "LayerNormalization": 1, "Unsqueeze": 2, "Cast": 1, "Sub": 1, "Mul": 1}
    return transformer_operators(layers) + Counter({**outside, "Gemm": 1, "Tanh": 1})


def vit_operators(layers: int) -> Counter[str]:
    """Counts the operators of a ViT.

    A convolution makes patches, which are laid out as tokens, with a class token and positions. After the blocks come
    the last norm, the first token and the classifier. Source: Dosovitskiy et al. 2021, equations 1 to 4.
    """
    embeddings = Counter({"Conv": 1, "Reshape": 1, "Transpose": 1, "Concat": 1, "Add": 1})
    return transformer_operators(layers) + embeddings + Counter({"LayerNormalization": 1, "Gather": 1, "Gemm": 1})


def nasrnn_operators(steps: int) -> Counter[str]:
    """Counts the operators of the NAS cell over several steps.

    A step has a Gather of its input, 8 combinations of 2 products (7 are sums), and the tree of `nas_cell` below.
    """
    step = {"MatMul": 16, "Add": 7 + 4, "Mul": 1 + 4, "Sigmoid": 4 + 1, "Relu": 2, "Tanh": 2 + 6, "Gather": 1}
    return Counter({operator: steps * count for operator, count in step.items()})


def dalle_mini_operators(layers: int) -> Counter[str]:
    """Counts the operators of the encoder of DALL·E mini.

    Unlike that of `transformer_operators`, a block has no biases (6 linear layers less 6 sums), a third linear layer in
    the feed-forward part and a product with it, a sum with the mask, and 2 more LayerNorms. Outside are 2 embeddings
    with a sum and a LayerNorm, 5 operators for the mask and a LayerNorm.
    Source: Shleifer et al. 2021, figure 1; Shazeer 2020, equation 6.
    """
    block = {"MatMul": 9, "Add": 3 + 1, "Div": 2, "Softmax": 1, "Reshape": 4, "Transpose": 4}
    block |= {"Erf": 1, "Mul": 3, "LayerNormalization": 4}
    outside = {"Gather": 2, "Add": 1, "LayerNormalization": 2, "Unsqueeze": 2, "Cast": 1, "Sub": 1, "Mul": 1}
    return Counter({operator: layers * count for operator, count in block.items()}) + Counter(outside)


def transducer_operators(audio: int, label: int) -> Counter[str]:
    """Counts the operators of a transformer transducer.

    A block has 7 linear layers (that of the positions without a sum), 3 attention products, 2 position biases, a sum of
    scores, a scale, a softmax, 6 head layouts (both queries share a Reshape), the shift of the scores (a column, 2
    Reshapes, a Slice; another Slice if later tokens count, a mask if they do not), a ReLU, 2 residual sums and 2 norms.
    Outside are an input layer, an embedding, and the joint network of every pair: 2 linear layers, tanh, log-softmax.
    Source: Zhang et al. 2020, section 2; Dai et al. 2019, section 3.3 and appendix B.
    """
    block = {"MatMul": 7 + 3, "Add": 6 + 2 + 1 + 2, "Div": 1, "Softmax": 1, "Reshape": 5 + 2, "Transpose": 6}
    block |= {"Concat": 1, "Slice": 1, "Relu": 1, "LayerNormalization": 2}
    blocks = Counter({operator: (audio + label) * count for operator, count in block.items()})
    outside = {"MatMul": 3, "Add": 3 + label, "Slice": audio, "Gather": 1}
    pairs = {"Unsqueeze": 2, "Expand": 2, "Concat": 1, "Tanh": 1, "LogSoftmax": 1}
    return blocks + Counter({**outside, **pairs})


def t5_operators(layers: int) -> Counter[str]:
    """Counts the operators of the encoder of T5.

    A block has 6 linear layers without biases, 2 attention products, a sum with the biases of the scores, a softmax,
    4 head layouts (Reshape and Transpose: q, k, v, merge), a ReLU, 2 residual sums and 2 norms. A norm has 7 operators.
    Outside are an embedding, a norm, 5 operators for the mask, 3 for the distances and the sum of both.
    Source: Raffel et al. 2020, section 2.1.
    """
    norm = {"Pow": 1, "ReduceMean": 1, "Add": 1, "Sqrt": 1, "Div": 1, "Mul": 2}
    block = {"MatMul": 8, "Add": 1 + 2, "Softmax": 1, "Reshape": 4, "Transpose": 4, "Relu": 1}
    outside = {"Gather": 2, "Transpose": 1, "Unsqueeze": 3, "Cast": 1, "Sub": 1, "Mul": 1, "Add": 1}
    norms = Counter({operator: (2 * layers + 1) * count for operator, count in norm.items()})
    return Counter({operator: layers * count for operator, count in block.items()}) + norms + Counter(outside)


OPERATORS = {
    "squeezenet1.1": squeezenet_operators(fires=8, pools=3),
    "squeezenet1.1-tiny": squeezenet_operators(fires=2, pools=2),
    "resnet18": resnet_operators(blocks=8, convolutions=2, projections=3),
    "resnet18-tiny": resnet_operators(blocks=3, convolutions=2, projections=1),
    "resnet50": resnet_operators(blocks=16, convolutions=3, projections=4),
    "resnet50-tiny": resnet_operators(blocks=3, convolutions=3, projections=2),
    "resnext50": resnet_operators(blocks=16, convolutions=3, projections=4),
    "resnext50-tiny": resnet_operators(blocks=3, convolutions=3, projections=2),
    "inception-v3": inception_operators(stem=5, stem_pools=2, blocks="AAABCCCCDEE"),
    "inception-v3-tiny": inception_operators(stem=1, stem_pools=1, blocks="ADE"),
    # The stem already has the channels of the first two cells' older input.
    "nasnet-a": nasnet_operators(normal=15, reduction=3, projected=14, halved=2),
    "nasnet-a-tiny": nasnet_operators(normal=1, reduction=1, projected=1, halved=1),
    "bert-base": bert_operators(12),
    "bert-base-tiny": bert_operators(2),
    "vit-base": vit_operators(12),
    "vit-base-tiny": vit_operators(2),
    "nasrnn": nasrnn_operators(5),
    "nasrnn-tiny": nasrnn_operators(2),
    "dalle-mini": dalle_mini_operators(8),
    "dalle-mini-tiny": dalle_mini_operators(2),
    "transformer-transducer": transducer_operators(audio=12, label=2),
    "transformer-transducer-tiny": transducer_operators(audio=2, label=1),
}


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node if node.op_type != "Constant")


def parameters(model: onnx.ModelProto) -> int:
    """Counts what training learns: neither integer buffers nor sinusoids nor the statistics of batch norms."""
    floats = (tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT)
    learned = (tensor for tensor in floats if ".running_" not in tensor.name and not tensor.name.endswith(".pe"))
    return sum(math.prod(tensor.dims) for tensor in learned)


def kernels(model: onnx.ModelProto, op_type: str) -> set[tuple[int, ...]]:
    nodes = (node for node in model.graph.node if node.op_type == op_type)
    return {tuple(onnx.helper.get_node_attr_value(node, "kernel_shape")) for node in nodes}


@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size_networks_are_the_published_ones(name: str) -> None:
    model = zoo.build(name)
    assert parameters(model) == PARAMETERS[name]
    assert operators(model) == OPERATORS[name]
    shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input]
    assert shapes == INPUTS[name]


@pytest.mark.parametrize(("name", "number", "layers"), [("minilm-l6", 22_713_216, 6), ("bert-l2-h128", 4_385_920, 2)])
def test_smaller_berts_have_the_published_number_of_parameters(name: str, number: int, layers: int) -> None:
    """Source: Hugging Face's `num_parameters()` of all-MiniLM-L6-v2, and of Google's bert_uncased_L-2_H-128_A-2."""
    model = zoo.build(name)
    assert parameters(model) == number
    assert operators(model) == bert_operators(layers)


@pytest.mark.parametrize(("name", "layers"), [("t5-small", 6), ("t5-small-tiny", 2)])
def test_t5_has_the_published_layers(name: str, layers: int) -> None:
    """Source: Hugging Face's `num_parameters()` of the `T5EncoderModel` of t5-small."""
    model = zoo.build(name)
    assert operators(model) == t5_operators(layers)
    assert name != "t5-small" or parameters(model) == 35_330_816


@pytest.mark.parametrize("name", FULL_SIZE)
def test_tiny_variants_have_every_kind_of_operator(name: str) -> None:
    tiny = operators(zoo.build(f"{name}-tiny"))
    assert tiny == OPERATORS[f"{name}-tiny"]
    assert set(tiny) == set(OPERATORS[name])


def test_resnext_convolves_in_32_groups_of_4_channels() -> None:
    """The first stage is 32x4d, and the groups stay 32 while the channels double (Xie et al. 2017, table 1)."""
    graph = zoo.build("resnext50").graph
    dims = {tensor.name: tensor.dims for tensor in graph.initializer}
    grouped = [
        node for node in graph.node if node.op_type == "Conv" and onnx.helper.get_node_attr_value(node, "group") > 1
    ]
    assert {onnx.helper.get_node_attr_value(node, "group") for node in grouped} == {32}
    assert [dims[node.input[1]][1] for node in grouped] == [4] * 3 + [8] * 4 + [16] * 6 + [32] * 3


def test_inception_factorises_its_convolutions() -> None:
    """Kernels are square up to 5x5, or 1x7 and 7x1, or 1x3 and 3x1 (Szegedy et al. 2016, figures 5 to 7)."""
    expected = {(1, 1), (3, 3), (5, 5), (1, 7), (7, 1), (1, 3), (3, 1)}
    assert kernels(zoo.build("inception-v3"), "Conv") == expected
    assert kernels(zoo.build("inception-v3-tiny"), "Conv") == expected


def test_nasnet_separates_its_convolutions() -> None:
    """Every window larger than a pixel has one input channel and a size of figure 4 of Zoph et al. 2018."""
    graph = zoo.build("nasnet-a").graph
    windows = [tensor.dims for tensor in graph.initializer if len(tensor.dims) == 4 and tensor.dims[2] > 1]
    stem, *depthwise = windows
    assert list(stem) == [64, 3, 7, 7]
    assert Counter((channels, size) for _, channels, size, _ in depthwise) == {
        (1, 3): 2 * (3 * 15 + 1 * 3),
        (1, 5): 2 * (2 * 15 + 2 * 3),
        (1, 7): 2 * (2 * 3),
    }


def nas_cell(
    x: np.ndarray, hidden: np.ndarray, cell: np.ndarray, weights: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Computes one step of the cell of Zoph and Le 2017 in float64, as `tf.contrib.rnn.NASCell` does."""

    def sigmoid(values: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-values))

    def relu(values: np.ndarray) -> np.ndarray:
        return np.maximum(values, 0)

    inputs, states = ([vector @ pair[side] for pair in weights] for side, vector in enumerate((x, hidden)))
    sums = [left + right for left, right in zip(inputs, states, strict=True)]
    product = np.tanh(sigmoid(sums[0]) * relu(sums[1]))
    gate = np.tanh(sigmoid(sums[2]) + relu(inputs[3] * states[3]))
    left = np.tanh(np.tanh(sums[4]) * sigmoid(sums[5]))
    right = sigmoid(np.tanh(sums[6]) + sigmoid(sums[7]))
    cell = np.tanh(product + cell) * gate
    return np.tanh(cell * np.tanh(left + right)), cell


@pytest.mark.parametrize("name", ["nasrnn-tiny", "nasrnn"])
def test_nasrnn_is_the_published_cell(name: str) -> None:
    model = zoo.build(name)
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer}
    weights = [(tensors[f"cell.kernel.{i}"], tensors[f"cell.recurrent.{i}"]) for i in range(8)]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feeds = {node.name: generator.standard_normal(node.shape, dtype=np.float32) for node in session.get_inputs()}
    hidden, cell = feeds["hidden_state"].astype(np.float64), feeds["cell_state"].astype(np.float64)
    for x in feeds["input"][0].astype(np.float64):
        hidden, cell = nas_cell(x[None], hidden, cell, weights)
    output, last_cell_state = session.run(None, feeds)
    np.testing.assert_allclose(output, hidden, atol=1e-5)
    np.testing.assert_allclose(last_cell_state, cell, atol=1e-5)
