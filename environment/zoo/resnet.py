"""ResNet-18, ResNet-50 and ResNeXt-50 32x4d as torchvision builds and exports them, in inference mode.

Source: He et al. 2016, "Deep Residual Learning for Image Recognition", table 1; Xie et al. 2017, "Aggregated Residual
Transformations for Deep Neural Networks", table 1. Layer names and the stride in the 3x3 convolution of a bottleneck
(the original has it in the 1x1 before) are those of torchvision.models.resnet. Its weights' metadata give 11,689,512,
25,557,032 and 25,028,904 parameters. Batch norms are operators of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.layers import GraphWriter, SeededWeights

# A sum of branches of unit scale would double the variance in every block. Small scales in the last norm of a branch,
# which training starts from zero (Goyal et al. 2017, section 5.1), keep its variance near that of the skip.
BRANCH_GAIN = 0.4


@dataclass(frozen=True)
class ResNetConfig:
    """The configuration of a ResNet; channels double from stage to stage.

    Attributes:
      image_size: height and width of the input, in pixels.
      stem: channels of the first convolution.
      blocks: residual blocks of each stage.
      inner: channels inside the blocks of the first stage (of the 3x3 convolution of a bottleneck).
      expansion: channels after a block per stem channel: 1 for two 3x3 convolutions, 4 for bottlenecks.
      groups: number of groups of the 3x3 convolution of a bottleneck.
      classes: number of outputs.
      batch: images in the input.
    """

    image_size: int
    stem: int
    blocks: Sequence[int]
    inner: int
    expansion: int
    groups: int
    classes: int
    batch: int = 1


def _imagenet(blocks: Sequence[int], *, inner: int = 64, expansion: int = 4, groups: int = 1) -> ResNetConfig:
    return ResNetConfig(224, 64, blocks, inner, expansion, groups, 1000)


def _tiny(blocks: Sequence[int], *, inner: int = 8, expansion: int = 4, groups: int = 1) -> ResNetConfig:
    return ResNetConfig(32, 8, blocks, inner, expansion, groups, 10)


NETWORKS = {
    "resnet18": _imagenet((2, 2, 2, 2), expansion=1),
    "resnet18-tiny": _tiny((2, 1), expansion=1),
    "resnet50": _imagenet((3, 4, 6, 3)),
    "resnet50-tiny": _tiny((2, 1)),
    "resnext50": _imagenet((3, 4, 6, 3), inner=128, groups=32),
    "resnext50-tiny": _tiny((2, 1), inner=16, groups=4),
}


def build(name: str, config: ResNetConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [batch, 3, size, size], output `output` float32 [batch, classes]."""
    net = _Network(GraphWriter(name), SeededWeights(name))
    draw = net.weights.conv_kernel
    x = net.conv(net.image(config.image_size, config.batch), "conv1", config.stem, kernel=7, stride=2, pad=3, draw=draw)
    x = net.relu(net.batch_norm(x, "bn1"), "relu")
    x = net.max_pool(x, "maxpool", pad=1)
    for stage, blocks in enumerate(config.blocks):
        inner, outer = config.inner << stage, (config.expansion * config.stem) << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            module = f"layer{stage + 1}.{block}"
            if config.expansion == 1:
                x = net.basic_block(x, module, outer, stride)
            else:
                x = net.bottleneck(x, module, inner, outer, stride, config.groups)
    net.classify(x, "avgpool", "fc", config.classes, config.batch)
    return net.writer.model()


class _Network(ConvLayers):
    """The layers of a ResNet."""

    def basic_block(self, x: Features, module: str, filters: int, stride: int) -> Features:
        branch = self.conv(x, f"{module}.conv1", filters, kernel=3, stride=stride, pad=1)
        branch = self.relu(self.batch_norm(branch, f"{module}.bn1"), f"{module}.relu")
        branch = self.conv(branch, f"{module}.conv2", filters, kernel=3, pad=1)
        branch = self.batch_norm(branch, f"{module}.bn2", gain=BRANCH_GAIN)
        joined = self.add(branch, self.skip(x, module, filters, stride), module)
        return self.relu(joined, f"{module}.relu_1")

    def bottleneck(self, x: Features, module: str, inner: int, outer: int, stride: int, groups: int) -> Features:
        branch = self.conv(x, f"{module}.conv1", inner)
        branch = self.relu(self.batch_norm(branch, f"{module}.bn1"), f"{module}.relu")
        branch = self.conv(branch, f"{module}.conv2", inner, kernel=3, stride=stride, pad=1, groups=groups)
        branch = self.relu(self.batch_norm(branch, f"{module}.bn2"), f"{module}.relu_1")
        branch = self.conv(branch, f"{module}.conv3", outer)
        branch = self.batch_norm(branch, f"{module}.bn3", gain=BRANCH_GAIN)
        joined = self.add(branch, self.skip(x, module, outer, stride), module)
        return self.relu(joined, f"{module}.relu_2")

    def skip(self, x: Features, module: str, filters: int, stride: int) -> Features:
        """Returns `x` itself, or a projection of it if the block changes its shape."""
        if stride == 1 and x.channels == filters:
            return x
        projected = self.conv(x, f"{module}.downsample.0", filters, stride=stride)
        return self.batch_norm(projected, f"{module}.downsample.1")
