"""The shared parts of all networks: a writer of graphs, a source of weights, and PyTorch's layers and names.

A layer takes the value it reads and the path of its PyTorch module (`layer1.0.conv1`), draws the parameters that the
module's state dict would hold under that path, and returns the value it computes.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18  # PyTorch's exporter writes 18 by default; LayerNormalization exists since 17
IR_VERSION = 8  # the IR of opset 18's release, accepted by every ONNX Runtime since 1.14

_apart: ContextVar[dict[str, npt.NDArray[Any]] | None] = ContextVar("apart", default=None)
"""Where weights go instead of into the model; None if they go there."""


def require(fits: bool, message: str) -> None:
    """Raises a ValueError with a message if the sizes of a network do not fit one another."""
    if not fits:
        raise ValueError(message)


@contextmanager
def without_values() -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Networks that are built inside the block have no initializers; the yielded dictionary gets zeros in their place.

    The zeros take no memory before something reads or writes them.
    """
    apart: dict[str, npt.NDArray[Any]] = {}
    token = _apart.set(apart)
    try:
        yield apart
    finally:
        _apart.reset(token)


class GraphWriter:
    """A writer that collects inputs, weights and nodes in execution order and makes a ModelProto of them."""

    def __init__(self, name: str) -> None:
        opset = helper.make_opsetid("", OPSET)
        self._model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="rlflow-zoo", opset_import=[opset])
        self._graph = self._model.graph
        self._graph.name = name
        self._names_taken: Counter[str] = Counter()

    def input(self, name: str, dims: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        """Declares a graph input of static shape `dims` and returns its name; `dtype` is a TensorProto enum."""
        self._graph.input.append(helper.make_tensor_value_info(name, dtype, list(dims)))
        return name

    def output(self, name: str, value: str, dims: Sequence[int], dtype: int = TensorProto.FLOAT) -> None:
        """Declares `value` as a graph output called `name`: its producer is renamed, as exporters do.

        Raises:
          ValueError: `value` is not the output of a node.
        """
        found = False
        for node in self._graph.node:
            for port, produced in enumerate(node.output):
                if produced == value:
                    node.output[port] = name
                    found = True
            for port, consumed in enumerate(node.input):
                if consumed == value:
                    node.input[port] = name
        if not found:
            raise ValueError(f"output {name!r} needs the output of a node, got {value!r}, which no node produces")
        self._graph.output.append(helper.make_tensor_value_info(name, dtype, list(dims)))

    def weight(self, name: str, tensor: npt.NDArray[Any]) -> str:
        """Adds `tensor` as an initializer and returns its name."""
        apart = _apart.get()
        if apart is not None:
            apart[name] = tensor
            return name
        # It is filled in place, because numpy_helper.from_array and append would copy BERT's 438 MB twice more.
        proto = self._graph.initializer.add(name=name, dims=tensor.shape)
        proto.data_type = helper.np_dtype_to_tensor_dtype(tensor.dtype)
        proto.raw_data = tensor.tobytes()
        return name

    def constant(self, value: npt.ArrayLike, dtype: type[np.generic], scope: str = "") -> str:
        """Adds a small literal (a shape, an index, √2) as a `Constant` node, apart from the learned parameters."""
        tensor = numpy_helper.from_array(np.asarray(value, dtype))
        return self.node("Constant", scope=scope, value=tensor)

    def node(self, op_type: str, *inputs: str, scope: str = "", **attributes: Any) -> str:
        """Adds a single-output node named after its module path `scope` and returns the name of its value."""
        stem = f"{scope}/{op_type}"
        count = self._names_taken[stem]
        self._names_taken[stem] += 1
        name = f"{stem}_{count}" if count else stem
        value = f"{name}_output_0"
        self._graph.node.append(helper.make_node(op_type, list(inputs), [value], name=name, **attributes))
        return value

    def split(self, value: str, count: int, *, axis: int, scope: str = "") -> list[str]:
        """Adds a node that splits a value into equal parts, and returns their names."""
        first = self.node("Split", value, scope=scope, axis=axis, num_outputs=count)
        node, stem = self._graph.node[-1], first.removesuffix("_0")
        node.output.extend(f"{stem}_{part}" for part in range(1, count))
        return list(node.output)

    def model(self) -> onnx.ModelProto:
        """Returns the finished model; the writer must not be used afterwards, because they share the graph."""
        return self._model


Array = npt.NDArray[np.float32]

BIAS_STD = 0.1  # visible next to unit-scale activations, too small to push them into saturation
NORM_STD = 0.1  # spread of a norm's scales and deviations around 1: distinct, so that a permuted one is noticed
CENTRING = 0.4  # share of its mean that a filter loses: outputs react to inputs, and rounding errors do not grow
EMBEDDING_STD = 0.02  # BERT's initializer_range; the LayerNorm after the embeddings brings it to unit scale


class SeededWeights:
    """A source of one graph's tensors; each depends only on the graph's name and its own, not on the order of calls."""

    def __init__(self, graph_name: str) -> None:
        self._graph_name = graph_name

    def conv_kernel(self, name: str, shape: Sequence[int]) -> Array:
        """Returns a convolution kernel [out, in / group, *window] that maps unit variance to unit variance."""
        return self._normal(name, shape, std=math.sqrt(1.0 / math.prod(shape[1:])))

    def relu_kernel(self, name: str, shape: Sequence[int]) -> Array:
        """Returns a convolution kernel [out, in / group, *window] for a convolution that a ReLU follows.

        Source: He et al. 2015, eq. 10: variance 2 / fan-in, since a ReLU halves the second moment.
        """
        return self._normal(name, shape, std=math.sqrt(2.0 / math.prod(shape[1:])))

    def centred_kernel(self, name: str, shape: Sequence[int]) -> Array:
        """Returns a kernel [out, in / group, *window], with partly centred filters, between a ReLU and a batch norm.

        The output of a ReLU has a mean that depends little on the network's input. It would grow from layer to layer
        until it hides the part that depends on the input. A trained batch norm has measured that mean and subtracts it.
        Here the statistics are drawn, and the filters reduce the mean instead, because they sum to less. A sum of zero
        would be too much: networks as deep as Inception v3 then amplify rounding errors some hundredfold.

        Source: Brock et al. 2021, "Characterizing signal propagation", section 4: the mean of a rectified unit normal
        is 1 / √(2π), its second moment 1 / 2; the variance of the kernel makes up for what is taken away.
        """
        remaining = 1.0 - (1.0 - (1.0 - CENTRING) ** 2) / math.pi
        kernel = self._normal(name, shape, std=math.sqrt(2.0 / remaining / math.prod(shape[1:])))
        filters = kernel.reshape(shape[0], -1)
        filters -= np.float32(CENTRING) * filters.mean(axis=1, keepdims=True)
        return kernel

    def linear_kernel(self, name: str, fan_in: int, fan_out: int, *, transposed: bool = False) -> Array:
        """Returns a matrix [fan_in, fan_out] ([fan_out, fan_in] if `transposed`) that keeps unit variance.

        Source: LeCun et al. 1998, section 4.6: variance 1 / fan-in.
        """
        shape = (fan_out, fan_in) if transposed else (fan_in, fan_out)
        return self._normal(name, shape, std=math.sqrt(1.0 / fan_in))

    def embedding(self, name: str, rows: int, width: int, *, std: float = EMBEDDING_STD) -> Array:
        """Returns an embedding table [rows, width]; `std` is 1 where no norm follows it."""
        return self._normal(name, (rows, width), std=std)

    def bias(self, name: str, size: int) -> Array:
        """Returns a bias [size], which is also used as the shift of a norm and as the running mean of a batch norm."""
        return self._normal(name, (size,), std=BIAS_STD)

    def norm_scale(self, name: str, size: int, *, centre: float = 1.0) -> Array:
        """Returns the scale [size] of a norm, spread around `centre`."""
        return np.float32(centre) + self._normal(name, (size,), std=NORM_STD)

    def norm_variance(self, name: str, size: int) -> Array:
        """Returns the running variance [size] of a batch norm: squared standard deviations that are spread around 1."""
        return np.square(np.float32(1.0) + self._normal(name, (size,), std=NORM_STD))

    def _normal(self, name: str, shape: Sequence[int], *, std: float) -> Array:
        if _apart.get() is not None:
            return np.zeros(shape, np.float32)
        digest = hashlib.sha256(f"{self._graph_name}/{name}".encode()).digest()
        generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        tensor = generator.standard_normal(tuple(shape), dtype=np.float32)
        tensor *= np.float32(std)
        return tensor


@dataclass(frozen=True)
class Layers:
    """Layers written to one graph with one source of weights."""

    writer: GraphWriter
    weights: SeededWeights

    def scope(self, module: str) -> str:
        """Returns the scope of a module in PyTorch's exporter: `layer1.0.conv1` -> `/layer1/layer1.0/conv1`.

        An index joins the name of its container, because a `Sequential` is called and has a scope of its own.
        """
        path = ""
        for part in module.split("."):
            container = path.rpartition("/")[2]
            path += f"/{container}.{part}" if part.isdigit() else f"/{part}"
        return path

    def gemm(self, x: str, module: str, fan_in: int, fan_out: int) -> str:
        """Writes `torch.nn.Linear` of a matrix [batch, fan_in] as one Gemm, as exporters do: [batch, fan_out]."""
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
