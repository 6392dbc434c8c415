"""What the layers of every family share: one graph, one source of weights, PyTorch's names.

A layer takes the value it reads and the path of its PyTorch module (`layer1.0.conv1`), draws the parameters that the
module's state dict would hold under that path, and returns the value it computes.
"""

from __future__ import annotations

from dataclasses import dataclass

from environment.zoo.graph_writer import GraphWriter
from environment.zoo.weights import SeededWeights


@dataclass(frozen=True)
class Layers:
    """Layers written to one graph with one source of weights."""

    writer: GraphWriter
    weights: SeededWeights

    def scope(self, module: str) -> str:
        """`layer1.0.conv1` -> `/layer1/layer1.0/conv1`, the scope that PyTorch's exporter gives the module.

        An index joins the name of its container, since a `Sequential` is called and has a scope of its own.
        """
        path = ""
        for part in module.split("."):
            container = path.rpartition("/")[2]
            path += f"/{container}.{part}" if part.isdigit() else f"/{part}"
        return path

    def gemm(self, x: str, module: str, fan_in: int, fan_out: int) -> str:
        """`torch.nn.Linear` of a matrix [batch, fan_in], which exporters write as one Gemm: [batch, fan_out]."""
        weight, bias = f"{module}.weight", f"{module}.bias"
        kernel = self.weights.linear_kernel(weight, fan_in, fan_out, transposed=True)
        return self.writer.node(
            "Gemm",
            x,
            self.writer.weight(weight, kernel),
            self.writer.weight(bias, self.weights.bias(bias, fan_out)),
            scope=self.scope(module),
            alpha=1.0,
            beta=1.0,
            transB=1,
        )
