"""Plans of which some rewrites are left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from taso_ext import State

Action = tuple[int, int]
_Change = tuple[frozenset[str], frozenset[str]]


def leave_out(start: State, actions: Sequence[Action], omitted: Collection[int]) -> list[Action]:
    """Returns what remains of a plan if some of its rewrites are left out, as actions that are legal from the start.

    A later rewrite remains if it can still be made at the same place, of the same operators. Its location may then be
    another one. Rewrites of what an omitted one would have made go with it.

    Args:
      start: the state in which the plan begins; it is not changed.
      actions: the plan, pairs (rule, location).
      omitted: positions in the plan.
    """
    planned, remaining, kept = start.copy(), start.copy(), list[Action]()
    for position, (rule, location) in enumerate(actions):
        before = planned.copy()
        planned.step(rule, location)
        if position in omitted:
            continue
        found = _same_rewrite(remaining, rule, location, _change(before, planned))
        if found is not None:
            remaining.step(rule, found)
            kept.append((rule, found))
    return kept


def _same_rewrite(state: State, rule: int, location: int, change: _Change) -> int | None:
    """Returns where a rule takes the same operators away; None if it does so nowhere.

    What it makes may differ, because it may read another operand. Of several places, one with an equal change is
    preferred, and then the given location.
    """
    gone, _ = change
    places = {}
    for place in _places(state, rule, location):
        tried = state.copy()
        tried.step(rule, place)
        places[place] = _change(state, tried)
    equal = [place for place, each in places.items() if each == change]
    alike = [place for place, each in places.items() if gone and each[0] == gone]
    return next(iter([*equal, *alike]), None)


def _change(before: State, after: State) -> _Change:
    """Returns the origins of the operators that a rewrite took away, and of those that it made."""
    there, here = _parts(before), _parts(after)
    return there - here, here - there


def _parts(state: State) -> frozenset[str]:
    """Returns the origins of all operators. The origin of a rewrite's operators says what it was applied to."""
    return frozenset(node.origin for node in state.graph.nodes())


def _places(state: State, rule: int, location: int) -> Iterator[int]:
    """Yields the locations at which a rule is legal, first the given one if it is among them."""
    legal = [int(place) for at, place in state.legal_actions() if at == rule]
    yield from sorted(legal, key=lambda place: place != location)
