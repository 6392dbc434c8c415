"""Plans of which some rewrites are left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
        before = _parts(planned)
        planned.step(rule, location)
        if position in omitted:
            continue
        found = _same_rewrite(remaining, rule, location, _change(before, _parts(planned)))
        if found is not None:
            remaining.step(rule, found)
            kept.append((rule, found))
    return kept


def _same_rewrite(state: State, rule: int, location: int, change: _Change) -> int | None:
    """Returns where a rule takes the same operators away; None if it does so nowhere.

    What it makes may differ, because it may read another operand. Of several places, one with an equal change is
    preferred, and then the given location.
    """
    before, alike = _parts(state), None
    for place in _places(state, rule, location):
        tried = state.copy()
        tried.step(rule, place)
        gone, made = _change(before, _parts(tried))
        if (gone, made) == change:
            return place
        if alike is None and gone and gone == change[0]:
            alike = place
    return alike


def _change(before: frozenset[str], after: frozenset[str]) -> _Change:
    """Returns the operators that a rewrite took away, and those that it made."""
    return before - after, after - before


def _parts(state: State) -> frozenset[str]:
    """Returns the origins of all operators. The origin of a rewrite's operators says what it was applied to."""
    return frozenset(node.origin for node in state.graph.nodes())


def _places(state: State, rule: int, location: int) -> list[int]:
    """Returns the locations at which a rule is legal, first the given one if it is among them; a waypoint's number."""
    if rule == state.waypoint_rule:
        return [location]
    legal = [int(place) for at, place in state.legal_actions() if at == rule]
    return sorted(legal, key=lambda place: place != location)
