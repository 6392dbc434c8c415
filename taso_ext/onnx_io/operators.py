"""Facts about ONNX nodes that their schemas do not give: domains, randomness, and the graphs inside nodes.

The branches of If and the bodies of Loop and Scan are graphs inside nodes. They can read (capture) values of the graphs
around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import onnx

DEFAULT_DOMAINS = ("", "ai.onnx")
"""The two names of the domain of ONNX's own operators."""

RANDOM_OPERATORS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Operators that return other values in each run; they are neither folded nor merged with equal ones."""


def is_random(op_type: str, domain: str, inputs: Sequence[object]) -> bool:
    """Returns whether an operator draws random numbers; Dropout may if it has a training flag (third input).

    Args:
      inputs: the inputs of the node, by name or as values; an optional one that is not given is false.
    """
    has_flag = len(inputs) > 2 and bool(inputs[2])
    return domain in DEFAULT_DOMAINS and (op_type in RANDOM_OPERATORS or (op_type == "Dropout" and has_flag))


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yields the graphs that a node carries as attributes, in the order of the attributes' names."""
    for attribute in sorted(node.attribute, key=lambda each: each.name):
        yield from graphs_of(attribute)


def graphs_of(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """Returns the graphs that an attribute holds."""
    if attribute.type == onnx.AttributeProto.GRAPH:
        return (attribute.g,)
    return attribute.graphs if attribute.type == onnx.AttributeProto.GRAPHS else ()


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yields the nodes of a graph, each followed by the nodes of the graphs inside it."""
    return inner_nodes(graph.node)


def inner_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yields the given nodes, each followed by the nodes of the graphs inside it."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from inner_nodes(body.node)


def declared_values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yields the inputs and annotated values of a graph and of the graphs inside its nodes."""
    inner = (body for node in all_nodes(graph) for body in bodies(node))
    return chain.from_iterable((*each.input, *each.value_info) for each in chain([graph], inner))


def fresh_name(hint: str, used: set[str]) -> str:
    """Returns `hint`, or `hint` with a number, whichever is not used yet, and adds it to the used names."""
    name, count = hint, 0
    while name in used:
        count += 1
        name = f"{hint}_{count}"
    used.add(name)
    return name


def value_names(graph: onnx.GraphProto) -> set[str]:
    """Returns all names that a graph and the graphs inside it give to values."""
    found = _own_names(graph)
    for node in graph.node:
        found |= set(node.output) | local_names(node)
    return found


def captured_names(node: onnx.NodeProto) -> list[str]:
    """Returns the names of outer values that graphs inside a node read, each once, in order of first use."""
    return list(dict.fromkeys(name for body in bodies(node) for name in free_names(body)))


def free_names(graph: onnx.GraphProto) -> list[str]:
    """Returns the names of outer values that a graph inside a node reads, each once, in order of first use."""
    free: dict[str, None] = {}
    local = _own_names(graph)
    for node in graph.node:
        free |= dict.fromkeys(name for name in (*node.input, *captured_names(node)) if name and name not in local)
        local |= set(node.output)
    free |= dict.fromkeys(value.name for value in graph.output if value.name not in local)
    return list(free)


def read_names(graph: onnx.GraphProto) -> set[str]:
    """Returns the names that the nodes of a graph, and the graphs inside it, read or return."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for body in bodies(node):
            names |= read_names(body)
    return names


def local_names(node: onnx.NodeProto) -> set[str]:
    """Returns all value names that the graphs inside a node define, at any depth."""
    found: set[str] = set()
    for body in bodies(node):
        found |= _own_names(body)
        for inner in body.node:
            found |= set(inner.output) | local_names(inner)
    return found


def rename_captured(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Renames the outer values that a graph inside a node, or a graph nested in it, reads.

    A local value that hides an outer value of the same name keeps its name: ONNX forbids this, but exporters write it.
    """
    visible = {name: new for name, new in names.items() if name not in _own_names(graph)}
    for node in graph.node:
        for position, name in enumerate(node.input):
            node.input[position] = visible.get(name, name)
        for body in bodies(node):
            rename_captured(body, visible)
        visible = {name: new for name, new in visible.items() if name not in node.output}
    for value in graph.output:
        value.name = visible.get(value.name, value.name)


def _own_names(graph: onnx.GraphProto) -> set[str]:
    inputs = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return inputs | {tensor.values.name for tensor in graph.sparse_initializer}
