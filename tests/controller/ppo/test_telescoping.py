from __future__ import annotations

import numpy as np
import pytest

from controller.ppo.telescoping import first_visits, telescoped
from environment import GraphSubstitutionEnv


def walk(seed: int, steps: int = 12, batch: int = 6, states: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns random walks: (states [T + 1, B], their masks [T + 1, B, A], rewards [T, B] that do not telescope)."""
    rng = np.random.default_rng(seed)
    visited = rng.integers(states, size=(steps + 1, batch))
    masks = rng.random((states, 13)) < 0.5
    masks[:, :states] = np.eye(states, dtype=bool)  # no two states have the same mask
    return visited, masks[visited], rng.standard_normal((steps, batch)).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_first_visits_are_the_first(seed: int) -> None:
    visited, masks, _ = walk(seed)
    for row in range(visited.shape[1]):
        expected = [visited[:, row].tolist().index(state) for state in visited[:, row]]
        np.testing.assert_array_equal(first_visits(masks)[:, row], expected)


@pytest.mark.parametrize("seed", range(3))
def test_every_loop_sums_to_zero(seed: int) -> None:
    visited, masks, rewards = walk(seed)
    earned = np.pad(np.cumsum(telescoped(rewards, first_visits(masks)), axis=0), ((1, 0), (0, 0)))
    for row, state in np.ndindex(visited.shape[1], visited.max() + 1):
        there = earned[visited[:, row] == state, row]
        np.testing.assert_allclose(there, there[:1].repeat(len(there)), atol=1e-5)


def test_without_loops_nothing_changes() -> None:
    rewards, masks = walk(0, steps=3)[2], np.eye(4, dtype=bool)[:, np.newaxis].repeat(6, axis=1)
    np.testing.assert_allclose(telescoped(rewards, first_visits(masks)), rewards, rtol=1e-6)


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny"])
def test_the_real_environment_is_what_rewards_are_held_to(name: str, everywhere: bool) -> None:
    """Real rewards stay as they are, because states with equal legal actions cost the same.

    One rewrite in some hundred is an exception: where two factors change places, the same rewrites are legal again.
    """
    env, rng = GraphSubstitutionEnv(name, max_steps=40, everywhere=everywhere), np.random.default_rng(0)
    changed: list[bool] = []
    for _ in range(5):
        observation, _ = env.reset()
        masks, rewards, over = [observation["location_mask"].reshape(1, -1) > 0], [], False
        while not over and len(env.legal_actions()):
            observation, reward, terminated, truncated, _ = env.step(rng.choice(env.legal_actions()))
            masks.append(observation["location_mask"].reshape(1, -1) > 0)
            rewards.append([reward])
            over = terminated or truncated
        real = np.array(rewards, np.float32)
        changed += (np.abs(telescoped(real, first_visits(np.array(masks))) - real) > 1e-4).ravel().tolist()
    assert np.mean(changed) <= 0.01
