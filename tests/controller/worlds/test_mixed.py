"""Short dreams from the real states of a policy: they begin there, end soon, and go on as if never interrupted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from controller.worlds.mixed import MixedWorld
from tests import tracing
from tests.worldmodel.toy_world import LENIENT, QUICK, SIGNATURE, ToyEnv, UniformPolicy, uniform_policy
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.data.trajectory import Trajectory
from worldmodel.fitting import fit
from worldmodel.world_model import WorldModel

pytestmark = pytest.mark.usefixtures("untraced")

POLICY = UniformPolicy(noop_logit=-3.0)
BRANCH, REFRESH = 3, 2


@pytest.fixture(scope="module")
def episodes() -> EpisodeBuffer:
    return collect(ToyEnv(8, max_steps=12), uniform_policy(0.02), 40, seed=1)


@pytest.fixture(scope="module")
def model(episodes: EpisodeBuffer) -> WorldModel:
    with tracing.untraced():
        return fit(episodes, SIGNATURE, QUICK, seed=0)


def world(model: WorldModel, episodes: EpisodeBuffer, directory: Path, done: int = 0) -> MixedWorld:
    return MixedWorld(
        model,
        ToyEnv(8, max_steps=12),
        EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:1]),
        LENIENT,
        branch=BRANCH,
        refresh=REFRESH,
        episodes=3,
        directory=directory,
        done=done,
    )


def rollouts(world: MixedWorld, numbers: range) -> list[Trajectory]:
    return [world.rollout(POLICY, batch=64, horizon=10, seed=number) for number in numbers]


def test_dreams_are_short_and_begin_in_states_of_the_policy(
    model: WorldModel, episodes: EpisodeBuffer, tmp_path: Path
) -> None:
    (rollout,) = rollouts(world(model, episodes, tmp_path), range(1))
    assert rollout.action.shape[0] == BRANCH
    played = EpisodeBuffer.load(tmp_path / "episodes-000000.npz")
    assert len(played) == 3
    known = {graph for buffer in (played, episodes) for episode in buffer for graph in episode.hashes}
    latents = np.stack([*model.encode({name: played.graphs[name] for name in known if name in played.graphs}).values()])
    starts = rollout.state.numpy()[0]
    distances = np.abs(starts[:, np.newaxis] - latents[np.newaxis]).max(axis=2).min(axis=1)
    assert (distances < 1e-4).mean() > 0.5
    assert len(np.unique(starts.round(4), axis=0)) > 3


def test_real_episodes_are_played_at_every_refresh_and_an_interrupted_training_goes_on(
    model: WorldModel, episodes: EpisodeBuffer, tmp_path: Path
) -> None:
    whole = rollouts(world(model, episodes, tmp_path / "whole"), range(5))
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == [f"episodes-00000{i}.npz" for i in range(3)]
    rollouts(world(model, episodes, tmp_path / "parts"), range(3))
    rest = rollouts(world(model, episodes, tmp_path / "parts", done=3), range(3, 5))
    for one, other in zip(whole[3:], rest, strict=True):
        for field, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(field, same)
