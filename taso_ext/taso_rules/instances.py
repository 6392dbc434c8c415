"""Random graphs in which a substitution of TASO may apply, for the verifier.

The engine's own instances draw every extent independently. Here the shapes are drawn so that they fit: extents that the
operators of both sides force to be equal are equal, all others are independent, and convolutions have one or several
groups. Some draws differ on purpose: shapes fit only the source, operands broadcast, or convolutions reduce the spatial
extents, stride or dilate. The engine decides whether the rule applies to the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from taso_ext._core import Graph, GraphBuilder
from taso_ext.taso_rules.substitution import Operator, Substitution

Dims = tuple[int, ...]
_Axis = tuple[str, int]

_EXTENTS = (1, 2, 2, 3, 3, 4, 4, 6)  # mostly above 1, with divisors in common, so that filters form groups
_SPATIAL_EXTENTS = (2, 3, 4, 5)
_KERNEL_EXTENTS = (1, 2, 3, 3)
_KERNEL_CHANNELS = (1, 2, 3)
_GROUPS = (1, 1, 1, 2, 2, 3)


class Extents:
    """The extents that some operators of a substitution relate: a union-find over the axes of their tensors.

    Convolutions are assumed to keep the spatial extents, as those of TASO's rules do.
    """

    def __init__(self, substitution: Substitution, operators: Sequence[Operator], rank: int) -> None:
        """Relates the axes of the tensors of `operators`, which all have rank `rank`."""
        self._substitution, self._rank = substitution, rank
        self._parents: dict[_Axis, _Axis] = {}
        self._drawn: dict[_Axis, int] = {}
        for operator in operators:
            self._relate(operator)
        convolutions = [operator for operator in operators if operator.op_type == "Conv"]
        first_kernel: dict[object, str] = {}
        for operator in convolutions:  # convolutions that share their attributes have kernels of one size
            weight = operator.inputs[1]
            self._alike(weight, first_kernel.setdefault(operator.window, weight), range(2, rank))
        self._choices: dict[_Axis, Sequence[int]] = {}
        self._channels: dict[_Axis, _Axis] = {}  # of inputs: the channels of their kernels, which divide them
        for operator in convolutions:
            x, weight = operator.inputs
            for axis in range(2, rank):
                self._choices.setdefault(self._root((x, axis)), _SPATIAL_EXTENTS)
            self._choices[self._root((weight, 1))] = _KERNEL_CHANNELS
            self._channels[self._root((x, 1))] = self._root((weight, 1))
        for operator in convolutions:  # a tensor that is both input and kernel is as small as a kernel
            for axis in range(2, rank):
                self._choices[self._root((operator.inputs[1], axis))] = _KERNEL_EXTENTS

    def draw(self, name: str, generator: np.random.Generator) -> Dims:
        """Returns the shape of a tensor; equal extents are drawn once."""
        return tuple(self._extent(self._root((name, axis)), generator) for axis in range(self._rank))

    def _extent(self, root: _Axis, generator: np.random.Generator) -> int:
        if root not in self._drawn:
            of_kernel = self._channels.get(root)
            if of_kernel is not None and of_kernel not in self._channels:
                self._drawn[root] = int(generator.choice(_GROUPS)) * self._extent(of_kernel, generator)
            else:
                self._drawn[root] = int(generator.choice(self._choices.get(root, _EXTENTS)))
        return self._drawn[root]

    def _root(self, axis: _Axis) -> _Axis:
        while axis in self._parents:
            axis = self._parents[axis]
        return axis

    def _join(self, a: _Axis, b: _Axis) -> None:
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parents[a] = b

    def _alike(self, a: str, b: str, axes: Sequence[int]) -> None:
        for axis in axes:
            self._join((a, axis), (b, axis))

    def _relate(self, operator: Operator) -> None:
        rank, result = self._rank, operator.outputs[0]
        first, last = operator.inputs[0], operator.inputs[-1]
        match operator.op_type:
            case "Concat" | "Split":
                kept = [axis for axis in range(rank) if axis != self._substitution.axis(operator, rank)]
                for name in (*operator.inputs, *operator.outputs):
                    self._alike(name, result, kept)
            case "MatMul":
                self._alike(first, result, range(rank - 1))
                self._alike(last, result, [*range(rank - 2), rank - 1])
                self._join((first, rank - 1), (last, rank - 2))
            case "Conv":
                self._alike(first, result, [0, *range(2, rank)])
                self._join((last, 0), (result, 1))
            case "Transpose":
                for axis, origin in enumerate(operator.perm or ()):
                    self._join((first, origin), (result, axis))
            case _:
                for name in operator.inputs[: 1 if operator.scalar else None]:
                    self._alike(name, result, range(rank))


_LARGEST_TENSOR = 2000  # elements; larger ones only cost time
_SOURCE_ONLY, _BROADCAST, _KEEPING = 0.3, 0.35, 0.5  # shares of the draws


def source_graphs(substitution: Substitution, *, seed: int, draws: int) -> Iterator[Graph]:
    """Yields graphs that consist of the source of `substitution`, at most one for each of `draws` draws."""
    for draw in range(draws):
        graph = _draw(substitution, np.random.default_rng((seed, substitution.index, draw)))
        if graph is not None:
            yield graph


def _draw(substitution: Substitution, generator: np.random.Generator) -> Graph | None:
    source, target = substitution.source, substitution.target
    operators = source if generator.random() < _SOURCE_ONLY else (*source, *target)
    extents = Extents(substitution, operators, _draw_rank(substitution, generator))
    shapes = {name: extents.draw(name, generator) for name in substitution.variables}
    for operator in source:
        if operator.scalar and operator.inputs[1] in shapes:
            shapes[operator.inputs[1]] = ()
    if substitution.combines and generator.random() < _BROADCAST:
        shapes = {name: _broadcast(shape, generator) for name, shape in shapes.items()}
    return _Builder(substitution, generator).build(shapes)


def _draw_rank(substitution: Substitution, generator: np.random.Generator) -> int:
    if any(operator.perm is not None for operator in substitution.source):
        return substitution.rank or 0
    if substitution.from_front:
        return int(generator.choice([3, 4, 4, 4, 5]))  # mostly two spatial axes, less often one or three
    least = 1 if substitution.rank is None else substitution.rank
    return int(generator.integers(least, max(least, 3), endpoint=True))


def _broadcast(shape: Dims, generator: np.random.Generator) -> Dims:
    """Returns `shape` with some extents replaced by 1, and sometimes without its first axes."""
    extents = tuple(1 if generator.random() < 0.2 else extent for extent in shape)
    return extents[generator.integers(len(extents) + 1) :] if generator.random() < 0.3 else extents


class _Result(NamedTuple):
    attributes: dict[str, int | list[int]]
    shapes: list[Dims]


class _Builder:
    """A builder of the source on inputs of given shapes, which draws the attributes that the shapes leave open."""

    def __init__(self, substitution: Substitution, generator: np.random.Generator) -> None:
        self._substitution, self._generator = substitution, generator
        self._windows: dict[object, dict[str, int | list[int]]] = {}

    def build(self, shapes: dict[str, Dims]) -> Graph | None:
        """Returns the graph, or None if the shapes do not fit or a tensor is too large."""
        builder, shapes = GraphBuilder(), dict(shapes)
        values = {name: builder.input(name, TensorProto.FLOAT, list(shape)) for name, shape in shapes.items()}
        for operator in self._substitution.source:
            result = self._result(operator, [shapes[name] for name in operator.inputs])
            if result is None or any(math.prod(shape) > _LARGEST_TENSOR for shape in result.shapes):
                return None
            shapes.update(zip(operator.outputs, result.shapes, strict=True))
            inputs = [values[name] for name in operator.inputs]
            outputs = [(name, TensorProto.FLOAT, list(shapes[name])) for name in operator.outputs]
            built = builder.node("", operator.op_type, result.attributes, inputs, outputs)
            values.update(zip(operator.outputs, built, strict=True))
        for name in self._substitution.outputs:
            builder.output(values[name])
        return builder.build()

    def _result(self, operator: Operator, operands: list[Dims]) -> _Result | None:
        """Returns attributes and result shapes of an operator, or None if its operands do not fit."""
        match operator.op_type:
            case "Conv":
                return self._convolution(operator, *operands)
            case "MatMul":
                return _product(*operands)
            case "Concat":
                return _concatenation(operands, self._substitution.axis(operator, len(operands[0])))
            case "Split":
                return self._split(operands[0], self._substitution.axis(operator, len(operands[0])), operator.outputs)
            case "Transpose":
                perm = list(operator.perm or ())
                if len(perm) != len(operands[0]):
                    return None
                return _Result({"perm": perm}, [tuple(operands[0][axis] for axis in perm)])
        if operator.scalar and math.prod(operands[1]) != 1:
            return None
        shape = _broadcast_shapes(*operands)
        return None if shape is None else _Result({}, [shape])

    def _convolution(self, operator: Operator, x: Dims, weight: Dims) -> _Result | None:
        if len(x) < 3 or len(weight) != len(x) or x[1] % weight[1] or weight[0] % (x[1] // weight[1]):
            return None
        kernel = list(weight[2:])
        window = self._windows.setdefault(operator.window, self._window(kernel))
        if window["kernel_shape"] != kernel:
            return None
        strides, pads, dilations = (np.asarray(window[name]) for name in ("strides", "pads", "dilations"))
        room = np.asarray(x[2:]) + pads.reshape(2, -1).sum(0) - dilations * (np.asarray(kernel) - 1) - 1
        if (room < 0).any():
            return None
        spatial = tuple(int(extent) for extent in room // strides + 1)
        return _Result({**window, "group": x[1] // weight[1]}, [(x[0], weight[0], *spatial)])

    def _window(self, kernel: list[int]) -> dict[str, int | list[int]]:
        """Returns random attributes of a convolution; in a share of the draws they keep the spatial extents."""
        spatial = len(kernel)
        if self._generator.random() < _KEEPING:
            pads = [*((extent - 1) // 2 for extent in kernel), *(extent // 2 for extent in kernel)]
            return {"kernel_shape": kernel, "strides": [1] * spatial, "pads": pads, "dilations": [1] * spatial}
        draws = {"strides": (1, 2, spatial), "pads": (0, 2, 2 * spatial), "dilations": (1, 2, spatial)}
        drawn: dict[str, int | list[int]] = {
            name: self._generator.integers(least, most, count, endpoint=True).tolist()
            for name, (least, most, count) in draws.items()
        }
        return {"kernel_shape": kernel, **drawn}

    def _split(self, shape: Dims, axis: int, parts: tuple[str, ...]) -> _Result | None:
        if not 0 <= axis < len(shape) or shape[axis] < len(parts):
            return None
        cuts = self._generator.choice(np.arange(1, shape[axis]), len(parts) - 1, replace=False)
        sizes = [int(size) for size in np.diff([0, *sorted(cuts), shape[axis]])]
        return _Result({"axis": axis, "split": sizes}, [_with_extent(shape, axis, size) for size in sizes])


def _product(a: Dims, b: Dims) -> _Result | None:
    if min(len(a), len(b)) < 2 or a[-1] != b[-2]:
        return None
    leading = _broadcast_shapes(a[:-2], b[:-2])
    return None if leading is None else _Result({}, [(*leading, a[-2], b[-1])])


def _concatenation(operands: list[Dims], axis: int) -> _Result | None:
    first = operands[0]
    if not 0 <= axis < len(first) or any(len(shape) != len(first) for shape in operands):
        return None
    if any(_with_extent(shape, axis, 0) != _with_extent(first, axis, 0) for shape in operands):
        return None
    return _Result({"axis": axis}, [_with_extent(first, axis, sum(shape[axis] for shape in operands))])


def _with_extent(shape: Dims, axis: int, extent: int) -> Dims:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _broadcast_shapes(*shapes: Dims) -> Dims | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None
