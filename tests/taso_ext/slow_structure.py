"""What a graph is, apart from the names and the order of its parts: the meaning of its hash, spelled out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from slow_graph import ABSENT, PlainGraph

Structure = dict[int, Any]


def structures(graph: PlainGraph) -> Structure:
    """For each value a number that two values of one or several graphs share if they are computed alike."""
    found: Structure = {ABSENT: _number("absent")}
    for position, id_ in enumerate(graph.inputs):
        found[id_] = _number(("input", position, graph.tensors[id_].type))
    for id_, tensor in graph.tensors.items():
        if tensor.handle is not None:
            found[id_] = _number(("weight", tensor.handle, tensor.type))
    for operator in graph.operators:
        operands = [found[value] for value in operator.inputs]
        if operator.commutative:
            operands.sort()
        kind = (operator.domain, operator.op_type, tuple(sorted((k, repr(v)) for k, v in operator.attributes.items())))
        types = tuple((graph.tensors[id_].dtype, graph.tensors[id_].dims) for id_ in operator.outputs)
        for port, id_ in enumerate(operator.outputs):
            found[id_] = _number((kind, types, tuple(operands), port))
    return found


_NUMBERS: dict[Any, int] = {}


def _number(description: Any) -> int:
    return _NUMBERS.setdefault(description, len(_NUMBERS))


def canonical(graph: PlainGraph) -> Any:
    """Equal for graphs that should hash alike: the outputs in order, and how often each operator is there.

    `graph` holds live operators only. Operators on weights alone count once: they cost nothing.
    """
    found = structures(graph)
    live = Counter(found[operator.outputs[0]] for operator in graph.operators if not operator.weight_only)
    return [found[id_] for id_ in graph.outputs], live
