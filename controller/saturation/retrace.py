"""A way to an extracted graph by single rewrites, which can be replayed and verified like those of every controller.

Equal graphs need not be linked by rewrites that the engine makes: it leaves an operator alone whose result somebody
else reads, where an e-graph keeps both. So a way may end before the extracted graph.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Sequence

from controller.saturation.egraph import Classes, Term, settings_of
from controller.saturation.exploration import Application
from controller.saturation.vocabulary import ABSENT, Operator, Vocabulary
from taso_ext import Graph, State

MOST_STEPS = 2_000
"""The longest way that is followed."""


class Retracing:
    """Looks for rewrites from a graph to another one of its e-graph.

    Args:
      graph: the graph of which the e-graph was made.
      classes: the e-graph.
      vocabulary: its numbers.
      applications: the rewrites that it holds.
    """

    def __init__(
        self, graph: Graph, classes: Classes, vocabulary: Vocabulary, applications: Sequence[Application]
    ) -> None:
        self._vocabulary, self._applications = vocabulary, applications
        self._terms = {(t.operator, t.settings, t.operands): t for t in map(_unordered, classes.terms)}
        values = graph.values()
        self._inputs = [classes.values[identifier] for identifier in graph.inputs]
        self._weights = {v.handle: classes.values[identifier] for identifier, v in values.items() if v.handle is not None}
        self._runs = {number for number, kind in classes.kinds.items() if not vocabulary.kind(kind).weight_only}
        self._sources = [frozenset(map(_unordered, each.sources)) for each in applications]
        self._made = [
            frozenset(term for term in map(_unordered, each.targets) if self._runs.issuperset(term.results))
            for each in applications
        ]
        self._consumed = [
            sources - made - frozenset(map(_unordered, each.kept))
            for each, sources, made in zip(applications, self._sources, self._made, strict=True)
        ]
        self._needed = [
            frozenset(term for term in sources if self._runs.issuperset(term.results)) for sources in self._sources
        ]
        self._readers: dict[Term, list[int]] = defaultdict(list)
        for number, sources in enumerate(self._needed):
            for source in sources:
                self._readers[source].append(number)

    def way(self, state: State, wanted: Graph) -> tuple[list[tuple[int, int]], bool]:
        """Returns the actions that lead from a state to a graph, or to the cheapest one on the way to it.

        Returns:
          The actions, and whether they lead to the graph itself.
        """
        goal, present = self._terms_of(wanted), self._terms_of(state.graph)
        now, actions = state.copy(), list[tuple[int, int]]()
        best, spent = (state.cost.ms, 0), set[int]()
        while len(actions) < MOST_STEPS and now.hash != wanted.hash:
            for number in self._plan(present, goal - present, goal, spent):
                spent.add(number)
                action = self._carry_out(now, number)
                if action is not None:
                    break
            else:
                break
            actions.append(action)
            present = self._terms_of(now.graph)
            if now.cost.ms < best[0]:
                best = now.cost.ms, len(actions)
        if now.hash == wanted.hash:
            return actions, True
        return actions[: best[1]], False

    def _terms_of(self, graph: Graph) -> frozenset[Term]:
        """Returns the run-time terms that the nodes of a graph are, without those that the e-graph does not have."""
        values = graph.values()
        known: dict[int, int] = {ABSENT: ABSENT, **dict(zip(graph.inputs, self._inputs, strict=True))}
        known |= {each: self._weights[v.handle] for each, v in values.items() if v.handle in self._weights}
        found: set[Term] = set()
        for number, node in enumerate(graph.nodes()):
            if not all(operand in known for operand in node.inputs):
                continue
            operands = tuple(known[operand] for operand in node.inputs)
            settings = settings_of(node, number, self._vocabulary)
            plain = _unordered(Term(Operator.of(node), settings, operands, ()))
            term = self._terms.get((plain.operator, plain.settings, plain.operands))
            if term is not None:
                known |= zip(node.outputs, term.results, strict=True)
                if not node.weight_only:
                    found.add(term)
        return frozenset(found)

    def _plan(
        self, present: frozenset[Term], missing: frozenset[Term], goal: frozenset[Term], spent: set[int]
    ) -> list[int]:
        """Returns rewrites that can be made now and lead to missing terms; first those that destroy least of use.

        Every term is reached by the rewrite that needs the fewest rewrites before it.
        """
        depths = dict.fromkeys(present, 0)
        made_by: dict[Term, int] = {}
        waiting = {number: len(needed) for number, needed in enumerate(self._needed) if number not in spent}
        heap = [(0, order, term) for order, term in enumerate(present)]
        order = itertools.count(len(heap))
        while heap:
            depth, _, term = heapq.heappop(heap)
            if depth > depths[term]:
                continue
            for number in self._readers[term]:
                if number not in waiting:
                    continue
                waiting[number] -= 1
                if waiting[number]:
                    continue
                later = 1 + max((depths[source] for source in self._needed[number]), default=0)
                for made in self._made[number]:
                    if later < depths.get(made, MOST_STEPS):
                        depths[made], made_by[made] = later, number
                        heapq.heappush(heap, (later, next(order), made))
        chosen: set[int] = set()
        pending = [term for term in missing if term in made_by]
        while pending:
            number = made_by[pending.pop()]
            if number not in chosen:
                chosen.add(number)
                pending += [term for term in self._needed[number] if term not in present and term in made_by]
        ready = [number for number in chosen if self._needed[number] <= present]

        def destroyed(number: int) -> tuple[int, int, int]:
            gone = self._consumed[number]
            others = sum(bool(gone & self._needed[other]) for other in chosen if other != number)
            return others, len(gone & goal), number

        return sorted(ready, key=destroyed)

    def _carry_out(self, state: State, number: int) -> tuple[int, int] | None:
        """Makes a rewrite; returns its action, or None, and leaves the state as it is, if the engine does not make it."""
        application, made = self._applications[number], self._made[number]
        before = self._terms_of(state.graph)
        for rule, location in state.legal_actions().tolist():
            if rule != application.rule:
                continue
            after = state.copy()
            after.step(rule, location)
            terms = self._terms_of(after.graph)
            if made <= terms and terms != before:
                state.step(rule, location)
                return rule, location
        return None


def _unordered(term: Term) -> Term:
    return term.unordered
