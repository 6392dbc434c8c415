"""SqueezeNet 1.1 as torchvision builds and exports it, in inference mode (dropout removed).

Source: Iandola et al. 2016, "SqueezeNet"; version 1.1 from https://github.com/forresti/SqueezeNet (SqueezeNet_v1.1);
layer names, ceil-mode pools and the arrangement of the pools from torchvision.models.squeezenet1_1, whose weights'
metadata give 1,235,496 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from environment.zoo.graph_writer import GraphWriter
from environment.zoo.weights import SeededWeights


@dataclass(frozen=True)
class Fire:
    """A fire module: a 1x1 squeeze, then 1x1 and 3x3 expansions side by side, concatenated.

    Attributes:
      squeeze: channels after the squeeze.
      expand: channels of each of the two expansions; the module returns twice as many.
    """

    squeeze: int
    expand: int


POOL = "pool"  # a 3x3 max pool of stride 2 in ceil mode


@dataclass(frozen=True)
class SqueezeNetConfig:
    """What distinguishes one SqueezeNet from another.

    Attributes:
      image_size: height and width of the input, in pixels.
      stem: channels of the first convolution.
      body: fire modules and pools after the stem's own pool, in order.
      classes: outputs.
    """

    image_size: int
    stem: int
    body: Sequence[Fire | str]
    classes: int


SQUEEZENET_1_1 = SqueezeNetConfig(
    image_size=224,
    stem=64,
    body=(
        *(Fire(16, 64), Fire(16, 64), POOL),
        *(Fire(32, 128), Fire(32, 128), POOL),
        *(Fire(48, 192), Fire(48, 192), Fire(64, 256), Fire(64, 256)),
    ),
    classes=1000,
)
SQUEEZENET_1_1_TINY = SqueezeNetConfig(image_size=32, stem=8, body=(Fire(4, 8), POOL, Fire(6, 12)), classes=10)


def build_squeezenet(name: str, config: SqueezeNetConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [1, 3, size, size], output `output` float32 [1, classes]."""
    net = _Network(GraphWriter(name), SeededWeights(name))
    writer = net.writer
    x = writer.input("input", [1, 3, config.image_size, config.image_size])
    x = net.conv_relu(x, "features.0", 3, config.stem, kernel=3, stride=2, relu_scope="/features/features.1")
    x = net.pool(x, "features.2")
    channels = config.stem
    for position, block in enumerate(config.body, start=3):
        if isinstance(block, Fire):
            x = net.fire(x, f"features.{position}", channels, block)
            channels = 2 * block.expand
        else:
            x = net.pool(x, f"features.{position}")
    x = net.conv_relu(x, "classifier.1", channels, config.classes, relu_scope="/classifier/classifier.2")
    x = writer.node("GlobalAveragePool", x, scope="/classifier/classifier.3")
    x = writer.node("Flatten", x, axis=1)
    writer.output("output", x, [1, config.classes])
    return writer.model()


@dataclass(frozen=True)
class _Network:
    """The layers of a SqueezeNet, written to one graph with one source of weights."""

    writer: GraphWriter
    weights: SeededWeights

    def fire(self, x: str, module: str, channels: int, config: Fire) -> str:
        squeezed = self.conv_relu(x, f"{module}.squeeze", channels, config.squeeze)
        narrow = self.conv_relu(squeezed, f"{module}.expand1x1", config.squeeze, config.expand)
        wide = self.conv_relu(squeezed, f"{module}.expand3x3", config.squeeze, config.expand, kernel=3, pad=1)
        return self.writer.node("Concat", narrow, wide, scope=f"/features/{module}", axis=1)

    def conv_relu(
        self,
        x: str,
        module: str,
        channels: int,
        filters: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        pad: int = 0,
        relu_scope: str | None = None,
    ) -> str:
        """A convolution and its ReLU; inside fire modules the ReLU is named `<conv>_activation` as in torchvision."""
        weight_name, bias_name = f"{module}.weight", f"{module}.bias"
        weight = self.weights.relu_kernel(weight_name, (filters, channels, kernel, kernel))
        scope = _module_path(module)
        x = self.writer.node(
            "Conv",
            x,
            self.writer.weight(weight_name, weight),
            self.writer.weight(bias_name, self.weights.bias(bias_name, filters)),
            scope=scope,
            dilations=[1, 1],
            group=1,
            kernel_shape=[kernel, kernel],
            pads=[pad] * 4,
            strides=[stride, stride],
        )
        return self.writer.node("Relu", x, scope=relu_scope or f"{scope}_activation")

    def pool(self, x: str, module: str) -> str:
        return self.writer.node(
            "MaxPool",
            x,
            scope=_module_path(module),
            ceil_mode=1,
            dilations=[1, 1],
            kernel_shape=[3, 3],
            pads=[0, 0, 0, 0],
            strides=[2, 2],
        )


def _module_path(module: str) -> str:
    """`features.3.squeeze` -> `/features/features.3/squeeze`, the scope that PyTorch's exporter gives the module."""
    container, index, *inner = module.split(".")
    return "/".join(["", container, f"{container}.{index}", *inner])
