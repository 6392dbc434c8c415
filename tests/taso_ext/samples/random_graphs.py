"""Random small graphs for property tests: `graphs()` is a hypothesis strategy.

A graph grows by fragments (random_fragments.py) that are chosen so that rules often match: siblings that share an
operand, layout operators in a row, whole instances of rules on existing values. All numbers have moderate size if
the weights and inputs are those of `model_of` and `feeds_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod, sqrt
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import taso_ext
from taso_ext import RuleSet
from taso_ext.onnx_io.canonical.lowering import NormalNode, lower
from taso_ext.onnx_io.checked_model import ValueType
from taso_ext.onnx_io.weights.content import PATTERNS, materialise
from tests.taso_ext.oracles.slow_graph import ABSENT, Operator, PlainGraph, Tensor

OPSET, IR_VERSION = 20, 9  # opset 20 has all operators of the fragments (Gelu is the newest)
LARGEST = 30.0  # estimated magnitude above which Tanh is applied to a value before it is used again
MOST_ELEMENTS = 600
MOST_OPERATORS = 25
POSITIVE = "positive"  # prefix of the names of inputs and the handles of weights without negative elements

FOLDER = Path(taso_ext.__file__).parent / "rules"
FAMILIES = ("merging", "algebra", "folding", "layout")  # slow_shapes.py knows their operators
DEFAULT_RULES = RuleSet.parse("\n".join((FOLDER / f"{family}.rules").read_text() for family in FAMILIES))
Dims = tuple[int, ...]
T = TypeVar("T")


class Sketch:
    """A graph under construction, to which fragments add operators that hypothesis chooses.

    Attributes:
      rules: the rules whose instances are added.
      pool: the values that fragments may read, each of 1 to MOST_ELEMENTS elements.
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], rules: RuleSet) -> None:
        self._draw = draw
        self.rules = rules
        self.tensors: dict[int, Tensor] = {}
        self.operators: list[Operator] = []
        self.inputs: list[int] = []
        self.pool: list[int] = []
        self._magnitude: dict[int, float] = {}

    # ---- choices

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def pick(self, choices: Sequence[T]) -> T:
        return self._draw(st.sampled_from(choices))

    def chance(self) -> bool:
        return self._draw(st.booleans())

    def permutation(self, rank: int) -> list[int]:
        return list(self._draw(st.permutations(range(rank))))

    def shape(self, rank: int) -> Dims:
        return tuple(self.integer(1, 4) for _ in range(rank))

    # ---- leaves and operators

    def dims(self, value: int) -> Dims:
        dims = self.tensors[value].dims
        assert dims is not None
        return dims

    def input(self, dims: Dims, dtype: int = TensorProto.FLOAT, *, positive: bool = False) -> int:
        id_ = len(self.tensors)
        name = f"{POSITIVE if positive else 'input'}{id_}"
        self.tensors[id_] = Tensor(name, dtype, dims, None, weight_only=False)
        self.inputs.append(id_)
        self._offer([id_])
        self._magnitude[id_] = 1.5
        return id_

    def _content(self, dims: Dims) -> float | str:
        """Draws the content of a weight: a pattern that fits, or a number by which values can be divided."""
        fitting = [name for name, pattern in PATTERNS.items() if pattern(dims) is not None]
        return self.pick([*fitting, 1.0, 0.5, -1.0])

    def weight(self, dims: Dims, *, positive: bool = False) -> int:
        """Returns a weight of these dims, sometimes one that exists already."""
        kind = POSITIVE if positive else "weight"
        alike = [i for i, t in self.tensors.items() if t.dims == dims and t.handle and t.handle.startswith(kind)]
        if alike and self.integer(0, 3) == 0:
            return self.pick(alike)
        id_ = len(self.tensors)
        handle = f"{kind}{id_}x{'x'.join(map(str, dims))}"  # like a content hash, it determines the shape
        content = None if positive or self.integer(0, 3) else self._content(dims)
        self.tensors[id_] = Tensor(f"w{id_}", TensorProto.FLOAT, dims, handle, True, content)
        self._magnitude[id_] = 1.5
        return id_

    def value(self, *, rank: tuple[int, int] = (0, 9), floating: bool = True) -> int:
        """Returns a run-time value of a rank in this range; a new input if there is none, and by chance."""
        found = [i for i in self.pool if self._suits(i, rank, floating)]
        if not found or self.integer(0, 9) == 0:
            dtype = TensorProto.FLOAT if floating or self.integer(0, 3) else TensorProto.INT64
            return self.input(self.shape(self.integer(max(rank[0], 1), min(rank[1], 4))), dtype)
        value = self.pick(found)
        return self.apply("Tanh", {}, value) if self._magnitude[value] > LARGEST else value

    def _suits(self, value: int, rank: tuple[int, int], floating: bool) -> bool:
        is_float = self.tensors[value].dtype == TensorProto.FLOAT
        return rank[0] <= len(self.dims(value)) <= rank[1] and (is_float or not floating)

    def foreign(self, domain: str, op_type: str, operands: Sequence[int], dtype: int, dims: Dims | None) -> int:
        """Adds an operator whose result may have an unknown shape and is in no pool."""
        id_ = len(self.tensors)
        self.tensors[id_] = Tensor("", dtype, dims, None, weight_only=False)
        self.operators.append(Operator(domain, op_type, {}, tuple(operands), (id_,), weight_only=False, site=0))
        return id_

    def add(self, op_type: str, attributes: Mapping[str, Any], operands: Sequence[int], *results: Dims) -> list[int]:
        """Adds an operator in normal form; its results join the pool."""
        constant = all(self.tensors[value].weight_only for value in operands)
        first = len(self.tensors)
        ids = [*range(first, first + len(results))]
        dtype = self.tensors[operands[0]].dtype
        self.tensors |= {id_: Tensor("", dtype, dims, None, constant) for id_, dims in zip(ids, results, strict=True)}
        self.operators.append(Operator("", op_type, attributes, tuple(operands), tuple(ids), constant, 0))
        largest = _magnitude(op_type, [self._magnitude[value] for value in operands], self.dims(operands[0]))
        self._magnitude |= dict.fromkeys(ids, largest)
        if not constant:
            self._offer(ids)
        return ids

    def _offer(self, ids: Sequence[int]) -> None:
        self.pool += [id_ for id_ in ids if 0 < prod(self.dims(id_)) <= MOST_ELEMENTS]

    def apply(self, op_type: str, attributes: Mapping[str, Any], *operands: int, dims: Dims | None = None) -> int:
        """Adds an operator of one result, by default of the first operand's dims."""
        return self.add(op_type, attributes, operands, self.dims(operands[0]) if dims is None else dims)[0]

    def finish(self) -> PlainGraph:
        """Returns the graph; most unread results become outputs, the others dead code; some inner ones are outputs."""
        made = [id_ for operator in self.operators for id_ in operator.outputs if not operator.weight_only]
        read = {value for operator in self.operators for value in operator.inputs}
        outputs = [i for i in made if (self.integer(0, 7) > 0 if i not in read else self.integer(0, 7) == 0)]
        outputs = outputs or made[-1:]
        return PlainGraph(self.tensors, tuple(self.operators), tuple(self.inputs), tuple(outputs))


