"""Every search and every episode ends, even if rules undo one another or make graphs grow for ever."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx
import pytest
from onnx import parser

from environment import GraphSubstitutionEnv, zoo
from environment.policies.random import RandomAgent
from taso_ext import (
    CostModel,
    OnnxModel,
    RuleSet,
    SearchResult,
    State,
    search_beam,
    search_greedy,
    search_restarts,
    search_taso,
)

BUDGET = 100
STEPS = 40
SEARCHES: dict[str, Callable[..., SearchResult]] = {
    "taso": partial(search_taso, alpha=1.05),
    "taso, climbing": partial(search_taso, alpha=4.0),
    "greedy": search_greedy,
    "beam": search_beam,
    "restarts": search_restarts,
}
ENDLESS = {
    "each undoes the other": """
        rule after
          var    x: float[...]
          source t = Relu(x); y = Transpose(t; perm=p)
          target u = Transpose(x; perm=p); y = Relu(u)
        rule before
          var    x: float[...]
          source t = Transpose(x; perm=p); y = Relu(t)
          target u = Relu(x); y = Transpose(u; perm=p)
        """,
    "one undoes itself": """
        rule swap
          var    a, b, c: float[...s]
          source t = Add(a, b); y = Add(t, c)
          target u = Add(a, c); y = Add(u, b)
        """,
    "three in a ring": """
        rule first
          var    x: float[...]
          source y = Relu(x)
          target t = Neg(x); u = Neg(t); y = Relu(u)
        rule second
          var    x: float[...]
          source t = Neg(x); u = Neg(t); y = Relu(u)
          target t2 = Relu(x); y = Relu(t2)
        rule third
          var    x: float[...]
          source t = Relu(x); y = Relu(t)
          target y = Relu(x)
        """,
    "every step adds an operator": """
        rule grow
          var    x: float[...]
          source y = Relu(x)
          target t = Relu(x); y = Relu(t)
        """,
    "every step makes another graph of the same cost": """
        rule negate-twice
          var    x: float[...]; c: weight float[...]
          source y = Mul(x, c)
          target d = Neg(c); e = Neg(d); y = Mul(x, e)
        """,
    "a pair whose halves are free": """
        rule there
          var    x: float[...]
          source y = Reshape(x; shape=p)
          where  rank(x) == 3
          target t = Reshape(x; shape=[size(x)]); y = Reshape(t; shape=p)
        rule back
          var    x: float[...]
          source t = Reshape(x; shape=q); y = Reshape(t; shape=p)
          target y = Reshape(x; shape=p)
        """,
}


def model() -> onnx.ModelProto:
    """Returns a model to which every rule set applies."""
    return parser.parse_model(
        """
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[2, 3, 4] x, float[2, 3, 4] z) => (float[2, 12] y)
        <float c = {3.0}, int64[2] rows = {2, 12}>
        {
            s = Add(x, z)
            a = Add(s, x)
            m = Mul(a, c)
            r = Relu(m)
            t = Transpose<perm = [0, 2, 1]>(r)
            y = Reshape(t, rows)
        }
        """
    )


def assert_ends(search: Callable[..., SearchResult], state: State) -> None:
    """Asserts that the search ends within the budget, at a graph that costs no more than the start."""
    found = search(state, budget=BUDGET)
    assert found.stop_reason in ("exhausted", "local optimum", "budget")
    assert found.expanded <= BUDGET
    assert found.cost_ms <= state.cost.ms * (1 + 1e-12)
    for rule, location in found.actions:
        state.step(rule, location)
    assert state.cost.ms == pytest.approx(found.cost_ms, rel=1e-9)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_search_ends(text: str, search: Callable[..., SearchResult]) -> None:
    graph = OnnxModel.load(model(), clean="none").graph
    state = State(graph, RuleSet.parse(text), CostModel.roofline("rtx2070"))
    assert len(state.legal_actions())
    assert_ends(search, state)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny", "nasrnn-tiny"])
def test_search_with_all_rules_ends(name: str, search: Callable[..., SearchResult]) -> None:
    """Many shipped rules undo others."""
    graph = OnnxModel.load(zoo.build(name)).graph
    assert_ends(search, State(graph, RuleSet.default(), CostModel.roofline("rtx2070")))


def assert_episode_ends(env: GraphSubstitutionEnv, seed: int) -> None:
    agent = RandomAgent(seed, noop_probability=0.0)
    observation, _ = env.reset(seed=seed)
    for _ in range(STEPS):
        observation, _, terminated, truncated, _ = env.step(agent(observation))
        if terminated or truncated:
            return
    raise AssertionError(f"the episode goes on after {STEPS} steps")


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_random_episode_ends(text: str) -> None:
    env = GraphSubstitutionEnv(model(), rules=RuleSet.parse(text), max_steps=STEPS, clean="none")
    for seed in range(3):
        assert_episode_ends(env, seed)


@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny", "nasrnn-tiny"])
def test_random_episode_with_all_rules_ends(name: str) -> None:
    assert_episode_ends(GraphSubstitutionEnv(zoo.build(name), max_steps=STEPS), 0)
