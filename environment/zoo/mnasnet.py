"""MnasNet-B1 with a width of 1.0 as torchvision builds and exports it, in inference mode (dropout removed).

Source: Tan et al. 2019, "MnasNet: Platform-Aware Neural Architecture Search for Mobile", figure 7, without the
squeeze-and-excitation of the variant A1. Layer names are those of torchvision.models.mnasnet1_0, whose weights'
metadata give 4,383,312 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.layers import GraphWriter, SeededWeights

# A residual sum would grow from block to block; see BRANCH_GAIN in `environment.zoo.resnet`.
BRANCH_GAIN = 0.4


class Stack(NamedTuple):
    """Inverted residual blocks, of which the first one may have a stride and changes the number of channels.

    Attributes:
      channels: channels after each block.
      kernel: size of the depthwise window.
      stride: stride of the first block.
      expansion: how many times as many channels the inside of a block has.
      repeats: number of blocks.
    """

    channels: int
    kernel: int
    stride: int
    expansion: int
    repeats: int


@dataclass(frozen=True)
class MnasNetConfig:
    """The configuration of a MnasNet.

    Attributes:
      image_size: height and width of the input, in pixels.
      stem: channels of the first convolution and after the separable one.
      stacks: the blocks, in order.
      head: channels of the last convolution.
      classes: number of outputs.
      batch: images in the input.
    """

    image_size: int
    stem: Sequence[int]
    stacks: Sequence[Stack]
    head: int
    classes: int
    batch: int = 1


B1 = (
    *(Stack(24, 3, 2, 3, 3), Stack(40, 5, 2, 3, 3), Stack(80, 5, 2, 6, 3)),
    *(Stack(96, 3, 1, 6, 2), Stack(192, 5, 2, 6, 4), Stack(320, 3, 1, 6, 1)),
)
NETWORKS = {
    "mnasnet": MnasNetConfig(224, (32, 16), B1, 1280, 1000),
    "mnasnet-tiny": MnasNetConfig(32, (8, 8), (Stack(12, 3, 2, 3, 2), Stack(16, 5, 1, 2, 1)), 24, 10),
}


def build(name: str, config: MnasNetConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [batch, 3, size, size], output `output` float32 [batch, classes]."""
    net = _Network(GraphWriter(name), SeededWeights(name))
    wide, narrow = config.stem
    x = net.image(config.image_size, config.batch)
    x = net.normed(x, "layers", 0, wide, kernel=3, stride=2, draw=net.weights.conv_kernel)
    x = net.normed(x, "layers", 3, wide, kernel=3, groups=wide)
    x = net.normed(x, "layers", 6, narrow, active=False)
    for place, stack in enumerate(config.stacks, start=8):
        for block in range(stack.repeats):
            x = net.block(x, f"layers.{place}.{block}.layers", stack, stack.stride if block == 0 else 1)
    x = net.normed(x, "layers", 8 + len(config.stacks), config.head, draw=net.weights.conv_kernel)
    pooled = net.writer.node("ReduceMean", x.value, net.writer.constant([2, 3], np.int64), keepdims=0)
    logits = net.gemm(pooled, "classifier.1", config.head, config.classes)
    net.writer.output("output", logits, [config.batch, config.classes])
    return net.writer.model()


class _Network(ConvLayers):
    """The layers of a MnasNet."""

    def normed(
        self,
        x: Features,
        module: str,
        place: int,
        filters: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        active: bool = True,
        gain: float = 1.0,
        **settings: object,
    ) -> Features:
        """Writes a convolution, its norm and its ReLU, the modules `place` and the next two of a sequence."""
        sizes = {"kernel": kernel, "stride": stride, "pad": kernel // 2, "groups": groups}
        x = self.conv(x, f"{module}.{place}", filters, **sizes, **settings)  # type: ignore[arg-type]
        x = self.batch_norm(x, f"{module}.{place + 1}", gain=gain)
        return self.relu(x, f"{module}.{place + 2}") if active else x

    def block(self, x: Features, module: str, stack: Stack, stride: int) -> Features:
        """Writes an inverted residual: wider by 1x1, depthwise, narrower by 1x1, and the sum if the shape is kept.

        No ReLU is before the first convolution, so its kernel is drawn for unit variance.
        """
        inner, is_residual = stack.expansion * x.channels, stride == 1 and x.channels == stack.channels
        branch = self.normed(x, module, 0, inner, draw=self.weights.conv_kernel)
        branch = self.normed(branch, module, 3, inner, kernel=stack.kernel, stride=stride, groups=inner)
        gain = BRANCH_GAIN if is_residual else 1.0
        branch = self.normed(branch, module, 6, stack.channels, active=False, gain=gain)
        return self.add(branch, x, module) if is_residual else branch
