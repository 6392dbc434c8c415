"""An engine graph as a float32 ONNX Runtime session in which every number can be perturbed.

Weights are fed like inputs. Every float result of an operator is multiplied by factors that are fed too, one for each
element, so a run with factors 1 + δ behaves like the same graph computed with a larger rounding error. Nothing is
folded or optimised: the session runs the graph as written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from taso_ext._core import Graph, Node, Value
from taso_ext.errors import one_paragraph
from taso_ext.onnx_io.canonical.lowering import NormalNode, lower
from taso_ext.onnx_io.checked_model import ValueType
from taso_ext.onnx_io.session import session_options
from taso_ext.verify.exact.evaluation import leaf_domains, leaf_key, leaves_of
from taso_ext.verify.valued_operands import Domain

Floats = npt.NDArray[np.float32]

OPSET = 21
"""The opset of the models, whose operators have the forms that the exporter writes.

A graph with operators of newer opsets gets the oldest opset that has them all.
"""
IR_VERSION = 10


class RefusedGraphError(ValueError):
    """ONNX Runtime refuses a graph, or fails while it runs the graph."""


class FloatSession:
    """A session for one graph. Keys of its leaves are those of `finite_field.leaf_key`.

    Attributes:
      leaves: every graph input and weight, by key.
      runtime_inputs: the keys of the graph inputs.
      masks: the keys of the leaves that are added to the logits of an exponential.
      results: the dims of every operator's float results, by value id; these results can be perturbed.
      scale_of_one: the largest factor by which an operator multiplies eˣ − 1; 0 if none computes it.
      has_attention: whether an operator may give finite results for infinite inputs, as ONNX Runtime's attention does.
      constants: the numbers that real attributes hold and that fill weights of known content.
      variables: the names of the rule's variables that weights stand for, by key, for instances that the engine drew.
      domains: the domains of the leaves whose elements have to lie in one (valued_operands.py), by key.
      variances: the keys of the leaves that batch norms read as variances, which are not negative.
      decides: whether an operator has a result that jumps, as comparisons have.
      rounds: whether an operator makes whole numbers of others.
      contracted: the keys of the leaves that the first two operands of convolutions and matrix products depend on.
      is_pointwise: whether no operator adds or multiplies several elements of a tensor.
    """

    leaves: dict[str, Value]
    runtime_inputs: list[str]
    masks: set[str]
    results: dict[int, tuple[int, ...]]
    scale_of_one: float
    has_attention: bool
    constants: frozenset[float]
    variables: dict[str, str]
    domains: dict[str, Domain]
    variances: set[str]
    decides: bool
    rounds: bool
    contracted: set[str]
    is_pointwise: bool

    def __init__(self, graph: Graph) -> None:
        """Builds the session.

        Raises:
          RefusedGraphError: if the graph is not a valid model or has an operator without a float32 kernel.
        """
        values = graph.values()
        produced = [id_ for node in graph.nodes() for id_ in node.outputs]
        self.has_attention = any(node.op_type.endswith("Attention") for node in graph.nodes())
        self.scale_of_one = max(map(_scale_of_one, graph.nodes()), default=0.0)
        self.constants = _constants(graph)
        self.is_pointwise = {node.op_type for node in graph.nodes()} <= POINTWISE
        leaves = leaves_of(graph)
        self.leaves = {leaf_key(value): value for value in leaves.values()}
        self.runtime_inputs = [key for key, value in self.leaves.items() if value.handle is None]
        self.masks = {leaf_key(leaves[id_]) for id_ in _masks(graph) if id_ in leaves}
        self.variables = {
            leaf_key(value): value.name.removesuffix(str(id_))
            for id_, value in leaves.items()
            if value.handle is not None
        }
        self.domains = leaf_domains(graph)
        norms = (node.inputs[4] for node in graph.nodes() if node.op_type == "BatchNormalization")
        self.variances = {leaf_key(leaves[id_]) for id_ in norms if id_ in leaves}
        self.decides = any(node.op_type in _DECISIONS for node in graph.nodes())
        self.rounds = any(node.op_type in _ROUNDINGS for node in graph.nodes())
        self.contracted = {leaf_key(leaves[id_]) for id_ in _contracted(graph) if id_ in leaves}
        floats = (id_ for id_ in produced if values[id_].dtype == TensorProto.FLOAT)
        self.results = {id_: tuple(values[id_].dims or ()) for id_ in floats}
        self._keys = fed_keys(leaves)
        self._session = plain_session(graph_model(graph, list(leaves), list(self.results)))

    def run(self, feeds: Mapping[str, Floats], factors: Mapping[int, Floats] | None = None) -> list[Floats]:
        """Returns the outputs in order.

        Args:
          feeds: the tensors of the leaves, by key; it may hold more leaves than this graph has.
          factors: for each of `results` a tensor of the same dims, by which it is multiplied; None changes no result.
        Raises:
          RefusedGraphError: if ONNX Runtime fails.
        """
        tensors: dict[str, npt.NDArray[np.generic]] = {
            name: _typed(feeds[key], self.leaves[key].dtype) for name, key in self._keys.items()
        }
        for id_ in self.results:
            tensors[_factor(id_)] = _ONE if factors is None else factors[id_]
        # Arithmetic on arrays of rank 0 gives NumPy scalars, which ONNX Runtime does not take.
        try:
            outputs = self._session.run(None, {name: np.asarray(tensor) for name, tensor in tensors.items()})
        except Exception as error:
            raise RefusedGraphError(f"ONNX Runtime fails on the graph: {one_paragraph(error, limit=300)}") from error
        return [np.asarray(output) for output in outputs]


def _constants(graph: Graph) -> frozenset[float]:
    attributes = [value for node in graph.nodes() for value in node.attributes.values()]
    listed = [each for value in attributes for each in (value if isinstance(value, list) else [value])]
    contents = [value.content for value in graph.values().values()]
    return frozenset(number for number in (*listed, *contents) if isinstance(number, float) and np.isfinite(number))


_CONTRACTIONS = frozenset(["Conv", "MatMul", "Gemm"])
"""Operators whose weights may be padded with zeros."""


_ROUNDINGS = frozenset(["Floor", "Ceil", "Round", "Mod"])
_DECISIONS = _ROUNDINGS | {"Greater", "Less", "Equal", "Sign", "Where", "ArgMax", "ArgMin"}


def _contracted(graph: Graph) -> set[int]:
    """Returns the ids of all values that the first two operands of contractions depend on."""
    found: set[int] = set()
    for node in reversed(graph.nodes()):
        if node.op_type in _CONTRACTIONS:
            found.update(node.inputs[:2])
        elif not found.isdisjoint(node.outputs):
            found.update(node.inputs)
    return found


POINTWISE = frozenset(
    [
        *("Add", "Sub", "Mul", "Div", "Pow", "Sum", "Max", "Min", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu"),
        *("Sigmoid", "HardSigmoid", "HardSwish", "Mish", "Softplus", "Softsign", "Tanh", "Erf", "Gelu", "Exp", "Log"),
        *("Sqrt", "Reciprocal", "Neg", "Abs", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Clip", "Cast", "Not"),
        *("And", "Or", "Equal", "Greater", "Less", "Where", "Identity", "Concat", "Split", "Slice", "Transpose"),
        *("Reshape", "Expand", "Constant", "ConstantOfShape", "Pad"),
    ]
)
"""Operators that compute each result from one element of each operand, or only move elements."""

_EXPONENTIALS = frozenset(["Softmax", "LogSoftmax", "Exp"])


_EXPONENTIAL_UNITS = {"Elu": (1.0, 1.0), "Celu": (1.0, 1.0), "Selu": (1.6732632423543772, 1.0507009873554805)}
"""The defaults of alpha and gamma of the operators that compute gamma · alpha · (eˣ − 1)."""


def _scale_of_one(node: Node) -> float:
    if node.op_type not in _EXPONENTIAL_UNITS:
        return 0.0
    alpha, gamma = _EXPONENTIAL_UNITS[node.op_type]
    given = node.attributes
    return max(1.0, abs(float(given.get("alpha", alpha)) * float(given.get("gamma", gamma))))  # type: ignore[arg-type]


def _masks(graph: Graph) -> set[int]:
    """Returns the ids of operands of sums whose result an exponential reads, and of masks of Attention."""
    summands = {id_: node.inputs for node in graph.nodes() if node.op_type in ("Add", "Sum") for id_ in node.outputs}
    logits = (node.inputs[0] for node in graph.nodes() if node.op_type in _EXPONENTIALS)
    attention = (node.inputs[3:4] for node in graph.nodes() if node.op_type == "Attention")
    return {id_ for ids in (*(summands.get(id_, []) for id_ in logits), *attention) for id_ in ids}


def _typed(tensor: Floats, dtype: int) -> npt.NDArray[np.generic]:
    """Returns numbers as the element type of a leaf; positive ones stand for true."""
    if dtype == TensorProto.BOOL:
        return np.asarray(tensor > 0)
    return tensor.astype(helper.tensor_dtype_to_np_dtype(dtype), copy=False)


_ONE = np.ones((), np.float32)


def plain_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Returns a session that runs a small model as it is written.

    Raises:
      RefusedGraphError: if ONNX Runtime does not run it.
    """
    options, providers = session_options("disabled"), ["CPUExecutionProvider"]
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception as error:  # the runtime's errors have no class in common
        raise RefusedGraphError(f"ONNX Runtime refuses the graph: {one_paragraph(error, limit=300)}") from error


