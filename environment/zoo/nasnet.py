"""NASNet-A: the convolutional cells that architecture search found, in inference mode.

Source of the cells: Zoph et al. 2018, "Learning Transferable Architectures for Scalable Image Recognition", figure 4
(NASNet-A) and the appendix. Every separable convolution is applied twice, as ReLU, depthwise, pointwise, batch norm.
A ReLU, a 1x1 convolution and a batch norm bring both inputs of a cell to its channels. If the image of the older input
is still twice as large, two 1x1 convolutions read its even and its odd pixels. A normal cell concatenates its five sums
and the older input, a reduction its last four sums. Padding, names and operator forms follow timm's `nasnetalarge` as
PyTorch exports it.

Source of the arrangement: TASO's benchmark graph (Jia et al. 2019, `examples/nasnet_a.py`): a ResNet stem of 64
channels and three times five normal cells and a reduction, here with 64 to 512 filters; the paper's own networks start
with two reductions and end with normal cells. TASO's stand-in has grouped convolutions instead of separable ones and
leaves out norms, most ReLUs and the classifier. This network has them, and as in the paper every cell reads the outputs
of the two cells before it, also across reductions. It has 17,083,560 parameters, the number that Keras counts for its
cells in this arrangement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.layers import GraphWriter, SeededWeights

EPSILON = 1e-3  # of every batch norm
# A cell concatenates sums of two values, which have about twice the variance of its inputs. Scales below one, in the
# norms of its inputs and of its branches, keep the variance from doubling in each cell.
SQUEEZE_GAIN = 0.7
BRANCH_GAIN = 0.8

NORMAL, REDUCTION = "normal", "reduction"


@dataclass(frozen=True)
class NasNetConfig:
    """The configuration of a NASNet-A.

    Attributes:
      image_size: height and width of the input, in pixels; the stem quarters it.
      filters: channels of the stem and inside the first cells; a reduction doubles them.
      cells: NORMAL or REDUCTION, in order.
      classes: number of outputs.
    """

    image_size: int
    filters: int
    cells: Sequence[str]
    classes: int


NASNET_A = NasNetConfig(image_size=224, filters=64, cells=(*[NORMAL] * 5, REDUCTION) * 3, classes=1000)
# A normal cell after a reduction is the smallest arrangement that has every kind of operator.
NASNET_A_TINY = NasNetConfig(image_size=32, filters=4, cells=(REDUCTION, NORMAL), classes=10)
NETWORKS = {"nasnet-a": NASNET_A, "nasnet-a-tiny": NASNET_A_TINY}


def build(name: str, config: NasNetConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [1, 3, size, size], output `output` float32 [1, classes]."""
    net = _Network(GraphWriter(name), SeededWeights(name))
    draw = net.weights.conv_kernel
    x = net.conv(net.image(config.image_size), "conv0.conv", config.filters, kernel=7, stride=2, pad=3, draw=draw)
    x = net.relu(net.norm(x, "conv0.bn"), "conv0.act")
    x = net.max_pool(x, "conv0.pool", pad=1)
    older, filters = x, config.filters
    for position, kind in enumerate(config.cells):
        module, halved = f"cell_{position}", position > 0 and config.cells[position - 1] == REDUCTION
        filters *= 2 if kind == REDUCTION else 1
        left = net.halve(older, module, filters) if halved else net.fit(older, f"{module}.conv_prev_1x1", filters)
        right = net.squeeze(x, f"{module}.conv_1x1", filters)
        older, x = x, net.reduction(left, right, module) if kind == REDUCTION else net.normal(left, right, module)
    net.classify(net.relu(x, "act"), "global_pool", "last_linear", config.classes)
    return net.writer.model()


