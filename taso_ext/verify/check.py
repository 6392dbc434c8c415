"""Verification of one rewrite rule on random instances of its source.

The engine rewrites every instance. Two evaluators then compare the graphs before and after: in prime fields and in ONNX
Runtime.

rules = RuleSet.default()
for index in range(len(rules)):
    verification = verify_rule(rules, index)
    if not verification.ok:
        raise SystemExit(str(verification))
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from taso_ext._core import CostModel, Graph, RuleSet, State
from taso_ext.verify.exact.evaluation import element_count, leaves_of
from taso_ext.verify.exact.fields import NotInvertibleError
from taso_ext.verify.exact.finite_field import TooLargeError, compare_exactly
from taso_ext.verify.exact.points import ERROR_BITS, FEWEST_SHAPES, MOST_POINTS, THOROUGH_POINTS
from taso_ext.verify.graph_text import graph_text
from taso_ext.verify.numeric.differential import compare_floats
from taso_ext.verify.numeric.discrete import find_discrete_difference, is_discrete, is_of_truths
from taso_ext.verify.numeric.float_cases import Facts
from taso_ext.verify.numeric.float_session import RefusedGraphError
from taso_ext.verify.numeric.other_dtypes import DTYPES, agree_in, differ_in_reference
from taso_ext.verify.rule_file import Rounding, is_normwise
from taso_ext.verify.rule_reader import RuleText, read_rule
from taso_ext.verify.valued_operands import valued_variables

DEFAULT_INSTANCES = 16
COST_MODEL = "rtx2070"  # any device will do, because prices do not decide whether a rewrite is legal
_DRAWS_PER_INSTANCE = 2  # the engine itself searches for dimensions that fit; a second draw helps only rarely
MOST_GLANCED = 1 << 25
"""The most elements of all graphs that are only glanced at: enough for 1000 small graphs, or for fewer large ones."""
MOST_ELEMENTS = 1 << 25
"""The most elements of all values of a rewrite, before and after it, because they are held in memory: 1 GB or less. A
larger rewrite is not compared."""
MOST_SECONDS = 900.0
"""The time after which a rule counts as one that cannot be verified, looked at between two comparisons."""
_PATIENCE = 3  # drawing stops when this many more draws have failed than succeeded


@dataclass(frozen=True)
class Counterexample:
    """A rewrite that changed the function.

    Attributes:
      instance_seed: the seed of the source graph, `rules.instance(index, instance_seed)`; its position among the graphs
        if the caller gave them.
      location: where in the source graph the rule was applied.
      stage: the test that failed, "exact", "differential" or, on truth values and integers, "discrete".
      reason: the element that differs and its two values, or why a graph cannot be evaluated.
      rounds: whether two finite floats differ, so that they may differ by rounding alone.
      source, target: both graphs as text, one operator per line.
    """

    instance_seed: int
    location: int
    stage: str
    reason: str
    source: str
    target: str
    rounds: bool = False

    def __str__(self) -> str:
        return (
            f"in the {self.stage} test of instance {self.instance_seed} rewritten at location {self.location}, "
            f"{self.reason}\n--- source\n{self.source}\n--- target\n{self.target}"
        )


@dataclass
class RuleVerification:
    """The checks of one rule and the first one that failed.

    Attributes:
      rule: the name of the rule.
      instances: hashes of the distinct source graphs that were rewritten and on which the exact test's error bound is
        below 2^−60. The bound is larger on some small graphs that decide by many signs.
      rewrites: the number of rewritten graphs that were compared; an instance may offer several locations.
      error_bits: different graphs would pass the test in prime fields with probability below 2^−error_bits.
      real_instances: hashes of those of the graphs that were compared in real numbers, because the prime fields have
        only random functions for some of their operators.
      whole_instances: hashes of the distinct source graphs on truth values or integers that were run on these.
      float_instances: hashes of the distinct source graphs that were also compared in ONNX Runtime.
      float_cases: the number of inputs of all comparisons in ONNX Runtime.
      float_error: the largest difference in ONNX Runtime, relative to the largest result.
      spreads_nonfinite: whether an infinity or NaN in an input reaches more results in the target than in the source,
        as with zero-padded kernels (0·∞ is NaN). This does not concern finite inputs.
      measure: what the error of each element was measured by.
      facts: what the rule needs to know of its weights; a matcher has to refuse other weights.
      dtypes: the names of the floating element types in which the rule also keeps the function, besides float32.
      counterexample: the first rewrite that changed the function; None if every rewrite kept it.
      hindrance: why the rule cannot be verified; empty if it can.
    """

    rule: str
    instances: set[str] = field(default_factory=set)
    rewrites: int = 0
    error_bits: float = math.inf
    real_instances: set[str] = field(default_factory=set)
    whole_instances: set[str] = field(default_factory=set)
    float_instances: set[str] = field(default_factory=set)
    float_cases: int = 0
    float_error: float = 0.0
    spreads_nonfinite: bool = False
    measure: Rounding = Rounding.ELEMENT
    facts: Facts = field(default_factory=Facts)
    dtypes: frozenset[str] = frozenset()
    counterexample: Counterexample | None = None
    hindrance: str = ""

    @property
    def ok(self) -> bool:
        """Whether the rule applied at least once and never changed a function."""
        return self.counterexample is None and self.rewrites > 0 and not self.hindrance

    def __str__(self) -> str:
        if self.counterexample is not None:
            return f"rule {self.rule!r} changes the function: {self.counterexample}"
        if self.hindrance:
            return f"rule {self.rule!r} cannot be verified: {self.hindrance}"
        return (
            f"rule {self.rule!r} kept the function in {self.rewrites} rewrites of {len(self.instances)} instances, "
            f"on {self.float_cases} float inputs"
        )


class _Rewrite(NamedTuple):
    instance_seed: int
    ordinal: int  # number of the instance among those that were rewritten, from 0
    source: Graph
    location: int
    target: Graph

    @property
    def size(self) -> int:
        """The number of elements of all tensors of both graphs."""
        return element_count(self.source) + element_count(self.target)


@dataclass
class _Obstacles:
    """What kept rewrites of a rule from being compared.

    Attributes:
      divides_by_zero: a source divides by zero at every point, as a norm of one element may, which proves nothing.
      largest: elements of the largest rewrite that was too large; 0 if none was.
      unrunnable: why ONNX Runtime could not run the last source that it could not run.
    """

    divides_by_zero: bool = False
    largest: int = 0
    unrunnable: str = ""

    @contextlib.contextmanager
    def noted(self, rewrite: _Rewrite) -> Iterator[None]:
        """Notes what keeps a rewrite from being compared, and lets the context end there."""
        try:
            yield
        except NotInvertibleError:
            self.divides_by_zero = True
        except TooLargeError:
            self.largest = max(self.largest, rewrite.size)
        except UnrunnableSourceError as error:
            self.unrunnable = str(error.__cause__)

    def reason(self) -> str:
        """Returns why none of the rewrites could be compared; empty if nothing was noted."""
        if self.divides_by_zero:
            return "its source divides by zero on every random instance, so that there is nothing to compare"
        if self.largest:
            return (
                f"its tensors have {self.largest:.0e} elements together, and at most {MOST_ELEMENTS:.0e} are compared"
            )
        return self.unrunnable


def verify_rule(
    rules: RuleSet,
    index: int,
    *,
    instances: int = DEFAULT_INSTANCES,
    float_instances: int | None = None,
    glances: int = 0,
    other_types: bool = True,
    seed: int = 0,
    sources: Iterable[Graph] | None = None,
    dtypes: Mapping[str, int] | None = None,
    observe: Callable[[Graph], None] | None = None,
    seconds: float = MOST_SECONDS,
    measure: Rounding = Rounding.ELEMENT,
) -> RuleVerification:
    """Tests rule `index` of `rules` on random instances of its source, at every location where it is legal.

    If the rule's proof says `rounding(normwise)`, its sides need to be equal in real arithmetic only: the target may
    round more.

    Args:
      instances: the number of graphs to rewrite; the engine draws their dimensions and attributes.
      float_instances: how many of these graphs are also compared in ONNX Runtime; all by default.
      glances: the number of further graphs, which are compared at only one random point in each field and have at most
        MOST_GLANCED elements together. A mistake that shows only if extents are equal by chance may show in one of a
        hundred graphs.
      other_types: whether to find the further element types in which the rule holds, which takes most of the time.
      seed: the seed of the instances and of all tensor data.
      sources: graphs to rewrite instead of the engine's; graphs in which the rule does not apply are skipped.
      dtypes: the element types of the engine's graphs, by variable; float if it is not named.
      observe: a function that is called with every source graph that was compared.
      seconds: the most time to take; a rule that needs more is not verified.
      measure: what to measure the error of each element by, if the rule's proof does not say it.
    Returns:
      The checks and their results; testing stops at the first counterexample.
    Raises:
      IndexError: if there is no rule `index`.
      UnsupportedOperatorError: if the rule contains a random operator or a form that the evaluator does not know.
    """
    measure = Rounding.REAL if is_normwise(rules.proof(index)) else measure
    result = RuleVerification(rules.names[index], measure=measure)
    drawn = _random_instances(rules, index, instances + glances, seed, dtypes or {})
    numbered = drawn if sources is None else enumerate(sources)
    floats = instances if float_instances is None else float_instances
    weights, obstacles = _single_weights(rules.text(index)), _Obstacles()
    glanced, deadline = 0, time.monotonic() + seconds
    for rewrite in _rewrites(rules, index, numbered, instances + glances):
        glance = rewrite.ordinal >= instances
        if rewrite.size > MOST_ELEMENTS:
            obstacles.largest = max(obstacles.largest, rewrite.size)
            continue
        if time.monotonic() > deadline:
            result.hindrance = f"it takes more than {seconds:g} seconds; declare smaller extents, or fewer free ones"
            return result
        glanced += glance * rewrite.size
        if glanced > MOST_GLANCED:
            break
        with obstacles.noted(rewrite):
            result.counterexample = _find_counterexample(rewrite, result, weights, 0 if glance else floats, glance)
            result.rewrites += 1
            if observe is not None:
                observe(rewrite.source)
        if result.counterexample is not None:
            break
    valued = valued_variables(read_rule(rules.text(index)))  # only a runtime confirms that their elements are valid
    if not result.rewrites:
        result.hindrance = obstacles.reason() or _hindrance(rules, index)
    elif result.ok and floats and valued and not result.float_instances | result.whole_instances:
        unrunnable = obstacles.unrunnable
        result.hindrance = f"ONNX Runtime ran none of its graphs{unrunnable and ': ' + unrunnable}"
    elif result.ok and floats and other_types:
        base = dtypes or {}
        result.dtypes = frozenset(name for name in DTYPES if _keeps_function_in(name, rules, index, seed, base, result))
    return result


def _single_weights(text: str) -> frozenset[str]:
    """Returns the names of the variables of a rule that stand for one weight each."""
    variables = read_rule(text).variables.values()
    return frozenset(v.term.name for v in variables if v.origin == "weight" and not v.term.starred)


_DTYPE_INSTANCES = 4
"""The graphs on which a rule is compared in every further element type; onnx.reference is slow."""
_DTYPE_DRAWS = 24


def _keeps_function_in(
    dtype: str, rules: RuleSet, index: int, seed: int, dtypes: Mapping[str, int], result: RuleVerification
) -> bool:
    """Returns whether a rule keeps the function of some graphs of another element type, and of all that were drawn."""
    names = floating_variables(read_rule(rules.text(index)), dtypes)
    given = {**dtypes, **dict.fromkeys(names, DTYPES[dtype])}
    sources: list[tuple[int, Graph]] = []
    for number in range(_DTYPE_DRAWS):
        graph = rules.instance(index, seed + number, dtypes=given)
        if graph is None and not sources:  # some operator lacks the type
            return False
        if graph is not None and element_count(graph) < _MOST_IN_DTYPE:
            sources.append((number, graph))
        if len(sources) == _DTYPE_INSTANCES and not any(_known_sizes(each) for _, each in sources):
            break
    rewrites = list(_rewrites(rules, index, _extremes_first(sources), _DTYPE_INSTANCES))
    return bool(rewrites) and all(
        agree_in(dtype, rewrite.source, rewrite.target, seed=rewrite.instance_seed, facts=result.facts)
        for rewrite in rewrites
    )


def _extremes_first(sources: list[tuple[int, Graph]]) -> list[tuple[int, Graph]]:
    """Returns the graphs in order, but first those with the smallest and with the largest known constant."""
    by_size = sorted((pair for pair in sources if _known_sizes(pair[1])), key=lambda pair: min(_known_sizes(pair[1])))
    first = [*by_size[:1], *by_size[1:][-1:]]
    return [*first, *(pair for pair in sources if pair not in first)]


def _known_sizes(graph: Graph) -> list[float]:
    """Returns the sizes of the known constants of a graph that are not zero; they may overflow in narrow types."""
    contents = (value.content for value in leaves_of(graph).values())
    return [abs(each) for each in contents if isinstance(each, float) and each]


def floating_variables(rule: RuleText, dtypes: Mapping[str, int]) -> list[str]:
    """Returns the names of the variables that are tested with floats, if `dtypes` gives some of them other types.

    Operands whose elements have to lie in a domain have types of their own.
    """
    names = [name for name in rule.variables if dtypes.get(name, TensorProto.FLOAT) == TensorProto.FLOAT]
    return [name for name in names if name not in valued_variables(rule)]


_MOST_IN_DTYPE = 1 << 16
"""The most elements of a graph that onnx.reference evaluates."""


def _hindrance(rules: RuleSet, index: int) -> str:
    misfit = rules.misfit(index)
    if misfit is not None:
        place = ":".join(map(str, misfit))
        return f"{place}: no shapes and attributes fit this statement beside those before it; check what `var` declares"
    return (
        "it applies to none of its random instances; check whether its conditions can hold, and whether its target "
        "has the types of what it replaces"
    )


def _random_instances(
    rules: RuleSet, index: int, instances: int, seed: int, dtypes: Mapping[str, int]
) -> Iterator[tuple[int, Graph]]:
    first, balance = seed * instances * _DRAWS_PER_INSTANCE, _PATIENCE
    for instance_seed in range(first, first + instances * _DRAWS_PER_INSTANCE):
        source = rules.instance(index, instance_seed, dtypes=dtypes)
        balance += -1 if source is None else 1
        if source is not None:
            yield instance_seed, source
        if balance == 0:  # each failure is thousands of tries: a rule that hardly ever applies would take minutes
            return


def _rewrites(rules: RuleSet, index: int, sources: Iterable[tuple[int, Graph]], instances: int) -> Iterator[_Rewrite]:
    """Yields the rewrites of the first `instances` numbered graphs in which the rule is legal somewhere."""
    cost_model, found = CostModel.roofline(COST_MODEL), 0
    for number, source in sources:
        state = State(source, rules, cost_model)
        locations = np.flatnonzero(state.location_mask()[index])
        for location in locations:
            stepped = state.copy()
            stepped.step(index, int(location))
            yield _Rewrite(number, found, source, int(location), stepped.graph)
        found += bool(locations.size)
        if found == instances:
            return


def _find_counterexample(
    rewrite: _Rewrite, result: RuleVerification, weights: frozenset[str], float_instances: int, glance: bool
) -> Counterexample | None:
    """Runs both tests on one rewrite, the exact one first, and records their findings in `result`.

    Graphs on integers are run on integers instead, and graphs on truth values are run in onnx.reference.

    Raises:
      NotInvertibleError: if the source divides by zero at every point, and the graphs do not differ in ONNX Runtime.
    """
    discrete = is_discrete(rewrite.source)
    if discrete:
        result.whole_instances.add(rewrite.source.hash)
    if discrete and not is_of_truths(rewrite.source):
        return _discrete_counterexample(rewrite)
    most_points = THOROUGH_POINTS if len(result.instances) < FEWEST_SHAPES else MOST_POINTS
    try:
        agreement = compare_exactly(
            rewrite.source, rewrite.target, seed=rewrite.instance_seed, most_points=1 if glance else most_points
        )
    except NotInvertibleError:
        found = None if glance or discrete else _compare_in_floats(rewrite, result, weights)
        if found is None:
            raise
        return found
    if agreement.mismatch is not None:
        return _counterexample(rewrite, "exact", str(agreement.mismatch))
    if agreement.error_bits >= ERROR_BITS:
        result.instances.add(rewrite.source.hash)
        result.real_instances |= {rewrite.source.hash} if agreement.in_reals else set()
        result.error_bits = min(result.error_bits, agreement.error_bits)
    if glance or (len(result.float_instances) >= float_instances and rewrite.source.hash not in result.float_instances):
        return None
    if discrete:
        result.float_instances.add(rewrite.source.hash)
        return _discrete_counterexample(rewrite)
    found = _compare_in_floats(rewrite, result, weights)
    result.float_instances.add(rewrite.source.hash)
    return found


def _compare_in_floats(rewrite: _Rewrite, result: RuleVerification, weights: frozenset[str]) -> Counterexample | None:
    try:
        seed = rewrite.instance_seed
        comparison = compare_floats(
            rewrite.source,
            rewrite.target,
            seed=seed,
            rounding=result.measure,
            facts=result.facts,
            weights=weights,
        )
    except RefusedGraphError as error:
        if _is_refused(rewrite.source):
            raise UnrunnableSourceError from error
        return _counterexample(rewrite, "differential", str(error))
    result.float_cases += comparison.cases
    result.float_error = max(result.float_error, comparison.error)
    result.spreads_nonfinite |= comparison.spreads_nonfinite
    if comparison.mismatch is not None:
        return _counterexample(rewrite, "differential", str(comparison.mismatch), comparison.rounds)
    graphs = rewrite.source, rewrite.target
    has_halves = any(value.dtype in _HALVES for graph in graphs for value in graph.values().values())
    if has_halves and not agree_in("float", *graphs, seed=seed, facts=result.facts):
        return _counterexample(rewrite, "differential", "onnx.reference gives other results, or cannot run the graphs")
    asked = len(result.float_instances) < _DTYPE_INSTANCES and not has_halves and result.measure is not Rounding.REAL
    if (
        asked
        and element_count(rewrite.source) < _MOST_IN_DTYPE
        and differ_in_reference(*graphs, seed=seed, facts=result.facts)
    ):
        return _counterexample(
            rewrite, "differential", "onnx.reference gives other results on numbers of ordinary size"
        )
    return None


_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
"""Element types that ONNX Runtime silently computes in float32, so that onnx.reference has to judge them too."""


class UnrunnableSourceError(ValueError):
    """ONNX Runtime does not run the source of a rewrite, so that no model that it runs has such a match."""


def _is_refused(graph: Graph) -> bool:
    """Returns whether ONNX Runtime does not run a graph, whatever it is compared with."""
    try:
        compare_floats(graph, graph)
    except RefusedGraphError:
        return True
    return False


def _discrete_counterexample(rewrite: _Rewrite) -> Counterexample | None:
    try:
        difference = find_discrete_difference(rewrite.source, rewrite.target, seed=rewrite.instance_seed)
    except RefusedGraphError as error:
        difference = str(error)
    return _counterexample(rewrite, "discrete", difference) if difference else None


def _counterexample(rewrite: _Rewrite, stage: str, reason: str, rounds: bool = False) -> Counterexample:
    texts = graph_text(rewrite.source), graph_text(rewrite.target)
    return Counterexample(rewrite.instance_seed, rewrite.location, stage, reason, *texts, rounds)
