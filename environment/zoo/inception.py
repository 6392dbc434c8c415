"""Inception v3 as torchvision builds and exports it, in inference mode: no auxiliary head, no dropout.

Source: Szegedy et al. 2016, "Rethinking the Inception Architecture for Computer Vision", table 1 and figures 5-7.
Layer names, the blocks A to E and the untransformed input (`transform_input=False`) are those of
torchvision.models.inception_v3. Its weights' metadata give 27,161,264 parameters, 3,326,696 of them in the auxiliary
head. Batch norms are operators of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.layers import GraphWriter, SeededWeights

EPSILON = 1e-3  # of every batch norm


@dataclass(frozen=True)
class Conv:
    """A convolution with its batch norm and ReLU; the padding keeps the size of the image unless `valid` is set.

    Attributes:
      filters: output channels of the full-size network.
      kernel: height and width of the window.
      stride: 2 if it halves the image, else 1.
      valid: whether it has no padding.
    """

    filters: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    valid: bool = False


@dataclass(frozen=True)
class Block:
    """One module of the body.

    Attributes:
      kind: A to E, torchvision's InceptionA to InceptionE.
      width: channels of the pool's branch in an A, of the 1x7 and 7x1 convolutions in a C; the others have none.
    """

    kind: str
    width: int = 0


POOL = "pool"  # a 3x3 max pool of stride 2


@dataclass(frozen=True)
class InceptionConfig:
    """The configuration of an Inception v3.

    Attributes:
      image_size: height and width of the input, in pixels.
      stem, body: the layers before the blocks, and the blocks, each with its module name, in order.
      divisor: number by which the full-size channels are divided.
      classes: number of outputs.
      batch: images in the input.
    """

    image_size: int
    stem: Sequence[tuple[str, Conv | str]]
    body: Sequence[tuple[str, Block]]
    divisor: int
    classes: int
    batch: int = 1


INCEPTION_V3 = InceptionConfig(
    image_size=299,
    stem=(
        ("Conv2d_1a_3x3", Conv(32, (3, 3), stride=2, valid=True)),
        ("Conv2d_2a_3x3", Conv(32, (3, 3), valid=True)),
        ("Conv2d_2b_3x3", Conv(64, (3, 3))),
        ("maxpool1", POOL),
        ("Conv2d_3b_1x1", Conv(80)),
        ("Conv2d_4a_3x3", Conv(192, (3, 3), valid=True)),
        ("maxpool2", POOL),
    ),
    body=(
        *(("Mixed_5b", Block("A", 32)), ("Mixed_5c", Block("A", 64)), ("Mixed_5d", Block("A", 64))),
        *(("Mixed_6a", Block("B")), ("Mixed_6b", Block("C", 128)), ("Mixed_6c", Block("C", 160))),
        *(("Mixed_6d", Block("C", 160)), ("Mixed_6e", Block("C", 192)), ("Mixed_7a", Block("D"))),
        *(("Mixed_7b", Block("E")), ("Mixed_7c", Block("E"))),
    ),
    divisor=1,
    classes=1000,
)
INCEPTION_V3_TINY = InceptionConfig(
    image_size=31,
    stem=(("Conv2d_1a_3x3", Conv(64, (3, 3), stride=2, valid=True)), ("maxpool1", POOL)),
    body=(("Mixed_5b", Block("A", 32)), ("Mixed_7a", Block("D")), ("Mixed_7b", Block("E"))),
    divisor=16,
    classes=10,
)
NETWORKS = {"inception-v3": INCEPTION_V3, "inception-v3-tiny": INCEPTION_V3_TINY}


def build(name: str, config: InceptionConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [batch, 3, size, size], output `output` float32 [batch, classes]."""
    net = InceptionLayers(GraphWriter(name), SeededWeights(name), config.divisor)
    x = net.image(config.image_size, config.batch)
    for module, layer in config.stem:
        x = net.conv_norm_relu(x, module, layer) if isinstance(layer, Conv) else net.max_pool(x, module)
    for module, block in config.body:
        x = net.block(x, module, block)
    net.classify(x, "avgpool", "fc", config.classes, config.batch)
    return net.writer.model()


