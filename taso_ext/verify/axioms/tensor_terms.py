"""Terms, which are operators applied to tensors, and the knowledge of which terms are equal (an e-graph).

A term stands for a tensor or for a list of tensors. Every term is well-typed wherever its rule matches, and equal terms
have the same type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taso_ext.verify.axioms.symbolic_expressions import Facts
from taso_ext.verify.axioms.symbolic_shapes import ShapeRules
from taso_ext.verify.axioms.symbolic_values import (
    Attributes,
    Each,
    Number,
    Shape,
    Span,
    UnknownError,
    Unlike,
    Value,
    length,
)

_USUAL: dict[str, dict[str, Value]] = {"Attention": {"is_causal": Number.of(0), "softcap": Number.of(0)}}
"""Attributes that targets may leave out, with the values that they then have."""

EACH = "each "
"""The prefix of an operator's name that means one operator for each element of the lists that it reads."""


@dataclass(frozen=True)
class Node:
    """An operator and its operands.

    Attributes:
      op: the name; "" for a variable, "Split 2" for a Split whose two results have names, "item" for one of these
        results.
      operands: terms, each with whether it is starred, that is, a list of tensors.
    """

    op: str
    attributes: Attributes
    operands: tuple[tuple[int, bool], ...]


def item(split: int, place: int) -> Node:
    """Returns the node of the named result `place` of a Split."""
    return Node("item", Attributes((("place", Number.of(place)),), None), ((split, False),))


