"""Programs: statements of the rule language with symbolic attributes, and what they are in one concrete case.

A program can be written as text, and it can be made concrete: in a case, which gives every symbol a number, each
statement has extents and numbers for attributes, or the program is ill-typed there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from taso_ext.generator.partial.expressions import Expression, InexactError, listed

Dims = tuple[int, ...]
Attributes = Mapping[str, tuple[Expression, ...]]

SCALAR_ATTRIBUTES = frozenset(["axis", "group", "count_include_pad", "ceil_mode", "value"])
LISTS = {"a": 2, "d": 2, "p": 4, "s": 2}
"""The symbols that stand for lists in sources, with their lengths: extents of a kernel, dilations, pads, strides."""


class IllTypedError(ValueError):
    """A program has no extents in a case."""


@dataclass(frozen=True)
class Statement:
    """One operator with one result.

    Attributes:
      result: the name of its result.
      op: its ONNX operator.
      operands: the names of its operands.
      attributes: its attributes; those of SCALAR_ATTRIBUTES have one element and are no lists.
    """

    result: str
    op: str
    operands: tuple[str, ...]
    attributes: Attributes = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The statement in the rule language."""
        written = [
            f"{name}={values[0].text if name in SCALAR_ATTRIBUTES else _list_text(values)}"
            for name, values in self.attributes.items()
        ]
        if self.op == "Slice":
            written.append(f"steps=[{', '.join('1' for _ in self.attributes['axes'])}]")
        return f"{self.result} = {self.op}({', '.join(self.operands)}{'; ' if written else ''}{', '.join(written)})"

    def expressions(self) -> list[Expression]:
        """Returns all expressions of the attributes."""
        return [each for values in self.attributes.values() for each in values]


def _list_text(values: Sequence[Expression]) -> str:
    """Returns a list; all elements of a symbol, in order, are written as the symbol."""
    for name, length in LISTS.items():
        if [each.text for each in values] == [f"{name}[{place}]" for place in range(length)]:
            return name
    return listed(values)


@dataclass(frozen=True)
class Step:
    """A statement in one case.

    Attributes:
      op, operands: as in the statement.
      attributes: its attributes as numbers.
      dims: the extents of its result.
    """

    op: str
    operands: tuple[str, ...]
    attributes: Mapping[str, tuple[int, ...]]
    dims: Dims


@dataclass(frozen=True)
class Concrete:
    """A program in one case.

    Attributes:
      leaves: the extents of the tensors that it reads, by name.
      steps: the statements by the names of their results.
    """

    leaves: Mapping[str, Dims]
    steps: Mapping[str, Step]

    def dims(self, name: str) -> Dims:
        """Returns the extents of a tensor."""
        return self.leaves[name] if name in self.leaves else self.steps[name].dims


def concrete(statements: Sequence[Statement], leaves: Mapping[str, Dims], env: Mapping[str, int]) -> Concrete:
    """Returns the program in the case that `env` describes.

    Args:
      leaves: the extents of the tensors that the program reads.
      env: the values of all symbols but the extents of results, `dims(t)[i]`.
    Raises:
      IllTypedError: if an operator does not fit its operands, an extent is below 1 or an attribute has no value.
    """
    known, steps = dict(env), dict[str, Step]()
    for statement in statements:
        operands = [leaves[name] if name in leaves else steps[name].dims for name in statement.operands]
        try:
            attributes = {key: tuple(each.value(known) for each in of) for key, of in statement.attributes.items()}
        except InexactError as error:
            raise IllTypedError(str(error)) from error
        dims = _DIMS[statement.op](operands, attributes)
        if min(dims, default=1) < 1:
            raise IllTypedError(f"{statement.text} would have extents {list(dims)}")
        steps[statement.result] = Step(statement.op, statement.operands, attributes, dims)
        known |= {f"dims({statement.result})[{axis}]": extent for axis, extent in enumerate(dims)}
    return Concrete(leaves, steps)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise IllTypedError(what)


_Numbers = Mapping[str, tuple[int, ...]]


def _reshaped(operands: Sequence[Dims], attributes: _Numbers) -> Dims:
    _require(math.prod(operands[0]) == math.prod(attributes["shape"]), "a reshape changes the number of elements")
    return attributes["shape"]


def _transposed(operands: Sequence[Dims], attributes: _Numbers) -> Dims:
    return tuple(operands[0][axis] for axis in attributes["perm"])


def _padded(operands: Sequence[Dims], attributes: _Numbers) -> Dims:
    pads, rank = attributes["pads"], len(operands[0])
    _require(min(pads) >= 0, "negative padding")
    return tuple(extent + pads[axis] + pads[axis + rank] for axis, extent in enumerate(operands[0]))


def _sliced(operands: Sequence[Dims], attributes: _Numbers) -> Dims:
    dims = list(operands[0])
    for axis, start, end in zip(attributes["axes"], attributes["starts"], attributes["ends"], strict=True):
        _require(0 <= start < end <= dims[axis], "a slice leaves its operand")
        dims[axis] = end - start
    return tuple(dims)


def _concatenated(operands: Sequence[Dims], attributes: _Numbers) -> Dims:
    (axis,) = attributes["axis"]
    rests = {dims[:axis] + dims[axis + 1 :] for dims in operands}
    _require(len(rests) == 1, "concatenated tensors differ in other axes")
    return (*operands[0][:axis], sum(dims[axis] for dims in operands), *operands[0][axis + 1 :])


def _windows(spatial: Dims, kernel: Dims, attributes: _Numbers) -> Dims:
    pads, strides, dilations = attributes["pads"], attributes["strides"], attributes["dilations"]
    _require(min(pads) >= 0 and min(*strides, *dilations) >= 1, "a window with a negative pad or no stride")
    rank = len(spatial)
    spans = [
        spatial[axis] + pads[axis] + pads[axis + rank] - (kernel[axis] - 1) * dilations[axis] - 1
        for axis in range(rank)
    ]
    _require(min(spans) >= 0, "a window is larger than its padded input")
    return tuple(span // strides[axis] + 1 for axis, span in enumerate(spans))


def _convolved(operands: Sequence[Dims], attributes: _Numbers) -> Dims:
    x, kernel = operands
    (group,) = attributes["group"]
    _require(len(x) == len(kernel) and group >= 1, "a convolution of tensors of unequal ranks")
    _require(x[1] == kernel[1] * group and kernel[0] % group == 0, "a kernel does not fit the channels")
    _require(attributes["kernel_shape"] == kernel[2:], "a kernel has other extents than its convolution says")
    return (x[0], kernel[0], *_windows(x[2:], kernel[2:], attributes))


def _pooled(operands: Sequence[Dims], attributes: _Numbers) -> Dims:
    (x,) = operands
    kernel, pads = attributes["kernel_shape"], attributes["pads"]
    _require(all(pad < kernel[at % len(kernel)] for at, pad in enumerate(pads)), "a pool pads more than its window")
    return (*x[:2], *_windows(x[2:], kernel, attributes))


def _multiplied(operands: Sequence[Dims], attributes: _Numbers) -> Dims:
    a, b = operands
    _require(len(a) >= 2 and len(b) == 2 and a[-1] == b[0], "matrices do not fit")
    return (*a[:-1], b[1])


_DIMS = {
    "Reshape": _reshaped,
    "Transpose": _transposed,
    "Pad": _padded,
    "Slice": _sliced,
    "Concat": _concatenated,
    "Conv": _convolved,
    "AveragePool": _pooled,
    "MatMul": _multiplied,
}
