"""Rewrites keep the function, cost what was foretold, and can be undone; copies lead lives of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from efforts import Effort, for_all, sampled_and_full
from onnx_cases import run
from random_graphs import feeds_of, graphs, model_of
from random_walks import LARGE, TINY, after, random_action, start, walk, zoo_model
from slow_graph import PlainGraph

from environment import zoo
from environment.verification import verify
from taso_ext import OnnxModel, State

TOLERANCE = 1e-3  # of the spread; a wrong rewrite is off by about one
FEEDS = 2

can_undo = pytest.mark.skipif(not hasattr(State, "undo"), reason="the engine has no undo yet")

# ---- the function


def assert_same_outputs(expected: list[object], found: list[object], where: object) -> None:
    """Floats up to a share of the output's own spread, integers exactly."""
    for index, arrays in enumerate(zip(expected, found, strict=True)):
        a, b = map(np.asarray, arrays)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), where
        assert np.isfinite(a).all(), f"output {index} of {where} is not finite: the random graph is to blame"
        spread = max(float(a.std()), 1e-2 * float(np.abs(a).max(initial=0.0)), 1e-2) if a.dtype.kind == "f" else 0.0
        largest = float(np.abs(a - b).max(initial=0.0))
        assert largest <= TOLERANCE * spread, f"output {index} is off by {largest} of {spread} in {where}"


