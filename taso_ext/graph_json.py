"""Graphs of the engine as plain values for JSON, and back.

Only the operators, types and names are kept. Weights are named by their handles and stay where the model keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taso_ext._core import Graph, GraphBuilder

if TYPE_CHECKING:  # a type of the stub alone
    from taso_ext._core import Attribute

ABSENT = -1
"""The operand of an absent optional input."""


def graph_to_json(graph: Graph) -> dict[str, Any]:
    """Returns a graph as plain values.

    Tensors are numbered: first the inputs, then the weights, then the results of the nodes, each in order. The engine
    tells stateful operators apart by their places, so that a graph with some may come back with another hash; from then
    on it keeps that. The hash that is kept is the one with which it comes back.
    """
    values, nodes = graph.values(), graph.nodes()
    produced = {result for node in nodes for result in node.outputs}
    weights = [number for number in values if number not in produced and values[number].handle is not None]
    tensors = [*graph.inputs, *weights, *(result for node in nodes for result in node.outputs)]
    numbers = {tensor: number for number, tensor in enumerate(tensors)} | {ABSENT: ABSENT}

    def typed(tensor: int) -> list[Any]:
        return [values[tensor].name, values[tensor].dtype, values[tensor].dims]

    fields = {
        "inputs": [typed(tensor) for tensor in graph.inputs],
        "weights": [[*typed(tensor), values[tensor].handle, values[tensor].content] for tensor in weights],
        "nodes": [
            {
                "domain": node.domain,
                "op_type": node.op_type,
                "attributes": {name: _attribute_to_json(value) for name, value in node.attributes.items()},
                "inputs": [numbers[tensor] for tensor in node.inputs],
                "outputs": [typed(tensor) for tensor in node.outputs],
                "name": node.name,
                "stateful": node.stateful,
            }
            for node in nodes
        ],
        "outputs": [numbers[tensor] for tensor in graph.outputs],
    }
    return {"hash": _built(fields).hash, **fields}


def graph_from_json(fields: Mapping[str, Any]) -> Graph:
    """Returns the graph that `graph_to_json` has described.

    Raises:
      ValueError: it describes no graph, or another one than its hash says.
    """
    try:
        graph = _built(fields)
    except (LookupError, TypeError) as error:
        raise ValueError(
            f"expected a graph as graph_to_json writes it, got one that cannot be read: {error}"
        ) from error
    if graph.hash != fields["hash"]:
        raise ValueError(f"a stored graph has become another one: expected {fields['hash']}, got {graph.hash}")
    return graph


def _built(fields: Mapping[str, Any]) -> Graph:
    builder = GraphBuilder()
    tensors: list[int] = [builder.input(*each) for each in fields["inputs"]]
    tensors += [
        builder.weight(name, handle, dtype, dims or [], content)
        for name, dtype, dims, handle, content in fields["weights"]
    ]
    for node in fields["nodes"]:
        tensors += builder.node(
            node["domain"],
            node["op_type"],
            {name: _attribute_from_json(value) for name, value in node["attributes"].items()},
            [ABSENT if number == ABSENT else tensors[number] for number in node["inputs"]],
            [(name, dtype, dims) for name, dtype, dims in node["outputs"]],
            node["name"],
            node["stateful"],
        )
    for number in fields["outputs"]:
        builder.output(tensors[number])
    return builder.build()


def _attribute_to_json(value: Attribute) -> int | float | str | Sequence[Any] | dict[str, str]:
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def _attribute_from_json(value: Any) -> Attribute:
    return bytes.fromhex(value["bytes"]) if isinstance(value, dict) else value
