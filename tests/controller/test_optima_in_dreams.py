"""What plans or learns in dreams finds the optimum of graphs whose every state was looked at, from almost every seed.

PPO in whole dreams is in `tests.controller.ppo.test_known_optima`, whose graphs these are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from controller.cmaes.config import CmaesConfig
from controller.cmaes.controller import CmaesController
from controller.evaluation import play_episode
from controller.interface import Controller
from controller.mcts.config import MctsConfig
from controller.mcts.controller import MctsController
from controller.mpc.controller import MpcController
from controller.ppo.config import PolicyConfig, PpoConfig
from controller.ppo.controller import PpoController
from controller.worlds.mixed import MixedWorld
from environment import GraphSubstitutionEnv
from tests.controller.exhaustive import best_improvement
from tests.controller.ppo.test_known_optima import CLOSE, TWENTY, fires, products
from tests.worldmodel.toy_world import SMALL
from worldmodel.config import DreamConfig
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.fitting import fit
from worldmodel.world_model import WorldModel

POLICY = PolicyConfig(torso=(32, 32), width=8, mask_width=8)
CMAES = CmaesConfig(generations=60, horizon=12)
MCTS = MctsConfig(iterations=6, games=16, warm_up=32, horizon=12)
PPO = PpoConfig(updates=40, batch=32, horizon=12)
IN_DREAMS = ("mpc", "cmaes", "mcts")


def untrained(name: str, model: WorldModel, env: GraphSubstitutionEnv, seed: int) -> Controller:
    if name == "mpc":
        return MpcController.build(model, seed=seed)
    if name == "cmaes":
        return CmaesController.build(model, CMAES, seed=seed)
    if name == "mcts":
        return MctsController.build(env=env, world_model=model, config=MCTS, policy=POLICY, seed=seed)
    return PpoController.for_dream(model, PPO, POLICY, seed=seed)


def found(
    make_env: Callable[[], GraphSubstitutionEnv], names: tuple[str, ...], seed: int, folder: Path
) -> dict[str, bool]:
    """Returns which controllers play to the optimum that see nothing but a model of random episodes before."""
    env = make_env()
    episodes = collect(env, num_episodes=200, seed=seed)
    model, optimum = fit(episodes, env, SMALL, seed=seed), best_improvement(env)
    improvements = {}
    for name in names:
        player = untrained(name, model, env, seed)
        world = mixed(model, make_env(), episodes, seed, folder) if name == "mixed" else None
        if player.trains:
            player.train(world or DreamEnv.of_episodes(model, episodes), seed=seed)
        improvements[name] = play_episode(env, player, seed=seed, deterministic=True).improvement
    return {name: improvement >= optimum - CLOSE for name, improvement in improvements.items()}


def mixed(model: WorldModel, env: GraphSubstitutionEnv, episodes: EpisodeBuffer, seed: int, folder: Path) -> MixedWorld:
    """Returns dreams of four steps that branch off the policy's own real states."""
    facts = {"branch": 4, "refresh": 10, "episodes": 4}
    return MixedWorld(model, env, episodes, DreamConfig(), **facts, directory=folder / f"{seed}", seed=seed)


@pytest.mark.full
def test_an_optimum_is_found_in_a_dream(tmp_path: Path) -> None:
    assert found(products, IN_DREAMS, 0, tmp_path) == dict.fromkeys(IN_DREAMS, True)


@pytest.mark.full
@pytest.mark.parametrize("make_env", [fires, products])
def test_the_optimum_is_found_in_dreams(make_env: Callable[[], GraphSubstitutionEnv], tmp_path: Path) -> None:
    runs = [found(make_env, (*IN_DREAMS, "mixed"), seed, tmp_path) for seed in TWENTY]
    for name in runs[0]:
        assert np.mean([run[name] for run in runs]) >= 0.95, name
