"""The domain on which a rule was tested, as conditions that the matcher enforces.

What a rule leaves open (ranks, lengths of lists, attributes behind `@r`, attributes of operator variables, attributes
and constants that a symbol or `value(c)` names) is drawn at random when the rule is tested. The domain says which
values occurred, and the rule matches no others. An attribute that never occurred must be absent.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx.defs
import onnx.helper

from taso_ext._core import Graph, Node
from taso_ext.onnx_io.canonical.lifting import has_normal_form
from taso_ext.verify.rule_reader import RuleText, Statement, Term

_FREE = frozenset(["axis", "axes", "perm", "shape", "split", "starts", "ends"])
"""Attributes that follow from shapes, or that name axes, of which every rank has only a few. They are free."""


class TestedDomain:
    """The ranks, list lengths, attributes and constants of the instances on which one rule was tested."""

    __test__ = False  # else pytest takes the class for a test

    def __init__(self, rule: RuleText) -> None:
        self._rule = rule
        self._integers: dict[str, set[int]] = {}
        self._reals: dict[str, set[float]] = {}
        self._texts: dict[str, set[str]] = {}
        self._names: dict[str, set[str]] = {}  # of attributes, by `@r` or operator variable
        self._fallbacks: dict[str, dict[str, int | float | str]] = {}  # values that occurred, by owner and name
        self._determined = set(_determined(rule))
        self._casts: dict[str, dict[int, set[str]]] = {}  # graphs by the types that a symbol in a Cast stood for
        self._run: set[str] = set()

    def observe(self, graph: Graph) -> None:
        """Records one instance."""
        tensors = _tensors(self._rule, graph)
        lists = [v.term for v in self._rule.variables.values() if v.term.starred]
        values = graph.values()
        for term, ids in tensors.items():
            if term.starred and (not lists or term in lists):  # lists of results are as long as those of variables
                self._integers.setdefault(f"count({term.name})", set()).add(len(ids))
            elif self._is_open(term):
                self._integers.setdefault(f"rank({term.name})", set()).add(len(values[ids[0]].dims or ()))
            content = values[ids[0]].content
            if isinstance(content, float) and not term.starred and f"value({term.name})" not in self._determined:
                self._reals.setdefault(f"value({term.name})", set()).add(content)
        nodes = {id_: node for node in graph.nodes() for id_ in node.outputs}
        for statement in self._rule.source:
            made = [nodes[id_] for id_ in tensors.get(statement.results[0], []) if id_ in nodes]
            for node in made:
                self._observe_attributes(statement, node, graph.hash)

    def conditions(self, *, real_only: bool = False) -> tuple[str, ...]:
        """Returns conditions that all instances meet.

        They bound numbers by the least and greatest values that occurred, and allow no other ranks and texts than those
        that occurred.

        Args:
          real_only: whether to leave out all but the bounds of reals. A proof by axioms holds for all real numbers,
            but says nothing of how floats of any size round and overflow.
        """
        bounded = {name: numbers for name, numbers in self._reals.items() if name not in self._determined}
        found = [_between(name, numbers) for name, numbers in sorted(bounded.items())]
        if not real_only:
            found += [c for name, numbers in sorted(self._integers.items()) for c in _bounds(name, numbers)]
            for name, texts in sorted(self._texts.items()):
                found.append(" or ".join(f'{name} == "{text}"' for text in sorted(texts)))
            found += [f"only({', '.join([owner, *sorted(names)])})" for owner, names in sorted(self._names.items())]
        found += [self._cast_condition(name) for name in sorted(self._casts)]
        return tuple(self._with_fallbacks(condition) for condition in found)

    def _is_open(self, term: Term) -> bool:
        variable = self._rule.variables.get(term.name)
        return variable is not None and variable.rank is None

    def run(self, graphs: Iterable[str]) -> None:
        """Records which graphs, by their hashes, a runtime ran: types of a Cast are tested nowhere else."""
        self._run.update(graphs)

    @property
    def casts(self) -> bool:
        """Whether the rule leaves the type of a Cast open, which axioms, being about real numbers, do not cover."""
        return bool(self._casts)

    def _cast_condition(self, name: str) -> str:
        types = [to for to, graphs in sorted(self._casts[name].items()) if graphs & self._run]
        return " or ".join(f"{name} == {to}" for to in types) or f"{name} != {name}"

    def _observe_attributes(self, statement: Statement, node: Node, graph: str) -> None:
        owner = "" if statement.rest is None else f"@{statement.rest}"
        owner = statement.op if statement.op in self._rule.operators else owner
        for name, value in node.attributes.items():
            written = statement.attributes.get(name)
            if name == "to" and isinstance(value, int) and isinstance(written, ast.Name):
                self._casts.setdefault(written.id, {}).setdefault(value, set()).add(graph)
            elif isinstance(written, ast.Name):
                self._note(written.id, name, value)
            elif written is None and owner:
                self._names.setdefault(owner, set()).add(name)
                self._note(f"attribute({owner}, {name})", name, value)
                fallback = value if owner in self._rule.operators else _default(node, name)
                if isinstance(fallback, (int, float, str)):
                    self._fallbacks.setdefault(owner, {}).setdefault(name, fallback)
        if owner:
            self._names.setdefault(owner, set())

    def _note(self, expression: str, name: str, value: object) -> None:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, float) and math.isfinite(each):
                self._reals.setdefault(expression, set()).add(each)
            elif isinstance(each, int) and name not in _FREE:
                self._integers.setdefault(expression, set()).add(each)
            elif isinstance(each, str):
                self._texts.setdefault(expression, set()).add(each)

    def _with_fallbacks(self, condition: str) -> str:
        """Gives `attribute(f, name)` a value for nodes without the attribute.

        That is a value that occurred, because not every choice of an operator variable has the attribute, and the
        default of the schema for an operator without a normal form, in which all attributes would be written.
        """
        for owner, fallbacks in self._fallbacks.items():
            for name, value in fallbacks.items():
                text = f'"{value}"' if isinstance(value, str) else repr(value)
                condition = condition.replace(f"attribute({owner}, {name})", f"attribute({owner}, {name}, {text})")
        return condition


def _default(node: Node, name: str) -> object:
    """Returns the default of an attribute of an operator without a normal form, or None."""
    if node.domain or has_normal_form(node.op_type):
        return None
    attribute = onnx.defs.get_schema(node.op_type).attributes.get(name)
    default = None if attribute is None else attribute.default_value
    if default is None or default.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(default)
    return value.decode() if isinstance(value, bytes) else value


def _determined(rule: RuleText) -> Iterator[str]:
    """Yields the expressions that a condition says to equal another one, so that drawing them is no sample."""
    for condition in rule.conditions:
        for node in ast.walk(condition):
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq) for op in node.ops):
                yield from (ast.unparse(side) for side in (node.left, *node.comparators))


def _between(name: str, numbers: set[float]) -> str:
    """Returns the condition that a real is 0, if 0 occurred, or between the least and greatest number of its sign."""
    parts = [{each for each in numbers if each < 0}, {each for each in numbers if each > 0}]
    ranges = [f"within({name}, {_written(min(part))}, {_written(max(part))})" for part in parts if part]
    return " or ".join([*ranges, *([f"{name} == 0.0"] if 0.0 in numbers else [])])


def _written(number: float) -> str:
    """Returns a real as rules write it."""
    text = f"{number:.9g}" if number == float(f"{number:.9g}") else repr(number)
    return text if any(mark in text for mark in ".e") else f"{text}.0"


def _bounds(name: str, numbers: set[int]) -> list[str]:
    """Returns conditions that bound the value of `name` by the least and greatest number.

    Ranks are tested one by one, so for a rank they also exclude the numbers between these that are missing.
    """
    low, high = min(numbers), max(numbers)
    gaps = [each for each in range(low, high) if each not in numbers] if name.startswith("rank(") else []
    return [f"within({name}, {low}, {high})", *(f"{name} != {each}" for each in gaps)]


def _tensors(rule: RuleText, graph: Graph) -> Mapping[Term, list[int]]:
    """Returns the ids of the values that each name of the rule stands for in an instance."""
    results = [term for statement in rule.source for term in statement.results]
    terms = {term.name: term for term in (*(v.term for v in rule.variables.values()), *results)}
    found: dict[Term, list[int]] = {}
    for id_, value in graph.values().items():
        name = value.name.removesuffix(str(id_)).removesuffix("_")
        if name in terms:
            found.setdefault(terms[name], []).append(id_)
    return found
