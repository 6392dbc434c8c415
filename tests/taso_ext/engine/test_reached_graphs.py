"""Tests of the graphs that actions lead to from a start graph: they are those of states, whatever is held."""

from __future__ import annotations

import numpy as np
import pytest

from environment import zoo
from taso_ext import CostModel, OnnxModel, ReachedGraphs, RuleSet, State

MEMORY = 64 << 20


@pytest.fixture(scope="module")
def start() -> State:
    graph = OnnxModel.load(zoo.build("bert-base-tiny")).graph
    return State(graph, RuleSet.default(), CostModel.roofline("rtx2070"))


@pytest.fixture(scope="module")
def actions(start: State) -> np.ndarray:
    """All that is legal in the start graph or after one action, at one location or everywhere."""
    found = {tuple(pair) for pair in legal_in(start)}
    for action in sorted(found):
        found |= {tuple(pair) for pair in legal_in(after(start, *action))}
    return np.array(sorted(found), np.int64)


def legal_in(state: State) -> list[list[int]]:
    everywhere = np.flatnonzero(state.everywhere_mask())
    return [*state.legal_actions().tolist(), *([int(rule), state.num_locations] for rule in everywhere)]


def after(state: State, rule: int, location: int) -> State:
    reached = state.copy()
    if location == state.num_locations:
        reached.step_everywhere(rule)
    else:
        reached.step(rule, location)
    return reached


@pytest.mark.parametrize("memory", [0, MEMORY])
def test_walks_lead_to_the_graphs_of_states(start: State, actions: np.ndarray, memory: int) -> None:
    graphs, generator = ReachedGraphs(start, actions, memory_bytes=memory), np.random.default_rng(0)
    index = {tuple(pair): number for number, pair in enumerate(actions.tolist())}
    states, numbers = [start] * 4, np.zeros(4, np.int64)
    for _ in range(6):
        masks = graphs.legal(numbers)
        expected = np.zeros_like(masks)
        for row, state in enumerate(states):
            known = [index[tuple(pair)] for pair in legal_in(state) if tuple(pair) in index]
            expected[row, [*known, -1]] = True
        np.testing.assert_array_equal(masks, expected)
        taken = np.array([generator.choice(np.flatnonzero(mask)) for mask in masks])
        reached, numbers = graphs.step(numbers, taken)
        states = [
            state if action == len(actions) else after(state, *actions[action].tolist())
            for state, action in zip(states, taken, strict=True)
        ]
        np.testing.assert_array_equal(reached, graphs.legal(numbers))
    assert len({state.hash for state in states}) > 1, "else nothing was tested"


def test_the_same_action_leads_to_the_same_number(start: State, actions: np.ndarray) -> None:
    graphs = ReachedGraphs(start, actions, memory_bytes=MEMORY)
    legal = np.flatnonzero(graphs.legal([0])[0])[:3]
    _, first = graphs.step([0, 0, 0], legal)
    assert graphs.step([0, 0, 0], legal)[1].tolist() == first.tolist() == [1, 2, 3]
    assert graphs.step([2], [len(actions)])[1].tolist() == [2], "nothing was done"


@pytest.mark.parametrize(
    ("graphs", "taken", "said"),
    [
        ([7], [0], "there is no graph 7: 1 were reached"),
        ([-1], [0], "there is no graph -1"),
        ([0], [10**6], "action 1000000 is out of range"),
        ([0], [-1], "action -1 is out of range"),
        ([0, 0], [0], "as many graphs as actions are needed, got 2 and 1"),
    ],
)
def test_what_is_unknown_is_named(
    start: State, actions: np.ndarray, graphs: list[int], taken: list[int], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        ReachedGraphs(start, actions, memory_bytes=MEMORY).step(graphs, taken)


def test_masks_of_unknown_graphs_are_refused(start: State, actions: np.ndarray) -> None:
    with pytest.raises(ValueError, match="there is no graph 3"):
        ReachedGraphs(start, actions, memory_bytes=MEMORY).legal([0, 3])


def test_an_illegal_action_is_refused_and_changes_nothing(start: State, actions: np.ndarray) -> None:
    graphs = ReachedGraphs(start, actions, memory_bytes=MEMORY)
    illegal = int(np.flatnonzero(~graphs.legal([0])[0])[0])
    with pytest.raises(ValueError, match=r"legal|everywhere"):
        graphs.step([0], [illegal])
    with pytest.raises(ValueError, match="1 were reached"):
        graphs.legal([1])


@pytest.mark.parametrize("pairs", [[[0, 10**9]], [[-1, 0]], [[10**6, 0]]])
def test_actions_have_rules_and_locations_that_there_are(start: State, pairs: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"action 0 is rule .* locations, the last of which stands for all matches"):
        ReachedGraphs(start, pairs, memory_bytes=MEMORY)


def test_actions_are_pairs(start: State) -> None:
    with pytest.raises(ValueError, match="pairs"):
        ReachedGraphs(start, [0, 1], memory_bytes=MEMORY)
