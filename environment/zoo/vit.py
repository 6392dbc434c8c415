"""The vision transformer ViT-Base/16 as the Hugging Face `ViTForImageClassification` exports, in inference mode.

Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", section 3 and table 1; sizes and layer names from
`google/vit-base-patch16-224`; operator forms as PyTorch's exporter writes them. The network has 86,567,656 parameters
with the linear classifier, the number in torchvision's metadata of vit_b_16 and of Hugging Face's `num_parameters()`
(the paper rounds to 86 M).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from environment.zoo.layers import GraphWriter, SeededWeights, require
from environment.zoo.transformer_layers import TransformerLayers


@dataclass(frozen=True)
class VitConfig:
    """Sizes of a vision transformer; the defaults are those of ViT-Base/16.

    Attributes:
      image_size: height and width of the input in pixels, a multiple of `patch`.
      patch: height and width of a patch, in pixels.
      hidden: width of the residual stream, a multiple of `heads`.
      layers, heads: encoder blocks, and attention heads in each.
      feed_forward: width between the two linear layers of a block.
      classes: number of outputs.
      epsilon: epsilon of every LayerNorm.
    """

    image_size: int = 224
    patch: int = 16
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward: int = 3072
    classes: int = 1000
    epsilon: float = 1e-12

    @property
    def patches(self) -> int:
        return (self.image_size // self.patch) ** 2


VIT_BASE = VitConfig()
VIT_BASE_TINY = VitConfig(image_size=32, patch=8, hidden=48, layers=2, heads=3, feed_forward=96, classes=10)
NETWORKS = {"vit-base": VIT_BASE, "vit-base-tiny": VIT_BASE_TINY}


def build(name: str, config: VitConfig) -> onnx.ModelProto:
    """Builds the network: input `input` float32 [1, 3, size, size], output `output` float32 [1, classes]."""
    require(
        config.image_size % config.patch == 0,
        f"expected an image_size that is a multiple of the patch, got {config.image_size} and {config.patch}.",
    )
    sizes = (config.patches + 1, config.hidden, config.heads, config.epsilon)
    net = _Network(GraphWriter(name), SeededWeights(name), *sizes, config)
    x = net.embeddings(net.writer.input("input", [1, 3, config.image_size, config.image_size]))
    for layer in range(config.layers):
        x = net.pre_norm_block(x, f"vit.encoder.layer.{layer}", config.feed_forward)
    x = net.first_token(net.layer_norm(x, "vit.layernorm"), "")
    net.writer.output("output", net.gemm(x, "classifier", config.hidden, config.classes), [1, config.classes])
    return net.writer.model()


@dataclass(frozen=True)
class _Network(TransformerLayers):
    """The layers of a vision transformer."""

    config: VitConfig

    def embeddings(self, image: str) -> str:
        """Writes the class token and the patches, linear maps of their pixels, plus positions: [1, tokens, hidden]."""
        writer, module = self.writer, "vit.embeddings"
        scope, tokens = self.scope(module), self._table(f"{module}.cls_token", 1)
        x = writer.node("Concat", tokens, self.patches(image, f"{module}.patch_embeddings"), scope=scope, axis=1)
        return writer.node("Add", x, self._table(f"{module}.position_embeddings", self.tokens), scope=scope)

    def patches(self, image: str, module: str) -> str:
        """Writes a convolution whose windows do not overlap, with its pixels as tokens: [1, patches, hidden]."""
        writer, scope, size = self.writer, self.scope(module), self.config.patch
        weight, bias = f"{module}.projection.weight", f"{module}.projection.bias"
        kernel = self.weights.conv_kernel(weight, (self.hidden, 3, size, size))
        x = writer.node(
            "Conv",
            image,
            writer.weight(weight, kernel),
            writer.weight(bias, self.weights.bias(bias, self.hidden)),
            scope=f"{scope}/projection",
            dilations=[1, 1],
            group=1,
            kernel_shape=[size, size],
            pads=[0, 0, 0, 0],
            strides=[size, size],
        )
        flat = writer.constant([1, self.hidden, self.config.patches], np.int64, scope)
        x = writer.node("Reshape", x, flat, scope=scope, allowzero=0)
        return writer.node("Transpose", x, scope=scope, perm=[0, 2, 1])

    def _table(self, name: str, rows: int) -> str:
        """Writes learned vectors [1, rows, hidden]."""
        return self.writer.weight(name, self.weights.embedding(name, rows, self.hidden)[None])
