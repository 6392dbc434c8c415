"""Graphs as text, for counterexamples."""

from __future__ import annotations

from taso_ext._core import Graph, Node, Value


def graph_text(graph: Graph) -> str:
    """Returns the graph as lines such as `y[2, 5, 3] = MatMul(x[2, 5, 4], weight a[4, 3])`, then the outputs."""
    values = graph.values()
    lines = [_node_text(node, values) for node in graph.nodes()]
    outputs = ", ".join(_value_text(id_, values[id_]) for id_ in graph.outputs)
    return "\n".join([*lines, f"return {outputs}"])


def _node_text(node: Node, values: dict[int, Value]) -> str:
    results = ", ".join(_value_text(id_, values[id_]) for id_ in node.outputs)
    operands = ", ".join("_" if id_ < 0 else _value_text(id_, values[id_]) for id_ in node.inputs)
    attributes = ", ".join(f"{name}={value!r}" for name, value in sorted(node.attributes.items()))
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"{results} = {operator}({operands}{'; ' if attributes else ''}{attributes})"


def _value_text(id_: int, value: Value) -> str:
    role = "" if value.handle is None else "weight "
    dims = "?" if value.dims is None else str(list(value.dims))
    return f"{role}{value.name or f'%{id_}'}{dims}"
