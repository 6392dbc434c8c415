"""Random walks of states, and the results of all legal rewrites of a state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from environment import zoo
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State
from tests.taso_ext.samples.odd_rules import ODD_RULES
from tests.taso_ext.samples.random_graphs import DEFAULT_RULES

RULE_SETS = {"default": DEFAULT_RULES, "odd": ODD_RULES}
over_rule_sets = pytest.mark.parametrize("rules", RULE_SETS.values(), ids=RULE_SETS)
COSTS = CostModel.roofline("rtx2070")
AMPLE = 4096  # locations, more than one rule has matches in any tiny graph

TINY = [name for name in zoo.names() if name.endswith("-tiny")]
LARGE = [name for name in zoo.names() if not name.endswith("-tiny")]


@cache
def zoo_model(name: str) -> OnnxModel:
    return OnnxModel.load(zoo.build(name))


def start(graph: Graph, max_locations: int = AMPLE, rules: RuleSet = DEFAULT_RULES) -> State:
    return State(graph, rules, COSTS, max_locations)


def random_action(state: State, rng: np.random.Generator) -> tuple[int, int] | None:
    """Draws a rule that applies, then one of its locations, both uniformly, so that no rule dominates."""
    legal = state.legal_actions()
    if not len(legal):
        return None
    actions = legal[legal[:, 0] == rng.choice(np.unique(legal[:, 0]))]
    rule, location = actions[rng.integers(len(actions))]
    return int(rule), int(location)


def walk(state: State, steps: int, seed: int) -> Iterator[State]:
    """Yields the state itself, then the same object after each of up to `steps` random rewrites."""
    rng = np.random.default_rng(seed)
    yield state
    for _ in range(steps):
        action = random_action(state, rng)
        if action is None:
            return
        state.step(*action)
        yield state


def after(state: State, rule: int, location: int) -> State:
    """Returns a copy of the state, one rewrite further."""
    stepped = state.copy()
    stepped.step(rule, location)
    return stepped


def rewrites(state: State) -> dict[tuple[int, int], str]:
    """Returns the hash that each legal (rule, location) leads to."""
    return {(rule, location): after(state, rule, location).hash for rule, location in state.legal_actions().tolist()}


def hashes_by_rule(state: State) -> list[Counter[str]]:
    """Returns for each rule how many of its rewrites lead to each hash."""
    found: list[Counter[str]] = [Counter() for _ in state.rule_mask()]
    for (rule, _), hash_ in rewrites(state).items():
        found[rule][hash_] += 1
    return found
