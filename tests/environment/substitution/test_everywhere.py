"""Everywhere-actions: when they are legal, what one step does, and that its log is one of single rewrites."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from environment import Candidates, GraphSubstitutionEnv, Padded
from environment.policies.random import RandomAgent
from environment.substitution.wrappers import with_headroom

NAMES = ("bert-base-tiny", "nasrnn-tiny", "squeezenet1.1-tiny")


def play(env: GraphSubstitutionEnv, seed: int) -> list[tuple[np.ndarray, float, dict[str, Any]]]:
    """Returns (action, reward, info) of each step of an episode in which half of the actions are everywhere-actions."""
    agent, over, steps = RandomAgent(seed, 0.0, everywhere_probability=0.5), False, []
    observation, _ = env.reset(seed=seed)
    while not over:
        action = agent(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        steps.append((action, float(reward), info))
        over = terminated or truncated
    return steps


@pytest.mark.parametrize("name", NAMES)
def test_the_mask_has_a_column_for_rules_with_two_matches(name: str) -> None:
    env = GraphSubstitutionEnv(name)
    observation, _ = env.reset(seed=0)
    for seed in range(5):
        mask = observation["location_mask"]
        assert env.observation_space.contains(observation) and mask.shape == (env.num_rules, env.num_locations + 1)
        assert np.array_equal(mask[:, -1], mask[:, :-1].sum(axis=1) >= 2)
        assert np.array_equal(np.argwhere(mask), env.legal_actions())
        action = env.legal_actions()[seed % len(env.legal_actions())]
        observation, *_ = env.step(action)


@pytest.mark.parametrize("name", NAMES)
def test_the_log_of_single_rewrites_leads_to_the_same_episode(name: str) -> None:
    """After every step, an environment without everywhere-actions is in the same state, at the same cost."""
    env, single = GraphSubstitutionEnv(name, max_steps=6), GraphSubstitutionEnv(name, max_steps=999, everywhere=False)
    longest = 0
    for seed in range(3):
        played = play(env, seed)
        single.reset()
        for action, reward, info in played:
            earned = [float(single.step(rewrite)[1]) for rewrite in info["rewrites"]]
            assert single.state.hash == info["graph_hash"]
            assert sum(earned) == pytest.approx(reward, abs=1e-9)
            assert {rule for rule, _ in info["rewrites"]} == {int(action[0])}
            longest = max(longest, len(info["rewrites"]))
        assert np.array_equal(single.legal_actions(), env.state.legal_actions())
        rewrites = [rewrite for *_, info in played for rewrite in info["rewrites"]]
        replayed = env.replay(rewrites).hash, env.replay([action for action, *_ in played]).hash
        assert replayed == (env.state.hash, env.state.hash)
    assert longest > 1


def test_an_illegal_everywhere_action_is_punished_or_raises() -> None:
    env, strict = (GraphSubstitutionEnv("bert-base-tiny", strict=strict) for strict in (False, True))
    _, before = env.reset()
    for rule in np.flatnonzero(env.state.location_counts() < 2)[:3]:
        _, reward, terminated, _, info = env.step([rule, env.num_locations])
        assert (reward, terminated, info["graph_hash"]) == (-100.0, False, before["graph_hash"])
        assert info["rewrites"] == () and info["rule_name"] == "invalid"
        strict.reset()
        with pytest.raises(ValueError, match="at least 2 matches"):
            strict.step([rule, strict.num_locations])
    rule = int(np.flatnonzero(env.state.everywhere_mask())[0])
    assert env.step([rule, env.num_locations + 1])[1] == -100.0


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*")
def test_without_them_everything_is_as_published() -> None:
    env = GraphSubstitutionEnv("bert-base-tiny", everywhere=False)
    check_env(env, skip_render_check=True)
    observation, _ = env.reset()
    assert env.action_space == gymnasium.spaces.MultiDiscrete([env.num_rules + 1, env.num_locations])
    assert observation["location_mask"].shape == (env.num_rules, env.num_locations)
    for found, state in ((env.legal_actions(), env.state.legal_actions()), (env.candidates(), env.state.candidates())):
        assert all(np.array_equal(*pair) for pair in zip(found, state, strict=True))
    rule = int(np.flatnonzero(env.state.everywhere_mask())[0])
    assert env.step([rule, env.num_locations])[1] == -100.0
    rows = Candidates(env, 8)
    assert "everywhere" not in rows.columns and rows.reset()[0]["candidates"].shape == (9, len(rows.columns))


@pytest.mark.parametrize("name", NAMES)
def test_wrappers_have_room_by_default(name: str) -> None:
    """Graphs and lists of rewrites fit in other episodes than those from which the sizes come."""
    env = GraphSubstitutionEnv(name)
    candidates, padded = Candidates(env), Padded(env)
    assert candidates.max_candidates >= with_headroom(len(env.legal_actions()))
    agent = RandomAgent(1, 0.0, everywhere_probability=0.5)
    observation, _ = padded.reset(seed=1)
    over = False
    while not over:
        assert candidates.action_masks().sum() == len(env.legal_actions()) + 1
        observation, _, terminated, truncated, _ = padded.step(agent(observation))
        over = terminated or truncated


@pytest.mark.full
def test_candidates_have_room_for_bert_base() -> None:
    env = Candidates(GraphSubstitutionEnv("bert-base"))
    rng, (_, info) = np.random.default_rng(0), env.reset()
    for _ in range(50):
        assert info["truncated_candidates"] == 0 and info["num_candidates"] > 50
        *_, info = env.step(int(rng.choice(np.flatnonzero(env.action_masks())[1:])))


def test_the_random_agent_plays_them_as_often_as_asked() -> None:
    """The shares are within 5 standard deviations: a false alarm in a million runs."""
    mask = np.array([[1, 1, 1, 1], [0, 1, 0, 0]], np.int8)
    observation = {"rule_mask": np.array([1, 1, 1], np.int8), "location_mask": mask}
    for probability, expected in ((0.3, 0.3), (None, 0.25), (0.0, 0.0), (1.0, 1.0)):
        agent = RandomAgent(0, 0.0, everywhere_probability=probability)
        actions = np.array([agent(observation) for _ in range(1000)])
        assert set(actions[actions[:, 0] == 1, 1].tolist()) == {1}
        places = actions[actions[:, 0] == 0, 1]
        assert np.mean(places == 3) == pytest.approx(expected, abs=5 * 0.5 / len(places) ** 0.5)
    with pytest.raises(ValueError, match="everywhere_probability"):
        RandomAgent(everywhere_probability=1.5)
