"""The operators of a model and the tensors between them, as placement sees them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from taso_ext import CostModel, Graph, OnnxModel, Value

Kind = Literal["computed", "fed", "parameter"]
UPDATED = ".updated"
"""How the name of an output of a training graph ends that is the next value of an input (`environment.gradients`)."""


@dataclass(frozen=True)
class Operator:
    """One operator that runs at inference time.

    Attributes:
      output: the name of its first result, which no other operator has.
      name: its name in the model, which may be empty or occur twice.
      domain, op_type: its kind; the domain of ONNX's own operators is empty.
    """

    output: str
    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class Tensor:
    """A value that operators read or that the model returns.

    Attributes:
      name: its name in the model.
      kind: computed by an operator, fed by the caller, or a parameter: a weight, made of weights alone, or an input
        with a default value, such as a weight of a training graph.
      producer: the number of the operator that computes it; -1 if none does.
      readers: the numbers of the operators that read it, in ascending order, each once.
      dims: its shape; None if it is not known.
      nbytes: its size; 0 if its shape or type has none that is known.
      is_output: whether the model returns it.
      updates: the parameter that it is the next value of, in whose place it is written; empty if there is none.
    """

    name: str
    kind: Kind
    producer: int
    readers: tuple[int, ...]
    dims: tuple[int, ...] | None
    nbytes: int
    is_output: bool
    updates: str = ""


@dataclass(frozen=True)
class OperatorGraph:
    """The operators of a model, producers first.

    Attributes:
      operators: N of them.
      tensors: all values that these operators read or return.
      graph: the engine's graph, whose run-time operators are `operators` in the same order.
    """

    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]
    graph: Graph

    @classmethod
    def of(cls, model: OnnxModel) -> OperatorGraph:
        """Returns the operators of a loaded model. Its inputs with default values are parameters."""
        return cls.of_graph(model.graph, model.cleaned.defaults)

    @classmethod
    def of_graph(cls, graph: Graph, variables: Collection[str] = ()) -> OperatorGraph:
        """Returns the operators of an engine graph.

        Args:
          variables: inputs that are parameters; an output `NAME.updated` is the next value of the variable NAME.
        """
        values = graph.values()
        nodes = [node for node in graph.nodes() if not node.weight_only]
        readers: dict[int, dict[int, None]] = {}
        producers: dict[int, int] = {}
        for number, node in enumerate(nodes):
            producers.update(dict.fromkeys(node.outputs, number))
            for value in node.inputs:
                if value >= 0:
                    readers.setdefault(value, {})[number] = None
        outputs = set(graph.outputs)
        used = dict.fromkeys([*graph.inputs, *readers, *producers, *graph.outputs])
        tensors = [
            _tensor(values[value], producers.get(value, -1), tuple(readers.get(value, ())), value in outputs, variables)
            for value in used
            if value in values
        ]
        operators = [Operator(values[node.outputs[0]].name, node.name, node.domain, node.op_type) for node in nodes]
        return cls(tuple(operators), tuple(tensors), graph)

    def __len__(self) -> int:
        return len(self.operators)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the engine's graph, which no other process can have; times have to be asked for before."""
        return {**self.__dict__, "graph": None}

    def operator_ms(self, costs: CostModel) -> npt.NDArray[np.float64]:
        """Returns the times of the operators under a cost model, [N] in ms."""
        nodes = self.graph.nodes()
        return self.graph.node_ms(costs)[[position for position, node in enumerate(nodes) if not node.weight_only]]

    def edges(self) -> list[tuple[int, int, int]]:
        """Returns (producer, reader, bytes) for each operator that reads a result of another one."""
        return [
            (tensor.producer, reader, tensor.nbytes)
            for tensor in self.tensors
            if tensor.producer >= 0
            for reader in tensor.readers
        ]

    @property
    def unsized(self) -> int:
        """The number of computed tensors whose size is not known; their copies count as free."""
        return sum(tensor.kind == "computed" and tensor.dims is None for tensor in self.tensors)


def _tensor(value: Value, producer: int, readers: Sequence[int], is_output: bool, variables: Collection[str]) -> Tensor:
    dims = None if value.dims is None else tuple(value.dims)
    is_parameter = value.weight_only or value.handle is not None or value.name in variables
    kind: Kind = "computed" if producer >= 0 else "parameter" if is_parameter else "fed"
    variable = value.name.removesuffix(UPDATED)
    updates = variable if is_output and variable != value.name and variable in variables else ""
    nbytes = tensor_bytes(value.dtype, dims)
    return Tensor(value.name, kind, producer, tuple(readers), dims, nbytes, is_output, updates)


def tensor_bytes(dtype: int, dims: Sequence[int] | None) -> int:
    """Returns the size of a tensor; 0 if its shape is not known, or if it is of strings or no tensor at all.

    Args:
      dtype: `onnx.TensorProto.DataType`; types of less than a byte count as one byte for each element.
    """
    if dims is None or dtype in (TensorProto.UNDEFINED, TensorProto.STRING):
        return 0
    return math.prod(dims) * int(helper.tensor_dtype_to_np_dtype(dtype).itemsize)
