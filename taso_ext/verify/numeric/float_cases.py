"""The inputs and weights on which two graphs are compared in floating point: ordinary numbers, ties and extremes."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from taso_ext._core import Value
from taso_ext.onnx_io.weights.content import NONZERO, known, materialise
from taso_ext.verify.numeric.float_session import FloatSession
from taso_ext.verify.rule_file import Rounding
from taso_ext.verify.valued_operands import draw_valued

Floats = npt.NDArray[np.float32]

ORDINARY, WIDE = "ordinary", "wide"
ORDINARY_DRAWS = 2
_SPRINKLED = 0.25  # share of a tensor's elements that awkward values replace; the others show whether these stay local
_LARGEST = float(np.finfo(np.float32).max)
_WIDEST = 1.0  # magnitudes of wide draws lie within 10^±1, so that thresholds of ordinary operators are on both sides

# Values planted, with both signs, into one tensor at a time: if two extremes met, correct rules would overflow as well.
FINITE_EXTREMES: Mapping[str, Sequence[float]] = {
    "zero": (0.0,),
    "1e30": (1e30, -1e30),
    "1e-30": (1e-30, -1e-30),
    "1000": (1000.0, -1000.0),
}
WEIGHT_EXTREMES: Mapping[str, Sequence[float]] = {**FINITE_EXTREMES, "100": (100.0, -100.0)}
"""The extremes of weights; weights of ±100 are masks."""
MASK_EXTREMES: Mapping[str, Sequence[float]] = {"lowest": (-_LARGEST,)}
"""The value with which exporters mask attention. Only masks get it, because any product with it may overflow."""
NEAR_LIMIT = 0.45 * _LARGEST
"""A number of which a multiple overflows. Only one element is it, because sums of several depend on their order."""
NONFINITE_EXTREMES: Mapping[str, Sequence[float]] = {"infinity": (np.inf, -np.inf), "NaN": (np.nan,)}
WEIGHT_NONFINITE: Mapping[str, Sequence[float]] = {**NONFINITE_EXTREMES, "minus infinity": (-np.inf,)}

SMALL = (-1.0, 0.0, 1.0, 2.0)
"""Numbers of which equal ones, zeros and their quotients meet often."""


HUNDREDS = (-100.0, 100.0, 1.0, 0.0, 0.5, 0.01)
"""Numbers of ordinary size whose exponentials, and factors that bring them back, are near the limits of floats."""
TOGETHER = (1e25, 1e-25)
"""Sizes of all numbers at once, whose products overflow and underflow. Rules may differ in when they do, so only graphs
with decisions are compared there: a comparison of two numbers does not change if both numbers are squared."""
_GREATEST_POWER = 30
_HIDDEN = 0.5  # share of the rows of a mask that hide everything
_FACTOR = 50
_MULTIPLE_DRAWS = 4
OFFSET = 1e5
"""What the squares of numbers of ordinary size are lost in, if it is added to the numbers."""


class Kind(enum.Enum):
    """What the inputs and weights of a case are: finite, equal at many places, or partly infinite or NaN."""

    FINITE = enum.auto()
    TIES = enum.auto()
    NONFINITE = enum.auto()


@dataclass
class Facts:
    """What a rule needs to know of its weights, because it is wrong for others. A matcher has to see to it.

    Attributes:
      finite: the names of variables whose elements are finite.
      nonzero: the names of variables whose elements are finite and not zero.
    """

    finite: set[str] = field(default_factory=set)
    nonzero: set[str] = field(default_factory=set)

    def conditions(self) -> list[str]:
        """Returns the facts as conditions of a rule file."""
        nonzero = [f"is_nonzero({name})" for name in sorted(self.nonzero)]
        return [*(f"is_finite({name})" for name in sorted(self.finite - self.nonzero)), *nonzero]


@dataclass(frozen=True)
class FloatCase:
    """One set of inputs and weights.

    Attributes:
      label: the kind of numbers, for messages.
      feeds: the tensors by the keys of `FloatSession.leaves`.
      kind: what the tensors hold.
    """

    label: str
    feeds: dict[str, Floats]
    kind: Kind

    @property
    def nonfinite_keys(self) -> set[str]:
        return {key for key, tensor in self.feeds.items() if not np.isfinite(tensor).all()}

    @property
    def has_nan(self) -> bool:
        return any(bool(np.isnan(tensor).any()) for tensor in self.feeds.values())


def float_cases(
    sessions: Sequence[FloatSession], generator: np.random.Generator, *, facts: Facts, rounding: Rounding
) -> Iterator[FloatCase]:
    """Yields the cases of a source and a target.

    Operands whose elements have to lie in a domain get other ones of it in every case, and no extremes.

    Every input gets every extreme. Every weight gets one finite and one other extreme, drawn at random, since a rule is
    tested on dozens of graphs.

    Args:
      facts: what is known of the weights. Numbers that contradict it are not drawn; it may grow between two cases.
      rounding: what errors are measured by. `NEAR_LIMIT` is planted into the input of graphs that compute every element
        by itself, but not for `Rounding.REAL`.
    """
    domains = sessions[0].domains
    leaves = {key: leaf for session in sessions for key, leaf in session.leaves.items()}
    for case in _free_cases(sessions, generator, facts, rounding):
        valued = {key: draw_valued(leaves[key], domain, generator) for key, domain in domains.items()}
        valid = {key: tensor.astype(np.float32) for key, tensor in valued.items()}
        yield FloatCase(case.label, {**case.feeds, **valid}, case.kind)


def _free_cases(
    sessions: Sequence[FloatSession], generator: np.random.Generator, facts: Facts, rounding: Rounding
) -> Iterator[FloatCase]:
    """Yields the cases without regard to the domains of operands."""
    source = sessions[0]
    leaves = {key: leaf for session in sessions for key, leaf in session.leaves.items()}
    free = [key for key, leaf in leaves.items() if key not in source.domains]
    inputs = [key for key in source.runtime_inputs if key in free]
    weights = [key for key in free if key not in source.runtime_inputs and known(leaves[key].content) is None]
    names = {key: name for session in sessions for key, name in session.variables.items()}
    nonzero = {key for key, leaf in leaves.items() if leaf.content == NONZERO}
    pointwise = rounding is not Rounding.REAL and all(session.is_pointwise for session in sessions)
    alone = sum(known(leaves[key].content) is None for key in free) == 1

    def draw() -> dict[str, Floats]:
        return {key: _draw(leaf, generator) for key, leaf in leaves.items()}

    variances = set().union(*(session.variances for session in sessions))

    def as_known(key: str, tensor: Floats) -> Floats:
        tensor = np.abs(tensor) if key in variances else tensor
        return without_zeros(tensor) if key in nonzero or names.get(key) in facts.nonzero else tensor

    def planted(key: str, label: str, values: Sequence[float], kind: Kind, share: float = _SPRINKLED) -> FloatCase:
        feeds = draw()
        feeds[key] = as_known(key, _sprinkle(feeds[key], values, generator, share))
        return FloatCase(f"{label} in {key!r}", feeds, kind)

    for _ in range(ORDINARY_DRAWS):
        yield FloatCase(ORDINARY, draw(), Kind.FINITE)
    yield FloatCase(WIDE, {key: _widened(leaf, generator) for key, leaf in leaves.items()}, Kind.FINITE)
    drawn = {key: as_known(key, _offset(leaf, generator)) for key, leaf in leaves.items()}
    yield FloatCase("offset", drawn, Kind.FINITE)
    if pointwise:
        drawn = {key: as_known(key, _drawn_from(leaf, HUNDREDS, generator)) for key, leaf in leaves.items()}
        yield FloatCase("hundreds", drawn, Kind.FINITE)
    if source.decides:
        for size in TOGETHER:
            yield FloatCase(f"{size:.0e}", {k: np.float32(size) * t for k, t in draw().items()}, Kind.FINITE)
    sets: list[tuple[str, Sequence[float]]] = [("small", SMALL), ("tied", _numbers_of(sessions))]
    if any(session.rounds for session in sessions):
        sets += [("multiple", _multiples_of(sessions))] * _MULTIPLE_DRAWS
    for label, numbers in sets:
        drawn = {key: as_known(key, _drawn_from(leaf, numbers, generator)) for key, leaf in leaves.items()}
        yield FloatCase(label, drawn, Kind.TIES)
    drawn = {key: as_known(key, _single(leaf, generator)) for key, leaf in leaves.items()}
    yield FloatCase("single numbers", drawn, Kind.TIES)
    for key in source.masks:
        feeds = draw()
        if known(leaves[key].content) is None and feeds[key].ndim and names.get(key) not in facts.finite:
            hidden = generator.random(feeds[key].shape[:-1]) < _HIDDEN
            feeds[key] = np.where(hidden[..., None], np.float32(-np.inf), feeds[key])
            yield FloatCase(f"rows of minus infinity in {key!r}", feeds, Kind.NONFINITE)
    for key in inputs:
        finite = {**FINITE_EXTREMES, **(MASK_EXTREMES if key in source.masks else {})}
        for kind, extremes in ((Kind.FINITE, finite), (Kind.NONFINITE, NONFINITE_EXTREMES)):
            for label, values in extremes.items():
                yield planted(key, label, values, kind)
        power = float(10.0 ** (generator.choice([-1.0, 1.0]) * generator.uniform(3, _GREATEST_POWER)))
        yield planted(key, f"{power:.0e}", (power, -power), Kind.FINITE)
        if pointwise and alone:  # products of several numbers depend on their order
            yield planted(key, "largest", (NEAR_LIMIT, -NEAR_LIMIT), Kind.FINITE, 0.0)
    for key in weights:
        for kind, extremes in ((Kind.FINITE, WEIGHT_EXTREMES), (Kind.NONFINITE, WEIGHT_NONFINITE)):
            if kind is Kind.NONFINITE and (leaves[key].content is not None or names.get(key) in facts.finite):
                continue
            label = list(extremes)[int(generator.integers(len(extremes)))]
            yield planted(key, label, extremes[label], kind)


def without_zeros(tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the tensor with 1 for each 0."""
    return np.where(tensor == 0, np.ones((), tensor.dtype), tensor)


