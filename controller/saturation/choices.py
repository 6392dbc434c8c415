"""What extraction chooses from: the run-time classes of an e-graph that outputs could need, their terms and prices.

Prices are those of the engine's cost model, which is asked about graphs of one operator and of two. An operator that is
computed from weights alone is free. A pointwise operator costs less behind a producer that it is fused into, which the
model does only if nothing else reads that producer's result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from controller.saturation.egraph import Classes, Term, first_terms
from controller.saturation.vocabulary import ABSENT, Vocabulary, add_leaf, add_operator
from taso_ext import CostModel, Graph, GraphBuilder, UnpricedError

LEAST_SAVING_MS = 1e-12
"""Differences of prices below this are rounding."""


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A term that may be fused into what computes one of its operands.

    Attributes:
      term: position of the term.
      operand: class of the operand, which nothing else may read.
      producers: positions of the terms of that class that take it in.
      saving_ms: what it costs less then.
    """

    term: int
    operand: int
    producers: tuple[int, ...]
    saving_ms: float


@dataclasses.dataclass(frozen=True)
class Choices:
    """A problem of extraction. Terms are named by their positions in `terms`.

    Attributes:
      terms: run-time terms that have a price.
      prices_ms: what each costs if it is not fused.
      members: by class, the terms that compute it.
      needs: by term, the run-time classes that it reads and that a term has to compute.
      roots: run-time classes that graph outputs need.
      outputs: classes that are graph outputs, which no operator is fused over.
      fusions: all possible fusions.
      weights: by class that is computed from weights alone, the term that computes it; start-graph weights have none.
    """

    terms: list[Term]
    prices_ms: list[float]
    members: dict[int, list[int]]
    needs: list[tuple[int, ...]]
    roots: tuple[int, ...]
    outputs: frozenset[int]
    fusions: list[Fusion]
    weights: dict[int, Term]


def choices_of(graph: Graph, classes: Classes, vocabulary: Vocabulary, costs: CostModel) -> Choices:
    """Returns the problem of extraction for an e-graph that was made of a graph."""
    values = graph.values()
    produced = {result for node in graph.nodes() for result in node.outputs}
    given = {classes.values[value] for value in values if value not in produced and value in classes.values}
    is_weight = {number: vocabulary.kind(kind).weight_only for number, kind in classes.kinds.items()}
    weights = _weights(classes.terms, given, is_weight)
    running = [term for term in _without_mirrors(classes.terms) if not any(is_weight[each] for each in term.results)]
    free = given | {number for number, weight in is_weight.items() if weight}
    prices = Prices(classes, vocabulary, costs)
    members: dict[int, list[Term]] = {}
    for term in running:
        if not set(term.results) & set(term.operands):
            for result in term.results:
                members.setdefault(result, []).append(term)
    outputs = frozenset(classes.values[output] for output in graph.outputs)
    roots = tuple(dict.fromkeys(root for output in graph.outputs if (root := classes.values[output]) not in free))
    reached = set(roots)
    pending = list(roots)
    chosen: dict[Term, float] = {}
    while pending:
        for term in members.get(pending.pop(), ()):
            if term in chosen or (price := prices.alone(term)) is None:
                continue
            chosen[term] = price
            new = {each for each in term.operands if each != ABSENT and each not in free} - reached
            reached |= new
            pending += new
    terms = list(chosen)
    places = {term: place for place, term in enumerate(terms)}
    numbered = {
        number: [places[term] for term in members[number] if term in places] for number in reached if number in members
    }
    needs = [
        tuple(dict.fromkeys(each for each in term.operands if each != ABSENT and each not in free)) for term in terms
    ]
    fusions = list(_fusions(terms, numbered, needs, outputs, prices))
    return Choices(terms, list(chosen.values()), numbered, needs, roots, outputs, fusions, weights)


def _weights(terms: Sequence[Term], given: set[int], is_weight: dict[int, bool]) -> dict[int, Term]:
    """Returns a term for every class that weights alone can compute."""
    weights = (term for term in terms if all(each == ABSENT or is_weight[each] for each in term.operands))
    return first_terms(weights, (number for number in given if is_weight[number]))


def _without_mirrors(terms: Sequence[Term]) -> Iterator[Term]:
    """Yields one of every two terms that differ in the order of a commutative operator's operands only."""
    seen: set[Term] = set()
    for term in terms:
        if term.unordered not in seen:
            seen.add(term.unordered)
            yield term


