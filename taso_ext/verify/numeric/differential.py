"""Equality of two graphs in float32, by running both in ONNX Runtime on ordinary and on awkward inputs.

Finite-field testing (finite_field.py) does not see rounding, overflow or special values. This test makes these demands
on the inputs and weights of float_cases.py:

* On finite numbers, if an element of the source's result is finite, the target's element is finite too and close to it.
  A rule may make more results finite, but never fewer (a softmax without its max-subtraction fails at logits of ±1000).
  A target that is at least as near to the real result as the source is passes, too (real_values.py).
* A non-finite result never becomes finite beside infinities or NaN, because an error in the data must not be hidden
  (x·0 → 0 fails here), and an infinity never changes its sign. If a mask is −∞ throughout, Softmax gives NaN but ONNX
  Runtime's Attention gives 0: a target with Attention may hide infinities, but not NaN.
* A finite result beside infinities or NaN stays finite: x·Relu(x) is no square of Relu, because −∞·0 is NaN. There are
  two exceptions, which are reported (`spreads_nonfinite`) and not refused. Zero-padded kernels multiply numbers by zero
  that the source never reads, and 0·∞ is NaN: if all non-finite numbers reach an operand of a convolution or a matrix
  product, or if the rule says that it is equal in real arithmetic only, an element that does not depend on them may be
  lost. And an element that depends on them may be lost if each of them alone already makes another result of the source
  non-finite (a softmax of ∞ as a quotient is NaN at one place, and with its max-subtraction in the whole row).
* On numbers that are equal and zero at many places, where comparisons decide and quotients are 0/0, a NaN of the
  source never becomes finite and an infinity stays one, and in graphs with comparisons no tolerance is so large that it
  hides a decision.

The tolerance of an element is a multiple of the distance that the *source's own* result moves when its inputs, its
weights and the results of its operators are perturbed at random, by relative errors up to `PERTURBATION` (Monte Carlo
arithmetic, Parker 1997). So cancellation, absorption, long sums and steep functions need no constants tuned by hand.

A rule that is equal in real arithmetic only (Winograd's convolutions) does not keep the accuracy of each element: a
small result takes on rounding errors of large data beside it, which the source never reads for this element. Such a
rule has to say so (`Rounding.REAL`). Its elements are then held to three times the largest tolerance of the output,
here or on ordinary numbers, and its intermediate numbers may overflow where inputs are near the largest float; all
other demands stay the same.

Rules that are less exact for small results, as tanh x = 2·sigmoid(2x) − 1 is near 0, are held to the same tolerance
without having to say so (`Rounding.LARGEST`), but not to weaker demands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taso_ext._core import Graph
from taso_ext.verify.numeric.float_cases import ORDINARY, WIDE, Facts, FloatCase, Kind, float_cases, without_zeros
from taso_ext.verify.numeric.float_session import FloatSession
from taso_ext.verify.numeric.nan_order import ordered_leaves, undefined_results
from taso_ext.verify.numeric.real_values import not_worse, real_results
from taso_ext.verify.rule_file import Rounding

Floats = npt.NDArray[np.float32]

PERTURBATIONS = 6  # enough that no element's tolerance is small by chance in all of them
_MANY_PERTURBATIONS = 50  # before a difference refutes a rule, if the result in real numbers is not known
PERTURBATION = 2.0**-18  # 64 times float32's rounding unit: well above accumulated rounding, far below any wrong term
_SAFETY = 4.0
_OF_LARGEST = 3.0  # fast algorithms compute intermediate numbers larger than any input or output
_FLOOR = float(np.finfo(np.float32).tiny)  # results below the normal range may be flushed to zero
_LARGEST = float(np.finfo(np.float32).max)
_NEAR_ONE = 2.0**-21  # eˣ − 1 is as inexact as 1 is, and ONNX Runtime computes a vector's last elements in another way
_DECISION = 1e-3
"""The largest tolerance on equal numbers, relative to the largest result: a comparison that a perturbation turns round
makes the perturbed result jump, and these cases are there to see how it decides."""
_COARSE = 1e-6  # of the largest result on wide inputs, where kernels of Sigmoid and Erf have only absolute accuracy
_SINGLES = 4  # non-finite numbers that are looked at one by one if a finite result is lost


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
      decides: whether an operator of the graphs has a result that jumps.
    """

    mismatch: FloatMismatch | None
    spreads_nonfinite: bool
    cases: int
    error: float
    decides: bool = False

    @property
    def rounds(self) -> bool:
        """Whether the graphs may differ by rounding alone: in finite numbers that do not jump."""
        found = self.mismatch
        return found is not None and not self.decides and math.isfinite(found.source) and math.isfinite(found.target)


