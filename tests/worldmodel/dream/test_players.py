"""A controller that acts on one observation after another plays as its policy does, and obeys the dream's masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from controller.interface import Controller
from tests.worldmodel.toy_world import LENIENT, ToyEnv
from worldmodel.accuracy.exploit import dreamed_then_replayed
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.players import ActingPlayer, DreamView, PolicyPlayer, player_of
from worldmodel.dream.recollection import recollect
from worldmodel.errors import IllegalAction
from worldmodel.world_model import WorldModel


class First(Controller):
    """Takes the first legal rewrite, and NO-OP after a number of steps that the episode's seed decides."""

    name = "first"

    def view(self, env: Any) -> Any:
        raise AssertionError("whoever plays has made the view")

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self.left = 1 + seed % 4

    def act(self, observation: Any, *, deterministic: bool) -> int:
        self.left -= 1
        mask = observation.action_mask.numpy()[0]
        return int(mask.argmax()) if self.left >= 0 else len(mask) - 1


class FirstPolicy:
    def __call__(self, observation: Any, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        action = tf.argmax(tf.cast(observation.action_mask, tf.int32), axis=1, output_type=tf.int32)
        zero = tf.zeros(tf.shape(action))
        return action, zero, zero


class Always(First):
    def begin_episode(self, view: Any, *, seed: int) -> None:
        self.left = 99


@pytest.fixture(scope="module")
def dream(world_model: WorldModel) -> DreamEnv:
    return DreamEnv.of_root(world_model, ToyEnv(8, max_steps=10), replace(LENIENT, temperature=0.0))


def test_one_row_after_another_dreams_what_all_rows_dream_at_once(dream: DreamEnv) -> None:
    one = ActingPlayer(Always()).dream(dream, episodes=2, horizon=6, seed=3)
    all_at_once = PolicyPlayer(FirstPolicy()).dream(dream, episodes=2, horizon=6, seed=3)
    assert one.alive.any()
    for field, other in zip(one, all_at_once, strict=True):
        np.testing.assert_allclose(field.astype(float), other.astype(float), atol=1e-4)


def test_episodes_end_where_the_controller_ends_them(dream: DreamEnv) -> None:
    played = ActingPlayer(First()).dream(dream, episodes=12, horizon=6, seed=0)
    lengths = played.alive.sum(axis=0)
    assert len(set(lengths.tolist())) > 1 and lengths.max() <= 5
    for row, length in enumerate(lengths):
        if length < 5:
            assert played.action[length - 1, row] == dream.num_actions
        assert (played.action[length:, row] == dream.num_actions).all() and not played.reward[length:, row].any()


def test_what_a_controller_dreams_is_tried_in_reality(world_model: WorldModel, dream: DreamEnv) -> None:
    plans = dreamed_then_replayed(
        world_model, dream, ToyEnv(8, max_steps=10), player_of(First()), episodes=4, horizon=6, seed=0
    )
    assert all(1 <= len(plan.actions) <= 4 and len(plan.real_percent) > 1 for plan in plans)


def test_a_controller_without_a_policy_is_recollected_from(world_model: WorldModel) -> None:
    env = ToyEnv(8, max_steps=10)
    dream = DreamEnv.of_root(world_model, env, LENIENT)
    played = recollect(world_model, env, player_of(First()), episodes=8, seed=1, dream=dream, dreamed=0.5)
    latent = LatentEnv(ToyEnv(8, max_steps=10), world_model)
    first = int(latent.reset()[0].action_mask.numpy()[0].argmax())
    for episode in played:
        assert int(world_model.table.encode(episode.actions[:1])[0]) == first


def test_a_dream_is_as_short_as_its_options_say(dream: DreamEnv) -> None:
    view = DreamView(dream, 5)
    for options, limit in (({"max_steps": 1}, 1), ({"max_steps": None}, 5), ({"max_steps": 2}, 2), (None, 5)):
        observation, _ = view.reset(seed=0, options=options)
        ends = []
        for _ in range(limit):
            first = int(np.flatnonzero(observation.action_mask.numpy()[0])[0])
            observation, _, terminated, truncated, _ = view.step(first)
            assert not terminated
            ends.append(truncated)
        assert ends == [False] * (limit - 1) + [True]
    for options, fault in (({"max_steps": 0}, "at least 1"), ({"graph": "bert-base"}, "no option 'graph'")):
        with pytest.raises(ValueError, match=fault):
            view.reset(seed=0, options=options)


class OfTwoSteps(Always):
    """Its plan has two steps, and it has no answer to a third question."""

    max_steps = 2

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self.left = 2

    def act(self, observation: Any, *, deterministic: bool) -> int:
        assert self.left > 0
        return super().act(observation, deterministic=deterministic)


def test_a_controller_is_asked_for_as_many_steps_as_it_has(world_model: WorldModel, dream: DreamEnv) -> None:
    played = ActingPlayer(OfTwoSteps()).dream(dream, episodes=2, horizon=6, seed=0)
    assert (played.action[:2] != dream.num_actions).all() and (played.action[2:] == dream.num_actions).all()
    real = recollect(world_model, ToyEnv(8, max_steps=10), player_of(OfTwoSteps()), episodes=2, seed=1)
    assert [episode.num_steps for episode in real] == [3, 3], "the last of them is NO-OP"


def test_an_action_that_is_illegal_in_the_dream_is_refused(dream: DreamEnv) -> None:
    view = DreamView(dream, 5)
    observation, _ = view.reset(seed=0)
    illegal = int(np.flatnonzero(~observation.action_mask.numpy()[0])[0])
    for action in (illegal, -1, dream.num_actions + 1):
        with pytest.raises(IllegalAction, match=f"action {action} is illegal"):
            view.step(action)