def _magnitude(op_type: str, operands: list[float], dims: Dims) -> float:
    """Returns a rough upper bound of the results' magnitude; weights of products are scaled by their fan-in."""
    match op_type:
        case "Tanh" | "Sigmoid" | "Erf" | "Softmax":
            return 1.0
        case "LayerNormalization" | "BatchNormalization":
            return 10.0
        case "Exp":
            return float(np.exp(min(operands[0], 20.0)))
        case "Mul":
            return operands[0] * operands[1]
        case "Div":
            return 6.0 * operands[0]
        case "MatMul" | "Conv" | "Gemm":
            return 2.0 * operands[0] * operands[1] + sum(operands[2:])
        case "ReduceSum":
            return operands[0] * prod(dims)
        case "Add" | "Sub":
            return sum(operands)
        case _:
            return max(operands)


@st.composite
def graphs(
    draw: Callable[[st.SearchStrategy[Any]], Any], rules: RuleSet = DEFAULT_RULES, *, foreign: bool = False
) -> PlainGraph:
    """Draws a graph of 3 to about 25 operators in normal form, which may contain dead code.

    Args:
      rules: the rules that should match often.
      foreign: whether to add operators and types that rules must leave alone; ONNX Runtime cannot run these.
    """
    from tests.taso_ext.samples.random_fragments import FOREIGN, FRAGMENTS  # it imports Sketch

    sketch = Sketch(draw, rules)
    fragments = [*FRAGMENTS, *(FOREIGN if foreign else [])]
    wanted = sketch.integer(3, MOST_OPERATORS)
    while len(sketch.operators) < wanted:
        sketch.pick(fragments)(sketch)
    return sketch.finish()


