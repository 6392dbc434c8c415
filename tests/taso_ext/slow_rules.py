"""A second reader of the rule language (taso_ext/rules/README.md), for the tests: plain, and slow.

Expressions have Python's grammar once `...` is written `*`, so Python's own parser reads them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from taso_ext import RuleSet

SECTIONS = ("rule", "var", "op", "source", "given", "where", "unordered", "least", "target", "proof")

Expression = ast.expr


@dataclass(frozen=True)
class Term:
    """A tensor's name, or that of a list of tensors."""

    name: str
    starred: bool


@dataclass(frozen=True)
class Extent:
    """An entry of a declared shape: an integer, a symbol, a starred symbol, or an ellipsis (its name may be empty)."""

    kind: str
    symbol: str = ""
    integer: int = 0


@dataclass(frozen=True)
class Variable:
    """A tensor the source reads and does not compute; `shape` None says nothing about the shape."""

    term: Term
    origin: str | None  # "weight", "runtime" or either
    floating: bool
    shape: tuple[Extent, ...] | None


@dataclass(frozen=True)
class Statement:
    """`results = op(arguments; attributes, @rest)`; op "" means `results = arguments`, an alias."""

    results: tuple[Term, ...]
    op: str
    arguments: tuple[Term, ...]
    attributes: Mapping[str, Expression]
    rest: str | None
    kept: bool

    @property
    def mapped(self) -> bool:
        """One operator for each element of a list."""
        return self.results[0].starred and any(term.starred for term in self.arguments)


@dataclass(frozen=True)
class Rule:
    """A rule; `operators` are the choices of its operator variables by name."""

    name: str
    variables: Mapping[str, Variable]
    operators: Mapping[str, tuple[str, ...]]
    source: tuple[Statement, ...]
    target: tuple[Statement, ...]
    conditions: tuple[Expression, ...]
    unordered: tuple[tuple[str, str], ...]
    least: int

    @property
    def outputs(self) -> tuple[Term, ...]:
        """What the target defines again."""
        redefined = {term for statement in self.target for term in statement.results}
        return tuple(term for statement in self.source for term in statement.results if term in redefined)


def read_rules(rules: RuleSet) -> list[Rule]:
    """All rules of a set, in order."""
    return [read_rule(rules.text(index)) for index in range(len(rules))]


@cache
def read_rule(text: str) -> Rule:
    """Reads one well-formed rule; what the engine's own parser refuses is not looked for here."""
    sections = _sections(text)
    source = [*(_statement(item) for item in sections["source"])]
    given = [*(_statement(item, kept=True) for item in sections["given"])]
    orders = [[name.strip() for name in item.split(",")] for item in sections["unordered"]]
    return Rule(
        name=sections["rule"][0],
        variables={v.term.name: v for item in sections["var"] for v in _variables(item)},
        operators=dict(_operator_variable(item) for item in sections["op"]),
        source=(*source, *given),
        target=tuple(_statement(item) for item in sections["target"]),
        conditions=tuple(_expression(item) for item in sections["where"]),
        unordered=tuple(pair for names in orders for pair in pairwise(names)),
        least=int(sections["least"][0]) if sections["least"] else 2,
    )


def _sections(text: str) -> dict[str, list[str]]:
    """Items by section; a section goes on until a line starts with the name of another."""
    found = dict.fromkeys(SECTIONS, "")
    section = ""
    for line in text.splitlines():
        words = line.split("#")[0].split(None, 1)
        if words and words[0] in SECTIONS:
            section, words = words[0], words[1:]
        found[section] += " ".join(words) + "\n" if section else ""
    return {name: [item.strip() for item in _split(body, ";\n") if item.strip()] for name, body in found.items()}


def _split(text: str, separators: str) -> Iterator[str]:
    """Pieces between separators that no bracket encloses."""
    depth, piece = 0, ""
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter in separators and depth == 0:
            yield piece
            piece = ""
        else:
            piece += letter
    yield piece


def _term(text: str) -> Term:
    return Term(text.strip().lstrip("*"), text.strip().startswith("*"))


def _variables(item: str) -> Iterator[Variable]:
    """`a, *b: weight float[m, ...]`."""
    names, kind = item.split(":")
    parsed = re.fullmatch(r"\s*(?:(weight|runtime)\s+)?(float|any)\s*(?:\[(.*)\])?\s*", kind)
    assert parsed, item
    origin, dtype, shape = parsed.groups()
    extents = None if shape is None else tuple(_extent(each) for each in shape.split(",") if each.strip())
    for name in names.split(","):
        yield Variable(_term(name), origin, dtype == "float", extents)


def _extent(text: str) -> Extent:
    text = text.strip()
    if text.isdigit():
        return Extent("integer", integer=int(text))
    if text.startswith("..."):
        return Extent("ellipsis", text[3:])
    return Extent("starred", text[1:].strip()) if text.startswith("*") else Extent("symbol", text)


def _operator_variable(item: str) -> tuple[str, tuple[str, ...]]:
    name, choices = item.split(":")
    return name.strip(), tuple(choice.strip() for choice in choices.split("|"))


def _statement(item: str, kept: bool = False) -> Statement:
    left, right = item.split("=", 1)
    results = tuple(_term(name) for name in left.split(","))
    call = re.fullmatch(r"\s*([\w.]+)\s*\((.*)\)\s*", right, re.DOTALL)
    if call is None:
        return Statement(results, "", (_term(right),), {}, None, kept)
    arguments, *behind = _split(call[2], ";")
    attributes, rest = _attributes(behind[0] if behind else "")
    terms = tuple(_term(argument) for argument in arguments.split(",") if argument.strip())
    return Statement(results, call[1], terms, attributes, rest, kept)


def _attributes(text: str) -> tuple[dict[str, Expression], str | None]:
    attributes, rest = {}, None
    for item in _split(text, ","):
        if item.strip().startswith("@"):
            rest = item.strip()[1:]
        elif item.strip():
            name, value = item.split("=", 1)
            attributes[name.strip()] = _expression(value)
    return attributes, rest


def _expression(text: str) -> Expression:
    """`...l` in a list is Python's `*l`; `*n` alone is the list that the starred extent `n` has become."""
    text = text.replace("...", "*").strip().removeprefix("*")
    return ast.parse(" ".join(text.split()), mode="eval").body
