"""Local functions that call each other so often that inlining them would fill any machine."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from taso_ext.errors import ModelError
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS
from taso_ext.onnx_io.subgraphs import inner_nodes

LARGEST_EXPANSION = 1 << 18
"""Nodes after inlining. Thirty functions of which each calls the next one twice make 2^30."""

DEEPEST_CALLS = 100
"""As in onnx itself."""


def require_bounded_expansion(model: onnx.ModelProto, name: str) -> None:
    """Checks how many nodes a model has once its local functions are inlined.

    Args:
      name: of the model, for the message.
    Raises:
      ModelError: more than `LARGEST_EXPANSION`, chains of more than `DEEPEST_CALLS`, or a function that calls itself.
    """
    if not model.functions:
        return
    try:
        nodes = _Expansion(model.functions).of(model.graph.node)
    except _EndlessError as error:
        raise ModelError(
            f"{name} has a local function '{error}' that calls itself, or stands at the end of a chain of more than "
            f"{DEEPEST_CALLS} calls. Export the model without local functions."
        ) from None
    if nodes > LARGEST_EXPANSION:
        raise ModelError(
            f"{name} has local functions that call each other so often that inlining them makes {nodes:,} nodes; at "
            f"most {LARGEST_EXPANSION:,} are allowed. Export the model without local functions."
        )


class _EndlessError(Exception):
    """The name of a function that too many calls lead to; below IR version 8, onnx.checker does not look."""


class _Expansion:
    """Counts nodes after inlining, of every function once."""

    def __init__(self, functions: Iterable[onnx.FunctionProto]) -> None:
        self._bodies = {(_domain(each.domain), each.name, each.overload): each.node for each in functions}
        self._counted: dict[tuple[str, str, str], int] = {}
        self._depth = 0

    def of(self, nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(self._of_node(node) for node in inner_nodes(nodes))

    def _of_node(self, node: onnx.NodeProto) -> int:
        called = (_domain(node.domain), node.op_type, node.overload)
        if called not in self._bodies:
            return 1
        if called not in self._counted:
            if self._depth == DEEPEST_CALLS:
                raise _EndlessError(node.op_type)
            self._depth += 1
            self._counted[called] = self.of(self._bodies[called])
            self._depth -= 1
        return self._counted[called]


def _domain(domain: str) -> str:
    return "" if domain in DEFAULT_DOMAINS else domain
