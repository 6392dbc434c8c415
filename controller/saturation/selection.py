"""A selection of terms that compute the outputs of an e-graph, and what it costs; and a quick way to one."""

from __future__ import annotations

import heapq
from collections import defaultdict

import numpy as np

from controller.saturation.choices import Choices
from controller.saturation.egraph import Classes, term_of
from controller.saturation.vocabulary import Vocabulary
from taso_ext import Graph

Selection = dict[int, int]
"""By run-time class that is needed, the term that computes it."""
SMALLEST_MS = 1e-9
"""What a term counts at least in the greedy method."""


def needed_of(choices: Choices, chosen: Selection) -> Selection:
    """Returns what of a selection the outputs need."""
    found: Selection = {}
    pending = list(choices.roots)
    while pending:
        number = pending.pop()
        if number not in found:
            found[number] = chosen[number]
            pending += choices.needs[chosen[number]]
    return found


def cost_of(choices: Choices, chosen: Selection) -> float:
    """Returns the price of a selection with its fusions [ms]."""
    terms = set(chosen.values())
    reads: dict[int, int] = defaultdict(int)
    for term in terms:
        for number in choices.terms[term].operands:
            reads[number] += 1
    saved: dict[int, float] = {}
    for fusion in choices.fusions:
        if fusion.term in terms and reads[fusion.operand] == 1 and chosen.get(fusion.operand) in fusion.producers:
            saved[fusion.term] = max(saved.get(fusion.term, 0.0), fusion.saving_ms)
    return sum(choices.prices_ms[term] for term in terms) - sum(saved.values())


def greedy(choices: Choices) -> Selection:
    """Returns a selection in which every class takes the term that is cheapest with all that it needs.

    Classes are settled in the order of these costs, as in Dijkstra's algorithm, so that no class needs itself.

    What two operands of a term share counts once, but what two operators of the graph could share is not foreseen.
    A pointwise operator counts as fused where it could be.
    """
    savings: dict[int, float] = {}
    for fusion in choices.fusions:
        savings[fusion.term] = max(savings.get(fusion.term, 0.0), fusion.saving_ms)
    prices = np.array([max(price - savings.get(at, 0.0), SMALLEST_MS) for at, price in enumerate(choices.prices_ms)])
    readers: dict[int, list[int]] = defaultdict(list)
    missing: list[int] = []  # by term, how many classes that it needs are not settled
    for term, needed in enumerate(choices.needs):
        missing.append(len(needed))
        for number in needed:
            readers[number].append(term)
    sets: dict[int, np.ndarray] = {}  # by settled class, the terms that compute it and all that it needs [terms]
    chosen: Selection = {}
    heap: list[tuple[float, int]] = []

    def whole_of(term: int) -> np.ndarray:
        whole = np.zeros(len(prices), bool)
        for number in choices.needs[term]:
            whole |= sets[number]
        whole[term] = True
        return whole

    def push(term: int) -> None:
        heapq.heappush(heap, (float(prices @ whole_of(term)), term))

    for term, count in enumerate(missing):
        if not count:
            push(term)
    while heap:
        _, term = heapq.heappop(heap)
        for number in choices.terms[term].results:
            if number in chosen or number not in choices.members:
                continue
            chosen[number], sets[number] = term, whole_of(term)
            for reader in readers[number]:
                missing[reader] -= 1
                if not missing[reader]:
                    push(reader)
    return needed_of(choices, chosen)


def initial(choices: Choices, graph: Graph, classes: Classes, vocabulary: Vocabulary) -> Selection:
    """Returns the selection that is the start graph."""
    places = {term.unordered: place for place, term in enumerate(choices.terms)}
    chosen: Selection = {}
    for number, node in enumerate(graph.nodes()):
        if not node.weight_only:
            place = places.get(term_of(node, number, classes, vocabulary).unordered)
            for result in node.outputs:
                if place is not None:  # a node that computes what an earlier one does may read itself here
                    chosen.setdefault(classes.values[result], place)
    return needed_of(choices, chosen)
