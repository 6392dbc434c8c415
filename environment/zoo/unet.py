"""U-Net as in its paper: convolutions without padding, up-convolutions, and cropped copies of the way down.

Source: Ronneberger et al. 2015, "U-Net: Convolutional Networks for Biomedical Image Segmentation", figure 1: a grey
image of 572 x 572 pixels, five levels of 64 to 1024 channels, and two classes for each of 388 x 388 pixels. Every 3x3
convolution has a bias and a ReLU, and there are no norms, as in the authors' Caffe model. Dropout, which the paper has
at the end of the way down, is removed. The network has 31,030,658 parameters by the formula in its test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.layers import GraphWriter, SeededWeights, require


@dataclass(frozen=True)
class UNetConfig:
    """The configuration of a U-Net.

    Attributes:
      image_size: height and width of the input, in pixels: such that each pool halves an even size.
      channels: channels of the levels, from the top down.
      classes: number of outputs for each pixel.
      batch: images in the input.
    """

    image_size: int = 572
    channels: Sequence[int] = (64, 128, 256, 512, 1024)
    classes: int = 2
    batch: int = 1


NETWORKS = {"unet": UNetConfig(), "unet-tiny": UNetConfig(44, (8, 12, 16))}


def build(name: str, config: UNetConfig) -> onnx.ModelProto:
    """Builds the network.

    Input `input` float32 [batch, 1, size, size]; output `output` float32 [batch, classes, smaller, smaller].

    Raises:
      ValueError: a pool would halve an odd size, or nothing would be left of the image.
    """
    net = _Network(GraphWriter(name), SeededWeights(name))
    size, copies = config.image_size, []
    x = Features(net.writer.input("input", [config.batch, 1, size, size]), 1, size)
    for level, channels in enumerate(config.channels):
        x = net.double(x, f"down.{level}", channels)
        if level < len(config.channels) - 1:
            require(x.size % 2 == 0, f"expected an even number of pixels before pool.{level}, got {x.size}.")
            copies.append(x)
            x = net.max_pool(x, f"pool.{level}", kernel=2)
    for level, copy in reversed(list(enumerate(copies))):
        x = net.up(x, f"up.{level}.transposed", copy.channels)
        cropped = net.crop(copy, f"up.{level}", x.size)
        x = net.double(net.concat([cropped, x], f"up.{level}"), f"up.{level}", copy.channels)
    x = net.conv(x, "out", config.classes, bias=True, draw=net.weights.conv_kernel)
    net.writer.output("output", x.value, [config.batch, config.classes, x.size, x.size])
    return net.writer.model()


class _Network(ConvLayers):
    """The layers of a U-Net."""

    def double(self, x: Features, module: str, channels: int) -> Features:
        """Writes two 3x3 convolutions, each with a ReLU."""
        for number in (1, 2):
            draw = self.weights.relu_kernel
            x = self.conv(x, f"{module}.conv{number}", channels, kernel=3, bias=True, draw=draw)
            x = self.relu(x, f"{module}.relu{number}")
        return x

    def up(self, x: Features, module: str, channels: int) -> Features:
        """Writes an up-convolution: a transposed 2x2 convolution of stride 2."""
        weight, bias = f"{module}.weight", f"{module}.bias"
        kernel = self.weights.linear_kernel(weight, x.channels, channels * 4)
        value = self.writer.node(
            "ConvTranspose",
            x.value,
            self.writer.weight(weight, kernel.reshape(x.channels, channels, 2, 2)),
            self.writer.weight(bias, self.weights.bias(bias, channels)),
            scope=self.scope(module),
            dilations=[1, 1],
            group=1,
            kernel_shape=[2, 2],
            pads=[0, 0, 0, 0],
            strides=[2, 2],
        )
        return Features(value, channels, 2 * x.size)

    def crop(self, x: Features, module: str, size: int) -> Features:
        """Writes a cut of `size` x `size` pixels from the middle."""
        scope, border = self.scope(module), (x.size - size) // 2
        bounds = ([border, border], [border + size, border + size], [2, 3])
        places = [self.writer.constant(each, np.int64, scope) for each in bounds]
        return Features(self.writer.node("Slice", x.value, *places, scope=scope), x.channels, size)