def _draw(leaf: Value, generator: np.random.Generator) -> Floats:
    if known(leaf.content) is not None:
        return _known(leaf)
    return generator.standard_normal(tuple(leaf.dims or ()), dtype=np.float32)


def _known(leaf: Value) -> Floats:
    content = known(leaf.content)
    assert content is not None
    return materialise(content, tuple(leaf.dims or ())).astype(np.float32)


def _widened(leaf: Value, generator: np.random.Generator) -> Floats:
    """Returns a tensor with magnitudes from 10^−`_WIDEST` to 10^`_WIDEST` and both signs."""
    if known(leaf.content) is not None:
        return _known(leaf)
    dims = tuple(leaf.dims or ())
    return (generator.choice([-1.0, 1.0], dims) * 10.0 ** generator.uniform(-_WIDEST, _WIDEST, dims)).astype(np.float32)


def _offset(leaf: Value, generator: np.random.Generator) -> Floats:
    """Returns numbers near one that is much larger than their differences."""
    drawn = _draw(leaf, generator)
    is_number = known(leaf.content) is None and leaf.dtype != TensorProto.BOOL
    return drawn + np.float32(OFFSET * generator.choice([-1.0, 1.0])) if is_number else drawn


def _single(leaf: Value, generator: np.random.Generator) -> Floats:
    """Returns zeros but for one number of an input, which norms make as large as they can; weights are ordinary."""
    drawn = _draw(leaf, generator)
    if leaf.handle is not None or known(leaf.content) is not None or not drawn.size:
        return drawn
    place = generator.integers(drawn.size)
    return np.where(np.arange(drawn.size).reshape(drawn.shape) == place, np.float32(1.0), np.float32(0.0))


