"""VGG-19 as torchvision builds and exports it, and CSRNet, whose dilated convolutions follow the front of VGG-16.

Source: Simonyan and Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition", table 1,
configuration E; Li et al. 2018, "CSRNet: Dilated Convolutional Neural Networks for Understanding the Highly Congested
Scenes", table 3, configuration B. Layer names are those of torchvision.models.vgg19 and of the authors' CSRNet
(github.com/leeyeehoo/CSRNet-pytorch). VGG-19 has 143,667,240 parameters by the metadata of torchvision's weights, and
CSRNet 16,263,489: 7,635,264 in the ten convolutions of VGG-16, the others by table 3. Dropout is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.layers import GraphWriter, SeededWeights, require

POOL = "pool"  # a 2x2 max pool of stride 2
POOLED = 7  # height and width of what the classifier of a VGG reads
RATE = 2  # the dilation of CSRNet's back end


@dataclass(frozen=True)
class VggConfig:
    """The configuration of a VGG or of a CSRNet.

    Attributes:
      image_size: height and width of the input, in pixels: a multiple of 8, and of 224 for a classifier; otherwise its
        pool would have unequal windows.
      features: channels of the 3x3 convolutions, and pools, in order.
      dilated: channels of CSRNet's dilated 3x3 convolutions; none in a VGG.
      hidden: width of both hidden layers of the classifier; 0 in a CSRNet, which ends in a map of densities.
      classes: number of outputs of the classifier.
      batch: images in the input.
    """

    image_size: int
    features: Sequence[int | str]
    dilated: Sequence[int] = ()
    hidden: int = 0
    classes: int = 1000
    batch: int = 1


VGG_19 = (64, 64, POOL, 128, 128, POOL, *(256,) * 4, POOL, *(512,) * 4, POOL, *(512,) * 4, POOL)
FRONT_OF_VGG_16 = (64, 64, POOL, 128, 128, POOL, 256, 256, 256, POOL, 512, 512, 512)
NETWORKS = {
    "vgg19": VggConfig(224, VGG_19, hidden=4096),
    "vgg19-tiny": VggConfig(28, (8, POOL, 12, POOL), hidden=32, classes=10),
    "csrnet": VggConfig(224, FRONT_OF_VGG_16, dilated=(512, 512, 512, 256, 128, 64)),
    "csrnet-tiny": VggConfig(32, (8, POOL, 12, POOL, 16), dilated=(16, 8)),
}


def build(name: str, config: VggConfig) -> onnx.ModelProto:
    """Builds the network, with the input `input` float32 [batch, 3, size, size].

    The output `output` is float32 [batch, classes], or of a CSRNet [batch, 1, size / 8, size / 8] after three pools.

    Raises:
      ValueError: the image is no multiple of what its pools divide it by.
    """
    shrunk = 2 ** list(config.features).count(POOL) * (POOLED if config.hidden else 1)
    require(
        config.image_size % shrunk == 0,
        f"expected an image_size that is a multiple of {shrunk}, got {config.image_size}.",
    )
    net = _Network(GraphWriter(name), SeededWeights(name))
    x = net.stack(
        net.image(config.image_size, config.batch), "frontend" if config.dilated else "features", config.features
    )
    if config.dilated:
        x = net.stack(x, "backend", config.dilated, dilation=RATE)
        x = net.conv(x, "output_layer", 1, bias=True, draw=net.weights.relu_kernel)
        net.writer.output("output", x.value, [config.batch, 1, x.size, x.size])
    else:
        net.classifier(x, config)
    return net.writer.model()


class _Network(ConvLayers):
    """The layers of a VGG."""

    def stack(self, x: Features, module: str, layers: Sequence[int | str], *, dilation: int = 1) -> Features:
        """Writes 3x3 convolutions with ReLU, and pools; a convolution and its ReLU count as two modules."""
        place = 0
        for layer in layers:
            if isinstance(layer, str):
                x = self.max_pool(x, f"{module}.{place}", kernel=2, stride=2)
                place += 1
                continue
            x = self.conv(
                x,
                f"{module}.{place}",
                layer,
                kernel=3,
                pad=dilation,
                dilation=dilation,
                bias=True,
                draw=self.weights.relu_kernel,
            )
            x = self.relu(x, f"{module}.{place + 1}")
            place += 2
        return x

    def classifier(self, x: Features, config: VggConfig) -> None:
        """Writes the pool to 7x7, three linear layers with ReLUs between, and the output [batch, classes]."""
        window = x.size // POOLED
        pooled = self.average_pool(x, "avgpool", kernel=window, stride=window, pad=0)
        value = self.writer.node("Flatten", pooled.value, axis=1)
        width = x.channels * POOLED**2
        for place in (0, 3):
            value = self.gemm(value, f"classifier.{place}", width, config.hidden)
            value = self.writer.node("Relu", value, scope=self.scope(f"classifier.{place + 1}"))
            width = config.hidden
        value = self.gemm(value, "classifier.6", width, config.classes)
        self.writer.output("output", value, [config.batch, config.classes])
