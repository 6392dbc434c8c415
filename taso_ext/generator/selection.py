"""The selection of rules that are worth having: correct on random instances, useful, and not implied by other rules.

TASO ships 133 of its 619 generated rules. Here a rule is shipped if it saves operators or arithmetic. Rules that only
reorder operators, so that others may apply, are left to the hand-written files: with 73 generated rules of that kind,
BERT-Base had 486 rewrites instead of 436, and a search found nothing better on any of five zoo graphs. A rule is also
not shipped if only one enumerated shape permits it, or if it asks for a form that networks do not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from taso_ext._core import CostModel, Graph, RuleSet, State
from taso_ext.generator.grid import SYMMETRIC
from taso_ext.generator.laws import Rewriting, Term
from taso_ext.generator.wording import WINDOWED, Wording
from taso_ext.verify.check import COST_MODEL
from taso_ext.verify.exact.fields import NotInvertibleError
from taso_ext.verify.exact.finite_field import UnsupportedOperatorError, find_difference

_INSTANCES = 5
_LEAST = 3


@dataclass(frozen=True)
class Example:
    """A rewrite that a rule makes: an instance of its source, and the graph after the rewrite."""

    source: Graph
    target: Graph


def examples(text: str, *, instances: int = _INSTANCES) -> list[Example] | None:
    """Returns rewrites by a rule, all of which keep the function.

    The result is None if the rule is wrong, hardly ever applies, or cannot be parsed.

    Args:
      text: a rule file with one rule.
      instances: the number of random sources to rewrite.
    """
    try:
        rules = RuleSet.parse(text)
    except ValueError:
        return None
    found: list[Example] = []
    for seed in range(instances):
        source = rules.instance(0, seed)
        if source is None:
            return None
        state = State(source, rules, CostModel.roofline(COST_MODEL))
        for location in np.flatnonzero(state.location_mask()[0])[:1]:
            state.step(0, int(location))
            if not keeps_function(source, state.graph, seed):
                return None
            found.append(Example(source, state.graph))
    different = len({example.source.hash for example in found})
    return found if different >= min(_LEAST, instances) else None


def keeps_function(source: Graph, target: Graph, seed: int) -> bool:
    """Returns whether both graphs agree in the prime fields; graphs that cannot be evaluated count as different."""
    try:
        return find_difference(source, target, seed=seed) is None
    except (NotInvertibleError, UnsupportedOperatorError):
        return False


STEPS = 2
"""A rule is implied if at most this many rewrites by other rules lead to the same graph."""
_MOST_STATES = 400  # the most that are looked at for one example; the search does not go on beyond them


def implied(found: Sequence[Example], rules: RuleSet | None) -> bool:
    """Returns whether `rules` lead from the source to the target of every example in at most `STEPS` rewrites."""
    return rules is not None and all(_reaches(example.source, example.target.hash, rules) for example in found)


def _reaches(source: Graph, target_hash: str, rules: RuleSet) -> bool:
    seen, frontier = {source.hash}, [State(source, rules, CostModel.roofline(COST_MODEL))]
    for step in range(STEPS):
        reached: list[State] = []
        for state in frontier:
            for rule, location in state.legal_actions():
                follower = state.copy()
                follower.step(int(rule), int(location))
                if follower.hash == target_hash:
                    return True
                if step + 1 < STEPS and follower.hash not in seen and len(seen) < _MOST_STATES:
                    seen.add(follower.hash)
                    reached.append(follower)
        frontier = reached
    return False


class Worth(StrEnum):
    """The reason why a rule is shipped or not."""

    SAVES_OPERATORS = "saves operators"
    SAVES_ARITHMETIC = "saves arithmetic"
    TURNS = "turns operators round"
    OPENS = "takes a product apart"
    SPECIAL = "holds for one shape only"
    RARE = "asks for what networks do not do"
    GROWS = "only adds operators"
    PERMUTES = "only permutes operands"
    NOTHING = "changes nothing"


SHIPPED = frozenset([Worth.SAVES_OPERATORS, Worth.SAVES_ARITHMETIC])
HEAVY = frozenset(["MatMul", "Conv"])
_JOINING = HEAVY | {"Concat"}
_ELEMENTWISE = frozenset(
    ["Add", "Sub", "Mul", "Scale", "Div", "Max", "Neg", "Relu", "Reciprocal", "Function", "ZeroFixing"]
)
_EXOTIC = frozenset(["Neg", "Reciprocal", "Max", "ReduceMax"])
_SELDOM = _EXOTIC | {"Div", "Sub"}  # seldom in networks, beside other operators
_MOST_SOURCE = 3  # most operators of a source: larger ones are hardly ever met
_SMALL, _LARGE = 4, 5  # operators of both sides
_LEAST_ARITHMETIC = 0.01  # least share of FLOPs that counts as saved


def worth_by_form(rewriting: Rewriting) -> Worth | None:
    """Returns the reason why a rule is not shipped in any wording; None if its form is no such reason."""
    source, target = _kinds(rewriting.source, rewriting), _kinds(rewriting.target, rewriting)
    saved = _saved(rewriting)
    if _is_rare(rewriting, source | target, saves=saved > 0):
        return Worth.RARE
    if saved < -1 or (saved <= 0 and (not target <= source or _makes_constants(rewriting))):
        return Worth.GROWS
    takes_apart = len(source) > 1 and bool(source & HEAVY) and rewriting.law.size <= _LARGE
    return Worth.GROWS if saved < 0 and not takes_apart else None


def worth(rewriting: Rewriting, wording: Wording, found: Sequence[Example]) -> Worth:
    """Returns the worth of a rule in one wording, after `worth_by_form` has not excluded it."""
    kinds, saved = _kinds(rewriting.source, rewriting) | _kinds(rewriting.target, rewriting), _saved(rewriting)
    if any(example.source.hash == example.target.hash for example in found):
        return Worth.NOTHING
    if _is_special(rewriting, wording, kinds, saves=saved > 0):
        return Worth.SPECIAL
    if saved:
        return Worth.SAVES_OPERATORS if saved > 0 else Worth.OPENS
    if _saved_arithmetic(found) > _LEAST_ARITHMETIC:
        return Worth.SAVES_ARITHMETIC
    return Worth.PERMUTES if _permutes(rewriting) else Worth.TURNS


def _is_special(rewriting: Rewriting, wording: Wording, kinds: set[str], *, saves: bool) -> bool:
    """Returns whether a rule fixes shapes that networks seldom have.

    The rank-2 form of a matrix product is no such case.
    """
    if wording.shapes != "exact" or kinds & WINDOWED:  # with windows, spatial extents and attributes stay open
        return False
    flattens = bool(kinds & {"Merge", "Unmerge"}) and not kinds & {"Insert", "Drop"}
    return not kinds & HEAVY or rewriting.law.size > _LARGE or not (saves or flattens)


def _is_rare(rewriting: Rewriting, kinds: set[str], *, saves: bool) -> bool:
    """Returns whether networks seldom have such a rule: constants stay, operators are seldom, or tensors repeat."""
    size, constants = (
        rewriting.law.size,
        any(each.is_leaf and not each.is_variable for each in _terms(rewriting.source)),
    )
    if constants and (not saves or size > _SMALL):
        return True
    if size <= _SMALL:
        return not saves and bool(kinds & _SELDOM) and not kinds & HEAVY and not kinds <= _ELEMENTWISE
    if kinds & _EXOTIC or _operators(rewriting, rewriting.source) > _MOST_SOURCE:
        return True
    if kinds <= _ELEMENTWISE and (size > _LARGE or not saves or kinds & _SELDOM):
        return True
    if any(_reads_itself(each) for each in _terms(rewriting.source)) or (kinds & _SELDOM and not kinds & _JOINING):
        return True
    if size <= _LARGE:
        return False
    seldom = bool(kinds & _SELDOM) or not kinds & _JOINING
    return seldom or (not saves and len(rewriting.source) == 1 and _repeats_variable(rewriting.source[0]))


def _terms(side: Sequence[Term]) -> Iterator[Term]:
    return (each for top in side for each in top.subterms())


def _kinds(side: Sequence[Term], rewriting: Rewriting) -> set[str]:
    return {rewriting.operator(term).kind for term in _terms(side) if not term.is_leaf}


def _saved(rewriting: Rewriting) -> int:
    """Returns how many more operators the source has than the target."""
    return _operators(rewriting, rewriting.source) - _operators(rewriting, rewriting.target)


def _operators(rewriting: Rewriting, side: Sequence[Term]) -> int:
    """Returns the number of operators; both ports of a split count as one."""
    return len({(rewriting.operator(term).node, term.operands) for term in _terms(side) if not term.is_leaf})


def _saved_arithmetic(found: Sequence[Example]) -> float:
    """Returns the share of FLOPs that the best example saves."""
    model = CostModel.roofline(COST_MODEL)
    costs = [(each.source.cost(model).flops, each.target.cost(model).flops) for each in found]
    return max((before - after) / max(before, after, 1.0) for before, after in costs)


def _reads_itself(term: Term) -> bool:
    """Returns whether one operand of an operator is part of the other, as in t + (s - t)."""
    return any(a != b and a in b.subterms() for a in term.operands for b in term.operands)


def _makes_constants(rewriting: Rewriting) -> bool:
    heads = [{each.head for each in _terms(side) if each.is_leaf} for side in (rewriting.source, rewriting.target)]
    return not heads[1] <= heads[0]


def _repeats_variable(term: Term) -> bool:
    numbers = [each.number for each in term.subterms() if each.is_variable]
    return len(set(numbers)) < len(numbers)


def _permutes(rewriting: Rewriting) -> bool:
    """Returns whether both sides apply the same operators and only variables change places.

    A rule with one symmetric operator alone does not count: it is associativity, which brings weights together.
    """
    sides = [[_skeleton(term) for term in side] for side in (rewriting.source, rewriting.target)]
    kinds = _kinds(rewriting.source, rewriting)
    return sides[0] == sides[1] and not (len(kinds) == 1 and kinds <= SYMMETRIC)


def _skeleton(term: Term) -> str:
    operands = [_skeleton(operand) for operand in term.operands]
    return f"{term.head}({','.join(sorted(operands))})" if operands else "x"