class _Initializers:
    """The structural constants that lowering turns from attributes back into inputs."""

    def __init__(self) -> None:
        self.tensors: list[onnx.TensorProto] = []
        self._fresh = 0

    def constant(self, array: npt.NDArray[np.generic], hint: str) -> str:
        self.tensors.append(numpy_helper.from_array(array, f"{hint}_constant_{len(self.tensors)}"))
        return self.tensors[-1].name

    def fresh_name(self, hint: str) -> str:
        self._fresh += 1
        return f"{hint}_fresh_{self._fresh}"


def graph_model(graph: Graph, leaves: Sequence[int], results: Sequence[int] = ()) -> onnx.ModelProto:
    """Returns the graph as a model whose inputs are `leaves`, without absent ones, and the factors of `results`.

    Values have the names v0, v1, … by id.
    """
    values, initializers, opset = graph.values(), _Initializers(), _opset(graph)
    nodes = [proto for node in graph.nodes() for proto in _protos(node, values, opset, initializers)]
    nodes = [proto for node in nodes for proto in (node, *_scalings(node, results))]
    for id_ in leaves:
        if is_absent(values[id_]):
            dtype = helper.tensor_dtype_to_np_dtype(values[id_].dtype)
            initializers.tensors.append(numpy_helper.from_array(np.zeros(values[id_].dims or (), dtype), _name(id_)))
    fed = [id_ for id_ in leaves if not is_absent(values[id_])]
    inputs, outputs = ([_declaration(id_, values[id_]) for id_ in ids] for ids in (fed, graph.outputs))
    # The shape is left open: the scalar 1, or a factor for each element.
    factors = [helper.make_tensor_value_info(_factor(id_), TensorProto.FLOAT, None) for id_ in results]
    proto = helper.make_graph(nodes, "instance", [*inputs, *factors], outputs, initializers.tensors)
    domains = sorted({node.domain for node in graph.nodes() if node.domain})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=IR_VERSION)


