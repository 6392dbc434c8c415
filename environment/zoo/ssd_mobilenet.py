"""SSD with MobileNet v1 for images of 300 x 300 pixels, as TensorFlow's object detection API has it, in inference mode.

Source: Liu et al. 2016, "SSD: Single Shot MultiBox Detector"; Howard et al. 2017, "MobileNets", tables 1 and 13 (6.8
million parameters with COCO's classes). Layers, 1x1 heads and 3 or 6 boxes for each place are those of
`ssd_mobilenet_v1_coco` in TensorFlow's object detection API. Windows of stride 2 are padded on both sides here, which
gives maps of the same sizes: 19, 10, 5, 3, 2 and 1. The heads are raw: boxes are not decoded, and overlapping ones not
removed. With norms folded into the convolutions, the network has 6,807,167 parameters; OpenVINO's Open Model Zoo states
6.807 million for `ssd_mobilenet_v1_coco`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.layers import GraphWriter, SeededWeights

EPSILON = 1e-3
"""That of the norms of the object detection API."""


@dataclass(frozen=True)
class SsdConfig:
    """The configuration of an SSD on MobileNet v1.

    Attributes:
      image_size: height and width of the input, in pixels.
      stem: channels of the first convolution.
      separable: channels and stride of each separable convolution.
      taps: the numbers of the separable convolutions, from 0, whose maps have heads.
      extras: channels of the 1x1 and of the 3x3 convolution of each further map.
      boxes: number of boxes at each place, of each map.
      classes: number of scores of a box, with that of the background.
      batch: images in the input.
    """

    image_size: int
    stem: int
    separable: Sequence[tuple[int, int]]
    taps: Sequence[int]
    extras: Sequence[tuple[int, int]]
    boxes: Sequence[int]
    classes: int
    batch: int = 1


MOBILENET_V1 = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
NETWORKS = {
    "ssd-mobilenet": SsdConfig(
        *(300, 32, MOBILENET_V1, (10, 12), ((256, 512), (128, 256), (128, 256), (64, 128)), (3, 6, 6, 6, 6, 6), 91)
    ),
    "ssd-mobilenet-tiny": SsdConfig(*(32, 8, ((12, 1), (16, 2), (16, 1), (24, 2)), (2, 3), ((8, 16),), (3, 6, 6), 5)),
}


def build(name: str, config: SsdConfig) -> onnx.ModelProto:
    """Builds the network.

    Input `input`: float32 [batch, 3, size, size]. Outputs `boxes`: float32 [batch, places, 4], and `scores`: float32
    [batch, places, classes], where a place counts once for each of its boxes.
    """
    net = _Network(GraphWriter(name), SeededWeights(name))
    x = net.normed(net.image(config.image_size, config.batch), "conv0", config.stem, kernel=3, stride=2, first=True)
    maps, size = [], halved(config.image_size)
    for number, (channels, stride) in enumerate(config.separable):
        x = net.normed(x, f"conv{number + 1}.depthwise", x.channels, kernel=3, stride=stride, groups=x.channels)
        x = net.normed(x, f"conv{number + 1}.pointwise", channels)
        size = halved(size) if stride == 2 else size
        if number in config.taps:
            maps.append((x, size))
    for number, (narrow, wide) in enumerate(config.extras):
        x = net.normed(x, f"extra{number}.0", narrow)
        x, size = net.normed(x, f"extra{number}.1", wide, kernel=3, stride=2), halved(size)
        maps.append((x, size))
    places = sum(size**2 * count for (_, size), count in zip(maps, config.boxes, strict=True))
    for output, width in (("boxes", 4), ("scores", config.classes)):
        parts = [
            net.head(each, f"{output}.{number}", count, width, config.batch)
            for number, ((each, _), count) in enumerate(zip(maps, config.boxes, strict=True))
        ]
        joined = net.writer.node("Concat", *parts, scope=net.scope(output), axis=1)
        net.writer.output(output, joined, [config.batch, places, width])
    return net.writer.model()


def halved(size: int) -> int:
    """Returns the size of a map after a window of 3 with stride 2 and a padding of 1."""
    return (size + 1) // 2


class _Network(ConvLayers):
    """The layers of an SSD."""

    def normed(
        self,
        x: Features,
        module: str,
        filters: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        first: bool = False,
    ) -> Features:
        """Writes a convolution, its norm and a ReLU that ends at 6 (Clip)."""
        draw = self.weights.conv_kernel if first else None
        x = self.conv(x, module, filters, kernel=kernel, stride=stride, pad=kernel // 2, groups=groups, draw=draw)
        x = self.batch_norm(x, f"{module}.norm", epsilon=EPSILON)
        bounds = [self.writer.constant(bound, np.float32, self.scope(module)) for bound in (0, 6)]
        return x._replace(value=self.writer.node("Clip", x.value, *bounds, scope=self.scope(module)))

    def head(self, x: Features, module: str, count: int, width: int, batch: int) -> str:
        """Writes a 1x1 convolution to `count` vectors for each place, laid out as [batch, places, width]."""
        x = self.conv(x, module, count * width, bias=True)
        turned = self.writer.node("Transpose", x.value, scope=self.scope(module), perm=[0, 2, 3, 1])
        shape = self.writer.constant([batch, -1, width], np.int64, self.scope(module))
        return self.writer.node("Reshape", turned, shape, scope=self.scope(module), allowzero=0)
