"""Whether rules make another one unnecessary, asked of the engine that applies them."""

from __future__ import annotations

from collections.abc import Sequence

from taso_ext._core import CostModel, Graph, RuleSet, State
from taso_ext.generator.screening import COST_MODEL, Example

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