@dataclass(frozen=True)
class _Agreement:
    spreads: bool
    error: float


class _Measure:
    """What the error of each element is measured by."""

    def __init__(self, rounding: Rounding, outputs: int) -> None:
        self.rounding = rounding
        self._ordinary = [0.0] * outputs  # the largest tolerances on numbers of ordinary size

    def tolerances(
        self, own: Sequence[npt.NDArray[np.float64]], *, ordinary: bool
    ) -> Sequence[npt.NDArray[np.float64]]:
        """Returns the tolerances of all elements; `own` are those that follow from the accuracy of each element."""
        if self.rounding is Rounding.ELEMENT:
            return own
        largest = [_OF_LARGEST * float(each.max(initial=0.0)) for each in own]
        if ordinary:
            self._ordinary = [
                max(a, b) if math.isfinite(b) else a for a, b in zip(self._ordinary, largest, strict=True)
            ]
        largest = [max(a, b) for a, b in zip(self._ordinary, largest, strict=True)]
        return [np.full(each.shape, most) for each, most in zip(own, largest, strict=True)]


def compare_floats(
    source: Graph,
    target: Graph,
    *,
    seed: int = 0,
    rounding: Rounding = Rounding.ELEMENT,
    facts: Facts | None = None,
    weights: frozenset[str] = frozenset(),
) -> FloatComparison:
    """Runs both graphs on the same inputs and weights, unoptimised, and compares every output element.

    Args:
      seed: the seed of inputs, weights and perturbations.
      rounding: what the error of each element is measured by.
      facts: what is known of the weights. If graphs differ only where a weight of `weights` is infinite, NaN or zero,
        that it is not is added here, and the comparison goes on.
      weights: the names of the variables of a rule of which a matcher can know such facts.
    Raises:
      RefusedGraphError: if ONNX Runtime does not run one of the graphs.
    """
    sessions, facts = (FloatSession(source), FloatSession(target)), Facts() if facts is None else facts
    ordered = ordered_leaves(source) | ordered_leaves(target)
    generator = np.random.default_rng(seed)
    spreads, count, error = False, 0, 0.0
    measure = _Measure(rounding, len(source.outputs))
    for count, case in enumerate(float_cases(sessions, generator, facts=facts, rounding=rounding), start=1):
        undefined = undefined_results(sessions[0], ordered, case.feeds)
        outcome = _compare_case(*sessions, case, generator, measure, source, undefined)
        if isinstance(outcome, FloatMismatch):
            needed = _facts_needed(sessions, case, generator, measure, source, weights)
            if needed is None:
                decides = any(session.decides for session in sessions)
                return FloatComparison(outcome, spreads, count, error, decides)
            facts.finite |= needed.finite
            facts.nonzero |= needed.nonzero
            continue
        spreads, error = spreads or outcome.spreads, max(error, outcome.error)
    return FloatComparison(None, spreads, count, error)