def is_absent(value: Value) -> bool:
    """Returns whether a tensor is empty: it stands for an operand that an operator does without, as in Resize."""
    return 0 in (value.dims or ())


def fed_keys(leaves: Mapping[int, Value]) -> dict[str, str]:
    """Returns the keys of the leaves that `graph_model` makes inputs, by the names of these."""
    return {_name(id_): leaf_key(value) for id_, value in leaves.items() if not is_absent(value)}


def _opset(graph: Graph) -> int:
    names = {node.op_type for node in graph.nodes() if not node.domain and onnx.defs.has(node.op_type)}
    return max([OPSET, *(_first_version(name) for name in names)])


@cache
def _first_version(op_type: str) -> int:
    """Returns the opset that introduced an operator."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return min(schema.since_version for schema in schemas if schema.name == op_type and not schema.domain)


def _protos(node: Node, values: Mapping[int, Value], opset: int, initializers: _Initializers) -> list[onnx.NodeProto]:
    if not node.domain:
        return lower(_normal_node(node, values), opset, initializers)
    inputs, outputs = ([_name(id_) for id_ in ids] for ids in (node.inputs, node.outputs))
    attributes: dict[str, Any] = {name: value for name, value in node.attributes.items() if value != []}
    return [helper.make_node(node.op_type, inputs, outputs, domain=node.domain, **attributes)]


def _scalings(node: onnx.NodeProto, results: Sequence[int]) -> list[onnx.NodeProto]:
    """Returns multiplications of the results of `node` by their factors, and renames the outputs of `node`."""
    names = {_name(id_): _factor(id_) for id_ in results}
    scalings = []
    for port, name in enumerate(node.output):
        if name in names:
            node.output[port] = f"{name}_exact"
            scalings.append(helper.make_node("Mul", [node.output[port], names[name]], [name]))
    return scalings


def _normal_node(node: Node, values: Mapping[int, Value]) -> NormalNode:
    # The permutation of a scalar is an empty list, which has no type in protobuf; leaving it out means the same.
    attributes: dict[str, Any] = {n: v for n, v in node.attributes.items() if v != [] or n in ("shape", "pads")}
    types = [ValueType(0, None) if id_ < 0 else _value_type(values[id_]) for id_ in node.inputs]
    return NormalNode(node.op_type, attributes, [*map(_name, node.inputs)], [*map(_name, node.outputs)], types)


def _value_type(value: Value) -> ValueType:
    return ValueType(value.dtype, None if value.dims is None else tuple(value.dims))


def _declaration(id_: int, value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(_name(id_), value.dtype, value.dims)


def _name(id_: int) -> str:
    """Returns the name of a value by its id, because names in the engine may be empty; "" for an absent input."""
    return "" if id_ < 0 else f"v{id_}"


def _factor(id_: int) -> str:
    return f"factor_{id_}"
