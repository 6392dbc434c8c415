"""The places where a mutant differs from its source, found from few positions and values.

Along each axis of the result, positions form runs in which both programs read elements at a fixed distance from those
that they read at the position before. A box is a product of runs, one for each axis. In a box the elements that are
read are affine functions of the position, so two programs that agree at one position and at its neighbours, one for
each axis, agree in the whole box (Wang et al. 2021, theorem 1). They agree for all values if they agree for random
values in a large field, except with a probability below 2^-120 (Schwartz and Zippel; two primes of 61 bits).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from taso_ext.generator.partial.positions import NOTHING, Positions, RandomLeaves, terms_at
from taso_ext.generator.partial.programs import Concrete, Dims

Interval = tuple[int, int]
"""The first position and the one after the last."""

MOST_BOXES = 1024
"""A result that falls into more boxes has no structure that a correction could use."""
_LINES = 3  # lines along each axis that are looked at for the ends of runs
_GLANCES = 32  # random positions that tell a mutant which differs nearly everywhere
_LEAST_EQUAL = 8  # of them: a correction of most of the result would be the source again


@dataclass(frozen=True)
class Difference:
    """Where a mutant differs.

    Attributes:
      intervals: the positions along each axis at which some box differs, as intervals in order; empty for axes along
        which every position is in a box that differs.
      share: the share of all positions that lie in boxes that differ.
      tested: the number of positions that were compared.
    """

    intervals: tuple[tuple[Interval, ...], ...]
    share: float
    tested: int

    @property
    def nowhere(self) -> bool:
        """Whether the mutant equals the source."""
        return self.share == 0.0


def read_difference(written: Any) -> Difference | None:
    """Returns the difference that a list of its attributes stands for, as JSON has it."""
    if written is None:
        return None
    intervals, share, tested = written
    return Difference(tuple(tuple((begin, end) for begin, end in axis) for axis in intervals), share, tested)


class Reference:
    """A source in one case, to which mutants are compared.

    Args:
      program: the source.
      result: the name of its result, which mutants compute too.
      seed: the seed of the random elements, and of the positions that are looked at first.
    """

    def __init__(self, program: Concrete, result: str, seed: int = 0) -> None:
        generator = np.random.default_rng([seed, 7])
        self.program, self.result, self.dims = program, result, program.dims(result)
        self._leaves = RandomLeaves(program.leaves, seed)
        self._glance = _draw(generator, self.dims, _GLANCES)
        self._lines = _draw(generator, self.dims, _LINES)
        self._glanced = self._values(program, self._glance)
        self._cuts = _cuts(program, result, self._lines)

    def difference(self, mutant: Concrete) -> Difference | None:
        """Returns where a mutant differs, or None if that is nearly everywhere or has no structure.

        Raises:
          ValueError: if it reads other leaves, or its result has other extents.
        """
        if self.program.leaves != mutant.leaves or mutant.dims(self.result) != self.dims:
            raise ValueError("programs of other leaves or another result cannot be compared")
        agree = (self._values(mutant, self._glance) == self._glanced).all(axis=0)
        if np.count_nonzero(agree) < _LEAST_EQUAL:
            return None
        cuts = [a | b for a, b in zip(self._cuts, _cuts(mutant, self.result, self._lines), strict=True)]
        ends = [[0, *(np.flatnonzero(cut) + 1).tolist(), len(cut) + 1] for cut in cuts]
        runs = [list(itertools.pairwise(each)) for each in ends]
        boxes = list(itertools.islice(itertools.product(*runs), MOST_BOXES + 1))
        if len(boxes) > MOST_BOXES:
            return None
        corners = [_corners(box) for box in boxes]
        owners, positions = np.repeat(np.arange(len(boxes)), [len(each) for each in corners]), np.concatenate(corners)
        bad = np.zeros(len(boxes), bool)
        differs = (self._values(self.program, positions) != self._values(mutant, positions)).any(axis=0)
        np.logical_or.at(bad, owners, differs)
        return _summary(self.dims, runs, boxes, bad, len(owners) + _GLANCES)

    def _values(self, program: Concrete, positions: Positions) -> npt.NDArray[np.int64]:
        return self._leaves.values_of(terms_at(program, self.result, positions))


def _draw(generator: np.random.Generator, dims: Dims, count: int) -> Positions:
    return np.stack([generator.integers(0, extent, count) for extent in dims], axis=1)


def _cuts(program: Concrete, result: str, bases: Positions) -> list[npt.NDArray[np.bool_]]:
    """Returns after which positions along each axis runs end, on lines through `bases` [lines, rank]."""
    dims = program.dims(result)
    lines = []
    for axis, extent in enumerate(dims):
        line = np.repeat(bases[:, None], extent, axis=1)
        line[:, :, axis] = np.arange(extent)
        lines.append(line.reshape(-1, len(dims)))
    terms, begin, found = terms_at(program, result, np.concatenate(lines)), 0, []
    for extent in dims:
        end = begin + len(bases) * extent
        elements = terms.elements[begin:end].reshape(len(bases), extent, -1)
        found.append(_ends_of_runs(elements, terms.divisors[begin:end].reshape(len(bases), extent)))
        begin = end
    return found


def _ends_of_runs(elements: npt.NDArray[np.int64], divisors: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Returns after which positions [extent - 1] runs end, given the elements that are read [lines, extent, parts]."""
    zero = elements == NOTHING
    moves, known = elements[:, 1:] - elements[:, :-1], ~zero[:, 1:] & ~zero[:, :-1]
    cut = ((moves != _medians(moves, known)) & known).any(axis=2) | (zero[:, 1:] != zero[:, :-1]).any(axis=2)
    return np.asarray((cut | (divisors[:, 1:] != divisors[:, :-1])).any(axis=0))


