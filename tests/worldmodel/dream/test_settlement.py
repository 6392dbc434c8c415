from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from environment import GraphSubstitutionEnv
from environment.policies.greedy import GreedyAgent
from worldmodel.data.episodes import collect
from worldmodel.dream.settlement import draw_numbers, open_ledger, settled


def settle(
    masks: np.ndarray, actions: np.ndarray, rewards: np.ndarray, *, of_log_cost: bool = True, remembered: int = 99
) -> np.ndarray:
    """Returns the settled rewards [T, B] of steps; masks are bool [T + 1, B, A + 1], NO-OP last."""
    numbers = tf.constant(draw_numbers(masks.shape[2] - 1, remembered))
    ledger, found = open_ledger(tf.constant(masks[0]), numbers, remembered), []
    for t, reward in enumerate(rewards.astype(np.float32)):
        before, after = tf.constant(masks[t]), tf.constant(masks[t + 1])
        action = tf.constant(actions[t], tf.int32)
        paid, ledger = settled(ledger, before, after, action, tf.constant(reward), numbers, of_log_cost=of_log_cost)
        found.append(paid.numpy())
    assert ledger.shape == (masks.shape[1], 4, remembered + 1)
    return np.array(found)


def walk(seed: int, steps: int = 12, batch: int = 6, states: int = 4) -> tuple[np.ndarray, ...]:
    """Returns random walks: (states [T + 1, B], their masks, actions [T, B], rewards [T, B] that do not telescope)."""
    rng = np.random.default_rng(seed)
    visited = rng.integers(states, size=(steps + 1, batch))
    masks = rng.random((states, 13)) < 0.5
    masks[:, :states] = np.eye(states, dtype=bool)  # no two states have the same mask
    masks[:, -1] = True
    rewards = rng.standard_normal((steps, batch)) * (visited[1:] != visited[:-1])
    return visited, masks[visited], rng.integers(12, size=(steps, batch)), rewards


@pytest.mark.parametrize("of_log_cost", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_every_loop_sums_to_zero(seed: int, of_log_cost: bool) -> None:
    visited, masks, actions, rewards = walk(seed)
    found = settle(masks, actions, rewards, of_log_cost=of_log_cost)
    earned = np.pad(np.cumsum(found, axis=0), ((1, 0), (0, 0)))
    for row, state in np.ndindex(visited.shape[1], visited.max() + 1):
        there = earned[visited[:, row] == state, row]
        np.testing.assert_allclose(there, there[:1].repeat(len(there)), atol=1e-4)


def test_without_loops_nothing_changes() -> None:
    masks = np.pad(np.eye(4, dtype=bool)[:, np.newaxis].repeat(6, axis=1), ((0, 0), (0, 0), (0, 1)), constant_values=1)
    rewards = np.random.default_rng(0).standard_normal((3, 6))
    np.testing.assert_allclose(settle(masks, np.zeros((3, 6), int), rewards), rewards, rtol=1e-5)


def switches(*moves: int, count: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Returns masks and actions of one row in which action 2 i switches i on, and action 2 i + 1 switches it off.

    The action `2 * count` is always legal and changes no legal rewrite.
    """
    on, masks = np.zeros(count, bool), []
    for move in (*moves, None):
        masks.append(np.append(np.stack([~on, on], axis=-1).ravel(), [True, True]))
        if move is not None and move < 2 * count:
            on[move // 2] = move % 2 == 0
    return np.array(masks)[:, np.newaxis], np.array(moves)[:, np.newaxis]


def test_what_is_undone_is_paid_back_whatever_was_done_in_between() -> None:
    """Costs are 1, then 0.9, 0.45 and 0.35; undoing the first step adds the 0.1 that it saved."""
    masks, actions = switches(0, 2, 4, 1)
    rewards = -100 * np.log(np.array([0.9, 0.5, 0.35 / 0.45, 0.2]))[:, np.newaxis]
    found = settle(masks, actions, rewards)
    np.testing.assert_allclose(found[:3], rewards[:3], rtol=1e-5)
    assert found[3, 0] == pytest.approx(100 * np.log(0.35 / 0.45), rel=1e-5)
    linear = settle(masks, actions, np.array([[3.71], [-1.0], [0.25], [-0.36]]), of_log_cost=False)
    np.testing.assert_allclose(linear[:, 0], [3.71, -1.0, 0.25, -3.71], rtol=1e-5)


def test_a_step_is_undone_once_and_can_be_taken_again() -> None:
    """Nothing is earned by switching to and fro, with something in between that keeps any state from coming again."""
    masks, actions = switches(0, 2, 1, 4, 0, 1)
    found = settle(masks, actions, np.array([[1.0], [0.1], [2.0], [0.1], [5.0], [7.0]]), of_log_cost=False)
    np.testing.assert_allclose(found[:, 0], [1.0, 0.1, -1.0, 0.1, 1.0, -1.0], rtol=1e-5)


def test_a_step_that_changes_no_legal_rewrite_pays_nothing_and_may_cost() -> None:
    """After it the state is another one, and so the old total does not come back; the undone step is still known."""
    masks, actions = switches(6, 0, 6, 1, 6)
    found = settle(masks, actions, np.array([[4.0], [2.0], [-0.5], [9.0], [0.0]]), of_log_cost=False)
    np.testing.assert_allclose(found[:, 0], [0.0, 2.0, -0.5, -2.0, 0.0], rtol=1e-5)


def test_noop_is_left_alone() -> None:
    masks, actions = switches(0, 7, 7)
    found = settle(masks, actions, np.array([[1.0], [0.75], [0.25]]))
    np.testing.assert_allclose(found[:, 0], [1.0, 0.75, 0.25], rtol=1e-5)


def test_what_lies_further_back_is_forgotten() -> None:
    masks, actions = switches(0, 2, 4, 1)
    rewards = np.array([[1.0], [2.0], [3.0], [4.0]])
    kept, forgotten = (settle(masks, actions, rewards, of_log_cost=False, remembered=steps) for steps in (3, 2))
    assert kept[3, 0] == pytest.approx(-1.0) and forgotten[3, 0] == pytest.approx(4.0)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", pytest.param("bert-base-tiny", marks=pytest.mark.full)])
def test_the_real_environment_is_what_rewards_are_held_to(name: str, greedy: bool) -> None:
    """Real rewards stay as they are; one rewrite in some hundred is an exception."""
    env = GraphSubstitutionEnv(name, max_steps=30)
    episodes = collect(env, GreedyAgent(env) if greedy else None, 12, seed=0)
    table, changed = episodes.action_table(), []
    for episode in episodes:
        masks = np.stack([table.mask(episode.legal_actions(t)) for t in range(episode.num_steps + 1)])[:, np.newaxis]
        real = episode.rewards[:, np.newaxis]
        found = settle(masks, table.encode(episode.actions)[:, np.newaxis], real)
        changed += (np.abs(found - real) > 1e-3).ravel().tolist()
    assert len(changed) > 80 and np.mean(changed) <= 0.01
