"""The words of the e-graph: operators, attributes and kinds of tensors of the engine's graphs as numbers.

This file knows graphs of the engine, and nothing of rules, costs or the e-graph itself.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

from taso_ext import GraphBuilder, Node, Value

ABSENT = -1
"""An optional operand that is not there."""
_CONTENT_RANKS = {"finite": 2, "nonzero": 3}
_UNIFORM_RANK, _PATTERN_RANK, _WEIGHT_RANK = 5, 4, 1
_RANK_BITS = 32


Item = TypeVar("Item")


class Operator(NamedTuple):
    """An operator with so many operands and results: a constructor of the e-graph."""

    domain: str
    op_type: str
    num_inputs: int
    num_outputs: int

    @staticmethod
    def of(node: Node) -> Operator:
        """Returns the operator of a node of a graph."""
        return Operator(node.domain, node.op_type, len(node.inputs), len(node.outputs))

    @property
    def dotted(self) -> str:
        """Its name as in the rule language."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def constructor(self) -> str:
        """Its name in the e-graph."""
        word = re.sub(r"\W", "_", self.dotted)
        return f"{word}_{self.num_inputs}_{self.num_outputs}"


class Kind(NamedTuple):
    """What is known of a tensor, whatever computes it; `content` as `taso_ext.Value.content`."""

    dtype: int
    dims: tuple[int, ...] | None
    weight_only: bool
    content: float | str | None

    @staticmethod
    def of(value: Value) -> Kind:
        """Returns the kind of a value of a graph."""
        dims = None if value.dims is None else tuple(value.dims)
        return Kind(value.dtype, dims, value.weight_only, value.content)

    @property
    def rank(self) -> int:
        """How much is known: of two kinds of equal tensors, that of the higher rank says more."""
        if not self.weight_only:
            return 0
        if self.content is None:
            return _WEIGHT_RANK
        if isinstance(self.content, str):
            return _CONTENT_RANKS.get(self.content, _PATTERN_RANK)
        return _UNIFORM_RANK


class Settings(NamedTuple):
    """The attributes of an operator, sorted by name; `identity` tells stateful operators apart."""

    attributes: tuple[tuple[str, Hashable], ...]
    identity: int = 0

    @staticmethod
    def of(node: Node, identity: int = 0) -> Settings:
        """Returns those of a node of a graph."""
        return Settings(tuple(sorted((name, _frozen(value)) for name, value in node.attributes.items())), identity)

    def plain(self) -> dict[str, Any]:
        """Returns the attributes as `taso_ext.GraphBuilder.node` takes them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self.attributes}


class Vocabulary:
    """Numbers for settings and kinds. Of two kinds of equal tensors, the one that says more has the greater number."""

    def __init__(self) -> None:
        self._settings: list[Settings] = []
        self._kinds: list[Kind] = []
        self._numbers: dict[str, int] = {}

    def settings_number(self, settings: Settings) -> int:
        """Returns the number of an operator's settings."""
        return self._number(settings, self._settings)

    def kind_number(self, kind: Kind) -> int:
        """Returns the number of a kind."""
        return kind.rank << _RANK_BITS | self._number(kind, self._kinds)

    def settings(self, number: int) -> Settings:
        """Returns the settings that have a number."""
        return self._settings[number]

    def kind(self, number: int) -> Kind:
        """Returns the kind that has a number."""
        return self._kinds[number & ((1 << _RANK_BITS) - 1)]

    def _number(self, item: Item, items: list[Item]) -> int:
        number = self._numbers.setdefault(repr(item), len(items))  # 1 is not 1.0 here
        if number == len(items):
            items.append(item)
        return number


def add_leaf(builder: GraphBuilder, name: str, kind: Kind) -> int:
    """Adds a weight or an input of a kind to a graph, and returns it. A name is also the handle of a weight."""
    if kind.weight_only and kind.dims is not None:
        return builder.weight(name, name, kind.dtype, kind.dims, kind.content)
    return builder.input(name, kind.dtype, kind.dims)


def add_operator(
    builder: GraphBuilder,
    operator: Operator,
    settings: Settings,
    operands: Sequence[int],
    results: Sequence[tuple[str, Kind]],
) -> list[int]:
    """Adds an operator to a graph, and returns its results, which are given by names and kinds."""
    return builder.node(
        operator.domain,
        operator.op_type,
        settings.plain(),
        operands,
        [(name, kind.dtype, kind.dims) for name, kind in results],
        stateful=settings.identity > 0,
    )


def _frozen(value: object) -> Hashable:
    return tuple(value) if isinstance(value, list) else value
