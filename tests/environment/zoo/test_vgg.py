"""VGG-19 and CSRNet are the published networks, and networks with a batch compute each of its images alone."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import zoo

PARAMETERS = {"vgg19": 143_667_240, "csrnet": 16_263_489}
"""Of torchvision's metadata of vgg19, and of the authors' CSRNet."""
DILATED = {"csrnet": [(512, 512), (512, 512), (512, 512), (256, 512), (128, 256), (64, 128)]}
BATCHED = ["resnet18", "resnext50", "inception-v3", "nasrnn", "bert-base", "vgg19", "csrnet"]


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def convolutions(model: onnx.ModelProto) -> list[tuple[tuple[int, ...], int]]:
    """Returns filters, channels and extents of every kernel, with the dilation."""
    dims = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    return [
        (dims[node.input[1]], onnx.helper.get_node_attr_value(node, "dilations")[0])
        for node in model.graph.node
        if node.op_type == "Conv"
    ]


@pytest.mark.parametrize("name", [pytest.param("vgg19", marks=pytest.mark.full), "csrnet"])
def test_networks_have_the_published_number_of_parameters(name: str) -> None:
    assert sum(math.prod(tensor.dims) for tensor in zoo.build(name).graph.initializer) == PARAMETERS[name]


def test_csrnet_is_configuration_b() -> None:
    """Ten convolutions of VGG-16 with three pools, six of rate 2, one pointwise (Li et al. 2018, table 3)."""
    model = zoo.build("csrnet")
    found = convolutions(model)
    assert operators(model) == {"Conv": 17, "Relu": 16, "MaxPool": 3}
    assert [dims[:2] for dims, rate in found if rate == 2] == DILATED["csrnet"]
    assert [rate for _, rate in found] == [1] * 10 + [2] * 6 + [1]
    assert found[-1][0] == (1, 64, 1, 1)
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [1, 1, 28, 28]


def test_tiny_variants_have_every_kind_of_operator() -> None:
    assert operators(zoo.build("csrnet-tiny")).keys() == {"Conv", "Relu", "MaxPool"}
    assert operators(zoo.build("vgg19-tiny")) == Counter(
        {"Conv": 2, "Relu": 4, "MaxPool": 2, "AveragePool": 1, "Flatten": 1, "Gemm": 3}
    )
    assert {rate for _, rate in convolutions(zoo.build("csrnet-tiny"))} == {1, 2}


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_is_computed_image_by_image(name: str) -> None:
    single, several = zoo.build(f"{name}-tiny"), zoo.build(f"{name}-tiny:batch=3")
    assert [t.raw_data for t in single.graph.initializer] == [t.raw_data for t in several.graph.initializer]
    sessions = [onnxruntime.InferenceSession(each.SerializeToString()) for each in (single, several)]
    generator, feeds = np.random.default_rng(0), {}
    for node in sessions[1].get_inputs():
        floats = node.type == "tensor(float)"
        feeds[node.name] = (
            generator.standard_normal(node.shape, dtype=np.float32) if floats else generator.integers(0, 2, node.shape)
        )
    outputs = sessions[1].run(None, feeds)
    for image in range(3):
        alone = sessions[0].run(None, {key: values[image : image + 1] for key, values in feeds.items()})
        for one, all_of_them in zip(alone, outputs, strict=True):
            np.testing.assert_allclose(all_of_them[image : image + 1], one, rtol=1e-4, atol=1e-5)
    declared = several.graph.output[0].type.tensor_type.shape.dim[0].dim_value
    assert declared == 3 == len(outputs[0])


@pytest.mark.parametrize(("name", "size"), [("csrnet-tiny", 30), ("vgg19-tiny", 32)])
def test_an_image_that_the_pools_do_not_divide_is_an_error(name: str, size: int) -> None:
    with pytest.raises(zoo.ZooError, match=f"multiple of .*, got {size}"):
        zoo.build(name, image_size=size)
