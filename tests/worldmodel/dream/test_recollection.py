from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import LENIENT, QUICK, SIGNATURE, ToyEnv, UniformPolicy, knowing_half
from worldmodel.accuracy.omissions import paying_rewrites
from worldmodel.config import PAYS_PERCENT
from worldmodel.data.actions import pack
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.data.trajectory import LatentObservation, Policy, Trajectory
from worldmodel.dream import recollection
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.planning import Plan
from worldmodel.dream.players import PolicyPlayer
from worldmodel.dream.recollection import _Doubts, recollect
from worldmodel.fitting import fit
from worldmodel.world_model import WorldModel

PLAYER = PolicyPlayer(UniformPolicy(noop_logit=-2.0))


@pytest.fixture(scope="module")
def recollected(world_model: WorldModel) -> EpisodeBuffer:
    return recollect(world_model, ToyEnv(8, max_steps=10), PLAYER, episodes=6, seed=4)


def test_episodes_are_real_ones(recollected: EpisodeBuffer) -> None:
    env = ToyEnv(8, max_steps=10)
    assert len(recollected) == 6 and len({episode.hashes for episode in recollected}) > 3
    for episode in recollected:
        env.reset()
        for t, action in enumerate(episode.actions):
            np.testing.assert_array_equal(np.sort(pack(env.legal_actions())), episode.codes_at(t))
            _, reward, _, _, info = env.step(action)
            assert reward == pytest.approx(float(episode.rewards[t]), abs=1e-4)
            assert info["graph_hash"] == episode.hashes[t + 1]


def test_the_policy_sees_what_the_latent_environment_shows(world_model: WorldModel, recollected: EpisodeBuffer) -> None:
    seen: list[LatentObservation] = []

    class Watching(UniformPolicy):
        def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            tf.py_function(lambda *parts: seen.append(LatentObservation(*parts)), observation, [])
            return super().__call__(observation, seed)

    watching = PolicyPlayer(Watching(noop_logit=-2.0))
    (episode,) = recollect(world_model, ToyEnv(8, max_steps=10), watching, episodes=1, seed=4)
    np.testing.assert_array_equal(episode.actions, recollected[0].actions)
    latent_env = LatentEnv(ToyEnv(8, max_steps=10), world_model)
    observation, _ = latent_env.reset()
    for shown, action in zip(seen, world_model.table.encode(episode.actions), strict=True):
        for one, other in zip(shown, observation, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), atol=1e-6)
        observation = latent_env.step(int(action))[0]


def test_what_the_table_does_not_hold_is_noted_but_not_taken(world_model: WorldModel) -> None:
    """The action table of the next round holds it."""
    half = knowing_half(world_model)
    played = recollect(half, ToyEnv(8, max_steps=6), PLAYER, episodes=3, seed=0)
    before, after = half.table, played.action_table()
    assert after.num_actions and (before.find_codes(after.codes) < 0).any()
    for episode in played:
        assert (before.encode(episode.actions) >= 0).all()


def test_half_of_the_episodes_do_what_was_dreamed(world_model: WorldModel) -> None:
    """Illegal rewrites are left out, and each episode depends on its seed alone."""
    env, started = ToyEnv(8, max_steps=10), []

    dream = DreamEnv.of_root(world_model, env, LENIENT)
    kept = dream.rollout

    def rollout(policy: Policy, *, batch: int, horizon: int, seed: int) -> Trajectory:
        started.append(kept(policy, batch=batch, horizon=horizon, seed=seed))
        return started[-1]

    dream.rollout = rollout  # type: ignore[method-assign]
    player = PolicyPlayer(UniformPolicy(noop_logit=-3.0))
    played = recollect(world_model, env, player, episodes=20, seed=4, dream=dream)
    assert 4 <= len(started) <= 16
    followed = [plan_in_reality(world_model, env, plan) for plan in started]
    done = [episode.actions.tolist() for episode in played]
    places = [done.index(actions) for actions in followed]
    assert places == sorted(set(places))
    awake = recollect(world_model, env, player, episodes=20, seed=4, dream=dream, dreamed=0.0)
    asleep = recollect(world_model, env, player, episodes=20, seed=4, dream=dream, dreamed=1.0)
    for index, episode in enumerate(played):
        other = (asleep if index in places else awake)[index]
        assert episode.actions.tolist() == other.actions.tolist()


def plan_in_reality(world_model: WorldModel, env: ToyEnv, plan: Trajectory) -> list[list[int]]:
    """Returns the actions of a dreamed plan that are really legal, and NO-OP unless the episode has ended before."""
    env.reset()
    noop = [len(world_model.signature.rule_names), 0]
    pairs = world_model.table.decode(plan.action.numpy()[plan.alive.numpy()]).tolist()
    done: list[list[int]] = []
    for pair in [*pairs, noop]:
        if pair == noop or pair in env.legal_actions().tolist():
            done.append(pair)
            if pair == noop or env.step(np.array(pair))[2] or len(done) == 10:
                break
    return done