@sampled_and_full
def test_random_rewrites_of_random_graphs_keep_the_outputs(effort: Effort) -> None:
    """After each rewrite, in ONNX Runtime with its optimisations off."""

    def holds(graph: PlainGraph) -> None:
        model = OnnxModel.load(model_of(graph), clean="none")
        feeds = [feeds_of(graph, seed) for seed in range(FEEDS)]
        expected = [run(model.original, each) for each in feeds]
        for state in walk(start(model.graph), effort.steps, seed=len(graph.operators)):
            exported = model.export(state.graph)
            for each, outputs in zip(feeds, expected, strict=True):
                assert_same_outputs(outputs, run(exported, each), PlainGraph.of(state.graph))

    for_all(graphs(), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_random_rewrites_of_zoo_graphs_keep_the_outputs(name: str, effort: Effort) -> None:
    """After some of the rewrites in a sampled run, after each in a full one."""
    for seed in range(effort.tries):
        every = 1 if effort.varied else 25
        assert_outputs_kept(zoo_model(name), start(zoo_model(name).graph), seed, every)


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_random_rewrites_of_large_zoo_graphs_keep_the_outputs(name: str) -> None:
    model = OnnxModel.load(zoo.build(name))
    assert_outputs_kept(model, start(model.graph), seed=0, every=25)


def assert_outputs_kept(model: OnnxModel, state: State, seed: int, every: int) -> None:
    for step, each in enumerate(walk(state, 50, seed)):
        if step % every == 0 and step > 0:
            result = verify(model.original, model.export(each.graph), seed=seed)
            assert result.equal, (step, result)


# ---- the price


@sampled_and_full
def test_a_rewrite_costs_what_its_candidate_said(effort: Effort) -> None:
    def holds(graph: PlainGraph) -> None:
        for state in walk(start(graph.build()), effort.steps, seed=len(graph.operators)):
            assert_candidates_are_exact(state)

    for_all(graphs(), holds, effort)


@sampled_and_full
@pytest.mark.parametrize("name", TINY)
def test_a_rewrite_of_a_zoo_graph_costs_what_its_candidate_said(name: str, effort: Effort) -> None:
    for seed in range(effort.tries):
        for state in walk(start(zoo_model(name).graph), effort.steps, seed):
            assert_candidates_are_exact(state)


def assert_candidates_are_exact(state: State) -> None:
    """One candidate for each legal action, in its order, priced as the rewritten graph is."""
    rules, locations, costs = state.candidates()
    assert np.array_equal(np.stack([rules, locations], axis=1), state.legal_actions())
    for rule, location, cost in zip(rules.tolist(), locations.tolist(), costs.tolist(), strict=True):
        stepped = after(state, rule, location)
        assert stepped.cost.ms == pytest.approx(cost, rel=1e-9), (rule, location, PlainGraph.of(state.graph))


# ---- copies and undo


def everything(state: State) -> dict[str, Any]:
    """All that can be seen of a state, apart from the ids and the order of its operators."""
    rules, locations, costs = state.candidates()
    return {
        "hash": state.hash,
        "cost": (state.cost.ms, state.cost.flops, state.cost.memory_bytes, state.cost.kernel_launches),
        "actions": state.legal_actions().tolist(),
        "candidates": (rules.tolist(), locations.tolist(), costs.tolist()),
        "mask": state.location_mask().tobytes(),
        "truncated": state.truncated_matches,
        "features": sorted(row.tobytes() for array in state.features()[:2] for row in array),
    }


def over_states(effort: Effort, holds: Callable[[State, np.random.Generator], None]) -> None:
    """`holds` on the start states of random graphs, with few and with many locations, and of the tiny zoo."""

    def on_one(graph: PlainGraph) -> None:
        built = graph.build()
        for most in (3, 100):
            holds(start(built, most), np.random.default_rng(len(graph.operators)))

    for_all(graphs(), on_one, effort)
    for name in TINY:
        holds(start(zoo_model(name).graph), np.random.default_rng(0))


@sampled_and_full
def test_copies_are_independent(effort: Effort) -> None:
    """A copy takes the same rewrites to the same states, and neither sees those of the other."""

    def holds(state: State, rng: np.random.Generator) -> None:
        for _ in range(effort.steps):
            if (action := random_action(state, rng)) is None:
                return
            before, copy = everything(state), state.copy()
            assert_equal_parts(everything(copy), before)
            copy.step(*action)
            assert_equal_parts(everything(state), before)
            taken = everything(copy)
            state.step(*action)
            assert_equal_parts(everything(copy), taken)
            assert_equal_parts(everything(state), taken)

    over_states(effort, holds)


@can_undo
@sampled_and_full
def test_undo_restores_every_state_of_a_walk(effort: Effort) -> None:
    def holds(state: State, rng: np.random.Generator) -> None:
        seen = [everything(state)]
        actions: list[tuple[int, int]] = []
        while len(actions) < effort.steps and (action := random_action(state, rng)) is not None:
            state.step(*action)
            actions.append(action)
            seen.append(everything(state))
        for before in seen[-2::-1]:
            state.undo()  # type: ignore[attr-defined]
            assert_equal_parts(everything(state), before)
        for action, expected in zip(actions, seen[1:], strict=True):
            state.step(*action)
            assert_equal_parts(everything(state), expected)

    over_states(effort, holds)


@can_undo
@sampled_and_full
def test_undo_of_a_copy_leaves_the_original(effort: Effort) -> None:
    """And a copy can undo the steps that were taken before it was made."""

    def holds(state: State, rng: np.random.Generator) -> None:
        first = everything(state)
        if (action := random_action(state, rng)) is None:
            return
        state.step(*action)
        second, copy = everything(state), state.copy()
        copy.undo()  # type: ignore[attr-defined]
        assert_equal_parts(everything(copy), first)
        assert_equal_parts(everything(state), second)
        state.undo()  # type: ignore[attr-defined]
        assert_equal_parts(everything(state), first)

    over_states(effort, holds)


@can_undo
def test_there_is_nothing_to_undo_at_the_start() -> None:
    state = start(zoo_model(TINY[0]).graph)
    with pytest.raises(ValueError, match="undo"):
        state.undo()  # type: ignore[attr-defined]


def assert_equal_parts(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    differing = [name for name, value in expected.items() if found[name] != value]
    assert not differing, differing


# ---- what is exported


@sampled_and_full
def test_random_graphs_come_out_as_they_went_in(effort: Effort) -> None:
    """Without a rewrite, every operator, and loaded again the same graph up to the names of weights."""

    def holds(graph: PlainGraph) -> None:
        model = OnnxModel.load(model_of(graph), clean="none")
        exported = model.export(model.graph)
        onnx.checker.check_model(exported, full_check=True)
        again = OnnxModel.load(exported, clean="none")
        assert again.graph.num_runtime_nodes == model.graph.num_runtime_nodes
        assert start(again.graph).cost.ms == pytest.approx(start(model.graph).cost.ms, rel=1e-12)

    for_all(graphs(), holds, effort)
