"""Writes ten networks of ordinary size as PyTorch's two exporters write them, to be optimised like a user's own models.

    pip install torch==2.13.0 onnx onnxscript && python tests/perf/pytorch_networks.py runs/pytorch
    rlflow reproduce never-slower --models runs/pytorch/*.onnx

The weights are random but seeded, so that every machine writes the same networks. PyTorch is not a dependency of the
project: install it elsewhere. This file imports nothing of the project.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

OPSETS = {"torchscript": 17, "dynamo": 18}


class TextEncoder(nn.Module):
    """A transformer encoder with learned positions and a pooled output."""

    def __init__(self, width: int, heads: int, layers: int, length: int, vocabulary: int = 8192) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.ModuleList(
            [layer, *(type(layer)(width, heads, 4 * width, 0.0, "gelu", batch_first=True) for _ in range(layers - 1))]
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions
        for layer in self.layers:
            x = layer(x)
        return functional.normalize(x.mean(1), dim=-1)


class CausalAttention(nn.Module):
    """Attention of each position to the earlier ones, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, -1))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(hidden, -1e9).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Decoder(nn.Module):
    """A language model with norms before its blocks and the tanh form of GELU."""

    def __init__(self, width: int, heads: int, layers: int, length: int, vocabulary: int = 4096) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width))
        self.attention = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), CausalAttention(width, heads)) for _ in range(layers)
        )
        self.feed_forward = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
            )
            for _ in range(layers)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions
        for attention, feed_forward in zip(self.attention, self.feed_forward, strict=True):
            x = x + attention(x)
            x = x + feed_forward(x)
        return self.head(x)


class VisionTransformer(nn.Module):
    """Patches, a class token, PyTorch's own encoder with norms first."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, width, 16, 16), nn.Parameter(torch.randn(1, 1, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.cat([self.token, self.patches(image).flatten(2).transpose(1, 2)], 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


def convolution(
    inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1, act: type = nn.ReLU
) -> nn.Sequential:
    """Returns a convolution with a batch norm and an activation."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), act())


class Residual(nn.Module):
    """The sum of a block and its input."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


class SqueezeExcite(nn.Module):
    """Scales each channel by a function of all channels' means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // 4, 1),
            nn.ReLU(),
            nn.Conv2d(channels // 4, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(x)


def residual_network() -> nn.Module:
    """Returns a residual network with pairs of 3x3 convolutions."""
    stages: list[nn.Module] = [convolution(3, 32, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs in ((32, 64), (64, 128), (128, 256)):
        stages.append(convolution(inputs, outputs, stride=2))
        stages += [
            Residual(nn.Sequential(convolution(outputs, outputs), convolution(outputs, outputs))) for _ in range(2)
        ]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000))


def inverted_residual_network() -> nn.Module:
    """Returns a mobile network: depthwise convolutions between 1x1 ones, squeeze and excitation, hard swish."""
    stages: list[nn.Module] = [convolution(3, 16, stride=2, act=nn.Hardswish)]
    for inputs, outputs in ((16, 24), (24, 40), (40, 80), (80, 112)):
        stages.append(convolution(inputs, outputs, stride=2, act=nn.Hardswish))
        wide = 4 * outputs
        stages += [
            Residual(
                nn.Sequential(
                    convolution(outputs, wide, 1, act=nn.Hardswish),
                    convolution(wide, wide, 5, groups=wide, act=nn.Hardswish),
                    SqueezeExcite(wide),
                    convolution(wide, outputs, 1, act=nn.Identity),
                )
            )
            for _ in range(2)
        ]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(112, 1000))