def _drawn_from(leaf: Value, values: Sequence[float], generator: np.random.Generator) -> Floats:
    if known(leaf.content) is not None:
        return _known(leaf)
    return generator.choice(np.asarray(values, np.float32), tuple(leaf.dims or ()))


def _numbers_of(sessions: Sequence[FloatSession]) -> list[float]:
    """Returns `SMALL`, and the constants of the graphs with both signs and with numbers just beside them."""
    constants = {abs(number) for session in sessions for number in session.constants}
    beside = [factor * c for c in sorted(constants) for factor in (1.0, 3.0, 7.0, 1.0 + 2.0**-10, 1.0 - 2.0**-10)]
    return [*SMALL, *(sign * each for each in beside for sign in (1.0, -1.0) if 1e-6 < each < 1e6)]


def _multiples_of(sessions: Sequence[FloatSession]) -> list[float]:
    """Returns whole multiples of the constants of the graphs, whose quotients are whole numbers if nothing rounds."""
    constants = {1.0} | {
        abs(number) for session in sessions for number in session.constants if 1e-6 < abs(number) < 1e6
    }
    return [constant * factor for constant in sorted(constants) for factor in range(-_FACTOR, _FACTOR + 1)]


def _sprinkle(tensor: Floats, values: Sequence[float], generator: np.random.Generator, share: float) -> Floats:
    """Returns `tensor` with a share of its elements (at least one) replaced by random picks of `values`."""
    flat = tensor.flatten()
    count = max(1, int(share * flat.size)) if flat.size else 0
    places = generator.choice(flat.size, count, replace=False)
    flat[places] = generator.choice(np.asarray(values, np.float32), count)
    return flat.reshape(tensor.shape)
