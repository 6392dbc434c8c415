"""Equality of two graphs in float32, by running both in ONNX Runtime on ordinary and on awkward inputs.

Finite-field testing (finite_field.py) does not see rounding, overflow or special values. This test makes three demands:

* On finite inputs, if an element of the source's result is finite, the target's element is finite too and close to it.
  A rule may make more results finite, but never fewer (a softmax without its max-subtraction fails at logits of ±1000).
* On inputs with infinities or NaN, a non-finite result never becomes finite, because an error in the data must not be
  hidden (x·0 → 0 fails here). If a mask is −∞ throughout, Softmax gives NaN but ONNX Runtime's Attention gives 0:
  a target with Attention may hide infinities, but not NaN.
* If a result is finite although *another* element of the input is not, it should stay finite. Zero-padded kernels
  cannot promise that, because 0·∞ is NaN, so a violation is reported (`spreads_nonfinite`) rather than refused.

The tolerance of an element is a multiple of the distance that the *source's own* result moves when its inputs, its
weights and the results of its operators are perturbed at random, by relative errors up to `PERTURBATION` (Monte Carlo
arithmetic, Parker 1997). So cancellation, absorption, long sums and steep functions need no constants tuned by hand.

A rule that is equal in real arithmetic only (Winograd's convolutions) does not keep the accuracy of each element: a
small result takes on rounding errors of large data beside it, which the source never reads for this element. Such a
rule has to say so. Its elements are then held to three times the largest tolerance of the same output (`normwise`); all
other demands stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taso_ext._core import Graph, Value
from taso_ext.onnx_io.weights.content import materialise
from taso_ext.verify.numeric.float_session import FloatSession

Floats = npt.NDArray[np.float32]

ORDINARY_DRAWS = 2
PERTURBATIONS = 6  # enough that no element's tolerance is small by chance in all of them
PERTURBATION = 2.0**-18  # 64 times float32's rounding unit: well above accumulated rounding, far below any wrong term
_SAFETY = 4.0
_NORMWISE = 3.0  # fast algorithms compute intermediate numbers larger than any input or output
_FLOOR = float(np.finfo(np.float32).tiny)  # results below the normal range may be flushed to zero
_LARGEST = float(np.finfo(np.float32).max)
_NEAR_ONE = 2.0**-21  # eˣ − 1 is as inexact as 1 is, and ONNX Runtime computes a vector's last elements in another way
_SPRINKLED = 0.25  # share of an input's elements that awkward values replace; the others show whether these stay local

_ORDINARY = "ordinary"

# Values planted, with both signs, into one input at a time: if two extremes met, correct rules would overflow as well.
FINITE_EXTREMES: Mapping[str, Sequence[float]] = {
    "zero": (0.0,),
    "1e30": (1e30, -1e30),
    "1e-30": (1e-30, -1e-30),
    "1000": (1000.0, -1000.0),
}
MASK_EXTREMES: Mapping[str, Sequence[float]] = {"lowest": (-_LARGEST,)}
"""The value with which exporters mask attention. Only masks get it, because any product with it may overflow."""
NONFINITE_EXTREMES: Mapping[str, Sequence[float]] = {"infinity": (np.inf, -np.inf), "NaN": (np.nan,)}


@dataclass(frozen=True)
class FloatMismatch:
    """The element in which two graphs differ on some input, described by `case`, and what each computes there."""

    case: str
    output: int
    index: tuple[int, ...]
    source: float
    target: float
    tolerance: float

    def __str__(self) -> str:
        return (
            f"output {self.output} at {list(self.index)} is {self.source!r} in the source and {self.target!r} in the "
            f"target (tolerance {self.tolerance:.3g}) on {self.case} inputs"
        )


@dataclass(frozen=True)
class FloatComparison:
    """The result of comparing two graphs.

    Attributes:
      mismatch: the first violated demand, or None.
      spreads_nonfinite: whether a non-finite input element reached results that it does not reach in the source.
      cases: the number of inputs that were tried.
      error: the largest difference of a finite result on ordinary inputs, relative to the largest result.
    """

    mismatch: FloatMismatch | None
    spreads_nonfinite: bool
    cases: int
    error: float


@dataclass(frozen=True)
class _Case:
    label: str
    feeds: dict[str, Floats]
    finite: bool

    @property
    def has_nan(self) -> bool:
        return any(bool(np.isnan(tensor).any()) for tensor in self.feeds.values())


@dataclass(frozen=True)
class _Agreement:
    spreads: bool
    error: float


def compare_floats(source: Graph, target: Graph, *, seed: int = 0, normwise: bool = False) -> FloatComparison:
    """Runs both graphs on the same inputs and weights, unoptimised, and compares every output element.

    Args:
      seed: the seed of inputs, weights and perturbations.
      normwise: whether to hold every element to the largest tolerance of its output instead of its own.
    Raises:
      RefusedGraphError: if ONNX Runtime does not run one of the graphs.
    """
    sessions = FloatSession(source), FloatSession(target)
    generator = np.random.default_rng(seed)
    spreads, count, error = False, 0, 0.0
    for count, case in enumerate(_cases(sessions, generator), start=1):
        outcome = _compare_case(*sessions, case, generator, normwise)
        if isinstance(outcome, FloatMismatch):
            return FloatComparison(outcome, spreads, count, error)
        spreads, error = spreads or outcome.spreads, max(error, outcome.error)
    return FloatComparison(None, spreads, count, error)


def _cases(sessions: Sequence[FloatSession], generator: np.random.Generator) -> Iterator[_Case]:
    source = sessions[0]
    leaves = {key: leaf for session in sessions for key, leaf in session.leaves.items()}

    def draw() -> dict[str, Floats]:
        return {key: _draw(leaf, generator) for key, leaf in leaves.items()}

    for _ in range(ORDINARY_DRAWS):
        yield _Case(_ORDINARY, draw(), finite=True)
    for key in source.runtime_inputs:
        finite_extremes = {**FINITE_EXTREMES, **(MASK_EXTREMES if key in source.masks else {})}
        for finite, extremes in ((True, finite_extremes), (False, NONFINITE_EXTREMES)):
            for label, values in extremes.items():
                feeds = draw()
                feeds[key] = _sprinkle(feeds[key], values, generator)
                yield _Case(f"{label} in {key!r}", feeds, finite)


def _draw(leaf: Value, generator: np.random.Generator) -> Floats:
    if leaf.content is not None:
        return materialise(leaf.content, tuple(leaf.dims or ())).astype(np.float32)
    return generator.standard_normal(tuple(leaf.dims or ()), dtype=np.float32)


def _sprinkle(tensor: Floats, values: Sequence[float], generator: np.random.Generator) -> Floats:
    """Returns `tensor` with a share of its elements (at least one) replaced by random picks of `values`."""
    flat = tensor.flatten()
    count = max(1, int(_SPRINKLED * flat.size)) if flat.size else 0
    places = generator.choice(flat.size, count, replace=False)
    flat[places] = generator.choice(np.asarray(values, np.float32), count)
    return flat.reshape(tensor.shape)


def _compare_case(
    source: FloatSession, target: FloatSession, case: _Case, generator: np.random.Generator, normwise: bool
) -> FloatMismatch | _Agreement:
    """Returns a mismatch, or whether the target spreads non-finite values on this case and its largest error."""
    expected, got = ([_as_numbers(each) for each in session.run(case.feeds)] for session in (source, target))
    tolerances = _tolerances(source, case.feeds, expected, generator)
    if normwise:
        tolerances = [np.full(each.shape, _NORMWISE * each.max(initial=0.0)) for each in tolerances]
    spreads, error = False, 0.0
    for output, (a, b, tolerance) in enumerate(zip(expected, got, tolerances, strict=True)):
        if a.shape != b.shape:
            return FloatMismatch(case.label, output, (), float(a.size), float(b.size), 0.0)
        lost, hidden = np.isfinite(a) & ~np.isfinite(b), ~np.isfinite(a) & np.isfinite(b)
        with np.errstate(invalid="ignore"):  # ∞ − ∞ outside the mask of finite elements
            wrong = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) > tolerance)
        if case.finite:
            wrong |= lost & np.isfinite(tolerance)
        else:
            wrong |= hidden & (case.has_nan or not target.has_attention)
            wrong &= np.abs(a) != _LARGEST  # ONNX Runtime's MaxPool gives this for a window of NaN
            spreads = spreads or bool(lost.any())
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            return FloatMismatch(case.label, output, index, float(a[index]), float(b[index]), float(tolerance[index]))
        if case.label == _ORDINARY:
            error = max(error, _relative_error(a, b))
    return _Agreement(spreads, error)


def _relative_error(a: Floats, b: Floats) -> float:
    """Returns the largest difference of finite results, relative to the largest of them in `a`."""
    finite = np.isfinite(a) & np.isfinite(b)
    largest = np.abs(a[finite]).max(initial=0.0)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / largest) if largest else 0.0


def _as_numbers(output: npt.NDArray[np.generic]) -> Floats:
    """Returns an output as floats, also if it holds truth values or integers, because the tests compare numbers."""
    return output.astype(np.float32, copy=False)


def _tolerances(
    source: FloatSession, feeds: Mapping[str, Floats], expected: Sequence[Floats], generator: np.random.Generator
) -> list[npt.NDArray[np.float64]]:
    """Returns the tolerance of each element of the source's outputs.

    It is a multiple of the distance that the element moves under small relative perturbations of all numbers. It is
    infinite if a perturbed result is not finite: such an element is at the edge of overflow and proves nothing.
    """
    moved = [np.zeros(output.shape) for output in expected]
    for _ in range(PERTURBATIONS):
        factors = {id_: _factors(dims, generator) for id_, dims in source.results.items()}
        perturbed = {key: _perturbed(tensor, generator) for key, tensor in feeds.items()}
        outputs = map(_as_numbers, source.run(perturbed, factors))
        with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, and then counted as infinite
            distances = [np.abs(a - b) for a, b in zip(outputs, expected, strict=True)]
        moved = [np.maximum(so_far, np.nan_to_num(d, nan=np.inf)) for so_far, d in zip(moved, distances, strict=True)]
    floor = _FLOOR + (_NEAR_ONE if source.subtracts_one else 0.0)
    return [_SAFETY * distance + floor for distance in moved]


def _perturbed(tensor: Floats, generator: np.random.Generator) -> Floats:
    """Returns the tensor with small relative errors; no finite number becomes infinite."""
    with np.errstate(over="ignore"):
        moved = tensor * _factors(tensor.shape, generator)
    return np.where(np.isinf(moved), tensor, moved)


def _factors(dims: Sequence[int], generator: np.random.Generator) -> Floats:
    """Returns factors 1 + δ with |δ| up to `PERTURBATION`."""
    return (1 + PERTURBATION * generator.uniform(-1, 1, tuple(dims))).astype(np.float32)
