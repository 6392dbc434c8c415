"""The grammar of mutants: one operator on a re-laid-out operand, with other attributes, and its result laid out back.

A mutant pads the operand, moves factors of its axes to other axes, applies the operator with some attributes changed,
undoes the moves and cuts off what is too much. Most mutants are ill-typed or compute something else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from taso_ext.generator.partial.expressions import ONE, ZERO, Env, Expression, number, product, symbol
from taso_ext.generator.partial.programs import Attributes, Statement
from taso_ext.generator.partial.relayouts import ENDS, OUTER, Move, Relayout
from taso_ext.generator.partial.sources import RESULT, Source

PADDINGS = ("none", "multiple", "end", "both", "both to a multiple")
"""What is added to an axis before it is moved: nothing, up to a multiple of the factor it loses, the pads at its end,
all pads, all pads and up to a multiple."""
PADS = ("keep", "none", "divided", "behind", "rest")
"""The pads of the changed operator along moved axes: those of the source, none, divided by the factor, all of the
window behind, or what is left of the window behind the pads in front."""
KERNELS = ("keep", "twice", "moved")
"""The kernel: that of the source, twice with twice the groups, or with its window moved into channels like the input's
rows and columns."""
HALF = number(2)


@dataclass(frozen=True)
class Mutant:
    """One mutant of a source.

    Attributes:
      source: the source.
      relayout: how the operand is laid out.
      padding, pads, kernel: one of PADDINGS, of PADS and of KERNELS.
      even_dilation, even_stride: whether dilations and strides are divided by the factors that their axes lose.
      crop: whether the result is cut to the extents of the source's.
    """

    source: Source
    relayout: Relayout
    padding: str = "none"
    pads: str = "keep"
    kernel: str = "keep"
    even_dilation: bool = False
    even_stride: bool = False
    crop: bool = False

    def degenerate(self, env: Env) -> bool:
        """Returns whether every factor that moves is 1 in a case, so that the mutant is the source itself."""
        return all(move.factor.value(env) == 1 for move in self.relayout.moves)

    @property
    def touched(self) -> tuple[int, ...]:
        """The spatial axes, from 0, that gain or lose a factor."""
        lead = self.source.rank - self.source.spatial
        return tuple(
            axis
            for axis in range(self.source.spatial)
            if self.relayout.lost(lead + axis) or self.relayout.gained(lead + axis)
        )

    def statements(self) -> tuple[Statement, ...]:
        """Returns the statements; the last one defines `y`."""
        source, lead = self.source, self.source.rank - self.source.spatial
        extents = list(source.extents[source.moved])
        found: list[Statement] = []
        operand = source.moved
        paddings = {axis: self._padding(axis) for axis in self.touched}
        if any(pad != ZERO for pair in paddings.values() for pad in pair):
            low, high = [ZERO] * source.rank, [ZERO] * source.rank
            for axis, (before, after) in paddings.items():
                low[lead + axis], high[lead + axis] = before, after
                extents[lead + axis] = extents[lead + axis] + before + after
            found.append(Statement("x0", "Pad", (operand,), {"pads": (*low, *high), "value": (ZERO,)}))
            operand = "x0"
        found += self.relayout.forward(operand, extents, ("x1", "x2", "x3"))
        operands = ["x3", *source.statement.operands[1:]]
        if self.kernel != "keep":
            found += self._kernel_statements()
            operands[1] = "k3"
        found.append(Statement("z", source.statement.op, tuple(operands), self._attributes()))
        undone = self._undone()
        if undone.moves:
            found += undone.backward(
                "z", [symbol(f"dims(z)[{axis}]") for axis in range(source.rank)], ("z1", "z2", "z3")
            )
        if self.crop:
            axes = tuple(number(lead + axis) for axis in self.touched)
            ends = tuple(symbol(f"dims({RESULT})[{lead + axis}]") for axis in self.touched)
            cut = {"axes": axes, "starts": tuple(ZERO for _ in axes), "ends": ends}
            found.append(Statement(RESULT, "Slice", (found[-1].result,), cut))
        return (*found[:-1], replace(found[-1], result=RESULT))

    def _undone(self) -> Relayout:
        """Returns the moves that the result has to undo: factors in channels that the kernel sums over are gone."""
        return Relayout(() if self.kernel == "moved" else self.relayout.moves)

    def factor(self, axis: int) -> Expression:
        """Returns the product of the factors that a spatial axis loses."""
        return product(self.relayout.lost(self.source.rank - self.source.spatial + axis))

    def _padding(self, axis: int) -> tuple[Expression, Expression]:
        low, high = symbol(f"p[{axis}]"), symbol(f"p[{axis + self.source.spatial}]")
        extent = self.source.extents[self.source.moved][self.source.rank - self.source.spatial + axis]
        factor = self.factor(axis)
        match self.padding:
            case "multiple":
                return ZERO, (ZERO - extent) % factor
            case "end":
                return ZERO, high
            case "both":
                return low, high
            case "both to a multiple":
                return low, high + (ZERO - (extent + low + high)) % factor
        return ZERO, ZERO

    def _attributes(self) -> Attributes:
        given = self.source.statement.attributes
        if not self.source.spatial:
            return given
        dilations, strides, pads = list(given["dilations"]), list(given["strides"]), list(given["pads"])
        kernel = list(given["kernel_shape"])
        for axis in self.touched:
            factor = self.factor(axis)
            dilations[axis] = dilations[axis] / factor if self.even_dilation else dilations[axis]
            strides[axis] = strides[axis] / factor if self.even_stride else strides[axis]
            kernel[axis] = kernel[axis] / factor if self.kernel == "moved" else kernel[axis]
            span = (kernel[axis] - ONE) * dilations[axis]
            low, high = pads[axis], pads[axis + self.source.spatial]
            pads[axis], pads[axis + self.source.spatial] = {
                "keep": (low, high),
                "none": (ZERO, ZERO),
                "divided": (low / factor, high / factor),
                "behind": (ZERO, span),
                "rest": (low, span - low),
            }[self.pads]
        changed = {"dilations": dilations, "strides": strides, "pads": pads, "kernel_shape": kernel}
        if self.kernel == "twice":
            changed["group"] = [given["group"][0] * HALF]
        return {**given, **{name: tuple(values) for name, values in changed.items()}}

    def _kernel_statements(self) -> list[Statement]:
        kernel = self.source.statement.operands[1]
        if self.kernel == "twice":
            return [Statement("k3", "Concat", (kernel, kernel), {"axis": (ZERO,)})]
        return self.relayout.forward(kernel, self.source.extents[kernel], ("k1", "k2", "k3"))


def relayouts(source: Source) -> Iterator[Relayout]:
    """Yields the re-layouts of a source's operand: one move, or the same move of or to each of two spatial axes."""
    singles = list(_moves(source))
    for move in singles:
        yield Relayout((move,))
    lead = source.rank - source.spatial
    if source.spatial == 2:
        for move in singles:
            twin = _twin(move, lead)
            if twin is not None:
                yield Relayout((move, twin))