class UNet(nn.Module):
    """A network of an image's size: down, up, and connections across."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Sequential(convolution(a, b), convolution(b, b))
            for a, b in ((3, width), (width, 2 * width), (2 * width, 4 * width))
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * b, b, 2, 2) for b in (2 * width, width))
        self.join = nn.ModuleList(nn.Sequential(convolution(2 * b, b), convolution(b, b)) for b in (2 * width, width))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        x, across = image, []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else functional.max_pool2d(x, 2))
            across.append(x)
        for up, join, other in zip(self.up, self.join, across[-2::-1], strict=True):
            x = join(torch.cat([up(x), other], 1))
        return self.head(x)


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers over embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(8192, 128), nn.LSTM(128, 192, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(384, 32)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.tokens(ids))[0]).log_softmax(-1)


class ConvNextBlock(nn.Module):
    """A depthwise convolution, a norm over channels, and two products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.wide, self.narrow, self.scale = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Parameter(torch.ones(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """Returns a small ConvNeXt."""
    stages: list[nn.Module] = [nn.Conv2d(3, 64, 4, 4), ConvNextBlock(64), ConvNextBlock(64), nn.Conv2d(64, 128, 2, 2)]
    stages += [ConvNextBlock(128), ConvNextBlock(128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1000)]
    return nn.Sequential(*stages)


class MixerBlock(nn.Module):
    """Products over positions, then products over channels."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.positions, self.channels = (
            nn.Sequential(nn.Linear(n, 4 * n), nn.GELU(), nn.Linear(4 * n, n)) for n in (length, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.positions(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class SpeechEncoder(nn.Module):
    """Conformer blocks: half feed-forward steps around attention and a gated depthwise convolution over time."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.project = nn.Linear(80, width)
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            feed = (
                nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
                for _ in range(2)
            )
            gates = (
                nn.Conv1d(width, 2 * width, 1),
                nn.Conv1d(width, width, 15, padding=7, groups=width),
                nn.Conv1d(width, width, 1),
            )
            self.blocks.append(
                nn.ModuleList(
                    [
                        *feed,
                        nn.LayerNorm(width),
                        nn.MultiheadAttention(width, heads, batch_first=True),
                        nn.LayerNorm(width),
                        *gates,
                        nn.BatchNorm1d(width),
                        nn.LayerNorm(width),
                    ]
                )
            )

    def forward(self, frames: Tensor) -> Tensor:
        x = self.project(frames)
        for first, last, norm, attention, before, gate, depthwise, out, batch_norm, after in self.blocks:
            x = x + 0.5 * first(x)
            y = norm(x)
            x = x + attention(y, y, y, need_weights=False)[0]
            y = functional.glu(gate(before(x).transpose(1, 2)), 1)
            x = x + out(functional.silu(batch_norm(depthwise(y)))).transpose(1, 2)
            x = after(x + 0.5 * last(x))
        return x


class Network(NamedTuple):
    """A network, its inputs, and the exporter that writes it."""

    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    exporter: str


def ids(length: int) -> Tensor:
    """Returns token numbers [1, length]."""
    return torch.arange(length).reshape(1, -1)


def networks() -> dict[str, Network]:
    """Returns the ten networks by name."""
    image, small = torch.rand(1, 3, 224, 224), torch.rand(1, 3, 128, 128)
    mixer = nn.Sequential(nn.Linear(192, 192), *(MixerBlock(64, 192) for _ in range(6)), nn.LayerNorm(192))
    return {
        "text-encoder": Network(lambda: TextEncoder(256, 8, 4, 64), (ids(64),), "dynamo"),
        "decoder": Network(lambda: Decoder(256, 8, 4, 96), (ids(96),), "torchscript"),
        "vision-transformer": Network(lambda: VisionTransformer(192, 3, 6), (image,), "dynamo"),
        "residual-network": Network(residual_network, (image,), "torchscript"),
        "inverted-residuals": Network(inverted_residual_network, (image,), "dynamo"),
        "u-net": Network(lambda: UNet(24), (small,), "torchscript"),
        "tagger": Network(Tagger, (ids(48),), "torchscript"),
        "convnext": Network(convnext, (image,), "dynamo"),
        "mixer": Network(lambda: mixer, (torch.rand(1, 64, 192),), "torchscript"),
        "speech-encoder": Network(lambda: SpeechEncoder(144, 4, 4), (torch.rand(1, 120, 80),), "dynamo"),
    }


def export(name: str, network: Network, folder: Path) -> Path:
    """Exports a network in inference mode; returns its file."""
    torch.manual_seed(0)
    model, path = network.make().train(), folder / f"{name}.onnx"
    with torch.no_grad():
        for _ in range(30):  # batch norms learn the statistics of their inputs, as those of a trained network have
            model(*(torch.rand_like(each) if each.is_floating_point() else each for each in network.inputs))
    model.eval()
    with torch.no_grad():
        if network.exporter == "dynamo":
            torch.onnx.export(
                model, network.inputs, path, dynamo=True, opset_version=OPSETS["dynamo"], external_data=False
            )
        else:
            torch.onnx.export(model, network.inputs, path, dynamo=False, opset_version=OPSETS["torchscript"])
    return path


def main() -> None:
    """Writes all networks into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, network in networks().items():
        path = export(name, network, folder)
        print(f"{path}: {network.exporter}, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
