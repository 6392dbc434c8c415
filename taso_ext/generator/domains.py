"""The domains that are enumerated: their operators with attributes, and their tensors.

Extents are small, so that a tensor has at most 256 elements. They are permuted between the shape sets.
"""

from __future__ import annotations

from taso_ext.generator.grid import (
    AVERAGING_KERNEL,
    IDENTITY,
    IDENTITY_KERNEL,
    ONE,
    ZERO,
    Domain,
    Leaf,
    Operator,
    operator,
)

# Function stands for every elementwise function, ZeroFixing for those with f(0) = 0.
_FUNCTIONS = (operator("Neg"), operator("Relu"), operator("Function"))
_SUMS = (operator("Add"), operator("Sub"))
_LINEAR = frozenset(["Add", "Sub", "Scale", "MatMul", "Transpose", "Concat", "Split"])


def _leaves(**shapes: str) -> tuple[Leaf, ...]:
    """Returns the variables of these names; a shape is written as extents with spaces between them."""
    return tuple(Leaf(name, tuple(shape.split())) for name, shape in shapes.items())


def _concats(*axes: int) -> tuple[Operator, ...]:
    return tuple(operator("Concat", axis=axis) for axis in axes)


def _splits(**cuts: str) -> tuple[Operator, ...]:
    """Returns both results of splits: `axis0="m k"` splits axis 0 once after m and once after k elements."""
    return tuple(
        operator("Split", axis=int(axis[4:]), first=first, port=port)
        for axis, extents in cuts.items()
        for first in extents.split()
        for port in (0, 1)
    )


def _reductions(*axes: tuple[int, ...], keepdims: int = 1) -> tuple[Operator, ...]:
    return tuple(operator(kind, axes=each, keepdims=keepdims) for each in axes for kind in ("ReduceSum", "ReduceMean"))


_MATRIX_EXTENTS = {"m": (2, 5, 7), "k": (3, 4, 5), "n": (4, 2, 3), "p": (5, 7, 2), "l": (6, 3, 4), "q": (7, 6, 6)}

MATRICES = Domain(
    "matrices",
    _MATRIX_EXTENTS,
    (
        *_leaves(
            a="m k", b="m k", c="k n", d="k n", e="n p", f="m l", g="m l", h="l n", i="q k", j="q k", o="m n", v="m n"
        ),
        *_leaves(r="n", u="k", s="", t=""),
        Leaf("zero", (), ZERO),
        Leaf("one", (), ONE),
        Leaf("identity", ("k", "k"), IDENTITY),
    ),
    (
        operator("Transpose", perm=(1, 0)),
        *_FUNCTIONS,
        *_reductions((0,), (1,)),
        *_splits(axis0="m k", axis1="k n"),
        operator("MatMul"),
        operator("Add"),
        operator("Mul"),
        *_concats(0, 1),
        operator("Sub"),
        operator("Div"),
    ),
)

LINEAR = Domain(
    "linear",
    _MATRIX_EXTENTS,
    _leaves(
        a="m k", b="m k", c="k n", d="k n", e="n p", f="m l", g="m l", h="l n", i="q k", j="q k", r="k", s="", t=""
    ),
    (
        operator("Transpose", perm=(1, 0)),
        *_splits(axis0="k", axis1="k"),
        operator("MatMul"),
        *_SUMS,
        operator("Scale"),
        *_concats(0, 1),
    ),
    most_linear_operators=4,
    linear=_LINEAR,
)

ELEMENTWISE = Domain(
    "elementwise",
    {"m": (3, 5, 2), "n": (4, 2, 3), "l": (2, 3, 5)},
    (
        *_leaves(x="m n", y="m n", z="m n", w="m n", u="m l", v="m l", r="n", q="n", c="m 1", s="", t=""),
        Leaf("zero", (), ZERO),
        Leaf("one", (), ONE),
    ),
    (
        *_FUNCTIONS,
        operator("ZeroFixing"),
        operator("Reciprocal"),
        operator("Transpose", perm=(1, 0)),
        *_reductions((0,), (1,)),
        *(operator("ReduceMax", axes=(axis,), keepdims=1) for axis in (0, 1)),
        operator("Add"),
        operator("Mul"),
        *_concats(0, 1),
        *_SUMS[1:],
        operator("Div"),
        operator("Max"),
    ),
)

