"""Evaluation of graphs in exact arithmetic: prime fields (tensor.py) or real numbers of many digits (reals.py)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from taso_ext._core import Graph, Value
from taso_ext.onnx_io.operators import RANDOM_OPERATORS
from taso_ext.onnx_io.weights.content import known, materialise
from taso_ext.verify.exact.functions import FUNCTION_KERNELS
from taso_ext.verify.exact.linear import LAYOUT_KERNELS, LINEAR_KERNELS
from taso_ext.verify.exact.norms import NORM_KERNELS
from taso_ext.verify.exact.reals import LongArithmetic
from taso_ext.verify.exact.sampling import SAMPLING_KERNELS
from taso_ext.verify.exact.tensor import Arithmetic, Call, FieldTensor, Kernel, UnsupportedOperatorError
from taso_ext.verify.valued_operands import Domain, domains_of, draw_valued

KERNELS: dict[str, Kernel] = {
    **LINEAR_KERNELS,
    **LAYOUT_KERNELS,
    **FUNCTION_KERNELS,
    **NORM_KERNELS,
    **SAMPLING_KERNELS,
}


def evaluate_call(call: Call) -> list[FieldTensor]:
    """Returns the outputs of one operator.

    Raises:
      UnsupportedOperatorError: if the operator is random or has a form that is not evaluated.
      NotInvertibleError: if a divisor is zero in this field.
    """
    if call.op_type in RANDOM_OPERATORS:
        raise UnsupportedOperatorError(f"{call.op_type} is random: equality of graphs that contain it is not defined")
    try:
        results = KERNELS.get(call.op_type, _opaque)(call)
    except (KeyError, IndexError, TypeError, ValueError) as error:  # attributes or shapes that no valid operator has
        if isinstance(error, UnsupportedOperatorError):
            raise
        raise UnsupportedOperatorError(f"{call.op_type} has a form that is not evaluated: {error!r}") from error
    return results


def _opaque(call: Call) -> list[FieldTensor]:
    if isinstance(call.arithmetic, LongArithmetic):
        raise UnsupportedOperatorError(f"{call.op_type} has no definition in real numbers")
    operands = [None if value is None else value.parts[0] for value in call.inputs]
    results = []
    for port, dims in enumerate(call.output_dims):
        images = [f.opaque(f"{call.key()}/{port}", operands, dims) for f in call.arithmetic.functions]
        results.append(call.arithmetic.hashed(images))
    return results


def evaluate(graph: Graph, leaves: Mapping[str, FieldTensor], arithmetic: Arithmetic) -> list[FieldTensor]:
    """Returns the outputs of `graph`, in order.

    Args:
      leaves: exact numbers for every graph input and every weight, by `leaf_key`.
      arithmetic: the arithmetic of the leaves.
    Raises:
      UnsupportedOperatorError: if the graph contains a random operator or a form that is not evaluated.
      NotInvertibleError: if a division meets zero.
    """
    values = graph.values()
    computed = {id_: leaves[leaf_key(value)] for id_, value in values.items() if leaf_key(value) in leaves}
    literals = {id_: number for id_, value in values.items() if (number := literal_of(value)) is not None}
    for node in graph.nodes():
        call = Call(
            op_type=qualified(node.domain, node.op_type),
            attributes=node.attributes,
            inputs=[None if id_ < 0 else computed[id_] for id_ in node.inputs],
            output_dims=[tuple(values[id_].dims or ()) for id_ in node.outputs],
            literals={at: literals[id_] for at, id_ in enumerate(node.inputs) if id_ in literals},
            arithmetic=arithmetic,
        )
        computed.update(zip(node.outputs, evaluate_call(call), strict=True))
    return [computed[id_] for id_ in graph.outputs]


def qualified(domain: str, op_type: str) -> str:
    """Returns the operator's name, with its domain if that is not ONNX's own."""
    return f"{domain}::{op_type}" if domain else op_type


def draw_leaves(
    graphs: Sequence[Graph], arithmetic: Arithmetic, seed: int, *, single: bool = False
) -> dict[str, FieldTensor]:
    """Returns exact numbers for all inputs and weights, by `leaf_key`; they are random if no content is known.

    A leaf that several graphs share is drawn once. If the first graph, a source, restricts its elements to a domain
    (valued_operands.py), they are drawn from that.

    Args:
      single: whether the inputs are zero but for one element, which norms make as large as they can.
    """
    leaves: dict[str, FieldTensor] = {}
    domains = leaf_domains(graphs[0])
    for graph in graphs:
        for value in leaves_of(graph).values():
            if leaf_key(value) not in leaves:
                leaves[leaf_key(value)] = _draw(value, arithmetic, seed, domains.get(leaf_key(value)))
                if single and value.handle is None and leaf_key(value) not in domains:
                    leaves[leaf_key(value)] = _single(leaves[leaf_key(value)], seed)
    return leaves


def _single(tensor: FieldTensor, seed: int) -> FieldTensor:
    """Returns zeros but for one element."""
    dims = tensor.dims
    place = np.arange(math.prod(dims)).reshape(dims) == seed % max(math.prod(dims), 1)
    return tensor.chosen(tensor.arithmetic.integers(np.zeros(dims)), place)


def leaf_domains(graph: Graph) -> dict[str, Domain]:
    """Returns the domains of the leaves that have one, by `leaf_key`."""
    values, found = graph.values(), dict[str, Domain]()
    for id_, domain in domains_of(graph).items():
        key = leaf_key(values[id_])
        found[key] = domain.within(found[key]) if key in found else domain
    return found


def leaves_of(graph: Graph) -> dict[int, Value]:
    """Returns the inputs and weights of a graph by their ids."""
    produced = {id_ for node in graph.nodes() for id_ in node.outputs}
    return {id_: value for id_, value in graph.values().items() if id_ not in produced}


def element_count(graph: Graph) -> int:
    """Returns the number of elements of all values of a graph together."""
    return sum(math.prod(value.dims or ()) for value in graph.values().values())


def leaf_key(value: Value) -> str:
    """Returns the key of a leaf: equal for weights with equal handles, and for inputs with equal names."""
    return value.name if value.handle is None else f"weight:{value.handle}"


def literal_of(value: Value) -> float | None:
    """Returns the number that all elements of a constant are known to have, or None."""
    return value.content if isinstance(value.content, float) else None


def _draw(value: Value, arithmetic: Arithmetic, seed: int, domain: Domain | None) -> FieldTensor:
    dims = tuple(value.dims or ())
    content = known(value.content)
    if content is not None:
        return arithmetic.constants(materialise(content, dims))
    generator = np.random.default_rng(seed_of(f"{seed}/{leaf_key(value)}"))
    if domain is not None:
        return arithmetic.constants(draw_valued(value, domain, generator))
    if value.dtype == TensorProto.BOOL:
        return arithmetic.integers(generator.integers(0, 2, dims))
    return arithmetic.draw(generator, dims)


def seed_of(text: str) -> int:
    """Returns a seed that follows from a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