class Terms:
    """Terms by number. The number of a term never changes; `find` gives the number that represents all equal terms.

    Attributes:
      uniform: variables whose elements are all equal.
    """

    def __init__(self, facts: Facts, shape_rules: ShapeRules) -> None:
        self.facts = facts
        self.shape_rules = shape_rules
        self.uniform: set[int] = set()
        self.nodes: list[Node] = []
        self._shapes: list[list[Shape]] = []
        self._leader: list[int] = []
        self._types: list[int] = []
        self._index: dict[Node, int] = {}
        self._values: list[Value] = []

    def __len__(self) -> int:
        return len(self.nodes)

    def find(self, term: int) -> int:
        while self._leader[term] != term:
            term = self._leader[term]
        return term

    def shapes(self, term: int) -> list[Shape]:
        """Returns all known forms of the term's shape; there is at least one."""
        return self._shapes[self.find(term)]

    def shape(self, term: int) -> Shape:
        """Returns the most precise form of the term's shape."""
        return min(self.shapes(term), key=lambda shape: (sum(map(_is_vague, shape)), len(repr(shape))))

    def contents(self, term: int) -> Number:
        """Returns the number that all elements of a term have.

        Raises:
          UnknownError: if the elements are not known to be equal.
        """
        for member in self.members(term):
            value = dict(self.nodes[member].attributes.known).get("value")
            if self.nodes[member].op == "ConstantOfShape" and isinstance(value, Number):
                return value
            if member in self.uniform:
                return Number.atom(("value", member))
        raise UnknownError

    def variable(self, name: str, shape: Shape) -> int:
        """Makes a new variable and returns its term."""
        return self._add(Node("", Attributes((("name", name),), None), ()), shape)

    def lookup(self, op: str, attributes: Attributes, operands: tuple[tuple[int, bool], ...]) -> int | None:
        """Returns the term of this operator on these operands, or None if there is none."""
        return self._index.get(self._prepared(op, attributes, operands))

    def apply(self, op: str, attributes: Attributes, operands: tuple[tuple[int, bool], ...]) -> int:
        """Returns the term of this operator on these operands, and makes it if it is new."""
        node = self._prepared(op, attributes, operands)
        if node in self._index:
            return self._index[node]
        return self._add(node, self._shape_of(node))

    def items(self, split: int, count: int) -> list[int]:
        """Returns the terms of the `count` named results of a Split."""
        node = self.nodes[split]
        shapes = self.shape_rules.split(node.attributes, self.shape(node.operands[0][0]), count)
        found = []
        for place in range(count):
            element = item(self.find(split), place)
            found.append(self._index[element] if element in self._index else self._add(element, shapes[place]))
        return found

    def members(self, term: int) -> Iterator[int]:
        """Returns the terms that are equal to `term`."""
        leader = self.find(term)
        return (each for each in range(len(self.nodes)) if self.find(each) == leader)

    def equate(self, a: int, b: int) -> bool:
        """Records that two terms are equal, and what follows by replacing equals. Returns whether that is new."""
        if self.find(a) == self.find(b):
            return False
        self._merge(a, b)
        while self._close():
            pass
        return True

    def suppose_same_type(self, a: int, b: int) -> None:
        """Records the premise that two terms have the same type."""
        self._types[self._type(a)] = self._type(b)

    def same_type(self, a: int, b: int) -> bool:
        """Returns whether two terms certainly have the same type; lists are compared element by element."""
        if self._type(self.find(a)) == self._type(self.find(b)):
            return True
        return any(self.same_shape(x, y) for x in self.shapes(a) for y in self.shapes(b))

    def same_shape(self, a: Shape, b: Shape) -> bool:
        """Returns whether two shapes are certainly equal."""
        if len(a) != len(b):
            return False
        for x, y in zip(a, b, strict=True):
            if isinstance(x, Number) and isinstance(y, Number):
                if not self.facts.same(x, y):
                    return False
            elif isinstance(x, Each) and isinstance(y, Each):
                if not self.facts.same(x.values, y.values):
                    return False
            elif isinstance(x, Span) and isinstance(y, Span):
                if not self.facts.same((x,), (y,)):
                    return False
            elif x != y:
                return False
        return True

    def _type(self, term: int) -> int:
        while self._types[term] != term:
            term = self._types[term]
        return term

    def _add(self, node: Node, shape: Shape) -> int:
        number = len(self.nodes)
        self.nodes.append(node)
        self._shapes.append([shape])
        self._leader.append(number)
        self._types.append(number)
        self._index[node] = number
        return number

    def _shape_of(self, node: Node) -> Shape:
        shapes = tuple(self.shape(term) for term, _ in node.operands)
        lists = tuple(starred for _, starred in node.operands)
        if node.op == "Split":
            return self.shape_rules.split(node.attributes, shapes[0], None)[0]
        if node.op.startswith("Split "):
            return ()
        if node.op.startswith(EACH):
            return self.shape_rules.output(node.op.removeprefix(EACH), node.attributes, shapes)
        if any(lists):
            return self.shape_rules.joined(node.op, node.attributes, shapes, lists)
        return self.shape_rules.output(node.op, node.attributes, shapes)

    def _prepared(self, op: str, attributes: Attributes, operands: tuple[tuple[int, bool], ...]) -> Node:
        known = {**_USUAL.get(op, {}), **dict(attributes.known)}
        attributes = Attributes(tuple(sorted(known.items(), key=_name)), attributes.rest)
        if operands:
            attributes = counted_from_the_front(attributes, self.shape(operands[0][0]))
        return self._canonical(Node(op, attributes, operands))

    def _canonical(self, node: Node) -> Node:
        """Returns the node with one representative for equal operands and one for equal attributes."""
        known = tuple(sorted(((name, self._interned(value)) for name, value in node.attributes.known), key=_name))
        operands = tuple((self.find(term), starred) for term, starred in node.operands)
        return Node(node.op, Attributes(known, node.attributes.rest), operands)

    def _interned(self, value: Value) -> Value:
        for known in self._values:
            if self.facts.same(known, value):
                return known
        self._values.append(value)
        return value

    def _merge(self, a: int, b: int) -> None:
        a, b = sorted((self.find(a), self.find(b)))
        self._leader[b] = a
        self._shapes[a] += [shape for shape in self._shapes[b] if shape not in self._shapes[a]]
        self.suppose_same_type(b, a)

    def _close(self) -> bool:
        """Makes equal operators on equal operands equal, in one round, and returns whether that changed anything."""
        self._index, changed = {}, False
        for number, node in enumerate(self.nodes):
            canonical = self._canonical(node)
            first = self._index.setdefault(canonical, number)
            if self.find(first) != self.find(number):
                self._merge(first, number)
                changed = True
        return changed


def _name(attribute: tuple[str, Value]) -> str:
    return attribute[0]


def _is_vague(item: object) -> int:
    return 1 if isinstance(item, (Span, Unlike)) else 0


def counted_from_the_front(attributes: Attributes, shape: Shape) -> Attributes:
    """Returns the attributes with negative axes counted from the front, if the rank of `shape` is known."""
    try:
        rank = length(shape)
    except UnknownError:
        return attributes
    counted = tuple((name, _counted(name, value, rank)) for name, value in attributes.known)
    return Attributes(counted, attributes.rest)


def _counted(name: str, value: Value, rank: Number) -> Value:
    if name == "axis" and isinstance(value, Number):
        return value + rank if value.integer is not None and value.integer < 0 else value
    if name == "axes" and isinstance(value, tuple):
        return tuple(
            item + rank if isinstance(item, Number) and item.integer is not None and item.integer < 0 else item
            for item in value
        )
    return value
