"""Matches of a rule: the meaning of its names at one place of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.taso_ext.oracles.slow_expressions import Quantity
from tests.taso_ext.oracles.slow_graph import Operator


@dataclass(frozen=True)
class Match:
    """An immutable assignment of the names of a rule; `bind` makes a copy with one more entry.

    Attributes:
      tensors, lists: value ids by name.
      symbols: numbers and lists of numbers by name.
      operators: (op_type, attributes) by operator variable.
      rests: attributes by `@name`.
      nodes: the operators of each statement by its place in the source; one, or one for each list element.
    """

    tensors: Mapping[str, int] = field(default_factory=dict)
    lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    symbols: Mapping[str, Quantity] = field(default_factory=dict)
    operators: Mapping[str, Any] = field(default_factory=dict)
    rests: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[int, tuple[Operator, ...]] = field(default_factory=dict)

    def bind(self, kind: str, name: str, thing: Any) -> Match | None:
        """Returns the match with one more entry, or None if the name already stands for something else."""
        known = getattr(self, kind)
        if name in known:
            return self if known[name] == thing else None
        return replace(self, **{kind: {**known, name: thing}})

    def uses(self, operator: Operator) -> bool:
        return any(operator is node for nodes in self.nodes.values() for node in nodes)

    @property
    def key(self) -> tuple[Any, ...]:
        """A value that is equal for matches that bind the same operators and tensors."""
        nodes = (self.nodes[index] for index in sorted(self.nodes))
        named = [(node.op_type, node.inputs, node.outputs) for group in nodes for node in group]
        return (tuple(named), tuple(sorted(self.tensors.items())), tuple(sorted(self.lists.items())))


def place(operator: Operator) -> tuple[int, str]:
    """Returns the sort key of interchangeable operators: the site, then the origin."""
    return operator.site, operator.origin