STACKS = Domain(
    "stacks",
    {"b": (2, 3, 4), "m": (3, 4, 2), "k": (4, 2, 3), "n": (5, 3, 2), "l": (2, 5, 3)},
    (
        *_leaves(
            x="b m k", y="b m k", z="b m l", h="b m l", a="b k n", c="b k n", f="b l n", v="k n", w="k n", e="l n"
        ),
        *_leaves(g="m k", u="m k", q="b m n", r="n", i="k", s="", t=""),
        Leaf("identity", ("k", "k"), IDENTITY),
    ),
    (
        *(operator("Transpose", perm=perm) for perm in ((0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0))),
        operator("Merge", axis=0),
        operator("Merge", axis=1),
        operator("Unmerge", axis=0, first="b"),
        operator("Unmerge", axis=1, first="m"),
        operator("Insert", axis=0),
        operator("Drop", axis=0),
        *_FUNCTIONS[1:],
        *_reductions((0,), (1,), (2,)),
        *_reductions((2,), keepdims=0),
        *_splits(axis0="k", axis1="m", axis2="k"),
        operator("MatMul"),
        operator("Add"),
        operator("Mul"),
        *_concats(0, 1, 2),
        operator("Sub"),
        operator("Div"),
    ),
)


def _convolution(*, strides: int = 1, pads: int = 0, dilations: int = 1, group: int = 1) -> Operator:
    return operator("Conv", strides=strides, pads=pads, dilations=dilations, group=group)


_AVERAGE = {"kernel": 3, "strides": 1, "pads": 1}

# Convolutions with one spatial axis in two shape sets and with two in the third.
CONVOLUTIONS = Domain(
    "convolutions",
    {
        "b": (2, 3, 2),
        "c": (4, 2, 2),
        "e": (2, 4, 3),
        "o": (4, 2, 4),
        "p": (2, 4, 2),
        "q": (3, 5, 3),
        "h": ((5,), (4,), (3, 4)),
        "k": ((3,), (3,), (3, 3)),
        "i": ((1,), (1,), (1, 1)),
    },
    (
        *_leaves(x="b c *h", y="b c *h", z="b e *h", v="o c *k", w="o c *k", u="p c *k", f="o e *k", g="o c *i"),
        *_leaves(j="o c *i", d="q o *i", r="1 o *i", s="", t=""),
        Leaf("identity kernel", ("c", "c", "*k"), IDENTITY_KERNEL),
        Leaf("averaging kernel", ("c", "1", "*k"), AVERAGING_KERNEL),
    ),
    (
        *_FUNCTIONS[1:],
        operator("ZeroFixing"),
        operator("Pad", pads=1),
        operator("AveragePool", **_AVERAGE, count_include_pad=1),
        operator("AveragePool", kernel=3, strides=1, pads=0),
        operator("MaxPool", kernel=3, strides=1, pads=1),
        operator("MaxPool", kernel=2, strides=2, pads=0),
        *(operator(kind, axes="spatial", keepdims=1) for kind in ("ReduceSum", "ReduceMean")),
        *_splits(axis0="o", axis1="c"),
        _convolution(pads=1),
        _convolution(),
        _convolution(strides=2, pads=1),
        _convolution(pads=2, dilations=2),
        _convolution(pads=1, group=2),
        operator("Add"),
        operator("Mul"),
        *_concats(0, 1),
        *_SUMS[1:],
    ),
)

LAYOUTS = Domain(
    "layouts",
    {"m": (2, 4, 3), "n": (3, 2, 4), "k": (4, 3, 2), "l": (5, 2, 3)},
    _leaves(
        x="m n k", y="m n k", z="m n l", h="m n l", u="n k", e="n k", v="m n", w="m n", f="m k n", r="k", s="", t=""
    ),
    (
        *(operator("Transpose", perm=perm) for perm in ((0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0))),
        operator("Merge", axis=0),
        operator("Merge", axis=1),
        operator("Unmerge", axis=0, first="m"),
        operator("Unmerge", axis=1, first="n"),
        operator("Insert", axis=0),
        operator("Insert", axis=2),
        operator("Drop", axis=0),
        operator("Drop", axis=2),
        *_FUNCTIONS[1:],
        operator("Slice", axis=0, start="0", end="1"),
        operator("Slice", axis=1, start="1", end="n"),
        operator("Slice", axis=2, start="0", end="k"),
        *_reductions((1,), (2,)),
        *_splits(axis0="m", axis1="n", axis2="k"),
        *_concats(0, 1, 2),
        operator("Add"),
        operator("Mul"),
        *_SUMS[1:],
        operator("Div"),
    ),
)

DOMAINS = (MATRICES, ELEMENTWISE, STACKS, CONVOLUTIONS, LAYOUTS, LINEAR)