def _medians(moves: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Returns the median along axis 1 of the moves that are known, which is the usual move; 0 if none is known."""
    if not moves.shape[1]:
        return moves
    ordered = np.sort(np.where(known, moves, np.iinfo(np.int64).max), axis=1)
    counts = known.sum(axis=1, keepdims=True)
    middle = np.take_along_axis(ordered, np.maximum(counts - 1, 0) // 2, axis=1)
    return np.where(counts > 0, middle, 0)


def _corners(box: Sequence[Interval]) -> Positions:
    """Returns the middle of a box, and its neighbour along each axis that has one."""
    middle = np.array([(begin + end - 1) // 2 for begin, end in box])
    steps = [np.eye(len(box), dtype=np.int64)[axis] for axis, (begin, end) in enumerate(box) if end - begin > 1]
    return np.stack([middle, *(middle + step for step in steps)])


def _summary(
    dims: Dims,
    runs: Sequence[Sequence[Interval]],
    boxes: Sequence[Sequence[Interval]],
    bad: npt.NDArray[np.bool_],
    tested: int,
) -> Difference | None:
    if bad.all():
        return None
    volume = sum(math.prod(end - begin for begin, end in box) for box, wrong in zip(boxes, bad, strict=True) if wrong)
    shape = bad.reshape([len(of_axis) for of_axis in runs])
    intervals = _axes_of(shape, runs)
    return Difference(intervals, volume / math.prod(dims), tested)


def _axes_of(shape: npt.NDArray[np.bool_], runs: Sequence[Sequence[Interval]]) -> tuple[tuple[Interval, ...], ...]:
    """Returns slabs, positions along single axes, that together hold all boxes that differ.

    An axis is cut where it has the fewest positions, because a correction computes the whole slab.
    """
    left, found = shape.copy(), [tuple[Interval, ...]() for _ in runs]
    while left.any():
        choices = []
        for axis in range(left.ndim):
            others = tuple(each for each in range(left.ndim) if each != axis)
            full = np.asarray(left.all(axis=others)) if others else left
            some = np.asarray(left.any(axis=others)) if others else left
            chosen = full if full.any() else some
            size = sum(end - begin for (begin, end), taken in zip(runs[axis], chosen, strict=True) if taken)
            extent = runs[axis][-1][1]
            choices.append((not full.any(), size / extent, axis, chosen))
        _, _, axis, chosen = min(choices, key=lambda choice: choice[:3])
        found[axis] = _joined([run for run, taken in zip(runs[axis], chosen, strict=True) if taken], found[axis])
        index = [slice(None)] * left.ndim
        index[axis] = np.flatnonzero(chosen)  # type: ignore[call-overload]
        left[tuple(index)] = False
    return tuple(found)


def _joined(intervals: Sequence[Interval], before: Sequence[Interval]) -> tuple[Interval, ...]:
    """Returns intervals in order, with those that touch made into one."""
    found: list[Interval] = []
    for begin, end in sorted([*intervals, *before]):
        if found and found[-1][1] >= begin:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return tuple(found)
