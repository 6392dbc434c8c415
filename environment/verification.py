"""Proves by running two models that they compute the same; if they do not, finds the rewrite that broke it.

The original without any optimisation is the oracle; the candidate runs as a user would run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort

from environment.inputs import Feeds, check_given, edge_feeds, input_specs, random_feeds, reachable_outputs, vary
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import Level, create_session

_ROUNDING_STEPS = 16
"""Differences of this many rounding steps of the largest value always pass, however small the spread is."""

Outputs = list[object]
"""The results of a session for one input set: arrays, or sequences and maps of arrays."""
_TOLERANCES: dict[int, float] = {
    onnx.TensorProto.DOUBLE: 1e-9,
    onnx.TensorProto.FLOAT: 1e-4,
    onnx.TensorProto.FLOAT16: 1e-2,
    onnx.TensorProto.BFLOAT16: 5e-2,
}
"""Tolerances by element type, in spreads of the output: roughly a thousand rounding steps, which deep networks reach
after harmless reordering."""
_QUANTISED_TOLERANCE = 5e-2
"""Tolerance of quantised models: one step of an 8-bit code is 1/128 of its range, and other rounding may flip a few."""
_REACTION = 10.0
"""An output reacts if different inputs change it by this many tolerances; an error would then be seen as well."""
_MOST_NOISE = 10.0
"""The original's own rounding noise may widen the tolerance, by at most this factor."""


@dataclass(frozen=True)
class Scale:
    """The unit in which differences of one output are measured.

    Attributes:
      spread: standard deviation of the output's values over ordinary inputs.
      tolerance: the largest difference that counts as equal, in spreads.
    """

    spread: float
    tolerance: float

    def of(self, expected: np.ndarray) -> float:
        """Returns the unit for one result: its own spread if that is larger, and never below rounding."""
        finite = expected[np.isfinite(expected)].astype(np.float64)
        if finite.size == 0:
            return 1.0
        largest = float(np.abs(finite).max())
        resolution = _ROUNDING_STEPS * float(np.finfo(expected.dtype).eps) * largest / self.tolerance
        return max(self.spread, float(finite.std()), resolution) or 1.0