def _moves(source: Source) -> Iterator[Move]:
    lead = source.rank - source.spatial
    for axis, to in itertools.permutations(range(source.rank), 2):
        whole = source.extents[source.moved][axis]
        factors = [(HALF, "half"), (whole, "all")]
        if axis >= lead:
            factors += [(symbol(f"d[{axis - lead}]"), "dilation"), (symbol(f"s[{axis - lead}]"), "stride")]
        for (factor, name), end, to_end in itertools.product(factors, ENDS, ENDS):
            if name != "all" or end == OUTER:  # all of an axis is both its outermost and its innermost factor
                yield Move(axis, end, to, to_end, factor, name)


def _twin(move: Move, lead: int) -> Move | None:
    """Returns the same move for the second spatial axis, of a move that is about the first one alone."""
    if move.axis == lead and move.to < lead and move.name in ("half", "dilation", "stride"):
        factor = symbol(move.factor.text.replace("[0]", "[1]")) if move.name != "half" else HALF
        return replace(move, axis=lead + 1, factor=factor)
    if move.to == lead and move.axis < lead and move.name == "half":
        return replace(move, to=lead + 1)
    return None


def mutants(source: Source) -> Iterator[Mutant]:
    """Yields all mutants of a source, none of them twice."""
    seen = set[tuple[str, ...]]()
    for relayout in relayouts(source):
        for mutant in _of(source, relayout):
            text = tuple(statement.text for statement in mutant.statements())
            if text not in seen:
                seen.add(text)
                yield mutant


def _of(source: Source, relayout: Relayout) -> Iterator[Mutant]:
    first = Mutant(source, relayout)
    if not source.spatial:
        yield first
        return
    names = {move.name for move in relayout.moves}
    to_channels = [move for move in relayout.moves if move.to == 1]
    kernels = ["keep"]
    if source.statement.op == "Conv" and to_channels:
        kernels += ["twice"] * (len(to_channels) == 1 and names == {"half"}) + ["moved"] * (first.touched != ())
    for padding, pads, kernel, crop in itertools.product(
        PADDINGS if first.touched else PADDINGS[:1],
        PADS if first.touched else PADS[:1],
        kernels,
        (False, True) if first.touched else (False,),
    ):
        yield Mutant(source, relayout, padding, pads, kernel, "dilation" in names, "stride" in names, crop)
