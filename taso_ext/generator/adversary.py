"""Shapes made to refute a wording that is too general: small, with extents that are equal or 1.

The engine's random instances have extents that differ, as networks do. What is wrong only where an extent happens to
equal another one, or where a tensor is broadcast along an axis that the law never had, shows on such graphs instead:
[2, 1] reshaped to [1, 2] and added to [2, 2] is another sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from taso_ext._core import CostModel, Graph, GraphBuilder, RuleSet, State
from taso_ext.generator.grid import Operator
from taso_ext.generator.laws import Term
from taso_ext.generator.screening import COST_MODEL, keeps_function
from taso_ext.generator.wording import REDUCTIONS, RESHAPES, Rewriting

Dims = tuple[int, ...]
Attributes = dict[str, int | float | str | list[int]]

_TRIES = 1500
_MOST_MATCHES = 200
_MOST_RANK = 4
_LARGEST = 300  # elements
_SAME_ATTRIBUTES = 0.85  # a rule asks for equal ones of most operators that it names twice
_UNKNOWN = frozenset(["Conv", "AveragePool", "MaxPool", "Slice"])
_FUNCTIONS = {"Function": "Sigmoid", "ZeroFixing": "Tanh", "Scale": "Mul"}


class _DoesNotFitError(Exception):
    """The drawn shapes or attributes do not fit an operator."""


def is_refuted(rewriting: Rewriting, text: str) -> bool:
    """Whether the rule changes the function of one of the graphs drawn here."""
    terms = [each for top in rewriting.source for each in top.subterms()]
    if any(rewriting.operator(each).kind in _UNKNOWN for each in terms if not each.is_leaf):
        return False  # their attributes differ in every instance of the engine's
    if any(each.is_leaf and not each.is_variable for each in terms):
        return False
    rules, matches = RuleSet.parse(text), 0
    for number in range(_TRIES):
        try:
            graph = _Source(rewriting, np.random.default_rng((number, 20))).build()
        except _DoesNotFitError:
            continue
        state = State(graph, rules, CostModel.roofline(COST_MODEL))
        for _, location in state.legal_actions()[:1]:
            state.step(0, int(location))
            matches += 1
            if not keeps_function(graph, state.graph, number):
                return True
        if matches == _MOST_MATCHES:
            break
    return False


class _Source:
    """One graph of a source."""

    def __init__(self, rewriting: Rewriting, generator: np.random.Generator) -> None:
        self._rewriting, self._generator = rewriting, generator
        self._builder = GraphBuilder()
        self._attributes: dict[str, object] = {}
        self._built: dict[Term, tuple[int, Dims]] = {}
        self._base = self._draw_base()

    def build(self) -> Graph:
        for top in self._rewriting.source:
            for term in top.subterms():
                if term not in self._built:
                    self._add(term)
        for top in self._rewriting.source:
            self._builder.output(self._built[top][0])
        return self._builder.build()

    def _chance(self, share: float) -> bool:
        return bool(self._generator.random() < share)

    def _draw_base(self) -> Dims:
        rank = int(self._generator.integers(1, _MOST_RANK, endpoint=True))
        ordinary = int(self._generator.choice([2, 2, 3]))
        return tuple(1 if self._chance(0.15) else ordinary for _ in range(rank))

    def _draw_shape(self) -> Dims:
        """The base, or something that broadcasts with it."""
        shape = self._base
        if self._chance(0.5):
            shape = tuple(1 if self._chance(0.4) else extent for extent in shape)
        if self._chance(0.25):
            shape = shape[int(self._generator.integers(len(shape) + 1)) :]
        return shape

    def _add(self, term: Term) -> None:
        if term.is_leaf:
            shape = self._draw_shape()
            self._built[term] = self._builder.input(f"x{term.number}", TensorProto.FLOAT, list(shape)), shape
            return
        operator = self._rewriting.operator(term)
        inputs, operands = zip(*(self._built[operand] for operand in term.operands), strict=True)
        attributes, results = self._apply(operator, operands)
        if any(math.prod(dims) > _LARGEST for dims in results):
            raise _DoesNotFitError
        op_type = "Reshape" if operator.kind in RESHAPES else _FUNCTIONS.get(operator.kind, operator.kind)
        outputs = [
            (f"{op_type}{len(self._built)}_{port}", TensorProto.FLOAT, list(dims)) for port, dims in enumerate(results)
        ]
        built = self._builder.node("", op_type, attributes, list(inputs), outputs)
        for port, (value, dims) in enumerate(zip(built, results, strict=True)):
            self._built[self._port(term, operator, port)] = value, dims

    def _port(self, term: Term, operator: Operator, port: int) -> Term:
        """The term that stands for a result; the other part of a split may be read elsewhere in the source."""
        if operator.kind != "Split" or operator["port"] == port:
            return term
        others = (each for top in self._rewriting.source for each in top.subterms() if each.operands == term.operands)
        alike = [each for each in others if each != term and self._rewriting.operator(each).node == operator.node]
        return alike[0] if alike else Term("unread", (), (term,))

    def _same(self, kind: str, draw: object) -> object:
        """An attribute that operators of one kind mostly have in common."""
        if kind in self._attributes and self._chance(_SAME_ATTRIBUTES):
            return self._attributes[kind]
        self._attributes[kind] = draw
        return draw

    def _axis(self, dims: Dims) -> int:
        if not dims:
            raise _DoesNotFitError
        axis = self._same("axis", int(self._generator.integers(len(dims))))
        if not isinstance(axis, int) or axis >= len(dims):
            raise _DoesNotFitError
        return axis

    def _apply(self, operator: Operator, operands: Sequence[Dims]) -> tuple[Attributes, list[Dims]]:
        first = operands[0]
        match operator.kind:
            case "MatMul":
                return {}, [_product(*operands)]
            case "Concat":
                axis = self._axis(first)
                return {"axis": axis}, [_concatenation(first, operands[1], axis)]
            case "Split":
                axis = self._axis(first)
                if first[axis] < 2:
                    raise _DoesNotFitError
                cut = int(self._generator.integers(1, first[axis]))
                parts = [cut, first[axis] - cut]
                return {"axis": axis, "split": parts}, [(*first[:axis], part, *first[axis + 1 :]) for part in parts]
            case "Transpose":
                return self._transpose(first)
            case "Pad":
                return self._pad(first)
        if operator.kind in RESHAPES:
            return self._reshape(first)
        if operator.kind in REDUCTIONS:
            return self._reduce(first)
        return {}, [_broadcast(*operands)]

    def _transpose(self, dims: Dims) -> tuple[Attributes, list[Dims]]:
        perm = self._same("perm", [int(axis) for axis in self._generator.permutation(len(dims))])
        if not isinstance(perm, list) or len(perm) != len(dims):
            raise _DoesNotFitError
        return {"perm": perm}, [tuple(dims[axis] for axis in perm)]

    def _reshape(self, dims: Dims) -> tuple[Attributes, list[Dims]]:
        """The extents with ones elsewhere among them; or also in another order, or joined."""
        extents = [int(extent) for extent in dims if extent != 1]
        if self._chance(0.3):
            self._generator.shuffle(extents)
        if len(extents) > 1 and self._chance(0.3):
            extents = [*extents[:-2], extents[-2] * extents[-1]]
        for _ in range(max(0, len(dims) - len(extents) + int(self._generator.choice([-1, 0, 0, 0, 1])))):
            extents.insert(int(self._generator.integers(len(extents) + 1)), 1)
        shape = self._same("shape", extents)
        if not isinstance(shape, list) or math.prod(shape) != math.prod(dims):
            raise _DoesNotFitError
        return {"shape": shape}, [tuple(shape)]

    def _reduce(self, dims: Dims) -> tuple[Attributes, list[Dims]]:
        drawn = [axis for axis in range(len(dims)) if self._chance(0.4)]
        axes, keep = self._same("axes", drawn), self._same("keep", int(self._chance(0.7)))
        if not isinstance(axes, list) or not axes or axes[-1] >= len(dims) or not isinstance(keep, int):
            raise _DoesNotFitError
        kept = [(1 if axis in axes else extent) for axis, extent in enumerate(dims) if keep or axis not in axes]
        return {"axes": axes, "keepdims": keep}, [tuple(kept)]

    def _pad(self, dims: Dims) -> tuple[Attributes, list[Dims]]:
        pads = self._same("pads", [int(self._chance(0.3)) for _ in range(2 * len(dims))])
        if not isinstance(pads, list) or len(pads) != 2 * len(dims):
            raise _DoesNotFitError
        padded = tuple(extent + pads[axis] + pads[axis + len(dims)] for axis, extent in enumerate(dims))
        return {"mode": "constant", "pads": pads, "value": 0.0}, [padded]


def _broadcast(*operands: Dims) -> Dims:
    try:
        return tuple(int(extent) for extent in np.broadcast_shapes(*operands))
    except ValueError:
        raise _DoesNotFitError from None


def _product(a: Dims, b: Dims) -> Dims:
    if min(len(a), len(b)) < 2 or a[-1] != b[-2]:
        raise _DoesNotFitError
    return (*_broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def _concatenation(a: Dims, b: Dims, axis: int) -> Dims:
    if len(a) != len(b) or any(m != n for place, (m, n) in enumerate(zip(a, b, strict=True)) if place != axis):
        raise _DoesNotFitError
    return (*a[:axis], a[axis] + b[axis], *a[axis + 1 :])
