"""The shapes of operators' results, with symbols for extents.

If no formula here gives the shape of a result, the result gets an opaque shape. Only results of the same operator with
the same attributes and operand shapes share that shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from taso_ext.verify.axioms.symbolic_values import (
    ONE,
    ZERO,
    Attributes,
    Each,
    Number,
    Row,
    Shape,
    Span,
    UnknownError,
    Unlike,
    length,
    position,
    total,
)

Shapes: TypeAlias = tuple[Shape, ...]

POINTWISE = frozenset(
    [
        *(
            "Relu",
            "LeakyRelu",
            "Sigmoid",
            "Tanh",
            "Erf",
            "Gelu",
            "Exp",
            "Sqrt",
            "Neg",
            "Abs",
            "HardSwish",
            "Elu",
            "Log",
        ),
        *("Reciprocal", "Softplus", "Softsign", "Mish", "HardSigmoid", "Sin", "Cos", "Identity", "Clip"),
    ]
)
BROADCASTING = frozenset(["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"])
_LIKE_FIRST = POINTWISE | {
    *("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "BatchNormalization"),
}
_POOLS = frozenset(["MaxPool", "AveragePool"])
_GLOBAL_POOLS = frozenset(["GlobalAveragePool", "GlobalMaxPool"])
_REDUCTIONS = frozenset(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"])


@dataclass(frozen=True)
class ShapeRules:
    """The output shape of each operator.

    Attributes:
      operators: the operators that each operator variable may stand for.
      absorbed: pairs (a, b) of shapes for which broadcasting a with b is known to give a.
      units: those of the shapes b that have one element.
    """

    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absorbed: set[tuple[Shape, Shape]] = field(default_factory=set)
    units: set[Shape] = field(default_factory=set)

    def output(self, op: str, attributes: Attributes, shapes: Shapes) -> Shape:
        """Returns the shape of an operator's result.

        For a list of operators, `Each` and `Unlike` in the shapes stand for what differs between the elements.
        """
        try:
            return self._told(op, dict(attributes.known), attributes, shapes)
        except UnknownError:
            return _opaque(op, attributes, shapes)

    def joined(self, op: str, attributes: Attributes, shapes: Shapes, lists: tuple[bool, ...]) -> Shape:
        """Returns the result's shape for one operator that reads whole lists: the operands where `lists` is true."""
        known = dict(attributes.known)
        try:
            if op != "Concat":
                raise UnknownError
            found = _concat(shapes, known, lists)
        except UnknownError:
            found = (Span(("result", op, attributes, shapes)),)
        return found

    def _told(self, op: str, known: Mapping[str, object], attributes: Attributes, shapes: Shapes) -> Shape:
        choices = set(self.operators.get(op, (op,)))
        if choices <= _LIKE_FIRST:
            return shapes[0]
        if choices <= BROADCASTING:
            return self.broadcast(shapes)
        if choices <= _POOLS | _GLOBAL_POOLS or op == "Conv":
            return _window(op, attributes, shapes)
        if op in _REDUCTIONS:
            return _reduced(shapes[0], known)
        if op == "MatMul":
            return self._matmul(*shapes)
        if op == "Concat":
            return _concat(shapes, known, (False,) * len(shapes))
        if op in _OTHERS:
            return _OTHERS[op](shapes, known)
        raise UnknownError

    def split(self, attributes: Attributes, shape: Shape, count: int | None) -> Shapes:
        """Returns the shapes of a Split's `count` named results, or, if `count` is None, of its one list of results."""
        known = dict(attributes.known)
        try:
            place, sizes = _place(shape, known["axis"]), _as_row(known["split"])
        except (UnknownError, KeyError):
            if count is None:
                return ((Unlike(("Split", attributes, shape)),),)
            return tuple((Span(("result", "Split", attributes, shape, index)),) for index in range(count))
        if count is None:
            return ((*shape[:place], Each(sizes), *shape[place + 1 :]),)
        plain = len(sizes) == count and all(isinstance(size, Number) for size in sizes)
        extents = sizes if plain else tuple(Number.atom(("at", sizes, Number.of(index))) for index in range(count))
        return tuple((*shape[:place], extent, *shape[place + 1 :]) for extent in extents)

    def broadcast(self, shapes: Iterable[Shape]) -> Shape:
        """Returns the shape to which operands of these shapes broadcast.

        Raises:
          UnknownError: if shapes differ between the elements of lists, and no shape absorbs all others.
        """
        parts: list[Shape] = []
        for part in (each for shape in shapes for each in _parts(shape)):
            if not any(self.absorbs(other, part) for other in parts):
                parts = [other for other in parts if not self.absorbs(part, other)] + [part]
        if len(parts) == 1:
            return parts[0]
        if any(isinstance(item, (Each, Unlike)) for part in parts for item in part):
            raise UnknownError
        return (Span(("broadcast", frozenset(parts))),)

    def absorbs(self, large: Shape, small: Shape) -> bool:
        """Returns whether broadcasting `large` with `small` certainly gives `large`."""
        if large == small or (large, small) in self.absorbed:
            return True
        if small in self.units and any(part == small and _as_long(large, other) for other, part in self.absorbed):
            return True
        at = len(large)
        for item in reversed(small):
            at -= 1
            if at < 0 or isinstance(large[at], Unlike):
                return False
            if item != large[at] and not (item == ONE and not isinstance(large[at], Span)):
                return False
        return True

    def _matmul(self, a: Shape, b: Shape) -> Shape:
        if any(len(each) < 2 or any(isinstance(item, (Span, Unlike)) for item in each[-2:]) for each in (a, b)):
            raise UnknownError
        return (*self.broadcast([a[:-2], b[:-2]]), a[-2], b[-1])


