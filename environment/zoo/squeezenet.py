"""SqueezeNet 1.1 as torchvision builds and exports it, in inference mode (dropout removed).

Source: Iandola et al. 2016, "SqueezeNet"; version 1.1 from https://github.com/forresti/SqueezeNet (SqueezeNet_v1.1).
Layer names, ceil-mode pools and the arrangement of the pools are those of torchvision.models.squeezenet1_1. Its
weights' metadata give 1,235,496 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.layers import GraphWriter, SeededWeights


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
    """The configuration of a SqueezeNet.

    Attributes:
      image_size: height and width of the input, in pixels.
      stem: channels of the first convolution.
      body: fire modules and pools after the stem's own pool, in order.
      classes: number of outputs.
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


NETWORKS = {"squeezenet1.1": SQUEEZENET_1_1, "squeezenet1.1-tiny": SQUEEZENET_1_1_TINY}


def build(name: str, config: SqueezeNetConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [1, 3, size, size], output `output` float32 [1, classes]."""
    net = FireLayers(GraphWriter(name), SeededWeights(name))
    x = net.conv_relu(net.image(config.image_size), "features.0", config.stem, "features.1", kernel=3, stride=2)
    x = net.max_pool(x, "features.2", ceil_mode=True)
    for position, block in enumerate(config.body, start=3):
        module = f"features.{position}"
        x = net.fire(x, module, block) if isinstance(block, Fire) else net.max_pool(x, module, ceil_mode=True)
    x = net.conv_relu(x, "classifier.1", config.classes, "classifier.2")
    pooled = net.writer.node("GlobalAveragePool", x.value, scope=net.scope("classifier.3"))
    net.writer.output("output", net.writer.node("Flatten", pooled, axis=1), [1, config.classes])
    return net.writer.model()


class FireLayers(ConvLayers):
    """The layers of a SqueezeNet."""

    def fire(self, x: Features, module: str, config: Fire) -> Features:
        squeezed = self._activated(x, f"{module}.squeeze", config.squeeze)
        narrow = self._activated(squeezed, f"{module}.expand1x1", config.expand)
        wide = self._activated(squeezed, f"{module}.expand3x3", config.expand, kernel=3, pad=1)
        return self.concat([narrow, wide], module)

    def conv_relu(
        self, x: Features, module: str, filters: int, relu: str, *, kernel: int = 1, stride: int = 1, pad: int = 0
    ) -> Features:
        """Writes a convolution with bias, and the ReLU module called `relu`."""
        draw = self.weights.relu_kernel
        x = self.conv(x, module, filters, kernel=kernel, stride=stride, pad=pad, bias=True, draw=draw)
        return self.relu(x, relu)

    def _activated(self, x: Features, module: str, filters: int, *, kernel: int = 1, pad: int = 0) -> Features:
        """Writes a convolution and its ReLU, which torchvision calls `<conv>_activation` inside fire modules."""
        return self.conv_relu(x, module, filters, f"{module}_activation", kernel=kernel, pad=pad)
