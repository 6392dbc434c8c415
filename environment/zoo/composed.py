"""Random compositions of the zoo's own blocks: graphs for which nobody has tuned a rule, a setting or a model.

The body is drawn from a seed: at least one block of each kind, in random order and with random widths, and a max pool
at a random place between two of them. A transformer block reads the pixels of its image as tokens, as a vision
transformer does, and writes them back. The stem and the classifier are those of the other convolutional networks.

| kind        | block                                           | `composed-N` | `generated-N` |
|-------------|-------------------------------------------------|--------------|---------------|
| `fire`      | fire module (SqueezeNet)                        | yes          | yes           |
| `inception` | inception block A, C or E (Inception v3)        | yes          | yes           |
| `gated`     | gated attention block (DALL·E mini)             | yes          | yes           |
| `attention` | pre-norm transformer block (vision transformer) | no           | yes           |

`composed-N` exists for N = 0 and 1 and has three blocks more than kinds. `generated-N` exists for every N: there the
image, the stem, the number of blocks and the widths of all blocks are drawn too. Settings may be tuned on seeds 0 to
11; tables report seeds 100 to 111, of which 100 to 105 were looked at while dreams were mended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from environment.zoo.conv_layers import ConvLayers, Features
from environment.zoo.dalle_mini import GatedAttentionLayers
from environment.zoo.inception import Block, InceptionLayers
from environment.zoo.layers import GraphWriter, SeededWeights, require
from environment.zoo.squeezenet import Fire, FireLayers
from environment.zoo.transformer_layers import TransformerLayers

FIRE, INCEPTION, GATED, ATTENTION = "fire", "inception", "gated", "attention"
KINDS = (FIRE, INCEPTION, GATED)
ALL_KINDS = (*KINDS, ATTENTION)
DIVISORS = {"A": 2, "C": 4, "E": 8}
"""Inception v3's channels are divided by these, so that all blocks are about as wide as a fire module."""
MOST_HEADS = 8
EPSILON = 1e-5
"""Epsilon of every LayerNorm."""


@dataclass(frozen=True)
class ComposedConfig:
    """The configuration of a composition.

    Attributes:
      seed: the seed of the body.
      kinds: the kinds of blocks.
      extra: number of blocks of random kinds, besides one of each kind.
      image_size: height and width of the input, in pixels; a multiple of 8.
      stem: channels of the first convolution.
      divisor: number by which the channels of all blocks are divided.
      classes: number of outputs.
    """

    seed: int
    kinds: tuple[str, ...] = KINDS
    extra: int = 3
    image_size: int = 64
    stem: int = 64
    divisor: int = 1
    classes: int = 1000


def _tiny(seed: int) -> ComposedConfig:
    return ComposedConfig(seed, extra=0, image_size=32, stem=16, divisor=4, classes=10)


NETWORKS = {f"composed-{seed}": ComposedConfig(seed) for seed in (0, 1)}
NETWORKS |= {f"composed-{seed}-tiny": _tiny(seed) for seed in (0, 1)}


def generated(seed: int) -> ComposedConfig:
    """Returns the configuration of `generated-SEED`, whose sizes are drawn from the seed as well."""
    draw = np.random.default_rng([seed, len(ALL_KINDS)])  # not the generator of the body
    return ComposedConfig(
        seed,
        kinds=ALL_KINDS,
        extra=int(draw.integers(4)),
        image_size=int(draw.choice([32, 48, 64])),
        stem=int(draw.choice([32, 48, 64])),
        divisor=int(draw.choice([1, 2])),
    )


def build(name: str, config: ComposedConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [1, 3, size, size], output `output` float32 [1, classes]."""
    net = _Network(GraphWriter(name), SeededWeights(name))
    generator = np.random.default_rng(config.seed)
    kinds = generator.permutation([*config.kinds, *generator.choice(config.kinds, config.extra)]).tolist()
    pooled_before = int(generator.integers(1, len(kinds)))
    require(config.image_size % 8 == 0, f"expected an image_size that is a multiple of 8, got {config.image_size}.")
    x = net.conv(net.image(config.image_size), "stem.conv", config.stem, kernel=3, stride=2, pad=1, bias=True)
    x = net.max_pool(net.relu(x, "stem.relu"), "stem.pool", pad=1)
    for position, kind in enumerate(kinds):
        if position == pooled_before:
            x = net.max_pool(x, "pool", pad=1)
        x = net.block(x, f"blocks.{position}", kind, config.divisor, generator)
    net.classify(x, "avgpool", "fc", config.classes)
    return net.writer.model()


@dataclass(frozen=True)
class _Network(ConvLayers):
    """The blocks of a composition, each with the layers of the network from which it comes."""

    def block(self, x: Features, module: str, kind: str, divisor: int, generator: np.random.Generator) -> Features:
        """Writes a block of random widths."""
        if kind == FIRE:
            fire = Fire(int(generator.choice([16, 32, 48])) // divisor, int(generator.choice([48, 64, 96])) // divisor)
            return FireLayers(self.writer, self.weights).fire(x, module, fire)
        if kind == INCEPTION:
            block = Block(str(generator.choice(list(DIVISORS))), int(generator.choice([128, 160, 192])))
            if block.kind == "A":
                block = Block("A", block.width // 4)
            layers = InceptionLayers(self.writer, self.weights, DIVISORS[block.kind] * divisor)
            return layers.block(x, module, block)
        return self.transformer(x, module, kind, generator)

    def transformer(self, x: Features, module: str, kind: str, generator: np.random.Generator) -> Features:
        """Writes a transformer block over the pixels of an image, each of which is a token."""
        writer, scope, tokens = self.writer, self.scope(module), x.size**2
        heads = next(heads for heads in range(MOST_HEADS, 0, -1) if x.channels % heads == 0)
        flat = writer.constant([1, x.channels, tokens], np.int64, scope)
        value = writer.node("Reshape", x.value, flat, scope=scope, allowzero=0)
        value = writer.node("Transpose", value, scope=scope, perm=[0, 2, 1])
        sizes = (writer, self.weights, tokens, x.channels, heads, EPSILON)
        if kind == GATED:
            value = GatedAttentionLayers(*sizes, feed_forward=8 * x.channels // 3).block(value, None, module)
        else:
            wide = int(generator.choice([2, 3, 4])) * x.channels
            value = TransformerLayers(*sizes).pre_norm_block(value, module, wide)
        value = writer.node("Transpose", value, scope=scope, perm=[0, 2, 1])
        image = writer.constant([1, x.channels, x.size, x.size], np.int64, scope)
        return x._replace(value=writer.node("Reshape", value, image, scope=scope, allowzero=0))
