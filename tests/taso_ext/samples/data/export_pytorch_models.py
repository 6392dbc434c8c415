"""Writes the models of `pytorch/`: `pip install torch==2.13.0 onnxscript && python export_pytorch_models.py`.

PyTorch's two exporters, the TorchScript one and the one on torch.export ("dynamo"), export every network that they can,
with seeded weights. The files are test data; PyTorch is not a dependency of the project.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from google.protobuf.message import Message
from torch import Tensor, nn

OUT = Path(__file__).parent / "pytorch"
OPSETS = {"torchscript": 17, "dynamo": 20}


@dataclass(frozen=True)
class Network:
    """A network and how it is exported.

    Attributes:
      make: a function that builds the network.
      inputs: example inputs.
      dynamic: the names of the open dimensions of each input, by axis.
      exporters: the exporters that can export it.
      script: whether the TorchScript exporter gets it scripted instead of traced, which keeps its control flow.
    """

    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    dynamic: tuple[dict[int, str], ...] = ()
    exporters: tuple[str, ...] = tuple(OPSETS)
    script: bool = False


class ResidualCnn(nn.Module):
    """Convolutions with batch norm, a residual, pooling, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.left = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.right = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x))
        x = torch.cat([self.left(x) + x, self.right(x)], 1)
        return torch.log_softmax(self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)), -1)


class GroupedCnn(nn.Module):
    """Grouped and depthwise convolutions, squeeze and excitation, hard and soft activations."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8), nn.SiLU(),
            nn.Conv2d(8, 8, 3, 2, 1, groups=4), nn.BatchNorm2d(8), nn.Hardswish(),
            nn.Conv2d(8, 8, 5, 1, 2, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
        )  # fmt: skip
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        scale = torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.excite(scale))


class UNet(nn.Module):
    """Down- and upsampling with skip connections and other norms."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.GELU())
        self.middle = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.InstanceNorm2d(8), nn.LeakyReLU())
        self.up = nn.ConvTranspose2d(16, 4, 2, 2)
        self.last = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        low = self.down(x)
        high = self.up(torch.cat([low, self.middle(low)], 1))
        blurred = nn.functional.interpolate(low[:, :2], scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.last(torch.cat([high, blurred], 1)) + x


class Encoder(nn.Module):
    """A transformer encoder layer on embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, activation="gelu", norm_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layer(self.embed(tokens)).mean(1)


class Decoder(nn.Module):
    """One causal attention block with open batch and length; its mask and positions are computed from the shape."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(20, 16), nn.Embedding(32, 16)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.out, self.norm = nn.Linear(16, 16, bias=False), nn.LayerNorm(16)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length = tokens.shape
        x = self.embed(tokens) + self.position(torch.arange(length, device=tokens.device))
        heads = [part(x).view(batch, length, 4, 4).transpose(1, 2) for part in (self.query, self.key, self.value)]
        scores = heads[0] @ heads[1].transpose(-1, -2) / 2.0
        mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        weights = scores.masked_fill(~mask, -1e9).softmax(-1)
        mixed = (weights @ heads[2]).transpose(1, 2).reshape(batch, length, 16)
        return self.norm(x + self.out(mixed)) @ self.embed.weight.t()


class Recurrent(nn.Module):
    """A bidirectional LSTM and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 4, num_layers=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        states, (last, _) = self.lstm(x)
        return self.gru(states.transpose(0, 1))[0], last


class Bag(nn.Module):
    """An embedding bag, which TorchScript writes as a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(12, 6, mode="mean"), nn.Linear(6, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.bag(words)).sigmoid()


class Branching(nn.Module):
    """A branch on the data, as torch.export keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * torch.cond(x.sum() > 0, lambda a: torch.tanh(self.first(a)), lambda a: self.second(a) - a, (x,))


class ScriptedBranch(nn.Module):
    """A branch and a loop as TorchScript keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(x.size(0)):
            x = torch.tanh(self.first(x))
        if bool(x.sum() > 0):
            y = self.second(x)
        else:
            y = x - 1.0
        return y * 2


class Indexing(nn.Module):
    """Gathering, scattering, sorting, slicing, comparing, einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 4))

    def forward(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        picked = self.table[rows]
        top, places = torch.topk(x, 2, dim=-1)
        mixed = torch.einsum("bi,bj->bij", picked, x).clamp(-1, 1)
        filled = torch.zeros_like(x).scatter(1, places, top)
        return torch.where(filled > 0, x[:, ::2].repeat(1, 2), mixed.sum(2)), torch.cumsum(mixed, 1)


NETWORKS = {
    "residual_cnn": Network(ResidualCnn, (torch.zeros(2, 3, 12, 12),), ({0: "batch"},)),
    "grouped_cnn": Network(GroupedCnn, (torch.zeros(1, 4, 10, 10),)),
    "unet": Network(UNet, (torch.zeros(1, 2, 8, 8),)),
    "encoder": Network(Encoder, (torch.zeros(2, 7, dtype=torch.int64),)),
    "decoder": Network(Decoder, (torch.zeros(2, 6, dtype=torch.int64),), ({0: "batch", 1: "length"},)),
    "recurrent": Network(Recurrent, (torch.zeros(2, 5, 6),)),
    "bag": Network(Bag, (torch.zeros(3, 4, dtype=torch.int64),)),
    "branching": Network(Branching, (torch.zeros(3, 6),), exporters=("dynamo",)),
    "scripted_branching": Network(ScriptedBranch, (torch.zeros(3, 6),), exporters=("torchscript",), script=True),
    "indexing": Network(Indexing, (torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64))),
}


def trained(network: Network) -> nn.Module:
    """Returns the network in evaluation mode, with weights and statistics that are not the initial zeros and ones."""
    torch.manual_seed(0)
    module = network.make().eval()
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0.0, 0.5)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return module


def export(name: str, network: Network, exporter: str) -> None:
    module, path = trained(network), OUT / f"{name}-{exporter}.onnx"
    names = [f"input_{i}" for i in range(len(network.inputs))]
    options: dict[str, object] = {"input_names": names, "opset_version": OPSETS[exporter]}
    if exporter == "dynamo":
        symbols = [{axis: torch.export.Dim(dim) for axis, dim in dims.items()} for dims in network.dynamic]
        torch.onnx.export(
            module, network.inputs, path, dynamo=True, external_data=False, optimize=False,
            dynamic_shapes=tuple(symbols) if symbols else None, **options,
        )  # fmt: skip
    else:
        axes = dict(zip(names, network.dynamic, strict=False))
        module = torch.jit.script(module) if network.script else module
        torch.onnx.export(module, network.inputs, path, dynamo=False, dynamic_axes=axes or None, **options)
    model = onnx.load(path)
    _forget_notes(model)
    onnx.save(model, path)


def _forget_notes(message: Message) -> None:
    """Removes the exporter's notes, which contain stack traces and are most of a file; namespaces stay."""
    for descriptor, value in message.ListFields():
        if descriptor.name == "metadata_props":
            kept = [entry for entry in value if entry.key == "namespace"]
            del value[:]
            value.extend(kept)
        elif descriptor.type == descriptor.TYPE_MESSAGE:
            for inner in value if descriptor.is_repeated else (value,):
                _forget_notes(inner)


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for network_name, each in NETWORKS.items():
        for which in each.exporters:
            export(network_name, each, which)