def _fusions(
    terms: Sequence[Term],
    members: dict[int, list[int]],
    needs: Sequence[tuple[int, ...]],
    outputs: frozenset[int],
    prices: Prices,
) -> Iterator[Fusion]:
    for place, term in enumerate(terms):
        for operand in needs[place]:
            if operand in outputs or term.operands.count(operand) > 1:
                continue
            savings = {member: prices.saving(term, terms[member], operand) for member in members.get(operand, ())}
            # Models of kernels give one saving for all producers; of others the least counts, so that none is promised.
            worth = {member: saving for member, saving in savings.items() if saving > LEAST_SAVING_MS}
            if worth:
                yield Fusion(place, operand, tuple(worth), min(worth.values()))


class Prices:
    """Prices of terms, each asked once."""

    def __init__(self, classes: Classes, vocabulary: Vocabulary, costs: CostModel) -> None:
        self._classes, self._vocabulary, self._costs = classes, vocabulary, costs
        self._known: dict[object, float | None] = {}

    def alone(self, term: Term) -> float | None:
        """Returns the price of a term that is not fused [ms]; None if it has none."""
        return self._price((self._word(term),), lambda: self._graph(term))

    def saving(self, term: Term, producer: Term, operand: int) -> float:
        """Returns what a term costs less behind a producer of one of its operands, if nothing else reads that [ms]."""
        at = term.operands.index(operand), producer.results.index(operand)
        pair = self._price((self._word(term), self._word(producer), at), lambda: self._graph(term, producer, operand))
        alone = self.alone(term), self.alone(producer)
        if pair is None or alone[0] is None or alone[1] is None:
            return 0.0
        return alone[0] + alone[1] - pair

    def _price(self, key: object, graph: Callable[[], Graph]) -> float | None:
        if key not in self._known:
            try:
                self._known[key] = graph().cost(self._costs).ms
            except UnpricedError:
                self._known[key] = None
        return self._known[key]

    def _word(self, term: Term) -> object:
        kinds = [self._classes.kinds[each] if each != ABSENT else ABSENT for each in (*term.operands, *term.results)]
        same = [term.operands.index(each) for each in term.operands]
        return term.operator, term.settings, tuple(kinds), tuple(same)

    def _graph(self, term: Term, producer: Term | None = None, operand: int = ABSENT) -> Graph:
        builder = GraphBuilder()
        made: dict[int, int] = {}
        if producer is not None:
            results = self._add(builder, producer, {})
            made[operand] = results[producer.results.index(operand)]
            for number, result in zip(producer.results, results, strict=True):
                if number != operand:
                    builder.output(result)
        for result in self._add(builder, term, made):
            builder.output(result)
        return builder.build()

    def _add(self, builder: GraphBuilder, term: Term, made: dict[int, int]) -> list[int]:
        operands = dict(made)
        for number in term.operands:
            if number == ABSENT or number in operands:
                continue
            operands[number] = add_leaf(builder, f"v{number}", self._vocabulary.kind(self._classes.kinds[number]))
        return add_term(builder, term, operands, self._classes, self._vocabulary)


def add_term(
    builder: GraphBuilder, term: Term, values: dict[int, int], classes: Classes, vocabulary: Vocabulary
) -> list[int]:
    """Adds a term to a graph, whose values are given by class; returns its results."""
    operands = [ABSENT if number == ABSENT else values[number] for number in term.operands]
    results = [("", vocabulary.kind(classes.kinds[number])) for number in term.results]
    return add_operator(builder, term.operator, vocabulary.settings(term.settings), operands, results)


def restricted(choices: Choices, terms: set[int]) -> tuple[Choices, list[int]]:
    """Returns the problem with some of its terms only, and the position that each of them has in the whole."""
    kept = sorted(terms)
    places = {term: place for place, term in enumerate(kept)}
    members = {
        number: inside
        for number, everything in choices.members.items()
        if (inside := [places[term] for term in everything if term in places])
    }
    fusions = [
        dataclasses.replace(fusion, term=places[fusion.term], producers=producers)
        for fusion in choices.fusions
        if fusion.term in places and (producers := tuple(places[each] for each in fusion.producers if each in places))
    ]
    part = dataclasses.replace(
        choices,
        terms=[choices.terms[term] for term in kept],
        prices_ms=[choices.prices_ms[term] for term in kept],
        members=members,
        needs=[choices.needs[term] for term in kept],
        fusions=fusions,
    )
    return part, kept