def leaves(value: object) -> Iterator[np.ndarray]:
    """Yields the arrays in an output that may be a sequence or a map."""
    if isinstance(value, dict):
        yield np.asarray(list(value))
        yield np.asarray(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    elif value is not None:
        yield np.asarray(value)


def spread_of(results: Sequence[object]) -> float:
    """Returns the standard deviation of the finite floats of one output over several input sets."""
    arrays = [array.reshape(-1) for value in results for array in leaves(value) if array.dtype.kind == "f"]
    if not arrays:
        return 0.0
    values = np.concatenate([array[np.isfinite(array)].astype(np.float64) for array in arrays])
    return float(values.std()) if values.size else 0.0


def difference(expected: object, found: object, scale: Scale, noise: object = None) -> float:
    """Returns the largest difference of two values of an output, in spreads; infinite if they cannot be compared.

    The difference is infinite if a value is not finite although the expected value is. If the expected value is NaN,
    any value passes. If it is infinite, the same infinity and finite values pass: a rewrite may compute more than the
    original, never less.

    Args:
      noise: another result of the original (with other rounding); integers on which the two disagree are not compared.
    """
    first, second = list(leaves(expected)), list(leaves(found))
    third = list(leaves(noise)) if noise is not None else first
    if len(first) != len(second):
        return np.inf
    if len(third) != len(first):
        third = first
    return max((_array_difference(*arrays, scale) for arrays in zip(first, second, third, strict=True)), default=0.0)


def _array_difference(expected: np.ndarray, found: np.ndarray, noise: np.ndarray, scale: Scale) -> float:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return np.inf
    if expected.dtype.kind != "f":
        stable = expected == noise if noise.shape == expected.shape else np.full(expected.shape, True)
        return np.inf if np.any((expected != found) & stable) else 0.0
    compared = np.isfinite(expected)
    if np.any(compared & ~np.isfinite(found)) or np.any(np.isinf(expected) & np.isnan(found)):
        return np.inf
    if np.any(np.isinf(expected) & np.isinf(found) & (expected != found)):
        return np.inf
    gaps = np.abs(expected[compared].astype(np.float64) - found[compared].astype(np.float64))
    return float(gaps.max() / scale.of(expected)) if gaps.size else 0.0


@dataclass(frozen=True)
class OutputComparison:
    """One output: its name, the largest difference in spreads, the tolerance, and whether it reacts to inputs."""

    name: str
    largest_difference: float
    tolerance: float
    reacts: bool


@dataclass(frozen=True)
class Verification:
    """The result of running both models.

    Attributes:
      equal: whether every output agrees within its tolerance on every input set.
      largest_difference: largest difference of the output that is worst in relation to its tolerance, over all input
        sets, in standard deviations of the output's values.
      tolerance: largest allowed difference of that output, in the same unit.
      reacts: whether every output that depends on the inputs changes with them. If not, nothing was proved: see
        `reason`.
      outputs: the same for each output.
      num_inputs: number of input sets on which both models were compared.
      reason: empty if the models are proved equal, else one sentence that says why not.
    """

    equal: bool
    largest_difference: float
    tolerance: float
    reacts: bool
    outputs: tuple[OutputComparison, ...] = ()
    num_inputs: int = 0
    reason: str = ""


def verify(
    original: CheckedModel,
    candidate: CheckedModel,
    *,
    seed: int = 0,
    num_inputs: int = 4,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> Verification:
    """Runs both models on random and edge-case inputs in ONNX Runtime and compares every output.

    Args:
      original: the oracle, run without optimisations.
      candidate: a model of the same inputs and outputs, run with ONNX Runtime's default optimisations.
      seed: the seed of the random inputs.
      num_inputs: number of random input sets, at least two; edge cases (zeros, ones, very large …) are added to them.
      inputs: arrays by input name to use instead, with variations of them: one set, or several along a first axis.
    Raises:
      ModelError: `inputs` do not fit, or ONNX Runtime cannot load the original.
    """
    return _Oracle(original, seed, num_inputs, inputs).verify(candidate)


def find_first_bad_rewrite(
    original: CheckedModel,
    export: Callable[[int], CheckedModel],
    num_rewrites: int,
    *,
    seed: int = 0,
    num_inputs: int = 4,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> int:
    """Finds by bisection the number of rewrites after which outputs first differ.

    Args:
      export: a function that returns the model after the first `n` rewrites; if it raises, the model counts as broken.
      num_rewrites: number of rewrites; the model after all of them is known to be wrong.
      seed, num_inputs, inputs: as for `verify`.
    Returns:
      k in [1, num_rewrites] if the k-th rewrite broke the model; 0 if it differs already before the first rewrite.
    """
    oracle = _Oracle(original, seed, num_inputs, inputs)

    def is_bad(count: int) -> bool:
        try:
            return not oracle.verify(export(count)).equal
        except (ValueError, RuntimeError):
            return True

    if is_bad(0):
        return 0
    good, bad = 0, num_rewrites
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if is_bad(middle) else (middle, bad)
    return bad


class _Oracle:
    """The original's outputs on a fixed list of input sets."""

    def __init__(
        self, original: CheckedModel, seed: int, num_inputs: int, inputs: Mapping[str, np.ndarray] | None
    ) -> None:
        self._original = original
        self._names = [output.name for output in self._original.skeleton.graph.output]
        rng = np.random.default_rng(seed)
        specs = input_specs(self._original)
        if inputs is None:
            ordinary, edges = [random_feeds(specs, rng) for _ in range(max(num_inputs, 2))], edge_feeds(specs, rng)
        else:
            given = check_given(specs, inputs)
            ordinary, edges = [*given, *(vary(given[0], rng) for _ in range(max(num_inputs - len(given), 1)))], []
        session = create_session(self._original, "disabled")
        self._error = ""
        self._ordinary = self._run_all(session, ordinary)
        self._runs = self._ordinary + self._run_all(session, edges)
        self._deterministic = bool(self._ordinary) and self._repeats(session)
        self._tolerance = tolerance = _tolerance(self._original)
        results = list(zip(*(outputs for _, outputs in self._ordinary), strict=True))
        self._scales = [Scale(spread_of(values), tolerance) for values in results]
        depends = reachable_outputs(self._original, [spec.name for spec in specs])
        self._reacts = [
            name not in depends or _moves(values, scale)
            for name, values, scale in zip(self._names, results, self._scales, strict=False)
        ]

    def verify(self, candidate: CheckedModel) -> Verification:
        """Compares a candidate with the original."""
        tolerance = self._tolerance
        if not self._ordinary:
            return Verification(False, np.inf, tolerance, False, reason=self._nothing_ran())
        if not self._deterministic:
            return Verification(False, np.inf, tolerance, False, reason=_RANDOM)
        try:
            onnx.checker.check_model(candidate.for_onnx())
            found = self._results("all", candidate)
        except (ModelError, onnx.checker.ValidationError) as error:
            return Verification(False, np.inf, tolerance, all(self._reacts), reason=one_paragraph(error))
        return self._compare(found)

    def _compare(self, found: list[Outputs]) -> Verification:
        gaps = self._gaps(found)
        allowed = [scale.tolerance for scale in self._scales]
        if any(gap > limit for gap, limit in zip(gaps, allowed, strict=True)):
            gaps, allowed = self._second_look(found)
        outputs = tuple(OutputComparison(*each) for each in zip(self._names, gaps, allowed, self._reacts, strict=True))
        wrong = [each for each in outputs if not each.largest_difference <= each.tolerance]
        still = [each for each in outputs if not each.reacts]
        worst = max(outputs, key=lambda each: each.largest_difference / each.tolerance)
        return Verification(
            equal=not wrong,
            largest_difference=worst.largest_difference,
            tolerance=worst.tolerance,
            reacts=not still,
            outputs=outputs,
            num_inputs=len(found),
            reason=_reason(wrong, still),
        )

    def _gaps(self, found: list[Outputs], noise: list[Outputs] | None = None) -> list[float]:
        """Returns the largest difference of each output over all input sets."""
        gaps = [0.0] * len(self._names)
        for run, (_, expected) in enumerate(self._runs):
            for i, scale in enumerate(self._scales):
                other = None if noise is None else noise[run][i]
                gaps[i] = max(gaps[i], difference(expected[i], found[run][i], scale, other))
        return gaps

    def _second_look(self, found: list[Outputs]) -> tuple[list[float], list[float]]:
        """Returns differences and tolerances that allow for the original's own sensitivity to rounding.

        ONNX Runtime's optimisations change the rounding of the original. If that alone changes an output, or flips an
        integer such as an arg-max between ties, a candidate cannot be expected to agree more closely.
        """
        noise = self._results("all", self._original)
        own = self._gaps(noise)
        allowed = [
            scale.tolerance * min(max(1.0, 3.0 * gap / scale.tolerance), _MOST_NOISE)
            for gap, scale in zip(own, self._scales, strict=True)
        ]
        return self._gaps(found, noise), allowed

    def _results(self, level: Level, model: CheckedModel) -> list[Outputs]:
        """Returns a model's outputs on every input set. Its session, with a copy of the weights, ends with this."""
        session = create_session(model, level)
        return [self._run(session, feeds) for feeds, _ in self._runs]

    def _run_all(self, session: ort.InferenceSession, feeds: list[Feeds]) -> list[tuple[Feeds, Outputs]]:
        """Returns (feeds, outputs) of the input sets that the original accepts; it may well not accept an edge case."""
        runs = []
        for each in feeds:
            try:
                runs.append((each, self._run(session, each)))
            except ModelError as error:
                self._error = str(error)
        return runs

    def _run(self, session: ort.InferenceSession, feeds: Feeds) -> Outputs:
        try:
            return list(session.run(self._names, feeds))
        except Exception as error:  # ONNX Runtime's exceptions share no public base class
            raise ModelError(f"ONNX Runtime cannot run the model: {one_paragraph(error)}") from error

    def _repeats(self, session: ort.InferenceSession) -> bool:
        feeds, outputs = self._ordinary[0]
        exact = Scale(0.0, 1.0)
        again = self._run(session, feeds)
        return all(difference(first, second, exact) <= 1e-6 for first, second in zip(outputs, again, strict=True))

    def _nothing_ran(self) -> str:
        return f"the original runs on none of the inputs ({self._error}); give real ones with --inputs file.npz"


_RANDOM = "the original returns other values each time it runs, so its outputs cannot be compared"


def _moves(values: tuple[object, ...], scale: Scale) -> bool:
    """Returns whether an output differs clearly between input sets, or has no elements that could differ."""
    if all(array.size == 0 for value in values for array in leaves(value)):
        return True
    return any(difference(values[0], other, scale) > _REACTION * scale.tolerance for other in values[1:])


def _reason(wrong: list[OutputComparison], still: list[OutputComparison]) -> str:
    if wrong:
        worst = max(wrong, key=lambda each: each.largest_difference / each.tolerance)
        return (
            f"the output '{worst.name}' differs by {worst.largest_difference:.2e} of its spread, "
            f"{worst.tolerance:.0e} is allowed"
        )
    if still:
        names = ", ".join(f"'{each.name}'" for each in still)
        return f"cannot verify: {names} did not react to the inputs; give real ones with --inputs file.npz"
    return ""


def _tolerance(model: CheckedModel) -> float:
    """Returns the tolerance of the coarsest arithmetic in a model."""
    graph = model.skeleton.graph
    if any("Quantize" in node.op_type or "QLinear" in node.op_type for node in graph.node):
        return _QUANTISED_TOLERANCE
    used = {tensor.dtype.value for tensor in (*model.tensors.values(), *model.defaults.values())}
    used |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    used |= {each.i for node in graph.node if node.op_type == "Cast" for each in node.attribute}
    default = _TOLERANCES[onnx.TensorProto.FLOAT]
    return max((_TOLERANCES[dtype] for dtype in used if dtype in _TOLERANCES), default=default)
