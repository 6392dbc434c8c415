"""Quick tests of rules on random instances, before the verifier tests those that are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taso_ext._core import CostModel, Graph, RuleSet, State
from taso_ext.verify.exact.finite_field import find_difference
from taso_ext.verify.exact.operators import UnsupportedOperatorError
from taso_ext.verify.exact.prime_field import NotInvertibleError

COST_MODEL = "rtx2070"  # any will do: only whether rewrites are legal and where they lead is asked
_INSTANCES = 5
_LEAST = 3


@dataclass(frozen=True)
class Example:
    """A rewrite that a rule makes: an instance of its source, and what becomes of it."""

    source: Graph
    target: Graph


def examples(text: str, *, instances: int = _INSTANCES) -> list[Example] | None:
    """Rewrites by a rule, all of which keep the function; None if the rule is wrong, hardly applies or is no rule.

    Args:
      text: a rule file with one rule.
      instances: random sources to rewrite.
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
    """Whether both graphs agree in the prime fields; what cannot be evaluated does not count as equal."""
    try:
        return find_difference(source, target, seed=seed) is None
    except (NotInvertibleError, UnsupportedOperatorError):
        return False
