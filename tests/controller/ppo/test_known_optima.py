"""PPO finds the optimum of graphs whose every state was looked at, for real and in dreams, from almost every seed.

False alarm of the tests with twenty seeds: if each seed fails with probability 1 %, two or more of twenty do so in
1.7 % of all sets of seeds; the seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from controller.evaluation import play_episode
from controller.ppo.config import PolicyConfig, PpoConfig
from controller.ppo.controller import PpoController
from controller.search.one_step import GreedyController
from controller.worlds.real import RealWorld
from environment import GraphSubstitutionEnv
from tests.controller.exhaustive import best_improvement
from tests.controller.shared_product import shared_product
from tests.worldmodel.toy_world import SMALL
from worldmodel.config import EncoderConfig
from worldmodel.data.episodes import collect
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.fitting import fit

TWENTY = range(20)
CLOSE = 1e-4
"""Fraction of the start cost by which the graph found may be dearer than the optimum."""
ENCODER = EncoderConfig(latent=8, hidden=16, edge_hidden=4, rounds=1)
REAL = PpoConfig(updates=25, batch=8, horizon=12, epochs=4, minibatches=1, learning_rate=2e-2)


def fires() -> GraphSubstitutionEnv:
    """Returns two fire modules under all rules: 320 graphs, and the cheapest is 8 rewrites away.

    A few steps more are allowed, because a policy does not see how many are left and may make neutral rewrites first.
    """
    return GraphSubstitutionEnv("squeezenet1.1-tiny", costs="roofline:rtx2070", max_steps=12, everywhere=False)


def products() -> GraphSubstitutionEnv:
    """Returns four products that read another one: 16 graphs, and each of 4 rewrites costs but for the last."""
    return shared_product(max_steps=5, everywhere=False)


def found_from(
    seeds: Sequence[int], make: Callable[[int], PpoController], world: object, env: GraphSubstitutionEnv, folder: Path
) -> list[bool]:
    """Returns for each seed whether a policy that was trained from it plays to the optimum, without chance.

    All seeds share one controller, which takes the weights of a new one of each seed, because tracing takes longest.
    """
    optimum, player, found = best_improvement(env), make(0), []
    for seed in seeds:
        make(seed).save(folder / "untrained")
        player.load(folder / "untrained")
        player.train(world, seed=seed)
        found.append(play_episode(env, player, seed=seed, deterministic=True).improvement >= optimum - CLOSE)
    return found


@pytest.mark.full
@pytest.mark.parametrize("make_env", [fires, products])
@pytest.mark.parametrize("head", ["hierarchical", "four-networks", "pointer"])
def test_ppo_finds_the_optimum_for_real(
    make_env: Callable[[], GraphSubstitutionEnv], head: str, tmp_path: Path
) -> None:
    """One seed of each head is in `test_everywhere` and in `tests.controller.policies.test_heads`."""
    env, policy = make_env(), PolicyConfig(head=head, torso=(32, 32), width=8, mask_width=8)  # type: ignore[arg-type]

    def make(seed: int) -> PpoController:
        return PpoController.for_real(env, REAL, policy, ENCODER, seed=seed)

    assert np.mean(found_from(TWENTY, make, RealWorld(make_env), env, tmp_path)) >= 0.95


def finds_in_a_dream(make_env: Callable[[], GraphSubstitutionEnv], seed: int) -> bool:
    """Returns whether a policy finds the optimum that was trained in nothing but a dream from random episodes."""
    env = make_env()
    episodes = collect(env, num_episodes=200, seed=seed)
    model = fit(episodes, env, SMALL, seed=seed)
    config, policy = PpoConfig(updates=40, batch=32, horizon=12), PolicyConfig(torso=(32, 32), width=8, mask_width=8)
    player = PpoController.for_dream(model, config, policy, seed=seed)
    player.train(DreamEnv.of_episodes(model, episodes), seed=seed)
    played = play_episode(env, player, seed=seed, deterministic=True)
    return played.improvement >= best_improvement(env) - CLOSE


def test_ppo_finds_an_optimum_in_a_dream() -> None:
    assert finds_in_a_dream(products, seed=0)


@pytest.mark.full
@pytest.mark.parametrize("make_env", [fires, products])
def test_ppo_finds_the_optimum_in_dreams(make_env: Callable[[], GraphSubstitutionEnv]) -> None:
    assert np.mean([finds_in_a_dream(make_env, seed) for seed in TWENTY]) >= 0.95


@pytest.mark.parametrize("make_env", [fires, products])
def test_greedy_descent_does_not_find_these_optima(make_env: Callable[[], GraphSubstitutionEnv]) -> None:
    """Both need rewrites that cost at first."""
    env = make_env()
    assert play_episode(env, GreedyController(), seed=0).improvement < 0.5 * best_improvement(env)
