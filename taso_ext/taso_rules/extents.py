"""Random extents for the tensors of a substitution, equal wherever its operators force them to be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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

    Convolutions are taken to keep the spatial extents, as those of TASO's rules do.
    """

    def __init__(self, substitution: Substitution, operators: Sequence[Operator], rank: int) -> None:
        """All tensors have `rank`."""
        self._substitution, self._rank = substitution, rank
        self._parents: dict[_Axis, _Axis] = {}
        self._drawn: dict[_Axis, int] = {}
        for operator in operators:
            self._relate(operator)
        convolutions = [operator for operator in operators if operator.op_type == "Conv"]
        first_kernel: dict[object, str] = {}
        for operator in convolutions:  # those that share their attributes have kernels of one size
            weight = operator.inputs[1]
            self._alike(weight, first_kernel.setdefault(operator.window, weight), range(2, rank))
        self._choices: dict[_Axis, Sequence[int]] = {}
        self._channels: dict[_Axis, _Axis] = {}  # of inputs to those of their kernels, of which they are a multiple
        for operator in convolutions:
            x, weight = operator.inputs
            for axis in range(2, rank):
                self._choices.setdefault(self._root((x, axis)), _SPATIAL_EXTENTS)
            self._choices[self._root((weight, 1))] = _KERNEL_CHANNELS
            self._channels[self._root((x, 1))] = self._root((weight, 1))
        for operator in convolutions:  # where a tensor is input and kernel in one, it is as small as a kernel
            for axis in range(2, rank):
                self._choices[self._root((operator.inputs[1], axis))] = _KERNEL_EXTENTS

    def draw(self, name: str, generator: np.random.Generator) -> Dims:
        """The shape of a tensor; equal extents are drawn once."""
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
