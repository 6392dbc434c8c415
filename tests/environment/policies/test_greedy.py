"""Greedy play: which rewrites it takes, which it never takes, and how its episodes differ."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from environment import GraphSubstitutionEnv
from environment.policies.greedy import GreedyAgent

NOTHING: dict[str, object] = {}


class Foretelling:
    """A stand-in for an environment in a state of cost 1 ms whose rewrites lead to the given costs."""

    num_rules = 9

    def __init__(self, *costs_ms: float) -> None:
        self.state = SimpleNamespace(cost=SimpleNamespace(ms=1.0))
        self._costs_ms = np.array(costs_ms)

    def candidates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        numbers = np.arange(len(self._costs_ms), dtype=np.int32)
        return numbers, 10 * numbers, self._costs_ms


def shares(agent: GreedyAgent, count: int, draws: int = 4000) -> np.ndarray:
    """Returns the share of draws in which each of `count` rewrites is taken."""
    actions = np.array([agent(NOTHING) for _ in range(draws)])
    np.testing.assert_array_equal(actions[:, 1], 10 * actions[:, 0])
    return np.bincount(actions[:, 0], minlength=count) / draws


def test_the_best_is_taken_and_equals_are_equally_likely() -> None:
    env = Foretelling(0.9, 0.8, 1.2, 0.8 * (1 + 1e-12))
    assert shares(GreedyAgent(env, randomness=0.0), 4) == pytest.approx([0, 0.5, 0, 0.5], abs=0.04)  # 5 sigma


def test_where_nothing_gains_the_less_dear_are_likelier() -> None:
    env = Foretelling(1.0, 1.01, 1.3)
    expected = np.exp([0.0, -np.log(1.01) * 100, -np.log(1.3) * 100])
    found = shares(GreedyAgent(env, randomness=0.0), 3)
    assert found == pytest.approx(expected / expected.sum(), abs=0.04) and found[2] == 0


def test_some_steps_wander_although_something_gains() -> None:
    """When the agent wanders, the odds of two rewrites that are 1 % apart are e to 1."""
    found = shares(GreedyAgent(Foretelling(0.9, 0.9 * np.exp(0.01)), randomness=0.4), 2)
    assert found[1] == pytest.approx(0.4 / (1 + np.e), abs=0.03)


def test_nothing_left_is_noop() -> None:
    assert GreedyAgent(Foretelling())(NOTHING).tolist() == [9, 0]


def episode(seed: int) -> tuple[list[tuple[int, int]], float]:
    """Plays an episode and returns its actions and by how many percent its best graph is cheaper."""
    env = GraphSubstitutionEnv("bert-base-tiny", max_steps=25, strict=True)
    agent, generator = GreedyAgent(env), np.random.default_rng(seed)
    observation, _ = env.reset()
    actions, over = [], False
    while not over:
        action = agent(observation, generator)
        actions.append((int(action[0]), int(action[1])))
        observation, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    return actions, 100 * (1 - info["best_cost_ms"] / env.initial_cost.ms)


def test_real_episodes_are_legal_deep_good_and_different() -> None:
    played = [episode(seed) for seed in range(4)]
    assert all(len(actions) == 25 and percent > 5 for actions, percent in played)
    assert len({tuple(actions) for actions, _ in played}) == 4
    assert episode(0) == played[0]


@pytest.mark.parametrize("settings", [{"randomness": 1.1}, {"temperature_percent": 0.0}])
def test_bad_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="randomness must lie"):
        GreedyAgent(Foretelling(1.0), **settings)
