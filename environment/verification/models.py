"""Proves by running two models that they compute the same; if they do not, finds the rewrite that broke it.

The original without any optimisation is the oracle. The candidate runs as a user would run it, with ONNX Runtime's
default optimisations, or without them if neither model runs with them. If it differs by more than the tolerance,
rounding may be the cause, because some models amplify it. A second look then takes two steps:

* The candidate is compared without ONNX Runtime's optimisations, so that their rounding is not blamed on the rewrites.
* Its rounding is judged by the exact result: onnx.reference evaluates the original in double precision. A candidate may
  be as far from that as the original is, times `ROUNDING_FACTOR`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import onnx
import onnxruntime as ort

from environment.inputs import Feeds, check_given, edge_feeds, input_specs, random_feeds, reachable_outputs, vary
from environment.verification.differences import Outputs, Scale, difference, leaves, rounded_like, spread_of
from environment.verification.reference import Reference, is_quantised
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import Level, create_session

ONNX_RUNTIME, ONNX_REFERENCE = "ONNX Runtime", "onnx.reference"
"""Where models run to be compared."""
ROUNDING_FACTOR = 3.0
"""A candidate may be as far from the exact result as the original is, times this factor."""
_MOST_ROUNDING, _MOST_ROUNDING_SPREADS = 30.0, 0.1
"""If rounding moves the original by more than this many tolerances, or by more than this many spreads, the tolerance is
not widened: what the original returns is then its rounding rather than a result."""
_RUNTIME_FACTOR = 30.0
"""ONNX Runtime's optimisations may move a candidate by this many tolerances if it agrees without them."""
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
_RANDOM = "the original returns other values each time it runs, so its outputs cannot be compared"
_NOTHING_RAN = (
    "the original runs on none of the inputs ({}); give real ones with --inputs file.npz if they are at fault"
)


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
      comparable: whether the original gives results to compare with: it runs, and gives the same ones again.
      runs_in: where both models ran: "ONNX Runtime", or "onnx.reference" if the former cannot run the original; empty
        if that cannot either.
      reacts: whether every output that depends on the inputs changes with them. If not, nothing was proved: see
        `reason`.
      outputs: the same for each output.
      num_inputs: number of input sets on which both models were compared.
      reason: empty if the models are proved equal, else one sentence that says why not.
    """

    equal: bool
    largest_difference: float
    tolerance: float
    comparable: bool
    reacts: bool
    outputs: tuple[OutputComparison, ...] = ()
    num_inputs: int = 0
    reason: str = ""
    runs_in: str = ONNX_RUNTIME


def verify(
    original: CheckedModel,
    candidate: CheckedModel,
    *,
    seed: int = 0,
    num_inputs: int = 4,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> Verification:
    """Runs both models on random and edge-case inputs and compares every output.

    Both run in ONNX Runtime or, if that cannot run the original, in onnx.reference.

    Args:
      original: the oracle, run without optimisations.
      candidate: a model of the same inputs and outputs, run with ONNX Runtime's default optimisations.
      seed: the seed of the random inputs.
      num_inputs: number of random input sets, at least two; edge cases (zeros, ones, very large …) are added to them.
      inputs: arrays by input name to use instead, with variations of them: one set, or several along a first axis.
    Raises:
      ModelError: `inputs` do not fit.
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


class _Runner(Protocol):
    """A loaded model."""

    def run(self, names: list[str], feeds: Feeds) -> Outputs:
        """Returns the named outputs; raises ModelError if the model does not run on these inputs."""


class _Run(NamedTuple):
    feeds: Feeds
    outputs: Outputs