def _facts_needed(
    sessions: tuple[FloatSession, FloatSession],
    case: FloatCase,
    generator: np.random.Generator,
    measure: _Measure,
    graph: Graph,
    weights: frozenset[str],
) -> Facts | None:
    """Returns facts on weights with which two graphs do not differ in a case; None if there are none."""
    names = {
        key: name
        for session in sessions
        for key, name in session.variables.items()
        if name in weights and key not in sessions[0].domains
    }
    infinite = [key for key, tensor in case.feeds.items() if key in names and not np.isfinite(tensor).all()]
    if infinite:
        return Facts(finite={names[key] for key in infinite})
    zeros = [key for key, tensor in case.feeds.items() if key in names and (tensor == 0).any()]
    for keys in (*([key] for key in zeros), zeros if len(zeros) > 1 else []):
        changed = {key: without_zeros(tensor) if key in keys else tensor for key, tensor in case.feeds.items()}
        outcome = _compare_case(*sessions, FloatCase(case.label, changed, case.kind), generator, measure, graph)
        if keys and not isinstance(outcome, FloatMismatch):
            return Facts(nonzero={names[key] for key in keys}, finite={names[key] for key in keys})
    return None


def _compare_case(
    source: FloatSession,
    target: FloatSession,
    case: FloatCase,
    generator: np.random.Generator,
    measure: _Measure,
    graph: Graph,
    undefined: Sequence[npt.NDArray[np.bool_]] | None = None,
) -> FloatMismatch | _Agreement:
    """Returns a mismatch, or whether the target spreads non-finite values on this case and its largest error.

    Args:
      undefined: the elements of each output that NaN leaves undefined (nan_order.py); None if there are none.
      graph: the graph of the source, which is evaluated in real numbers if the target differs on finite inputs.
    """
    expected, got = ([_as_numbers(each) for each in session.run(case.feeds)] for session in (source, target))
    own = _tolerances(source, case.feeds, expected, generator)
    tolerances = measure.tolerances(own, ordinary=case.label == ORDINARY)
    if case.kind is Kind.TIES and (source.decides or target.decides):
        tolerances = [np.minimum(t, _DECISION * _scale(a)) for t, a in zip(tolerances, expected, strict=True)]
    if case.label == WIDE:
        tolerances = [np.maximum(t, _COARSE * _scale(a)) for t, a in zip(tolerances, expected, strict=True)]
    spreads, error = False, 0.0
    for output, (a, b, tolerance) in enumerate(zip(expected, got, tolerances, strict=True)):
        if a.shape != b.shape:
            return FloatMismatch(case.label, output, (), float(a.size), float(b.size), 0.0)
        lost, hidden = np.isfinite(a) & ~np.isfinite(b), ~np.isfinite(a) & np.isfinite(b)
        with np.errstate(invalid="ignore"):  # ∞ − ∞ outside the mask of finite elements
            wrong = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) > tolerance)
        wrong |= np.isinf(a) & np.isinf(b) & (a != b)
        if case.kind is Kind.TIES:
            wrong |= lost | hidden
        elif case.kind is Kind.FINITE:
            wrong |= lost & np.isfinite(tolerance)
        else:
            wrong |= hidden & (case.has_nan or not target.has_attention)
            if lost.any():
                pads = measure.rounding is Rounding.REAL or case.nonfinite_keys <= source.contracted
                independent = _independent(source, case, output, generator)
                wrong |= lost & ~np.where(independent, pads, not _is_absorbed(source, target, case, generator))
            wrong &= np.abs(a) != _LARGEST  # ONNX Runtime's MaxPool gives this for a window of NaN
            if undefined is not None:
                wrong &= ~undefined[output]
            spreads = spreads or bool((lost & ~wrong).any())
        if case.kind is Kind.FINITE and wrong.any() and not lost[wrong].any():
            real = real_results(graph, case.feeds)
            if real is None:
                more = _tolerances(source, case.feeds, expected, generator, _MANY_PERTURBATIONS)[output]
                wrong &= np.abs(a - b) > np.maximum(tolerance, more)
            else:
                wrong &= ~not_worse(a, b, real[output])
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            return FloatMismatch(case.label, output, index, float(a[index]), float(b[index]), float(tolerance[index]))
        if case.label == ORDINARY:
            error = max(error, _relative_error(a, b))
    return _Agreement(spreads, error)


def _scale(output: Floats) -> float:
    return max(1.0, float(np.abs(output[np.isfinite(output)]).max(initial=0.0)))


