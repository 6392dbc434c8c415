"""Directed random play: how often it is directed, what it then takes, and what it remembers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from environment import GraphSubstitutionEnv
from environment.policies.directed import DirectedAgent
from environment.policies.random import RandomAgent
from worldmodel.data.episodes import EpisodeBuffer, collect

DRAWS = 4000
MASK = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], np.int8)
LEGAL = [(0, 0), (0, 2), (2, 1)]


class Foretelling:
    """A stand-in for an environment in whose only state the three rewrites of `LEGAL` lead to the given costs."""

    num_rules = 3
    state = SimpleNamespace(cost=SimpleNamespace(ms=1.0))

    def __init__(self, *costs_ms: float) -> None:
        self._costs_ms = np.array(costs_ms)

    def candidates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rules, locations = np.array(LEGAL, np.int32).T
        return rules, locations, self._costs_ms


def shares(agent: DirectedAgent, mask: np.ndarray = MASK) -> list[float]:
    """Returns the share of draws in which each of `LEGAL` is taken."""
    rng = np.random.default_rng(0)
    observation = {"rule_mask": np.append(mask.any(axis=1), True).astype(np.int8), "location_mask": mask}
    taken = [tuple(agent(observation, rng).tolist()) for _ in range(DRAWS)]
    assert set(taken) <= set(LEGAL)
    return [taken.count(each) / DRAWS for each in LEGAL]


def agent(*costs_ms: float, directed: float = 1.0) -> DirectedAgent:
    return DirectedAgent(Foretelling(*costs_ms), RandomAgent(noop_probability=0.0), directed)


def test_half_of_the_directed_steps_try_what_pays_and_the_others_what_is_rare() -> None:
    """All three were legal equally often; a gain of 1 % more makes a rewrite e times as likely."""
    paying = np.exp([0.0, 1.0, 0.0]) / np.exp([0.0, 1.0, 0.0]).sum()
    found = shares(agent(1.0, np.exp(-0.01), 1.0))
    assert found == pytest.approx(0.5 * paying + 0.5 / 3, abs=0.04)  # 5 sigma


def test_what_was_seldom_legal_is_tried_more_often() -> None:
    """(2, 1) becomes legal only after 99 states, and is then seen once for 100 sights of the others."""
    directed, rng = agent(1.0, 1.0, 1.0), np.random.default_rng(0)
    before = MASK.copy()
    before[2] = 0
    for _ in range(99):
        directed({"rule_mask": np.array([1, 0, 0, 1], np.int8), "location_mask": before}, np.random.default_rng(0))
    directed({"rule_mask": np.array([1, 0, 1, 1], np.int8), "location_mask": MASK}, np.random.default_rng(0))
    taken = [tuple(directed._rare(MASK.astype(int), rng).tolist()) for _ in range(DRAWS)]
    assert taken.count((2, 1)) / DRAWS == pytest.approx(1 / (1 + 2 / 100), abs=0.02)


def test_all_other_steps_are_random_play() -> None:
    """Random play draws the rule first, so (2, 1) is as likely as both others together."""
    assert shares(agent(1.0, 0.5, 1.0, directed=0.0)) == pytest.approx([0.25, 0.25, 0.5], abs=0.04)


@pytest.mark.parametrize("directed", [-0.1, 1.1])
def test_a_share_is_a_share(directed: float) -> None:
    with pytest.raises(ValueError, match=r"directed must lie in \[0, 1\]"):
        agent(1.0, directed=directed)


def test_directed_play_finds_better_graphs() -> None:
    env = GraphSubstitutionEnv("bert-base-tiny", max_steps=20)

    def played(share: float) -> EpisodeBuffer:
        return collect(env, DirectedAgent(env, RandomAgent(everywhere_probability=0.2), share), 12, seed=0)

    at_random, directed = (min(episode.cost_ms.min() for episode in played(share)) for share in (0.0, 0.5))
    assert directed < 0.95 * at_random
