"""Operands whose elements have to lie in a domain: indices, repeats, sizes and scales, ratios.

Random real numbers would be no operands of these operators. The engine draws the shapes of a graph with them
(src/verification/instance_operands.cpp); here, elements are drawn that fit these shapes. What an operator reads may be
moved before: the domain of a result that is moved is that of the operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taso_ext._core import Graph, Node, Value
from taso_ext.onnx_io.weights.content import known, materialise
from taso_ext.verify.rule_reader import RuleText

Numbers = npt.NDArray[np.float64]

VALUED: Mapping[str, tuple[int, ...]] = {"Gather": (1,), "Tile": (1,), "Resize": (1, 2, 3), "Dropout": (1,)}
"""The positions of such operands, by operator."""
_CORNERS = 0.5  # share of the elements that lie at an end of their domain, or at the numbers beside zero
_GREATEST_RATIO = float(np.float32(0.95))
_RESIZED_AXES = 2  # at the end; only these are given scales that are not 1 and keep the extent, as runtimes demand


@dataclass(frozen=True)
class Domain:
    """The numbers that an operand may hold.

    Attributes:
      least, greatest: the ends of the domain of each element; they broadcast to the operand.
      whole: whether the elements are integers.
    """

    least: Numbers
    greatest: Numbers
    whole: bool

    def draw(self, generator: np.random.Generator, dims: tuple[int, ...]) -> Numbers:
        """Returns numbers [*dims] of the domain; many of them are its ends or, in it, −1 and 0."""
        low, high = (np.broadcast_to(end, dims) for end in (self.least, self.greatest))
        drawn = generator.uniform(low, high + self.whole)
        drawn = np.minimum(np.floor(drawn), high) if self.whole else drawn
        if self.whole:
            beside_zero = [np.clip(number, low, high) for number in (0.0, -1.0)]
            corners = np.choose(generator.integers(0, 4, dims), [low, high, *beside_zero])
        else:
            corners = low
        return np.asarray(np.where(generator.random(dims) < _CORNERS, corners, drawn), np.float64)

    def within(self, other: Domain) -> Domain:
        """Returns the numbers of both domains."""
        least, greatest = np.maximum(self.least, other.least), np.minimum(self.greatest, other.greatest)
        return Domain(least, greatest, self.whole or other.whole)


def valued_variables(rule: RuleText) -> frozenset[str]:
    """Returns the names of the variables that are such operands, moved or not, in the source of a rule."""
    found: set[str] = set()
    for statement in reversed(rule.source):
        operands = statement.arguments
        found.update(operands[at].name for at in VALUED.get(statement.op, ()) if at < len(operands))
        if statement.op in _MOVES and any(term.name in found for term in statement.results):
            found.update(term.name for term in statement.arguments[: _MOVES[statement.op]])
    return frozenset(found & rule.variables.keys())


def domains_of(graph: Graph) -> dict[int, Domain]:
    """Returns the domains of the leaves of a graph that have one, by value id."""
    values, found = graph.values(), dict[int, Domain]()

    def restrict(id_: int, domain: Domain) -> None:
        found[id_] = domain.within(found[id_]) if id_ in found else domain

    nodes = graph.nodes()
    for node in reversed(nodes):
        for at in VALUED.get(node.op_type, ()):
            if not node.domain and at < len(node.inputs) and node.inputs[at] >= 0:
                domain = _DOMAINS[node.op_type](node, values, at)
                if domain is not None:
                    restrict(node.inputs[at], domain)
        for result in node.outputs:
            if result in found and node.op_type in _MOVES and not node.domain:
                moved = Domain(found[result].least.max(), found[result].greatest.min(), found[result].whole)
                for id_ in node.inputs[: _MOVES[node.op_type]] if moved.least <= moved.greatest else ():
                    restrict(id_, moved)
    produced = {id_ for node in nodes for id_ in node.outputs}
    return {id_: domain for id_, domain in found.items() if id_ not in produced}


def draw_valued(leaf: Value, domain: Domain, generator: np.random.Generator) -> Numbers:
    """Returns numbers for a leaf with a domain; those of its content, if that is known."""
    dims, content = tuple(leaf.dims or ()), known(leaf.content)
    return domain.draw(generator, dims) if content is None else np.asarray(materialise(content, dims), np.float64)


_MOVES: Mapping[str, int | None] = {
    "Concat": None,
    **dict.fromkeys(("Split", "Slice", "Transpose", "Reshape", "Expand", "Identity", "Gather", "Tile"), 1),
}
"""Operators that move elements, with the number of operands that they move; None for all."""


def _indices(node: Node, values: Mapping[int, Value], at: int) -> Domain:
    dims = values[node.inputs[0]].dims or ()
    axis = node.attributes.get("axis", 0)
    assert isinstance(axis, int)
    extent = float(dims[axis])
    return Domain(np.asarray(-extent), np.asarray(extent - 1), True)


def _repeats(node: Node, values: Mapping[int, Value], at: int) -> Domain:
    before, after = (values[id_].dims or () for id_ in (node.inputs[0], node.outputs[0]))
    repeats = np.asarray([out / extent for out, extent in zip(after, before, strict=True)], np.float64)
    return Domain(repeats, repeats, True)


def _ratio(node: Node, values: Mapping[int, Value], at: int) -> Domain:
    return Domain(np.asarray(0.0), np.asarray(_GREATEST_RATIO), False)


def _sizes_or_scales(node: Node, values: Mapping[int, Value], at: int) -> Domain | None:
    before, after = (values[id_].dims or () for id_ in (node.inputs[0], node.outputs[0]))
    if at == 3:
        return Domain(np.asarray(after, np.float64), np.asarray(after, np.float64), True)
    if values[node.inputs[at]].dims != [len(before)]:  # empty
        return Domain(np.asarray(0.0), np.asarray(0.0), False)
    inner = len(before) - _RESIZED_AXES
    ends = [_scales(have, out, axis < inner) for axis, (have, out) in enumerate(zip(before, after, strict=True))]
    return Domain(np.asarray([low for low, _ in ends]), np.asarray([high for _, high in ends]), False)


def _scales(extent: int, resized: int, outer: bool) -> tuple[float, float]:
    """Returns the least and the greatest float32 by which an extent is multiplied and rounded down to another one."""
    if outer and extent == resized:
        return 1.0, 1.0

    def fits(scale: np.float32) -> bool:
        return math.floor(np.float32(extent) * scale) == math.floor(extent * float(scale)) == resized

    ends = []
    for end, beyond in ((resized / extent, np.inf), ((resized + 1) / extent, 0.0)):
        scale = np.float32(end)
        while not fits(scale):
            scale = np.nextafter(scale, np.float32(beyond))
        ends.append(float(scale))
    return ends[0], ends[1]


_DOMAINS: Mapping[str, Callable[[Node, Mapping[int, Value], int], Domain | None]] = {
    "Gather": _indices,
    "Tile": _repeats,
    "Resize": _sizes_or_scales,
    "Dropout": _ratio,
}


def has_choices(domains: Sequence[Domain]) -> bool:
    """Returns whether some operand may hold more than one number."""
    return any(bool((domain.least < domain.greatest).any()) for domain in domains)
