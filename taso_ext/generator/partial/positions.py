"""Values of a multilinear program at single positions of its result, without evaluating the whole.

An element of the result is a sum of products, each of one element of every leaf that the program reads, divided by the
size of a pool's window. `terms_at` returns which elements these are. It follows the positions from the result back to
the leaves. `values_of` sums the products for random leaves in a prime field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taso_ext.generator.partial.programs import Concrete, Dims, Step
from taso_ext.verify.exact.fields import PRIMES, PrimeField

Positions = npt.NDArray[np.int64]
"""Positions in a tensor [positions, rank]."""
NOTHING = -1
"""Stands for the element of a leaf where a product is zero, because it reads padding, and for leaves not read."""


@dataclass(frozen=True)
class Terms:
    """The products that are summed at some positions.

    Attributes:
      elements: the flat index of the element of each leaf in each product [positions, products, leaves]; NOTHING for
        all leaves of a product that is zero, and for a leaf that has no part in a product.
      divisors: by what the sums are divided [positions].
    """

    elements: npt.NDArray[np.int64]
    divisors: npt.NDArray[np.int64]

    def zero(self) -> npt.NDArray[np.bool_]:
        """Returns which products are zero [positions, products]."""
        return np.asarray((self.elements == NOTHING).all(axis=2))


def terms_at(program: Concrete, name: str, positions: Positions) -> Terms:
    """Returns the products that a tensor of a program sums at some positions [positions, rank]."""
    if name in program.leaves:
        leaf, dims = list(program.leaves).index(name), program.leaves[name]
        elements = np.full((len(positions), 1, len(program.leaves)), NOTHING, np.int64)
        elements[:, 0, leaf] = np.ravel_multi_index(tuple(positions.T), dims)
        return Terms(elements, np.ones(len(positions), np.int64))
    step = program.steps[name]
    return _READERS[step.op](program, step, positions)


def _reshape(program: Concrete, step: Step, positions: Positions) -> Terms:
    (operand,) = step.operands
    flat = np.ravel_multi_index(tuple(positions.T), step.dims)
    return terms_at(program, operand, _unravel(flat, program.dims(operand)))


def _transpose(program: Concrete, step: Step, positions: Positions) -> Terms:
    before = np.empty_like(positions)
    before[:, list(step.attributes["perm"])] = positions
    return terms_at(program, step.operands[0], before)


def _pad(program: Concrete, step: Step, positions: Positions) -> Terms:
    (operand,) = step.operands
    dims = program.dims(operand)
    return _where_inside(program, operand, positions - np.array(step.attributes["pads"][: len(dims)]))


def _slice(program: Concrete, step: Step, positions: Positions) -> Terms:
    moved = positions.copy()
    moved[:, list(step.attributes["axes"])] += np.array(step.attributes["starts"])
    return terms_at(program, step.operands[0], moved)


def _concat(program: Concrete, step: Step, positions: Positions) -> Terms:
    (axis,), begin = step.attributes["axis"], 0
    parts: list[tuple[npt.NDArray[np.int64], Terms]] = []
    for operand in step.operands:
        end = begin + program.dims(operand)[axis]
        chosen = np.flatnonzero((positions[:, axis] >= begin) & (positions[:, axis] < end))
        moved = positions[chosen].copy()
        moved[:, axis] -= begin
        if len(chosen):
            parts.append((chosen, terms_at(program, operand, moved)))
        begin = end
    most = max(terms.elements.shape[1] for _, terms in parts)
    elements = np.full((len(positions), most, len(program.leaves)), NOTHING, np.int64)
    divisors = np.ones(len(positions), np.int64)
    for chosen, terms in parts:
        elements[chosen, : terms.elements.shape[1]] = terms.elements
        divisors[chosen] = terms.divisors
    return Terms(elements, divisors)


def _conv(program: Concrete, step: Step, positions: Positions) -> Terms:
    x, kernel = step.operands
    weights, (group,) = program.dims(kernel), step.attributes["group"]
    taps = _grid(weights[1:])  # [products, 1 + spatial]: a channel of the group, and a place in the window
    read = _under_window(step, positions, taps[:, 1:])
    channels = positions[:, 1, None] // (weights[0] // group) * weights[1] + taps[:, 0]
    at = np.concatenate([np.broadcast_to(positions[:, :1, None], (*channels.shape, 1)), channels[..., None], read], 2)
    filters = np.concatenate(
        [
            np.broadcast_to(positions[:, 1, None, None], (*channels.shape, 1)),
            np.broadcast_to(taps, (*channels.shape, taps.shape[1])),
        ],
        2,
    )
    return _multiply(program, (x, at), (kernel, filters))


def _pool(program: Concrete, step: Step, positions: Positions) -> Terms:
    (x,) = step.operands
    taps = _grid(step.attributes["kernel_shape"])
    read = _under_window(step, positions, taps)
    lead = np.broadcast_to(positions[:, None, :2], (*read.shape[:2], 2))
    at = np.concatenate([lead, read], 2)
    terms = _where_inside(program, x, at.reshape(-1, at.shape[2]))
    elements = terms.elements.reshape(len(positions), -1, len(program.leaves))
    spatial = np.array(program.dims(x)[2:])
    inside = ((read >= 0) & (read < spatial)).all(axis=2).sum(axis=1)
    counted = len(taps) if step.attributes["count_include_pad"] == (1,) else inside
    return Terms(elements, np.broadcast_to(counted, len(positions)).astype(np.int64))


def _matmul(program: Concrete, step: Step, positions: Positions) -> Terms:
    a, b = step.operands
    depth = np.arange(program.dims(b)[0])
    rows = np.repeat(positions[:, None, :-1], len(depth), axis=1)
    deep = np.broadcast_to(depth[:, None], (len(positions), len(depth), 1))
    columns = np.repeat(positions[:, None, -1:], len(depth), axis=1)
    return _multiply(program, (a, np.concatenate([rows, deep], 2)), (b, np.concatenate([deep, columns], 2)))


_READERS = {
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Pad": _pad,
    "Slice": _slice,
    "Concat": _concat,
    "Conv": _conv,
    "AveragePool": _pool,
    "MatMul": _matmul,
}


def _grid(extents: Sequence[int]) -> Positions:
    return np.stack(np.unravel_index(np.arange(math.prod(extents)), tuple(extents)), axis=1)


def _unravel(flat: npt.NDArray[np.int64], dims: Dims) -> Positions:
    return np.stack(np.unravel_index(flat, dims), axis=1)


def _under_window(step: Step, positions: Positions, taps: Positions) -> npt.NDArray[np.int64]:
    """Returns the spatial positions of the operand that windows read [positions, taps, spatial]; some are outside."""
    strides, dilations = np.array(step.attributes["strides"]), np.array(step.attributes["dilations"])
    begin = positions[:, 2:] * strides - np.array(step.attributes["pads"][: len(strides)])
    return np.asarray(begin[:, None] + taps * dilations)


def _where_inside(program: Concrete, name: str, positions: Positions) -> Terms:
    """Returns the terms of a tensor, and nothing at positions outside it."""
    dims = np.array(program.dims(name))
    outside = ((positions < 0) | (positions >= dims)).any(axis=1)
    terms = terms_at(program, name, np.clip(positions, 0, dims - 1))
    elements = terms.elements.copy()
    elements[outside] = NOTHING
    return Terms(elements, terms.divisors)


def _multiply(program: Concrete, *factors: tuple[str, npt.NDArray[np.int64]]) -> Terms:
    """Returns sums of products of two tensors, each of one term, at positions [positions, products, rank]."""
    count, products = factors[0][1].shape[:2]
    joined = np.full((count * products, len(program.leaves)), NOTHING, np.int64)
    zero = np.zeros(count * products, bool)
    for name, positions in factors:
        terms = _where_inside(program, name, positions.reshape(count * products, -1))
        if terms.elements.shape[1] != 1 or (terms.divisors != 1).any():
            raise ValueError(f"{name} is a sum itself: products of sums are not followed")
        zero |= terms.zero()[:, 0]
        joined = np.maximum(joined, terms.elements[:, 0])
    joined[zero] = NOTHING
    return Terms(joined.reshape(count, products, -1), np.ones(count, np.int64))


class RandomLeaves:
    """Random elements of the leaves of a program, in both prime fields of the verifier.

    Args:
      leaves: the extents of the leaves, by name.
      seed: the seed of the elements.
    """

    def __init__(self, leaves: Mapping[str, Dims], seed: int) -> None:
        generator = np.random.default_rng([seed, 20_21])
        self._fields = [PrimeField(prime) for prime in PRIMES]
        self._elements = [
            [np.append(field.random(generator, (math.prod(dims),)), 1) for dims in leaves.values()]  # a last one for −1
            for field in self._fields
        ]

    def values_of(self, terms: Terms) -> npt.NDArray[np.int64]:
        """Returns the sums of products [fields, positions]."""
        zero = terms.zero()
        found = []
        for field, elements in zip(self._fields, self._elements, strict=True):
            products = np.ones(zero.shape, np.int64)
            for leaf, drawn in enumerate(elements):
                products = field.mul(products, drawn[terms.elements[:, :, leaf]])
            sums = field.sum(np.where(zero, 0, products), (1,))
            inverse = field.power(terms.divisors, field.prime - 2)
            found.append(field.mul(sums, inverse))
        return np.stack(found)