def test_some_episodes_do_what_a_search_has_found_in_the_dream(
    world_model: WorldModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches differ in their kinds, widths and seeds."""
    env, found, widths = ToyEnv(8, max_steps=10), [], set()
    certain = DreamEnv.of_root(world_model, env, dataclasses.replace(LENIENT, temperature=0.0))

    def kept(search: Callable[..., Plan]) -> Callable[..., Plan]:
        def searching(dream: DreamEnv, **settings: int) -> Plan:
            assert dream is certain
            widths.add(settings.get("width", -settings.get("seed", 0)))
            found.append(search(dream, **settings))
            return found[-1]

        return searching

    monkeypatch.setattr(recollection, "beam_search", kept(recollection.beam_search))
    monkeypatch.setattr(recollection, "cross_entropy_planning", kept(recollection.cross_entropy_planning))
    played = recollect(
        world_model, env, PLAYER, episodes=8, seed=2, dream=certain, dreamed=0.0, certain=certain, searched=1.0
    )
    assert len(found) == 8 and len(widths) > 4 and min(widths) < 0 < max(widths)
    for episode, plan in zip(played, found, strict=True):
        carried_out = world_model.table.encode(episode.actions).tolist()
        left = [action for action in carried_out if action != world_model.num_actions]
        places = iter(plan.actions)
        assert all(action in places for action in left), "the plan without what is illegal, in its order"
    awake = {"episodes": 3, "seed": 2, "dream": certain, "dreamed": 0.0}
    without = recollect(world_model, env, PLAYER, **awake, certain=certain, searched=0.0)
    plain = recollect(world_model, env, PLAYER, **awake)
    assert [episode.hashes for episode in without] == [episode.hashes for episode in plain]


def test_a_buffer_grows_by_what_was_recollected(recollected: EpisodeBuffer) -> None:
    buffer = collect(ToyEnv(8, max_steps=10), lambda observation, rng: rng.choice(observation["legal"]), 2, seed=0)
    buffer.extend(recollected)
    assert len(buffer) == 8 and buffer[-1] is recollected[-1]
    assert set(recollected[0].hashes) <= set(buffer.graphs)


def test_some_steps_take_what_pays_and_is_not_offered(world_model: WorldModel) -> None:
    """A model that considers nothing legal omits all that pays; one that considers all legal changes no episode."""
    env = ToyEnv(8, max_steps=10)
    usual = recollect(world_model, env, PLAYER, episodes=6, seed=4)
    trusting = recollect(world_model, env, PLAYER, episodes=6, seed=4, omitted=1.0, legal_from=1e-9)
    assert [episode.actions.tolist() for episode in trusting] == [episode.actions.tolist() for episode in usual]
    doubting = recollect(world_model, env, PLAYER, episodes=6, seed=4, omitted=1.0, legal_from=1 - 1e-9)
    for episode in doubting:
        env.reset()
        for t, action in enumerate(episode.actions):
            codes = paying_rewrites(env).codes
            reward = env.step(action)[1]
            assert not t or not len(codes) or reward > PAYS_PERCENT
    assert sum(map(len, (e.actions for e in doubting))) > 6
    seldom = recollect(world_model, env, PLAYER, episodes=6, seed=4, omitted=0.5, legal_from=0.5)
    again = recollect(world_model, env, PLAYER, episodes=6, seed=4, omitted=0.5, legal_from=0.5)
    assert [e.actions.tolist() for e in seldom] == [e.actions.tolist() for e in again]


@pytest.fixture(scope="module")
def ensemble(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> WorldModel:
    config = dataclasses.replace(QUICK, mdn_rnn=dataclasses.replace(QUICK.mdn_rnn, ensemble=2))
    return fit(split[0], SIGNATURE, config, seed=0)


@pytest.mark.full
def test_the_members_of_an_ensemble_are_asked_for_every_rewrite(ensemble: WorldModel) -> None:
    env = LatentEnv(ToyEnv(8, max_steps=10), ensemble)
    observation, _ = env.reset()
    observation = env.step(int(np.flatnonzero(observation.action_mask.numpy()[0])[0]))[0]
    legal = np.flatnonzero(observation.action_mask.numpy()[0, :-1])
    doubts = _Doubts(ensemble)
    together = doubts.of(env.state, legal)
    assert together.shape == (len(legal),) and together.max() > 0
    for action, spread in zip(legal, together, strict=True):
        dreams = [
            DreamEnv.of_state(ensemble, env.state, dataclasses.replace(LENIENT, telescoping=False, pessimism=pessimism))
            for pessimism in (0.0, 1.0)
        ]
        mean, lower = (
            dream.step(env.state, tf.constant([action], tf.int32), tf.constant([0, 0]))[1] for dream in dreams
        )
        assert float(mean[0] - lower[0]) == pytest.approx(float(spread), abs=1e-5)


def test_some_steps_take_what_an_ensemble_is_unsure_of(
    ensemble: WorldModel, world_model: WorldModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ToyEnv(8, max_steps=10)
    usual = recollect(ensemble, env, PLAYER, episodes=4, seed=4)
    played = recollect(ensemble, env, PLAYER, episodes=4, seed=4, uncertain=1.0)
    assert [episode.actions.tolist() for episode in played] != [episode.actions.tolist() for episode in usual]
    monkeypatch.setattr(_Doubts, "of", lambda self, state, actions: (actions == actions[-1]).astype(float))
    for episode in recollect(ensemble, env, PLAYER, episodes=4, seed=4, uncertain=1.0):
        env.reset()
        for action in episode.actions:
            taken = ensemble.table.encode(action[np.newaxis])[0]
            assert taken == np.flatnonzero(ensemble.table.mask(env.legal_actions())[:-1])[-1]
            env.step(action)
    monkeypatch.setattr(_Doubts, "of", lambda self, state, actions: np.zeros(len(actions)))
    sure = recollect(ensemble, env, PLAYER, episodes=4, seed=4, uncertain=1.0)
    assert all(len(episode.actions) for episode in sure)
    with pytest.raises(ValueError, match="one member"):
        recollect(world_model, env, PLAYER, episodes=1, seed=4, uncertain=0.5)