class _Network(ConvLayers):
    """The cells of a NASNet-A; `left` is the older input of a cell and `right` the newer, both of one shape."""

    def normal(self, left: Features, right: Features, module: str) -> Features:
        """Writes the cell of figure 4, left: five sums and the older input, concatenated."""
        sums = [
            self.add(
                self.separable(right, f"{module}.comb_iter_0_left", 5),
                self.separable(left, f"{module}.comb_iter_0_right", 3),
                module,
            ),
            self.add(
                self.separable(left, f"{module}.comb_iter_1_left", 5),
                self.separable(left, f"{module}.comb_iter_1_right", 3),
                module,
            ),
            self.add(self.mean(right, f"{module}.comb_iter_2_left"), left, module),
            self.add(
                self.mean(left, f"{module}.comb_iter_3_left"), self.mean(left, f"{module}.comb_iter_3_right"), module
            ),
            self.add(self.separable(right, f"{module}.comb_iter_4_left", 3), right, module),
        ]
        return self.concat([left, *sums], module)

    def reduction(self, left: Features, right: Features, module: str) -> Features:
        """Writes the cell of figure 4, right: five sums of halved images, the last four of them concatenated."""
        first = self.add(
            self.separable(right, f"{module}.comb_iter_0_left", 5, stride=2),
            self.separable(left, f"{module}.comb_iter_0_right", 7, stride=2),
            module,
        )
        second = self.add(
            self.max_pool(right, f"{module}.comb_iter_1_left", pad=1),
            self.separable(left, f"{module}.comb_iter_1_right", 7, stride=2),
            module,
        )
        third = self.add(
            self.mean(right, f"{module}.comb_iter_2_left", stride=2),
            self.separable(left, f"{module}.comb_iter_2_right", 5, stride=2),
            module,
        )
        fourth = self.add(self.mean(first, f"{module}.comb_iter_3_right"), second, module)
        fifth = self.add(
            self.separable(first, f"{module}.comb_iter_4_left", 3),
            self.max_pool(right, f"{module}.comb_iter_4_right", pad=1),
            module,
        )
        return self.concat([second, third, fourth, fifth], module)

    def separable(self, x: Features, module: str, kernel: int, stride: int = 1) -> Features:
        """Writes ReLU, depthwise convolution, pointwise convolution and batch norm, twice; the first has the stride."""
        for half, gain in ((1, 1.0), (2, BRANCH_GAIN)):
            x = self.relu(x, f"{module}.act_{half}")
            x = self.depthwise(x, f"{module}.separable_{half}.depthwise_conv2d", kernel, stride if half == 1 else 1)
            pointwise = f"{module}.separable_{half}.pointwise_conv2d"
            x = self.conv(x, pointwise, x.channels, draw=self.weights.conv_kernel)
            x = self.norm(x, f"{module}.bn_sep_{half}", gain)
        return x

    def depthwise(self, x: Features, module: str, kernel: int, stride: int) -> Features:
        """Writes a convolution with a window of its own for every channel."""
        size, draw = x.channels, self.weights.relu_kernel
        return self.conv(x, module, size, kernel=kernel, stride=stride, pad=kernel // 2, groups=size, draw=draw)

    def mean(self, x: Features, module: str, stride: int = 1) -> Features:
        return self.average_pool(x, module, stride=stride, count_pad=False)

    def squeeze(self, x: Features, module: str, filters: int) -> Features:
        """Writes a ReLU, a 1x1 convolution to `filters` channels and a batch norm."""
        x = self.conv(self.relu(x, f"{module}.act"), f"{module}.conv", filters)
        return self.norm(x, f"{module}.bn", SQUEEZE_GAIN)

    def fit(self, x: Features, module: str, filters: int) -> Features:
        """Returns the older input with `filters` channels; if it has them already, it stays as it is."""
        return x if x.channels == filters else self.squeeze(x, module, filters)

    def halve(self, x: Features, module: str, filters: int) -> Features:
        """Writes the older input from before a reduction: half the channels from its even, half from its odd pixels."""
        x = self.relu(x, f"{module}.act")
        halves = []
        for path, pixels in (("path_1", x), ("path_2", self.shift(x, f"{module}.path_2.pad"))):
            pool = f"{module}.{path}.avgpool"
            sampled = self.average_pool(pixels, pool, kernel=1, stride=2, pad=0, count_pad=False)
            halves.append(self.conv(sampled, f"{module}.{path}.conv", filters // 2))
        return self.norm(self.concat(halves, module), f"{module}.final_path_bn", SQUEEZE_GAIN)

    def shift(self, x: Features, module: str) -> Features:
        """Writes the image moved up and left by one pixel: a row and a column are cut off, zeros added opposite."""
        scope = self.scope(module)
        pads = self.writer.constant([0, 0, -1, -1, 0, 0, 1, 1], np.int64, scope)
        return x._replace(value=self.writer.node("Pad", x.value, pads, scope=scope, mode="constant"))

    def norm(self, x: Features, module: str, gain: float = 1.0) -> Features:
        return self.batch_norm(x, module, epsilon=EPSILON, gain=gain)