def _is_absorbed(source: FloatSession, target: FloatSession, case: FloatCase, generator: np.random.Generator) -> bool:
    """Returns whether the source alone is finite in spite of all non-finite numbers, or of one of them."""

    def finite_in_source_alone(feeds: Mapping[str, Floats]) -> bool:
        there, here = ([np.isfinite(_as_numbers(each)) for each in s.run(feeds)] for s in (source, target))
        return all(each.all() for each in there) and not all(each.all() for each in here)

    if finite_in_source_alone(case.feeds):
        return True
    for key, tensor in case.feeds.items():
        places = np.flatnonzero(~np.isfinite(tensor))
        for place in generator.permutation(places)[:_SINGLES]:
            flat = _finite(tensor, generator, None).flatten()
            flat[place] = tensor.reshape(-1)[place]
            if finite_in_source_alone({**case.feeds, key: flat.reshape(tensor.shape)}):
                return True
    return False


def _finite(tensor: Floats, generator: np.random.Generator, sign: float | None) -> Floats:
    """Returns the tensor with random numbers for those that are not finite; above 1 in size if they have a sign."""
    drawn = generator.standard_normal(tensor.shape, dtype=np.float32)
    drawn = drawn if sign is None else np.float32(sign) * (np.abs(drawn) + 1)
    return np.where(np.isfinite(tensor), tensor, drawn).astype(np.float32)


def _independent(
    source: FloatSession, case: FloatCase, output: int, generator: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Returns which elements of an output stay the same whatever finite numbers replace the non-finite ones."""
    results = []
    for sign in (None, 1.0, -1.0):
        feeds = {key: _finite(tensor, generator, sign) for key, tensor in case.feeds.items()}
        results.append(_as_numbers(source.run(feeds)[output]))
    first, *others = results
    return np.logical_and.reduce([np.isclose(first, each, rtol=1e-5, atol=0.0, equal_nan=True) for each in others])


def _relative_error(a: Floats, b: Floats) -> float:
    """Returns the largest difference of finite results, relative to the largest of them in `a`."""
    finite = np.isfinite(a) & np.isfinite(b)
    largest = np.abs(a[finite]).max(initial=0.0)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / largest) if largest else 0.0


def _as_numbers(output: npt.NDArray[np.generic]) -> Floats:
    """Returns an output as floats, also if it holds truth values or integers, because the tests compare numbers."""
    return output.astype(np.float32, copy=False)


def _tolerances(
    source: FloatSession,
    feeds: Mapping[str, Floats],
    expected: Sequence[Floats],
    generator: np.random.Generator,
    perturbations: int = PERTURBATIONS,
) -> list[npt.NDArray[np.float64]]:
    """Returns the tolerance of each element of the source's outputs.

    It is a multiple of the distance that the element moves under small relative perturbations of all numbers. It is
    infinite if a perturbed result is not finite: such an element is at the edge of overflow and proves nothing.
    """
    moved = [np.zeros(output.shape) for output in expected]
    for _ in range(perturbations):
        factors = {id_: _factors(dims, generator) for id_, dims in source.results.items()}
        perturbed = {
            key: tensor if key in source.domains else _perturbed(tensor, generator) for key, tensor in feeds.items()
        }
        outputs = map(_as_numbers, source.run(perturbed, factors))
        with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, and then counted as infinite
            distances = [np.abs(a - b) for a, b in zip(outputs, expected, strict=True)]
        moved = [np.maximum(so_far, np.nan_to_num(d, nan=np.inf)) for so_far, d in zip(moved, distances, strict=True)]
    floor = _FLOOR + _NEAR_ONE * source.scale_of_one
    return [_SAFETY * distance + floor for distance in moved]


def _perturbed(tensor: Floats, generator: np.random.Generator) -> Floats:
    """Returns the tensor with small relative errors; no finite number becomes infinite."""
    with np.errstate(over="ignore"):
        moved = tensor * _factors(tensor.shape, generator)
    return np.where(np.isinf(moved), tensor, moved)


def _factors(dims: Sequence[int], generator: np.random.Generator) -> Floats:
    """Returns factors 1 + δ with |δ| up to `PERTURBATION`."""
    return (1 + PERTURBATION * generator.uniform(-1, 1, tuple(dims))).astype(np.float32)