def _as_long(a: Shape, b: Shape) -> bool:
    try:
        return length(a) == length(b)
    except UnknownError:
        return False


def _parts(shape: Shape) -> Iterable[Shape]:
    match shape:
        case (Span(name=("broadcast", frozenset() as parts)),):
            return sorted(parts, key=repr)
    return (shape,)


def _opaque(op: str, attributes: Attributes, shapes: Shapes) -> Shape:
    name = ("result", op, attributes, shapes)
    if any(isinstance(item, (Each, Unlike)) for shape in shapes for item in shape):
        return (Unlike(name),)
    return (Span(name),)


def _as_row(value: object) -> Row:
    if not isinstance(value, tuple):
        raise UnknownError
    return value


def _place(shape: Shape, axis: object) -> int:
    place = position(shape, axis) if isinstance(axis, Number) else None
    if place is None:
        raise UnknownError
    return place


def _window(op: str, attributes: Attributes, shapes: Shapes) -> Shape:
    """Returns [batch, channels, places...]; the places follow from the input's, from the kernel and the attributes."""
    if any(isinstance(item, (Span, Unlike)) for shape in shapes[:2] for item in shape[:2]) or len(shapes[0]) < 2:
        raise UnknownError
    channels = shapes[0][1]
    kernel: Shape = ()
    if op == "Conv":
        if not shapes[1]:
            raise UnknownError
        channels, kernel = shapes[1][0], shapes[1][2:]
    steps = Attributes(tuple(each for each in attributes.known if each[0] != "group"), attributes.rest)
    return (shapes[0][0], channels, *_places(shapes[0][2:], (op, steps, kernel)))


def _places(inside: Shape, how: tuple[object, ...]) -> Shape:
    if any(isinstance(item, (Each, Unlike)) for item in (*inside, *_flat(how))):
        raise UnknownError
    if how[0] in _GLOBAL_POOLS and all(isinstance(item, Number) for item in inside):
        return (ONE,) * len(inside)
    if all(isinstance(item, Number) for item in inside):
        return tuple(Number.atom(("place", inside, how, index)) for index in range(len(inside)))
    return (Span(("as long as", inside, how)),)


def _flat(how: tuple[object, ...]) -> Iterable[object]:
    return how[2] if isinstance(how[2], tuple) else ()


def _reduced(shape: Shape, known: Mapping[str, object]) -> Shape:
    axes, keep = _as_row(known.get("axes")), known.get("keepdims")
    if not isinstance(keep, Number) or keep.integer is None or not axes:
        raise UnknownError
    places = {_place(shape, axis) for axis in axes}
    if keep.integer:
        return tuple(ONE if at in places else item for at, item in enumerate(shape))
    return tuple(item for at, item in enumerate(shape) if at not in places)


def _concat(shapes: Shapes, known: Mapping[str, object], lists: tuple[bool, ...]) -> Shape:
    joined = ZERO
    for shape, whole in zip(shapes, lists, strict=True):
        item = shape[_place(shape, known.get("axis"))]
        if not isinstance(item, Each if whole else Number):
            raise UnknownError
        joined += total(item.values) if isinstance(item, Each) else item
    first = shapes[0]
    place = _place(first, known.get("axis"))
    others = (*first[:place], *first[place + 1 :])
    if lists[0] and any(isinstance(item, (Each, Unlike)) for item in others):
        raise UnknownError
    return (*first[:place], joined, *first[place + 1 :])


def _transposed(shapes: Shapes, known: Mapping[str, object]) -> Shape:
    order, shape = _as_row(known.get("perm")), shapes[0]
    places = [item.integer for item in order if isinstance(item, Number)]
    fixed = not any(isinstance(item, (Span, Unlike)) for item in shape)
    if fixed and len(places) == len(shape) and sorted(places, key=repr) == sorted(range(len(shape)), key=repr):
        return tuple(shape[place] for place in places if place is not None)
    if any(isinstance(item, (Each, Unlike)) for item in shape):
        raise UnknownError
    return (Span(("as long as", shape, "transposed", order)),)


def _gemm(shapes: Shapes, known: Mapping[str, object]) -> Shape:
    turned = [value.integer if isinstance(value, Number) else None for value in map(known.get, ("transA", "transB"))]
    if None in turned or any(len(s) != 2 or any(isinstance(i, (Span, Unlike)) for i in s) for s in shapes[:2]):
        raise UnknownError
    return (shapes[0][1 if turned[0] else 0], shapes[1][0 if turned[1] else 1])


def _eye(shapes: Shapes, known: Mapping[str, object]) -> Shape:
    size = known.get("size")
    if not isinstance(size, Number):
        raise UnknownError
    return (size, size)


_OTHERS: dict[str, Callable[[Shapes, Mapping[str, object]], Shape]] = {
    "Transpose": _transposed,
    "Gemm": _gemm,
    "Reshape": lambda shapes, known: _as_row(known.get("shape")),
    "Constant": lambda shapes, known: _as_row(known.get("shape")),
    "ConstantOfShape": lambda shapes, known: _as_row(known.get("shape")),
    "EyeLike": _eye,
}
