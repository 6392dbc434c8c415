"""The domain that a rule was tested on, as conditions of the rule language: ranks, list lengths, attributes.

The engine names the tensors of an instance after the rule's, followed by the value's number; so `a4` is the rule's `a`.
"""

from __future__ import annotations

import ast
from typing import Any

from taso_ext._core import Graph, Node
from taso_ext.verify.rule_reader import RuleText, Statement, Term

_RESTRICTED = ("group", "strides", "dilations", "pads", "kernel_shape", "ceil_mode", "keepdims", "count_include_pad")
"""Attributes that decide which elements meet; others follow from shapes or have no further structure."""


class TestedDomain:
    """Collects what the instances of one rule have been."""

    __test__ = False  # pytest takes it for a test otherwise

    def __init__(self, rule: RuleText) -> None:
        self._rule = rule
        self._seen: dict[str, set[int]] = {}

    def observe(self, graph: Graph) -> None:
        """Notes the ranks, list lengths and attributes of one instance."""
        tensors = _tensors(self._rule, graph)
        lists = [v.term for v in self._rule.variables.values() if v.term.starred]
        for term, ids in tensors.items():
            if term.starred and (not lists or term in lists):  # lists of results are as long as those of variables
                self._note(f"count({term.name})", len(ids))
            elif self._is_open(term):
                self._note(f"rank({term.name})", len(graph.values()[ids[0]].dims or ()))
        nodes = {id_: node for node in graph.nodes() for id_ in node.outputs}
        for statement in self._rule.source:
            made = [nodes[id_] for id_ in tensors.get(statement.results[0], []) if id_ in nodes]
            for node in made:
                self._note_attributes(statement, node)

    def conditions(self) -> tuple[str, ...]:
        """Conditions that all instances meet and that no other rank, length or attribute does."""
        seen = sorted((name, numbers) for name, numbers in self._seen.items() if numbers)
        return tuple(condition for name, numbers in seen for condition in _bounds(name, numbers))

    def _note(self, name: str, number: int) -> None:
        self._seen.setdefault(name, set()).add(number)

    def _is_open(self, term: Term) -> bool:
        variable = self._rule.variables.get(term.name)
        return variable is not None and variable.rank is None

    def _note_attributes(self, statement: Statement, node: Node) -> None:
        for name in _RESTRICTED:
            value = node.attributes.get(name)
            written = statement.attributes.get(name)
            if value is None:
                continue
            if written is None and statement.rest is not None:
                self._note_value(f"attribute(@{statement.rest}, {name})", value)
            elif isinstance(written, ast.Name):
                self._note_value(written.id, value)

    def _note_value(self, name: str, value: Any) -> None:
        numbers = value if isinstance(value, list) else [value]
        if all(isinstance(each, int) for each in numbers):
            self._seen.setdefault(name, set()).update(numbers)


def _bounds(name: str, numbers: set[int]) -> list[str]:
    """Least and greatest; ranks are tested one by one, so gaps between them count too."""
    low, high = min(numbers), max(numbers)
    gaps = [each for each in range(low, high) if each not in numbers] if name.startswith("rank(") else []
    return [f"within({name}, {low}, {high})", *(f"{name} != {each}" for each in gaps)]


def _tensors(rule: RuleText, graph: Graph) -> dict[Term, list[int]]:
    """The values that each name of the rule stands for in an instance."""
    results = [term for statement in rule.source for term in statement.results]
    terms = {term.name: term for term in (*(v.term for v in rule.variables.values()), *results)}
    found: dict[Term, list[int]] = {}
    for id_, value in graph.values().items():
        name = value.name.removesuffix(str(id_)).removesuffix("_")
        if name in terms:
            found.setdefault(terms[name], []).append(id_)
    return found


RING = frozenset(
    [
        *("Add", "Sub", "Mul", "Neg", "Sum", "MatMul", "Conv", "ReduceSum", "Pad"),
        *("Identity", "Concat", "Split", "Slice", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"),
        *("Tile", "DepthToSpace", "SpaceToDepth", "Gather"),
    ]
)
"""Operators that are sums, products or moves of elements, in every ring."""
