"""Random compositions of the zoo's own blocks: graphs for which nobody has tuned a rule, a setting or a model.

The body of `composed-N` is drawn from the seed N: at least one fire module (SqueezeNet), one inception block
(Inception v3, kinds A, C and E) and one gated attention block (DALL·E mini), in random order and with random widths,
and a max pool at a random place between two of them. A gated attention block reads the pixels of its image as tokens,
as a vision transformer does, and writes them back. The stem and the classifier are those of the other convolutional
networks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.dalle_mini import GatedAttentionLayers
from environment.zoo.inception import Block, InceptionLayers
from environment.zoo.layers import GraphWriter, SeededWeights
from environment.zoo.squeezenet import Fire, FireLayers

FIRE, INCEPTION, ATTENTION = "fire", "inception", "attention"
KINDS = (FIRE, INCEPTION, ATTENTION)
DIVISORS = {"A": 2, "C": 4, "E": 8}
"""Inception v3's channels are divided by these, so that all blocks are about as wide as a fire module."""
MOST_HEADS = 8


@dataclass(frozen=True)
class ComposedConfig:
    """The configuration of a composition.

    Attributes:
      seed: the seed of the body.
      extra: number of blocks of random kinds, besides one of each kind.
      image_size: height and width of the input, in pixels; a multiple of 8.
      stem: channels of the first convolution.
      divisor: number by which the channels of all blocks are divided.
      classes: number of outputs.
    """

    seed: int
    extra: int = 3
    image_size: int = 64
    stem: int = 64
    divisor: int = 1
    classes: int = 1000


def _tiny(seed: int) -> ComposedConfig:
    return ComposedConfig(seed, extra=0, image_size=32, stem=16, divisor=4, classes=10)


NETWORKS = {f"composed-{seed}": ComposedConfig(seed) for seed in (0, 1)}
NETWORKS |= {f"composed-{seed}-tiny": _tiny(seed) for seed in (0, 1)}


def build(name: str, config: ComposedConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [1, 3, size, size], output `output` float32 [1, classes]."""
    net = _Network(GraphWriter(name), SeededWeights(name))
    generator = np.random.default_rng(config.seed)
    kinds = generator.permutation([*KINDS, *generator.choice(KINDS, config.extra)]).tolist()
    pooled_before = int(generator.integers(1, len(kinds)))
    size = config.image_size // 4
    x = net.conv(net.image(config.image_size), "stem.conv", config.stem, kernel=3, stride=2, pad=1, bias=True)
    x = net.max_pool(net.relu(x, "stem.relu"), "stem.pool", pad=1)
    for position, kind in enumerate(kinds):
        if position == pooled_before:
            x, size = net.max_pool(x, "pool", pad=1), size // 2
        x = net.block(x, f"blocks.{position}", kind, size, config.divisor, generator)
    net.classify(x, "avgpool", "fc", config.classes)
    return net.writer.model()


@dataclass(frozen=True)
class _Network(ConvLayers):
    """The blocks of a composition, each with the layers of the network from which it comes."""

    def block(
        self, x: Features, module: str, kind: str, size: int, divisor: int, generator: np.random.Generator
    ) -> Features:
        """Writes a block of random widths on an image [1, channels, size, size]."""
        if kind == FIRE:
            fire = Fire(int(generator.choice([16, 32, 48])) // divisor, int(generator.choice([48, 64, 96])) // divisor)
            return FireLayers(self.writer, self.weights).fire(x, module, fire)
        if kind == INCEPTION:
            block = Block(str(generator.choice(list(DIVISORS))), int(generator.choice([128, 160, 192])))
            if block.kind == "A":
                block = Block("A", block.width // 4)
            layers = InceptionLayers(self.writer, self.weights, DIVISORS[block.kind] * divisor)
            return layers.block(x, module, block)
        return self.gated_attention(x, module, size)

    def gated_attention(self, x: Features, module: str, size: int) -> Features:
        """Writes a gated attention block over the pixels of an image, each of which is a token."""
        writer, scope, tokens = self.writer, self.scope(module), size * size
        heads = next(heads for heads in range(MOST_HEADS, 0, -1) if x.channels % heads == 0)
        block = GatedAttentionLayers(
            writer, self.weights, tokens, x.channels, heads, epsilon=1e-5, feed_forward=8 * x.channels // 3
        )
        flat = writer.constant([1, x.channels, tokens], np.int64, scope)
        value = writer.node("Reshape", x.value, flat, scope=scope, allowzero=0)
        value = block.block(writer.node("Transpose", value, scope=scope, perm=[0, 2, 1]), None, module)
        value = writer.node("Transpose", value, scope=scope, perm=[0, 2, 1])
        image = writer.constant([1, x.channels, size, size], np.int64, scope)
        return Features(writer.node("Reshape", value, image, scope=scope, allowzero=0), x.channels)