class _Session:
    """A model in ONNX Runtime."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    def run(self, names: list[str], feeds: Feeds) -> Outputs:
        try:
            return list(self._session.run(names, feeds))
        except Exception as error:  # ONNX Runtime's exceptions share no public base class
            raise ModelError(f"ONNX Runtime cannot run the model: {one_paragraph(error)}") from error


def _load(model: CheckedModel, level: Level, where: str) -> _Runner:
    return _Session(create_session(model, level)) if where == ONNX_RUNTIME else Reference(model)


class _Oracle:
    """The original's outputs on a fixed list of input sets."""

    def __init__(
        self, original: CheckedModel, seed: int, num_inputs: int, inputs: Mapping[str, np.ndarray] | None
    ) -> None:
        self._original = original
        self._names = [output.name for output in self._original.skeleton.graph.output]
        self._refusals: list[str] = []
        typical, atypical = self._runs_of_original(np.random.default_rng(seed), num_inputs, inputs)
        runs = typical + atypical
        self._feeds, self._expected = [run.feeds for run in runs], [run.outputs for run in runs]
        results = list(zip(*(run.outputs for run in typical), strict=True))
        self._tolerance = tolerance = _tolerance(self._original)
        self._scales = [Scale(spread_of(values), tolerance) for values in results]
        depends = reachable_outputs(self._original, list(self._feeds[0]) if runs else [])
        self._reacts = [
            name not in depends or _moves(values, scale)
            for name, values, scale in zip(self._names, results, self._scales, strict=False)
        ]

    def verify(self, candidate: CheckedModel) -> Verification:
        """Compares a candidate with the original."""
        tolerance = self._tolerance
        if not self._feeds:
            reason = _NOTHING_RAN.format("; ".join(self._refusals))
            return Verification(False, np.inf, tolerance, False, False, reason=reason, runs_in="")
        if not self._repeats:
            return Verification(False, np.inf, tolerance, False, False, reason=_RANDOM, runs_in=self._runs_in)
        try:
            onnx.checker.check_model(candidate.for_onnx())
            gaps, allowed = self._compared(candidate)
        except (ModelError, onnx.checker.ValidationError) as error:
            return Verification(False, np.inf, tolerance, True, all(self._reacts), reason=one_paragraph(error))
        outputs = tuple(OutputComparison(*each) for each in zip(self._names, gaps, allowed, self._reacts, strict=True))
        wrong = [each for each in outputs if not each.largest_difference <= each.tolerance]
        still = [each for each in outputs if not each.reacts]
        worst = max(outputs, key=lambda each: each.largest_difference / each.tolerance)
        return Verification(
            equal=not wrong,
            largest_difference=worst.largest_difference,
            tolerance=worst.tolerance,
            comparable=True,
            reacts=not still,
            outputs=outputs,
            num_inputs=len(self._feeds),
            runs_in=self._runs_in,
            reason=_reason(wrong, still),
        )

    def _compared(self, candidate: CheckedModel) -> tuple[list[float], list[float]]:
        """Returns the largest difference of each output, and the largest one that is allowed."""
        allowed = [self._tolerance] * len(self._names)
        found = self._results_for_users(candidate)
        gaps = self._gaps(self._expected, found)
        if _within(gaps, allowed):
            return gaps, allowed
        plain = self._results(candidate, "disabled")
        gaps = self._gaps(self._expected, plain)
        if _within(gaps, allowed):
            expected = self._expected
        elif any(ROUNDING_FACTOR * self._most_rounding < gap < np.inf for gap in gaps):  # integers differ infinitely
            return gaps, allowed
        else:
            expected, rounding = self._exact_results(plain)
            allowed = [max(self._tolerance, ROUNDING_FACTOR * each) for each in rounding]
            gaps = self._gaps(expected, plain, self._roundings)
            if not _within(gaps, allowed):
                return gaps, allowed
        gaps = self._gaps(expected, found, self._roundings)
        return gaps, [max(each, _RUNTIME_FACTOR * self._tolerance) for each in allowed]

    def _exact_results(self, found: list[Outputs]) -> tuple[list[Outputs], list[float]]:
        """Returns what a candidate is to be compared with, and how far rounding moves the original from there.

        The former is the exact result for the input sets on which the candidate, which returns `found`, differs. It is
        the original's own result for the others, and for outputs that cannot be evaluated exactly.
        """
        expected = [list(outputs) for outputs in self._expected]
        for run, feeds in enumerate(self._feeds):
            if self._exact is None or _within(self._gaps_of(run, found), [self._tolerance] * len(self._names)):
                continue
            try:
                exact = self._exact.run(self._names, feeds)
            except ModelError:
                continue
            expected[run] = [rounded_like(*pair) for pair in zip(exact, self._expected[run], strict=True)]
        rounding = self._rounding(expected)
        for output, moved in enumerate(rounding):
            if moved > self._most_rounding:
                for run, outputs in enumerate(self._expected):
                    expected[run][output] = outputs[output]
        return expected, [each if each <= self._most_rounding else 0.0 for each in self._rounding(expected)]

    def _rounding(self, expected: list[Outputs]) -> list[float]:
        """Returns how far the original's own results are from `expected`, for each output."""
        gaps = (self._gaps(expected, each, self._roundings) for each in self._roundings)
        return [max(each) for each in zip(*gaps, strict=True)]

    @property
    def _most_rounding(self) -> float:
        return min(_MOST_ROUNDING * self._tolerance, _MOST_ROUNDING_SPREADS)

    @cached_property
    def _roundings(self) -> list[list[Outputs]]:
        """The original's results without ONNX Runtime's optimisations and with them, which differ by rounding alone.

        There are only the former if the original does not run with optimisations.
        """
        try:
            return [self._expected, self._results(self._original, "all")]
        except ModelError:
            return [self._expected]

    @cached_property
    def _exact(self) -> Reference | None:
        """The original in double precision; None if it cannot be evaluated there."""
        try:
            return None if is_quantised(self._original) else Reference(self._original, double=True)
        except ModelError:
            return None

    def _results_for_users(self, candidate: CheckedModel) -> list[Outputs]:
        """Returns a candidate's results with ONNX Runtime's optimisations, or without them if the original fails there.

        Raises:
          ModelError: the candidate does not run where the original does.
        """
        try:
            return self._results(candidate, "all")
        except ModelError:
            if len(self._roundings) > 1:
                raise
            return self._results(candidate, "disabled")

    def _gaps(self, expected: list[Outputs], found: list[Outputs], others: Sequence[list[Outputs]] = ()) -> list[float]:
        """Returns the largest difference of each output over all input sets.

        Args:
          others: other results of the original. Integers on which they and `expected` disagree are not compared.
        """
        by_run = [self._gaps_of(run, found, expected, others) for run in range(len(self._feeds))]
        return [max(gaps) for gaps in zip(*by_run, strict=True)]

    def _gaps_of(
        self,
        run: int,
        found: list[Outputs],
        expected: list[Outputs] | None = None,
        others: Sequence[list[Outputs]] = (),
    ) -> list[float]:
        """Returns the difference of each output on one input set."""
        wanted = (self._expected if expected is None else expected)[run]
        return [
            difference(wanted[i], found[run][i], scale, [each[run][i] for each in others])
            for i, scale in enumerate(self._scales)
        ]

    def _results(self, model: CheckedModel, level: Level) -> list[Outputs]:
        """Returns a model's outputs on every input set. Its session, with a copy of the weights, ends with this."""
        runner = _load(model, level, self._runs_in)
        return [runner.run(self._names, feeds) for feeds in self._feeds]

    def _runs_of_original(
        self, rng: np.random.Generator, num_inputs: int, inputs: Mapping[str, np.ndarray] | None
    ) -> tuple[list[_Run], list[_Run]]:
        """Runs the original on the inputs of the user or on made-up ones, where it can run; see `_run_original`."""
        try:
            specs = input_specs(self._original)
            ordinary = [random_feeds(specs, rng) for _ in range(max(num_inputs, 2) if inputs is None else 0)]
        except ModelError as error:
            self._refusals.append(str(error).rstrip("."))
            return [], []
        if inputs is None:
            edges = edge_feeds(specs, rng)
        else:
            given = check_given(specs, inputs)
            ordinary, edges = [*given, *(vary(given[0], rng) for _ in range(max(num_inputs - len(given), 1)))], []
        for self._runs_in in (ONNX_RUNTIME, ONNX_REFERENCE):
            typical, atypical = self._run_original(ordinary, edges)
            if typical:
                return typical, atypical
        return [], []

    def _run_original(self, ordinary: list[Feeds], edges: list[Feeds]) -> tuple[list[_Run], list[_Run]]:
        """Runs the original on ordinary inputs and on edge cases; no runs if it accepts no ordinary ones."""
        try:
            runner = _load(self._original, "disabled", self._runs_in)
        except ModelError as error:
            self._refusals.append(str(error))
            return [], []
        runs = self._accepted(runner, ordinary)
        if not runs:
            return [], []
        again, exact = runner.run(self._names, runs[0].feeds), Scale(0.0, 1.0)
        self._repeats = all(difference(*each, exact) <= 1e-6 for each in zip(runs[0].outputs, again, strict=True))
        return runs, self._accepted(runner, edges)

    def _accepted(self, runner: _Runner, feeds: list[Feeds]) -> list[_Run]:
        """Runs the original on the input sets that it accepts; it may well not accept an edge case."""
        runs, refusal = [], ""
        for each in feeds:
            try:
                runs.append(_Run(each, runner.run(self._names, each)))
            except ModelError as error:
                refusal = str(error)
        self._refusals += [] if runs else [refusal]
        return runs


def _within(gaps: Sequence[float], allowed: Sequence[float]) -> bool:
    return all(gap <= limit for gap, limit in zip(gaps, allowed, strict=True))


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
        return f"{names} did not react to the inputs; give real ones with --inputs file.npz"
    return ""


def _tolerance(model: CheckedModel) -> float:
    """Returns the tolerance of the coarsest arithmetic in a model."""
    graph = model.skeleton.graph
    if is_quantised(model):
        return _QUANTISED_TOLERANCE
    used = {tensor.dtype.value for tensor in (*model.tensors.values(), *model.defaults.values())}
    used |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    used |= {each.i for node in graph.node if node.op_type == "Cast" for each in node.attribute}
    default = _TOLERANCES[onnx.TensorProto.FLOAT]
    return max((_TOLERANCES[dtype] for dtype in used if dtype in _TOLERANCES), default=default)
