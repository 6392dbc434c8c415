from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import taso_ext
from environment import GraphSubstitutionEnv
from tests.worldmodel.toy_world import LENIENT, ToyEnv, UniformPolicy
from worldmodel.config import DreamConfig
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.trajectory import LatentObservation, Trajectory
from worldmodel.dream.dream_env import DreamEnv, start_states
from worldmodel.dream.step import DreamState, StartStates
from worldmodel.errors import IllegalAction
from worldmodel.world_model import WorldModel

BATCH, HORIZON = 32, 9


@pytest.fixture(scope="module")
def starts(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> StartStates:
    return start_states(world_model, split[0])


@pytest.fixture(scope="module")
def dream(world_model: WorldModel, starts: StartStates) -> DreamEnv:
    return DreamEnv(world_model, starts, LENIENT)


POLICY = UniformPolicy()


@pytest.fixture(scope="module")
def rollout(dream: DreamEnv) -> Trajectory:
    return tf.nest.map_structure(np.asarray, dream.rollout(POLICY, batch=BATCH, horizon=HORIZON, seed=3))


@pytest.fixture
def real_environment_raises(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def touched(*arguments: object, **keywords: object) -> None:
        raise AssertionError("the dream touched the real environment")

    for name in ("__init__", "reset", "step", "legal_actions", "candidates"):
        monkeypatch.setattr(GraphSubstitutionEnv, name, touched)
        monkeypatch.setattr(ToyEnv, name, touched, raising=False)
    monkeypatch.setattr(taso_ext, "State", touched)
    yield


@pytest.mark.usefixtures("real_environment_raises")
def test_a_dream_never_touches_the_real_environment(world_model: WorldModel, starts: StartStates) -> None:
    with pytest.raises(AssertionError, match="touched"):
        ToyEnv(8).reset()
    result = DreamEnv(world_model, starts, LENIENT).rollout(UniformPolicy(), batch=4, horizon=3, seed=0)
    assert result.alive.numpy().any()


def test_shapes_are_as_documented(rollout: Trajectory, world_model: WorldModel) -> None:
    bits = world_model.num_actions + 1
    assert rollout.state.shape == (HORIZON + 1, BATCH, 8)
    assert rollout.hidden.shape == (HORIZON + 1, BATCH, world_model.hidden_size)
    assert rollout.legal.shape == (HORIZON + 1, BATCH, bits)
    assert rollout.value.shape == (HORIZON + 1, BATCH)
    for part in (rollout.action, rollout.log_prob, rollout.reward, rollout.terminal, rollout.alive):
        assert part.shape == (HORIZON, BATCH)
    assert rollout.truncated().shape == (BATCH,)


def test_only_actions_the_mask_allows_are_taken(rollout: Trajectory) -> None:
    allowed = np.take_along_axis(rollout.legal[:-1], rollout.action[..., np.newaxis], axis=-1)[..., 0]
    assert allowed.all()
    assert rollout.legal[..., -1].all(), "NO-OP is always legal"


def test_rows_end_once_and_stay_ended(rollout: Trajectory) -> None:
    assert rollout.alive[0].all()
    stopped = rollout.alive[:-1] & ~rollout.alive[1:]
    np.testing.assert_array_equal(stopped & ~rollout.truncated(), rollout.terminal[:-1] & ~rollout.truncated())
    assert not (rollout.alive[1:] & ~rollout.alive[:-1]).any()
    np.testing.assert_array_equal(rollout.terminal.sum(axis=0) + rollout.truncated(), np.ones(BATCH))
    assert rollout.truncated().any() and not rollout.truncated().all()


@pytest.mark.parametrize("depth", [0, 2])
def test_no_row_goes_deeper_than_training_did(world_model: WorldModel, starts: StartStates, depth: int) -> None:
    """Every row that does not end by itself is truncated at that depth and bootstraps from its last state."""
    at = tf.where(starts.depth == depth)[:, 0]
    assert world_model.statistics.longest == 12
    longest, parts = 4, world_model._parts()
    shallow = WorldModel(*parts[:3], dataclasses.replace(parts.statistics, longest=longest), parts.start_graphs)
    dream = DreamEnv(
        shallow, tf.nest.map_structure(lambda part: tf.gather(part, at), starts), replace(LENIENT, root_fraction=0.0)
    )
    played = tf.nest.map_structure(np.asarray, dream.rollout(POLICY, batch=BATCH, horizon=longest + 3, seed=1))
    lengths = played.alive.sum(axis=0)
    assert played.truncated().any() and (lengths[played.truncated()] == longest - depth).all()
    assert (lengths[~played.truncated()] <= longest - depth).all()
    for row in np.flatnonzero(played.truncated()):
        left = played.legal[lengths[row], row].sum()
        np.testing.assert_array_equal(played.value[lengths[row] :, row], left)


class FirstLegal:
    """A policy that takes the first legal action, NO-OP last; its value is the number of legal actions."""

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        bits = tf.cast(observation.action_mask, tf.float32)
        action = tf.argmax(bits, axis=-1, output_type=tf.int32)
        return action, tf.gather(bits, action, batch_dims=1), tf.reduce_sum(bits, axis=-1)


@pytest.mark.usefixtures("compiled")
def test_steps_compiled_by_xla_are_the_same(world_model: WorldModel, starts: StartStates) -> None:
    """A rollout's steps are, single steps are not; latents are the likeliest."""
    model = copy.copy(world_model)  # so that the shared one never compiles
    dream = DreamEnv(model, starts, replace(LENIENT, temperature=0.0, root_fraction=1.0))
    played = dream.rollout(FirstLegal(), batch=3, horizon=6, seed=4)
    assert model.compiled_dream_step is not model.dream_step
    followed = dream.follow(dream.start(3, tf.constant([0, 0])), played.action.numpy())
    np.testing.assert_allclose(followed.state, played.state, atol=1e-4)
    np.testing.assert_allclose(np.where(played.alive, followed.reward, 0.0), played.reward, atol=1e-4)
    np.testing.assert_array_equal(followed.legal, played.legal)


@pytest.mark.parametrize("horizon", [pytest.param(2, marks=pytest.mark.full), 20])
def test_rollouts_compiled_as_a_whole_are_the_same(
    world_model: WorldModel, starts: StartStates, horizon: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Latents are the likeliest, the policy is deterministic; rows are cut off (horizon 2) or all end before (20)."""
    policy = FirstLegal()
    dreams = [DreamEnv(world_model, starts, replace(LENIENT, temperature=0.0), xla=xla) for xla in (False, True)]
    for dream in dreams:  # XLA draws other random integers
        monkeypatch.setattr(dream, "_draw", lambda batch, seed: tf.range(batch))
    one, other = (dream.rollout(policy, batch=5, horizon=horizon, seed=4) for dream in dreams)
    lengths = one.lengths()
    assert lengths.max() < 20 if horizon == 20 else one.truncated().any()
    for name, mine, theirs in zip(
        Trajectory._fields[: len(tf.nest.flatten(one))], *map(tf.nest.flatten, (one, other)), strict=True
    ):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, name
        np.testing.assert_allclose(theirs, mine, atol=1e-4, err_msg=name)


def test_noop_and_empty_masks_end_a_row(rollout: Trajectory, world_model: WorldModel) -> None:
    noop = (rollout.action == world_model.num_actions) & rollout.alive
    nothing_left = ~rollout.legal[1:, :, :-1].any(axis=-1) & rollout.alive
    assert noop.any() and nothing_left.any()
    assert rollout.terminal[noop | nothing_left].all()


def test_padding_is_silent(rollout: Trajectory, world_model: WorldModel) -> None:
    dead = ~rollout.alive
    assert dead.any()
    for part in (rollout.reward, rollout.log_prob, rollout.terminal):
        assert not part[dead].any()
    assert np.all(rollout.action[dead] == world_model.num_actions)
    assert not rollout.value[:-1][dead & ~rollout.truncated()].any()
    for part in (rollout.state, rollout.hidden, rollout.legal):
        np.testing.assert_array_equal(part[1:][dead], part[:-1][dead])


def test_values_bootstrap_truncated_rows_only(rollout: Trajectory) -> None:
    counts = rollout.legal[-1].sum(axis=-1)
    np.testing.assert_array_equal(rollout.value[-1], np.where(rollout.truncated(), counts, 0.0))
    np.testing.assert_array_equal(rollout.value[:-1][rollout.alive], rollout.legal[:-1].sum(axis=-1)[rollout.alive])


def test_a_seed_gives_one_rollout(dream: DreamEnv, rollout: Trajectory) -> None:
    again, other = (dream.rollout(POLICY, batch=BATCH, horizon=HORIZON, seed=seed) for seed in (3, 4))
    for mine, theirs in zip(rollout, again, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert np.any(other.action.numpy() != rollout.action)


def test_a_longer_horizon_begins_the_same(dream: DreamEnv, rollout: Trajectory) -> None:
    longer = dream.rollout(POLICY, batch=BATCH, horizon=2 * HORIZON, seed=3)
    np.testing.assert_array_equal(longer.action[:HORIZON], rollout.action)
    assert not longer.alive.numpy()[-1].any(), "so that this also covers a batch that ends before its horizon"
    assert longer.state.shape[0] == 2 * HORIZON + 1


def test_rollouts_are_made_of_steps(world_model: WorldModel, starts: StartStates) -> None:
    """Without noise, stepping by hand along a rollout's actions gives the rollout."""
    still = DreamEnv(world_model, starts, replace(LENIENT, temperature=0.0))
    played = still.rollout(POLICY, batch=BATCH, horizon=HORIZON, seed=3)
    drawn = first_states(still)
    state = DreamState(played.state[0], played.hidden[0], drawn.cell, played.legal[0], drawn.past)
    for t in range(HORIZON):
        alive = played.alive[t].numpy()
        state, reward, terminal = still.step(state, played.action[t], tf.constant([0, t]))
        np.testing.assert_allclose(reward.numpy()[alive], played.reward[t].numpy()[alive], atol=1e-4)
        np.testing.assert_array_equal(terminal.numpy()[alive], played.terminal[t].numpy()[alive])
        np.testing.assert_allclose(state.z.numpy()[alive], played.state[t + 1].numpy()[alive], atol=1e-4)
        np.testing.assert_array_equal(state.action_mask.numpy()[alive], played.legal[t + 1].numpy()[alive])


def first_states(dream: DreamEnv) -> DreamState:
    """Returns the start states that a rollout with seed 3 draws."""
    start_seed = tf.unstack(tf.random.split(tf.constant([3, 0]), 3))[0]
    return dream.start(BATCH, start_seed)


def test_temperature_zero_leaves_nothing_to_chance(world_model: WorldModel, starts: StartStates) -> None:
    state = tf.nest.map_structure(lambda part: part[:6], starts.state)
    actions = tf.argmax(state.action_mask, axis=-1, output_type=tf.int32)
    for temperature, same in ((0.0, True), (1.0, False)):
        dream = DreamEnv(world_model, starts, replace(LENIENT, temperature=temperature))
        one, other = (dream.step(state, actions, tf.constant([seed, 0]))[0].z.numpy() for seed in (1, 2))
        assert np.array_equal(one, other) == same


def test_dreams_start_from_real_states_of_every_depth(
    dream: DreamEnv, starts: StartStates, episodes: EpisodeBuffer, world_model: WorldModel
) -> None:
    depth = starts.depth.numpy()
    assert {0, 1, 5} <= set(depth.tolist())
    assert not starts.state.hidden.numpy()[depth == 0].any() and not starts.state.cell.numpy()[depth == 0].any()
    assert starts.state.hidden.numpy()[depth > 0].any(axis=-1).all()
    assert starts.state.action_mask.numpy()[:, :-1].any(axis=-1).all()
    drawn = dream.start(2000, tf.constant([1, 2]))
    at_root = ~drawn.hidden.numpy().any(axis=-1)
    expected = 0.5 + 0.5 * np.mean(depth == 0)
    assert abs(at_root.mean() - expected) < 0.06  # 5 standard errors: false alarms below 1 in 10^6


def test_start_states_are_all_that_something_can_be_rewritten_in(
    starts: StartStates, world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """The first state is there once, though every episode begins with it."""
    depths = [t for e in split[0] for t in range(1, e.num_steps) if len(e.legal_actions(t))]
    assert sorted(starts.depth.numpy().tolist()) == sorted([0, *depths])
    masks = {world_model.table.mask(e.legal_actions(t)).tobytes() for e in split[0] for t in range(e.num_steps)}
    assert {mask.tobytes() for mask in starts.state.action_mask.numpy()} == masks


def test_few_start_states_are_of_all_depths(
    world_model: WorldModel, starts: StartStates, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    """One is the first state, the others are drawn uniformly: their mean is off by 5 standard errors once in 10^6."""
    whole, drawn = {row.tobytes() for row in starts.state.hidden.numpy()}, []
    for seed in range(5):
        few = start_states(world_model, split[0], max_states=41, seed=seed)
        depth = few.depth.numpy()
        assert few.state.z.shape[0] == 41 and (depth == 0).sum() == 1
        assert {row.tobytes() for row in few.state.hidden.numpy()} <= whole
        drawn += depth[depth > 0].tolist()
    deeper = starts.depth.numpy()[starts.depth.numpy() > 0]
    assert abs(np.mean(drawn) - deeper.mean()) < 5 * deeper.std() / np.sqrt(len(drawn))
    assert start_states(world_model, split[0], max_states=1).depth.numpy().tolist() == [0]


def test_a_stricter_dream_allows_less(world_model: WorldModel, starts: StartStates) -> None:
    state = tf.nest.map_structure(lambda part: part[:200], starts.state)
    actions = tf.argmax(state.action_mask, axis=-1, output_type=tf.int32)
    masks = []
    for legal_from in (0.01, 0.5, 0.99):
        dream = DreamEnv(world_model, starts, replace(LENIENT, legal_from=legal_from, temperature=0.0))
        masks.append(dream.step(state, actions, tf.constant([0, 0]))[0].action_mask.numpy())
    assert (masks[0] >= masks[1]).all() and (masks[1] >= masks[2]).all()
    assert masks[0].sum() > masks[1].sum() > masks[2].sum()


def test_a_policy_is_traced_once(dream: DreamEnv) -> None:
    class Counting(UniformPolicy):
        calls = 0

        def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            self.calls += 1
            return super().__call__(observation, seed)

    policy = Counting()
    for seed in range(3):
        dream.rollout(policy, batch=2, horizon=2 + seed, seed=seed)
    assert policy.calls == 2, "once in the loop, once for the last value"


def test_nonsense_is_refused(world_model: WorldModel, starts: StartStates, dream: DreamEnv) -> None:
    nowhere = tf.nest.map_structure(lambda part: part[:0], starts)
    with pytest.raises(ValueError, match="0 start states"):
        DreamEnv(world_model, nowhere)
    with pytest.raises(ValueError, match="temperature"):
        DreamEnv(world_model, starts, DreamConfig(temperature=-0.1))
    with pytest.raises(ValueError, match="at least 1"):
        dream.rollout(POLICY, batch=0, horizon=1, seed=0)


def test_a_policy_that_takes_what_its_dream_does_not_offer_is_told_so(dream: DreamEnv) -> None:
    def forbidden(observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        action = tf.argmin(tf.cast(observation.action_mask, tf.int32), axis=1, output_type=tf.int32)
        nothing = tf.zeros_like(action, tf.float32)
        return action, nothing, nothing

    with pytest.raises(IllegalAction, match=r"takes action \d+ in step 0 of a dream, which does not offer it"):
        dream.rollout(forbidden, batch=4, horizon=3, seed=0)


def test_a_dream_from_its_root_starts_nowhere_else(dream: DreamEnv, starts: StartStates) -> None:
    root = starts.state.z.numpy()[starts.depth.numpy() == 0]
    seed = tf.constant([0, 0])
    assert (dream.from_root().start(BATCH, seed).z.numpy() == root).all()
    assert not (dream.start(BATCH, seed).z.numpy() == root).all()


def test_a_dream_of_rewards_that_do_not_telescope_says_so(world_model: WorldModel, starts: StartStates) -> None:
    other = copy.copy(world_model)
    other.signature = dataclasses.replace(world_model.signature, telescopes=False)
    with pytest.raises(ValueError, match=r"DreamConfig\(telescoping=False\)"):
        DreamEnv(other, starts)
    DreamEnv(other, starts, DreamConfig(telescoping=False))