# ---- as ONNX


class _Initializers:
    """The structural constants that lowering turns from attributes back into inputs."""

    def __init__(self) -> None:
        self.tensors: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray, hint: str) -> str:
        self.tensors.append(numpy_helper.from_array(array, f"{hint}_constant_{len(self.tensors)}"))
        return self.tensors[-1].name

    def fresh_name(self, hint: str) -> str:
        raise NotImplementedError(f"{hint}: nothing in opset {OPSET} is lowered to several operators")


def model_of(graph: PlainGraph) -> onnx.ModelProto:
    """Returns the graph as a checked model, whose weights have moderate size and depend on their handles alone."""
    initializers = _Initializers()
    for id_, tensor in graph.tensors.items():
        if tensor.handle is not None:
            initializers.tensors.append(numpy_helper.from_array(_weights(graph, id_), _name(id_)))
    nodes = [proto for operator in graph.operators for proto in lower(_normal(operator, graph), OPSET, initializers)]
    inputs, outputs = ([_declared(graph, id_) for id_ in ids] for ids in (graph.inputs, graph.outputs))
    proto = helper.make_graph(nodes, "random", inputs, outputs, initializers.tensors)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model


def feeds_of(graph: PlainGraph, seed: int) -> dict[str, np.ndarray]:
    """Returns random inputs for `model_of(graph)`."""
    generator = np.random.default_rng(seed)
    feeds = {}
    for id_ in graph.inputs:
        tensor = graph.tensors[id_]
        numbers = _numbers(tensor.dims or (), generator, positive=tensor.name.startswith(POSITIVE))
        feeds[_name(id_)] = (4 * numbers).astype(np.int64) if tensor.dtype == TensorProto.INT64 else numbers
    return feeds


def _weights(graph: PlainGraph, id_: int) -> np.ndarray:
    tensor = graph.tensors[id_]
    assert tensor.handle is not None and tensor.dims is not None
    generator = np.random.default_rng(list(tensor.handle.encode()))
    fan_in = 1
    for reader in graph.readers[id_]:
        if reader.op_type == "MatMul":
            fan_in = max(fan_in, tensor.dims[-2])
        elif reader.op_type == "Conv":
            fan_in = max(fan_in, prod(tensor.dims[1:]))
    if tensor.content is not None:
        return materialise(tensor.content, tensor.dims).astype(np.float32)
    numbers = _numbers(tensor.dims, generator, positive=tensor.handle.startswith(POSITIVE))
    return (numbers / sqrt(fan_in)).astype(np.float32)


def _numbers(dims: Dims, generator: np.random.Generator, *, positive: bool) -> np.ndarray:
    """Draws numbers of magnitude 0.5 to 1.5, by which division is well conditioned."""
    signs = 1.0 if positive else generator.choice((-1.0, 1.0), dims)
    return np.asarray(signs * generator.uniform(0.5, 1.5, dims), np.float32)


def _normal(operator: Operator, graph: PlainGraph) -> NormalNode:
    # The permutation of a scalar is an empty list, which has no type in protobuf; without it, it is the default.
    attributes = {name: value for name, value in operator.attributes.items() if value != [] or name == "shape"}
    types = [ValueType(graph.tensors[id_].dtype, graph.tensors[id_].dims) for id_ in operator.inputs if id_ != ABSENT]
    inputs, outputs = ([*map(_name, ids)] for ids in (operator.inputs, operator.outputs))
    return NormalNode(operator.op_type, attributes, inputs, outputs, types)


def _declared(graph: PlainGraph, id_: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(_name(id_), graph.tensors[id_].dtype, graph.tensors[id_].dims)


def _name(id_: int) -> str:
    return "" if id_ == ABSENT else f"v{id_}"
