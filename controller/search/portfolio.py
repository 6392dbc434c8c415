"""Graphs that a climb times: what quick searches propose under many cost models, parts of it, and what lies around it.

No cost model knows the machine, but one of them often leads to a graph that is fast there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from controller.search.native import ALPHA
from controller.search.passes import PassesController, exhaust
from controller.search.replayed import SearchLimits
from environment.counting import count
from environment.substitution.omission import leave_out
from taso_ext import CostModel, State, UnpricedError, search_taso

Actions = tuple[tuple[int, int], ...]
PROCESSORS, CARDS = ("xeon",), ("rtx2070", "gtx1080", "k80", "v100", "h200")
"""The roofline presets that guide searches: those of one core, and those of cards."""
PROPOSALS = 1000
"""Number of graphs that the search for a proposal expands, and of passes that it tries."""
MOST_TIMES = 3
"""Largest number of times that a rule is applied at one place. Groups of convolutions, for example, merge in pairs."""
FLOPS_PER_BYTE = 13.0
"""Operations that a core computes while it reads one byte from memory."""


@dataclass(frozen=True)
class Candidate:
    """A rewritten graph and the actions that lead to it from the start.

    All candidates share the locations of the start's state, so that actions of one can be replayed on another.
    """

    state: State
    actions: Actions

    def replay(self, actions: Iterable[tuple[int, int]]) -> Candidate:
        """Returns the candidate to which those actions lead from here that are legal when their turn comes."""
        state, taken = self.state.copy(), list(self.actions)
        for rule, location in actions:
            if state.is_legal(rule, location):
                state.step(rule, location)
                taken.append((rule, location))
        return Candidate(state, tuple(taken))


@dataclass(frozen=True)
class Move:
    """A way to another graph.

    Attributes:
      actions: the rewrites.
      from_start: whether they lead from the start graph, and not from the best graph.
    """

    actions: Actions
    from_start: bool = False

    def of(self, start: Candidate, best: Candidate) -> Candidate:
        """Returns the graph to which the move leads."""
        return (start if self.from_start else best).replay(self.actions)


def rooflines(device: str) -> list[CostModel]:
    """Returns the rooflines that guide searches; those of the same kind as a runtime's device come first."""
    ordered = (*PROCESSORS, *CARDS) if device == "cpu" else (*CARDS, *PROCESSORS)
    return [CostModel.roofline(each) for each in ordered]


def priced(state: State, costs: CostModel) -> float:
    """Returns the cost of a state's graph in ms; infinity if it has no price."""
    count(cost_evaluations=1)
    try:
        return state.graph.cost(costs).ms
    except UnpricedError:
        return float("inf")


Search = Callable[[], Actions]


def searches(state: State, seconds: float) -> Iterator[tuple[str, Search]]:
    """Yields quick searches under the costs of a state, by name; none begins before it is called.

    Args:
      seconds: limit of time of each; 0 means none.
    """
    yield (
        "passes",
        lambda: tuple(PassesController(SearchLimits(PROPOSALS, seconds)).find(state.copy(), 0, None).actions),
    )
    yield "taso", lambda: tuple(search_taso(state.copy(), ALPHA, PROPOSALS, seconds=seconds).actions)


def forms(base: Candidate, like: State) -> Iterator[Actions]:
    """Yields what each rule makes of a graph until it applies nowhere, before it what a quick search makes of that.

    Putting every product of a network into another form, for example, pays only with the rewrites that this allows.

    Args:
      like: the start graph's state under the costs that the searches follow.
    """
    ranked_base = like.copy()
    for action in base.actions:
        ranked_base.step(*action)
    for rule in np.unique(base.state.legal_actions()[:, 0]).tolist():
        actions = exhaust(base.state.copy(), rule)
        ranked = ranked_base.copy()
        for action in actions:
            ranked.step(*action)
        yield (*actions, *search_taso(ranked, ALPHA, PROPOSALS).actions)
        yield tuple(actions)


def alike_places(base: Candidate) -> Iterator[Actions]:
    """Yields each rule at all places that look alike, once and several times."""
    for rule, alike in _alike(base.state):
        for times in range(1, MOST_TIMES + 1):
            yield tuple((rule, place) for place in alike) * times


def _alike(state: State) -> Iterator[tuple[int, list[int]]]:
    """Yields rules with locations at which they match operators of equal work, with the same predicted change of cost.

    Locations whose operators do the most work come first, because most can be gained there.
    """
    rules, locations, keys, work_of = _kinds(state)
    if not len(rules):
        return
    kinds, group = np.unique(keys, axis=0, return_inverse=True)
    work = np.bincount(group.reshape(-1), work_of)
    for index in np.argsort(-work, kind="stable"):
        yield int(kinds[index, 0]), locations[group.reshape(-1) == index].tolist()


def _kinds(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the rules [n], locations [n], kinds [n, 4] and work [n] of all legal rewrites.

    Rewrites of equal kinds are of one rule, change the predicted cost equally and match operators of equal work.
    """
    rules, locations, costs_ms = state.candidates()
    if not len(rules):
        return rules, locations, np.empty((0, 4)), np.empty(0)
    change = np.round(costs_ms / state.cost.ms - 1, 9)
    logarithms = state.candidate_features(len(rules), one_hot_rules=False)[1:, -2:]  # of FLOPs and bytes, over 20
    work = np.expm1(20.0 * logarithms) @ [1.0, FLOPS_PER_BYTE]
    return rules, locations, np.column_stack([rules, change, logarithms]), work


Positions = frozenset[int]
"""Positions of rewrites in a plan."""


def by_rule(actions: Actions) -> list[Positions]:
    """Returns the rewrites of a plan grouped by rule."""
    rules = dict.fromkeys(rule for rule, _ in actions)
    return [frozenset(at for at, action in enumerate(actions) if action[0] == rule) for rule in rules]


def by_place(start: State, actions: Actions) -> list[Positions]:
    """Returns the rewrites of a plan grouped by rule and by alike places, as they were when their turn came."""
    state, groups = start.copy(), dict[tuple[float, ...], set[int]]()
    for at, (rule, location) in enumerate(actions):
        rules, locations, keys, _ = _kinds(state)
        rows = np.flatnonzero((rules == rule) & (locations == location))  # none for a step to a waypoint
        kind = tuple(keys[rows[0]].tolist()) if len(rows) else (float(rule), float(location))
        groups.setdefault(kind, set()).add(at)
        state.step(rule, location)
    return [frozenset(group) for group in groups.values()]


def halves(groups: Sequence[Positions]) -> list[Sequence[Positions]]:
    """Returns two halves of some groups; none if there is only one group."""
    middle = len(groups) // 2
    return [groups[:middle], groups[middle:]] if middle else []


def without(start: State, actions: Actions, groups: Collection[Positions]) -> Actions:
    """Returns what remains of a plan without some groups of its rewrites; see `leave_out`."""
    return tuple(leave_out(start, actions, frozenset().union(*groups)))
