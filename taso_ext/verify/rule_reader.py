"""Rules as data for the prover and the tests: a second reader of their text, with Python's own expression trees.

Expressions follow Python's grammar after `...` is replaced by `*`. The engine has parsed the text before, so this
reader does not check for errors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

SECTIONS = ("rule", "var", "op", "source", "given", "where", "unordered", "least", "target", "proof")

_USUAL_LEAST = 2

Expression = ast.expr


@dataclass(frozen=True)
class Term:
    """The name of a tensor, or of a list of tensors if it is starred."""

    name: str
    starred: bool


@dataclass(frozen=True)
class Extent:
    """An entry of a declared shape; kind is "integer", "symbol", "starred" or "ellipsis" (its symbol may be empty)."""

    kind: str
    symbol: str = ""
    integer: int = 0


@dataclass(frozen=True)
class Variable:
    """A tensor that the source reads but does not compute; `shape` is None if no shape is declared."""

    term: Term
    origin: str | None  # "weight" or "runtime"; None if it may be either
    floating: bool
    shape: tuple[Extent, ...] | None

    @property
    def rank(self) -> int | None:
        """The rank if the declaration fixes it, else None."""
        if self.shape is None or any(extent.kind == "ellipsis" for extent in self.shape):
            return None
        return len(self.shape)


@dataclass(frozen=True)
class Statement:
    """A statement `results = op(arguments; attributes, @rest)`, or the alias `results = arguments` if `op` is "".

    Attributes:
      kept: whether the statement is in the section `given`, so that a rewrite keeps its operator.
    """

    results: tuple[Term, ...]
    op: str
    arguments: tuple[Term, ...]
    attributes: Mapping[str, Expression]
    rest: str | None
    kept: bool = False

    @property
    def mapped(self) -> bool:
        """Whether the statement stands for one operator for each element of a list."""
        return self.results[0].starred and any(term.starred for term in self.arguments)


@dataclass(frozen=True)
class RuleText:
    """A rule as data.

    Attributes:
      operators: the choices of each operator variable, by the variable's name.
      source: the statements of the sections `source` and `given`.
      conditions: the conditions of `where`, and those that the proof's `domain` adds.
      unordered: pairs of results whose statements may change places.
      least: the fewest elements of the rule's lists.
    """

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
        """The results of the source that the target defines again."""
        redefined = {term for statement in self.target for term in statement.results}
        return tuple(term for statement in self.source for term in statement.results if term in redefined)

    @property
    def operator_names(self) -> frozenset[str]:
        """The names of the operators of both sides, with all choices of operator variables."""
        named = {statement.op for statement in (*self.source, *self.target) if statement.op}
        chosen = {choice for name in named for choice in self.operators.get(name, (name,))}
        return frozenset(chosen)


@cache
def read_rule(text: str) -> RuleText:
    """Reads one well-formed rule."""
    sections = rule_sections(text)
    orders = [[name.strip() for name in item.split(",")] for item in sections["unordered"]]
    return RuleText(
        name=sections["rule"][0],
        variables={v.term.name: v for item in sections["var"] for v in _variables(item)},
        operators=dict(_operator_variable(item) for item in sections["op"]),
        source=(*map(_statement, sections["source"]), *(_statement(item, kept=True) for item in sections["given"])),
        target=tuple(_statement(item) for item in sections["target"]),
        conditions=tuple(read_expression(item) for item in (*sections["where"], *domain_items(sections["proof"]))),
        unordered=tuple(pair for names in orders for pair in pairwise(names)),
        least=int(sections["least"][0]) if sections["least"] else _USUAL_LEAST,
    )


def rule_sections(text: str) -> dict[str, list[str]]:
    """Returns the items of each section, by the section's name.

    A section ends where a line starts with the name of another section; a proof ends with the rule.
    """
    found = dict.fromkeys(SECTIONS, "")
    section = ""
    for line in text.splitlines():
        words = line.split("#")[0].split(None, 1)
        if words and words[0] in SECTIONS and section != "proof":
            section, words = words[0], words[1:]
        if section:
            found[section] += " ".join(words) + "\n"
    return {name: [item.strip() for item in split_items(body, ";\n") if item.strip()] for name, body in found.items()}


def domain_items(proof: list[str]) -> list[str]:
    """Returns the conditions of the clause `domain(...)`."""
    found = re.search(r"\bdomain\((.*)\)\s+digest\(", " ".join(proof), re.DOTALL)  # a clause may span lines
    return [item.strip() for item in split_items(found[1], ",") if item.strip()] if found else []


def split_items(text: str, separators: str) -> Iterator[str]:
    """Yields the pieces between separators that no bracket or quotation encloses."""
    depth, quoted, piece = 0, False, ""
    for letter in text:
        quoted ^= letter == '"'
        depth += 0 if quoted else (letter in "([") - (letter in ")]")
        if letter in separators and depth == 0 and not quoted:
            yield piece
            piece = ""
        else:
            piece += letter
    yield piece


def _term(text: str) -> Term:
    return Term(text.strip().lstrip("*").strip(), text.strip().startswith("*"))


def _variables(item: str) -> Iterator[Variable]:
    """Yields the variables of an item such as `a, *b: weight float[m, ...]`."""
    names, kind = item.split(":")
    parsed = re.fullmatch(r"\s*(?:(weight|runtime)\s+)?(\w+)\s*(?:\[(.*)\])?\s*", kind)
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
        return Extent("ellipsis", text[3:].strip())
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
    arguments, *behind = split_items(call[2], ";")
    attributes, rest = _attributes(behind[0] if behind else "")
    operands = tuple(_term(argument) for argument in arguments.split(",") if argument.strip())
    return Statement(results, call[1], operands, attributes, rest, kept)


def _attributes(text: str) -> tuple[dict[str, Expression], str | None]:
    attributes, rest = {}, None
    for item in split_items(text, ","):
        if item.strip().startswith("@"):
            rest = item.strip()[1:]
        elif item.strip():
            name, value = item.split("=", 1)
            attributes[name.strip()] = read_expression(value)
    return attributes, rest


def read_expression(text: str) -> Expression:
    """Reads an expression.

    `...l` in a list becomes Python's `*l`. `*n` alone becomes `n`, the list that the starred extent stands for. `@r`
    becomes `r`.
    """
    text = text.replace("...", "*").replace("@", "").strip().removeprefix("*")
    return ast.parse(" ".join(text.split()), mode="eval").body
