"""Re-layouts: factors of axes that move to other axes, as Reshape, Transpose and Reshape.

A layout has one list of factors for each axis, the outermost first. To bring the images of a batch into the rows of one
image, the factor n of axis 0 becomes the outermost factor of axis 2: [n, c, h, w] is [1, c, n * h, w] then. To gather
the rows of equal remainder, as a convolution of dilation d reads them, the innermost factor d of axis 2 moves to
axis 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from taso_ext.generator.partial.expressions import Expression, number, product
from taso_ext.generator.partial.programs import Statement

OUTER, INNER = "outer", "inner"
ENDS = (OUTER, INNER)


@dataclass(frozen=True)
class Move:
    """The move of a factor from one axis to another.

    Attributes:
      axis: the axis that loses the factor.
      end: whether it is the outermost or the innermost factor there.
      to: the axis that gains it.
      to_end: where it stands there.
      factor: the factor; it must divide the extent.
      name: the word for the factor in names of rules.
    """

    axis: int
    end: str
    to: int
    to_end: str
    factor: Expression
    name: str


@dataclass(frozen=True)
class _Factor:
    key: int  # which factor it is: 2 * axis for what stays, odd numbers for what moves
    extent: Expression


@dataclass(frozen=True)
class Relayout:
    """Moves of factors, which are carried out together.

    Attributes:
      moves: the moves in order; a later one takes its factor from what the earlier ones left.
    """

    moves: tuple[Move, ...]

    def gained(self, axis: int) -> list[Expression]:
        """Returns the factors that an axis gains."""
        return [move.factor for move in self.moves if move.to == axis]

    def lost(self, axis: int) -> list[Expression]:
        """Returns the factors that an axis loses."""
        return [move.factor for move in self.moves if move.axis == axis]

    def forward(self, operand: str, extents: Sequence[Expression], names: Sequence[str]) -> list[Statement]:
        """Returns the statements that carry out the moves.

        Args:
          operand: the tensor to move.
          extents: its extents.
          names: three names; the last one is that of the result.
        """
        before, after = self._factors(extents)
        return _moved(operand, before, after, names)

    def backward(self, operand: str, extents: Sequence[Expression], names: Sequence[str]) -> list[Statement]:
        """Returns the statements that undo the moves in a tensor with other extents, which has the same factors."""
        kept = [extent / product(self.gained(axis)) for axis, extent in enumerate(extents)]
        whole = [extent * product(self.lost(axis)) for axis, extent in enumerate(kept)]
        before, after = self._factors(whole, kept)
        return _moved(operand, after, before, names)

    def _factors(
        self, extents: Sequence[Expression], kept: Sequence[Expression] | None = None
    ) -> tuple[list[list[_Factor]], list[list[_Factor]]]:
        before = [[_Factor(2 * axis, extent)] for axis, extent in enumerate(extents)]
        for at, move in enumerate(self.moves):
            part = _Factor(2 * at + 1, move.factor)
            stays = next(place for place, each in enumerate(before[move.axis]) if each.key == 2 * move.axis)
            rest = replace(before[move.axis][stays], extent=before[move.axis][stays].extent / move.factor)
            before[move.axis][stays : stays + 1] = [part, rest] if move.end == OUTER else [rest, part]
        if kept is not None:
            before = [
                [replace(each, extent=kept[each.key // 2]) if each.key % 2 == 0 else each for each in of]
                for of in before
            ]
        after = [[each for each in of if each.key % 2 == 0] for of in before]
        parts = {each.key: each for of in before for each in of}
        for at, move in enumerate(self.moves):
            part = parts[2 * at + 1]
            after[move.to] = [part, *after[move.to]] if move.to_end == OUTER else [*after[move.to], part]
        return before, after


def _moved(
    operand: str, before: Sequence[Sequence[_Factor]], after: Sequence[Sequence[_Factor]], names: Sequence[str]
) -> list[Statement]:
    flat = [each for of in before for each in of if each.extent.number != 1]
    order = [flat.index(each) for of in after for each in of if each.extent.number != 1]
    shape = tuple(product([each.extent for each in of]) for of in after)
    if order == sorted(order):
        return [Statement(names[2], "Reshape", (operand,), {"shape": shape})]
    return [
        Statement(names[0], "Reshape", (operand,), {"shape": tuple(each.extent for each in flat)}),
        Statement(names[1], "Transpose", (names[0],), {"perm": tuple(number(place) for place in order)}),
        Statement(names[2], "Reshape", (names[1],), {"shape": shape}),
    ]
