"""Which rules are worth having: those that others do not make unnecessary, and that can lead to a cheaper graph.

Of TASO's 619 generated rules 133 are shipped. Here a rule is shipped if it saves operators or arithmetic, or if it
turns operators round at no cost, so that others may apply. What only one enumerated shape permits is shipped where a
matrix product or a convolution is concerned; elsewhere it would match next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from taso_ext._core import CostModel, Graph, RuleSet, State
from taso_ext.generator.grid import SYMMETRIC
from taso_ext.generator.laws import Term
from taso_ext.generator.screening import COST_MODEL, Example
from taso_ext.generator.wording import WINDOWED, Rewriting, Wording

STEPS = 2
"""A rule is implied where this many rewrites by other rules lead to the same graph."""
_MOST_STATES = 400  # looked at for one example: rules that open more ways than that are not searched to the end


def implied(found: Sequence[Example], rules: RuleSet | None) -> bool:
    """Whether `rules` lead from the source to the target of every example in at most `STEPS` rewrites."""
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
    """Why a rule is shipped or not."""

    SAVES_OPERATORS = "saves operators"
    SAVES_ARITHMETIC = "saves arithmetic"
    TURNS = "turns operators round"
    OPENS = "takes a product or a concatenation apart"
    SPECIAL = "holds for one shape only"
    RARE = "asks for more than networks offer, and saves no operator"
    GROWS = "only adds operators"
    PERMUTES = "only permutes operands"
    NOTHING = "changes nothing"


SHIPPED = frozenset([Worth.SAVES_OPERATORS, Worth.SAVES_ARITHMETIC, Worth.TURNS, Worth.OPENS])
HEAVY = frozenset(["MatMul", "Conv"])
_ELEMENTWISE = frozenset(
    ["Add", "Sub", "Mul", "Scale", "Div", "Max", "Neg", "Relu", "Reciprocal", "Function", "ZeroFixing"]
)
_LARGE = 5  # operators of both sides beyond which a rule has to be of more use
_LARGE_ELEMENTWISE = 4
_LEAST_ARITHMETIC = 0.01  # share that counts as saved


def worth(rewriting: Rewriting, wording: Wording, found: Sequence[Example]) -> Worth:
    """What a rule is good for, judged by its form and by what its examples save."""
    operators, arithmetic = gain(found)
    source, target = (_kinds(rewriting, side) for side in (rewriting.source, rewriting.target))
    if any(example.source.hash == example.target.hash for example in found):
        return Worth.NOTHING
    if _is_special(rewriting, wording, source | target):
        return Worth.SPECIAL
    if _is_rare(rewriting, source | target, saves=operators > 0):
        return Worth.RARE
    if operators > 0:
        return Worth.SAVES_OPERATORS
    if operators == 0 and arithmetic > _LEAST_ARITHMETIC:
        return Worth.SAVES_ARITHMETIC
    if not target <= source:
        return Worth.GROWS
    if operators == 0:
        return Worth.PERMUTES if _permutes(rewriting) else Worth.TURNS
    takes_apart = len(source) > 1 and bool(source & (HEAVY | {"Concat"})) and rewriting.law.size <= _LARGE
    return Worth.OPENS if operators == -1 and takes_apart else Worth.GROWS


def _is_special(rewriting: Rewriting, wording: Wording, kinds: set[str]) -> bool:
    if wording.shapes != "exact" or kinds & WINDOWED:  # of convolutions even this leaves extents and attributes open
        return False
    return not kinds & HEAVY or rewriting.law.size > _LARGE


# Constants that stay, tensors that are read in several places, and several elementwise operators in a row.
def _is_rare(rewriting: Rewriting, kinds: set[str], *, saves: bool) -> bool:
    size = rewriting.law.size
    constants = any(each.is_leaf and not each.is_variable for top in rewriting.source for each in top.subterms())
    if constants and not saves:
        return True
    if kinds <= _ELEMENTWISE and size > (_LARGE if saves else _LARGE_ELEMENTWISE):
        return True
    return size > _LARGE and not saves and len(rewriting.source) == 1 and _repeats_variable(rewriting.source[0])


def _repeats_variable(term: Term) -> bool:
    numbers = [each.number for each in term.subterms() if each.is_variable]
    return len(set(numbers)) < len(numbers)


def _kinds(rewriting: Rewriting, side: Sequence[Term]) -> set[str]:
    return {rewriting.operator(term).kind for top in side for term in top.subterms() if not term.is_leaf}


def _permutes(rewriting: Rewriting) -> bool:
    """Whether both sides apply the same operators and only variables change places.

    Of one symmetric operator that is associativity, which brings weights together.
    """
    sides = [[_skeleton(term) for term in side] for side in (rewriting.source, rewriting.target)]
    kinds = _kinds(rewriting, rewriting.source)
    return sides[0] == sides[1] and not (len(kinds) == 1 and kinds <= SYMMETRIC)


def _skeleton(term: Term) -> str:
    operands = [_skeleton(operand) for operand in term.operands]
    return f"{term.head}({','.join(sorted(operands))})" if operands else "x"


def gain(found: Sequence[Example]) -> tuple[int, float]:
    """What the examples save: run-time operators (the median), and the share of the arithmetic (the best)."""
    model = CostModel.roofline(COST_MODEL)
    operators = [each.source.num_runtime_nodes - each.target.num_runtime_nodes for each in found]
    arithmetic = []
    for each in found:
        before, after = each.source.cost(model).flops, each.target.cost(model).flops
        arithmetic.append((before - after) / max(before, after, 1.0))
    return int(np.median(operators)), max(arithmetic)