@dataclass(frozen=True)
class InceptionLayers(ConvLayers):
    """The layers of an Inception v3."""

    divisor: int

    def block(self, x: Features, module: str, block: Block) -> Features:
        match block.kind:
            case "A":
                return self.block_a(x, module, block.width)
            case "B":
                return self.block_b(x, module)
            case "C":
                return self.block_c(x, module, block.width)
            case "D":
                return self.block_d(x, module)
            case "E":
                return self.block_e(x, module)
        raise ValueError(f"an Inception v3 has blocks of the kinds A to E, got {block.kind!r} for {module!r}")

    def block_a(self, x: Features, module: str, width: int) -> Features:
        """Writes figure 5: a 5x5 and two 3x3 convolutions (the released network kept the 5x5), 1x1 and pool."""
        single = self.branch(x, module, {"branch1x1": Conv(64)})
        five = self.branch(x, module, {"branch5x5_1": Conv(48), "branch5x5_2": Conv(64, (5, 5))})
        double = {"branch3x3dbl_1": Conv(64), "branch3x3dbl_2": Conv(96, (3, 3)), "branch3x3dbl_3": Conv(96, (3, 3))}
        return self.concat([single, five, self.branch(x, module, double), self.pooled(x, module, width)], module)

    def block_b(self, x: Features, module: str) -> Features:
        """Writes the reduction of figure 10, from 35x35 to 17x17."""
        single = self.branch(x, module, {"branch3x3": Conv(384, (3, 3), stride=2, valid=True)})
        double = {
            "branch3x3dbl_1": Conv(64),
            "branch3x3dbl_2": Conv(96, (3, 3)),
            "branch3x3dbl_3": Conv(96, (3, 3), stride=2, valid=True),
        }
        return self.concat([single, self.branch(x, module, double), self.max_pool(x, module)], module)

    def block_c(self, x: Features, module: str, width: int) -> Features:
        """Writes figure 6: 7x7 convolutions factorised into 1x7 and 7x1 of `width` channels."""
        single = self.branch(x, module, {"branch1x1": Conv(192)})
        seven = {
            "branch7x7_1": Conv(width),
            "branch7x7_2": Conv(width, (1, 7)),
            "branch7x7_3": Conv(192, (7, 1)),
        }
        double = {
            "branch7x7dbl_1": Conv(width),
            "branch7x7dbl_2": Conv(width, (7, 1)),
            "branch7x7dbl_3": Conv(width, (1, 7)),
            "branch7x7dbl_4": Conv(width, (7, 1)),
            "branch7x7dbl_5": Conv(192, (1, 7)),
        }
        branches = [single, self.branch(x, module, seven), self.branch(x, module, double)]
        return self.concat([*branches, self.pooled(x, module, 192)], module)

    def block_d(self, x: Features, module: str) -> Features:
        """Writes the second reduction, from 17x17 to 8x8."""
        three = {"branch3x3_1": Conv(192), "branch3x3_2": Conv(320, (3, 3), stride=2, valid=True)}
        seven = {
            "branch7x7x3_1": Conv(192),
            "branch7x7x3_2": Conv(192, (1, 7)),
            "branch7x7x3_3": Conv(192, (7, 1)),
            "branch7x7x3_4": Conv(192, (3, 3), stride=2, valid=True),
        }
        branches = [self.branch(x, module, three), self.branch(x, module, seven)]
        return self.concat([*branches, self.max_pool(x, module)], module)

    def block_e(self, x: Features, module: str) -> Features:
        """Writes figure 7: 3x3 convolutions that fan out into a 1x3 and a 3x1."""
        single = self.branch(x, module, {"branch1x1": Conv(320)})
        three = self.branch(x, module, {"branch3x3_1": Conv(384)})
        double = self.branch(x, module, {"branch3x3dbl_1": Conv(448), "branch3x3dbl_2": Conv(384, (3, 3))})
        fans = [self.fan(three, module, "branch3x3_2"), self.fan(double, module, "branch3x3dbl_3")]
        return self.concat([single, *fans, self.pooled(x, module, 192)], module)

    def fan(self, x: Features, module: str, name: str) -> Features:
        """Writes a 1x3 and a 3x1 convolution side by side."""
        wide = self.branch(x, module, {f"{name}a": Conv(384, (1, 3))})
        high = self.branch(x, module, {f"{name}b": Conv(384, (3, 1))})
        return self.concat([wide, high], module)

    def pooled(self, x: Features, module: str, filters: int) -> Features:
        """Writes the branch of the average pool, whose padding counts as zeros."""
        return self.branch(self.average_pool(x, module), module, {"branch_pool": Conv(filters)})

    def branch(self, x: Features, module: str, convs: dict[str, Conv]) -> Features:
        """Writes convolutions one after the other, given by their names in `module`."""
        for name, conv in convs.items():
            x = self.conv_norm_relu(x, f"{module}.{name}", conv)
        return x

    def conv_norm_relu(self, x: Features, module: str, conv: Conv) -> Features:
        high, wide = conv.kernel
        x = self.conv(
            x,
            f"{module}.conv",
            conv.filters // self.divisor,
            kernel=conv.kernel,
            stride=conv.stride,
            pad=0 if conv.valid else (high // 2, wide // 2),
        )
        return self.relu(self.batch_norm(x, f"{module}.bn", epsilon=EPSILON), module)
