"""The structure of a graph without the names and the order of its parts, which its hash stands for."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.taso_ext.oracles.slow_graph import ABSENT, Operator, PlainGraph


def structures(graph: PlainGraph) -> dict[int, int]:
    """Returns a number for each value, which is equal for values that are computed alike, also in other graphs."""
    found = {ABSENT: _number("absent")}
    for position, id_ in enumerate(graph.inputs):
        found[id_] = _number(("input", position, graph.tensors[id_].type))
    for id_, tensor in graph.tensors.items():
        if tensor.handle is not None:
            found[id_] = _number(("weight", tensor.handle, tensor.type))
    for operator in graph.operators:
        operands = [found[value] for value in operator.inputs]
        if operator.symmetric:
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
    """Returns a value that is equal for graphs that should have one hash: the outputs, and the operators' colours.

    The first colour of an operator is what it computes. The colours of its operands and readers refine it until no more
    operators can be told apart (Weisfeiler and Leman 1968). Operators on weights alone do not count: they cost nothing.

    Args:
      graph: a graph without dead code.
    """
    found = structures(graph)
    colours = {operator.outputs[0]: found[operator.outputs[0]] for operator in graph.operators}
    told_apart = 0
    while len({*colours.values()}) > told_apart:
        told_apart = len({*colours.values()})
        colours = _refined(graph, colours)
    live = Counter(colours[operator.outputs[0]] for operator in graph.operators if not operator.weight_only)
    return [found[id_] for id_ in graph.outputs], live


def _refined(graph: PlainGraph, colours: dict[int, int]) -> dict[int, int]:
    seen: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for index, id_ in enumerate(graph.outputs):
        if id_ in graph.producer:
            producer = graph.producer[id_]
            seen[producer.outputs[0]].append(("output", index, producer.outputs.index(id_), 0))
    for reader in graph.operators:
        for slot, id_ in enumerate(reader.inputs):
            if id_ in graph.producer:
                producer = graph.producer[id_]
                place = (0 if reader.symmetric else slot, producer.outputs.index(id_))
                seen[reader.outputs[0]].append(("reads", *place, colours[producer.outputs[0]]))
                seen[producer.outputs[0]].append(("read by", *place, colours[reader.outputs[0]]))
    return {id_: _number((colour, tuple(sorted(seen[id_])))) for id_, colour in colours.items()}


def twins(graph: PlainGraph) -> list[tuple[Operator, Operator]]:
    """Returns all pairs of run-time operators that compute the same, in both orders."""
    found = structures(graph)
    alike: dict[int, list[Operator]] = defaultdict(list)
    for operator in graph.operators:
        if not operator.weight_only:
            alike[found[operator.outputs[0]]].append(operator)
    return [(one, other) for group in alike.values() for one in group for other in group if one is not other]
