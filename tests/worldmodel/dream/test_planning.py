"""Beam search and cross-entropy planning find the optimum of a small dream and take no action that its mask forbids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import ToyEnv
from worldmodel.accuracy.exploit import compare, dreamed_beside, plan_replayed, points
from worldmodel.config import DreamConfig
from worldmodel.dream import planning
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.planning import LEAST_SHARE, Plan, _code, _drawn, beam_search, cross_entropy_planning, rows_of
from worldmodel.errors import NonFinitePrediction
from worldmodel.world_model import WorldModel

DEPTH = 4
CERTAIN = DreamConfig(temperature=0.0, legal_from=0.5)
Search = Callable[[DreamEnv, int], Plan]


@pytest.fixture(scope="module")
def env() -> ToyEnv:
    return ToyEnv(8, max_steps=12)


@pytest.fixture(scope="module")
def dream(world_model: WorldModel, env: ToyEnv) -> DreamEnv:
    return DreamEnv.of_root(world_model, env, CERTAIN)


def dreamed(dream: DreamEnv, actions: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the rewards [T, 1], masks [T + 1, 1, A + 1] and terminals [T] of one sequence, dreamed step by step."""
    state = dream.start(1, tf.constant([0, 0]))
    rewards, masks, terminals = [], [state.action_mask.numpy()], []
    for action in actions:
        state, reward, terminal = dream.step(state, tf.constant([action]), tf.constant([0, 0]))
        rewards.append(reward.numpy())
        masks.append(state.action_mask.numpy())
        terminals.append(bool(terminal.numpy()[0]))
    return np.array(rewards).reshape(-1, 1), np.stack(masks), np.array(terminals, bool)


def all_totals(dream: DreamEnv, depth: int) -> dict[tuple[int, ...], float]:
    """Returns the return of every sequence of at most `depth` rewrites that the dream allows."""
    state = dream.start(1, tf.constant([0, 0]))
    sequences, rewards = np.zeros((1, 0), np.int32), np.zeros((0, 1), np.float32)
    masks, found = state.action_mask.numpy()[np.newaxis], {(): 0.0}
    for _ in range(depth):
        rows, actions = np.nonzero(masks[-1][:, :-1])
        before = rows_of(state, rows)
        reached, reward, terminal = dream.step(before, tf.constant(actions, tf.int32), tf.constant([0, 0]))
        sequences = np.concatenate([sequences[rows], actions[:, np.newaxis]], axis=1)
        rewards = np.concatenate([rewards[:, rows], reward.numpy()[np.newaxis]])
        masks = np.concatenate([masks[:, rows], reached.action_mask.numpy()[np.newaxis]])
        returns = rewards.sum(axis=0)
        found |= dict(zip(map(tuple, sequences.tolist()), returns.tolist(), strict=True))
        on = np.flatnonzero(~terminal.numpy())
        state = rows_of(reached, on)
        sequences, rewards, masks = sequences[on], rewards[:, on], masks[:, on]
    return found


@pytest.fixture(scope="module")
def totals(dream: DreamEnv) -> dict[tuple[int, ...], float]:
    return all_totals(dream, DEPTH)


def beam(dream: DreamEnv, depth: int, width: int = 2000) -> Plan:
    return beam_search(dream, width=width, depth=depth)


def cross_entropy(dream: DreamEnv, depth: int, seed: int = 0) -> Plan:
    return cross_entropy_planning(dream, depth=depth, population=128, elites=16, iterations=10, seed=seed)


SEARCHES = [beam, cross_entropy]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_finds_the_best_plan_of_an_enumerable_dream(
    search: Search, dream: DreamEnv, totals: dict[tuple[int, ...], float]
) -> None:
    best = max(totals.values())
    assert len(totals) > 200 and best > 5.0 and np.median(list(totals.values())) < 0.8 * best
    plan = search(dream, DEPTH)
    assert plan.total == pytest.approx(best, rel=1e-4)
    assert plan.total == pytest.approx(totals[plan.actions], rel=1e-4)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("legal_from", [0.5, 0.99])
def test_a_plan_obeys_the_masks_of_its_dream(
    search: Search, legal_from: float, world_model: WorldModel, env: ToyEnv
) -> None:
    strict = DreamEnv.of_root(world_model, env, DreamConfig(temperature=0.0, legal_from=legal_from))
    plan = search(strict, 12)
    rewards, masks, terminals = dreamed(strict, plan.actions)
    assert len(plan.actions) > 3 and all(action < strict.num_actions for action in plan.actions)
    assert all(masks[t, 0, action] for t, action in enumerate(plan.actions))
    assert not terminals[:-1].any()
    assert plan.totals == pytest.approx(np.cumsum(rewards), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("search", SEARCHES)
def test_nothing_that_is_forbidden_is_even_tried(
    search: Search, dream: DreamEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, tried = dream.step, []

    def watched(state: object, action: tf.Tensor, seed: tf.Tensor) -> object:
        mask = state.action_mask.numpy()  # type: ignore[attr-defined]
        tried.append(mask[np.arange(len(mask)), action.numpy()])
        return step(state, action, seed)  # type: ignore[arg-type]

    monkeypatch.setattr(dream, "step", watched)
    search(dream, 6)
    assert sum(map(len, tried)) > 100 and np.concatenate(tried).all()


def test_a_wider_beam_is_promised_no_less(dream: DreamEnv) -> None:
    widths = [beam(dream, 6, width).total for width in (1, 8, 64)]
    assert widths[0] <= widths[1] + 1e-4 and widths[1] <= widths[2] + 1e-4


def test_equal_seeds_draw_equal_plans(dream: DreamEnv) -> None:
    assert cross_entropy(dream, 8, seed=3) == cross_entropy(dream, 8, seed=3)


def test_a_loop_that_pays_is_not_walked_twice(dream: DreamEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this dream, every action promises a reward of 1 and leads to the same state."""

    def nothing_changes(state: object, action: tf.Tensor, seed: tf.Tensor) -> object:
        return state, tf.ones([len(action)]), tf.zeros([len(action)], tf.bool)

    monkeypatch.setattr(dream, "step", nothing_changes)
    for search in SEARCHES:
        assert search(dream, 5) == Plan((), ())


def test_a_broken_dream_is_reported(dream: DreamEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: object, action: tf.Tensor, seed: tf.Tensor) -> object:
        return state, tf.fill([len(action)], np.nan), tf.zeros([len(action)], tf.bool)

    monkeypatch.setattr(dream, "step", broken)
    for search in SEARCHES:
        with pytest.raises(NonFinitePrediction, match="step 1"):
            search(dream, 5)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_plan_is_judged_by_what_reality_makes_of_it(
    search: Search, dream: DreamEnv, world_model: WorldModel, env: ToyEnv
) -> None:
    plan = search(dream, 12)
    trajectory = plan_replayed(world_model, env, plan, dream)
    assert trajectory.dreamed_percent == (0.0, *(points(total) for total in plan.totals))
    assert trajectory.actions == tuple(map(tuple, world_model.table.decode(np.array(plan.actions)).tolist()))
    env.reset()
    start_ms = env.cost_ms()
    for pair in trajectory.actions[: len(trajectory.real_percent) - 1]:  # up to the first illegal one
        env.rewrite(*pair)
    assert trajectory.real_percent[-1] == pytest.approx(100 * (1 - env.cost_ms() / start_ms))
    assert compare([trajectory]).gap == pytest.approx(abs(trajectory.gap))
    (beside,) = dreamed_beside(world_model, env, [(plan.actions, trajectory.real_percent)], config=CERTAIN)
    for found, same in zip(trajectory.offers, beside.offers, strict=True):
        np.testing.assert_array_equal(found, same)
    assert len(trajectory.offers.offered), "something pays along the plan"


@pytest.mark.parametrize(
    ("wrong", "said"), [({"width": 0, "depth": 3}, "width must be at least 1"), ({"width": 1, "depth": 0}, "depth")]
)
def test_senseless_sizes_of_a_beam_are_refused(wrong: dict[str, int], said: str, dream: DreamEnv) -> None:
    with pytest.raises(ValueError, match=said):
        beam_search(dream, **wrong)


def test_legal_actions_are_drawn_by_their_shares() -> None:
    generator, shares = np.random.default_rng(0), np.array([LEAST_SHARE, 1.0, 2.0, LEAST_SHARE, 3.0])
    kinds = np.array([[1, 1, 1, 0, 1, 1], [1, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 0]], bool)
    which = generator.integers(0, len(kinds), 60_000)
    drawn, possible = _drawn(kinds[which], shares, generator)
    np.testing.assert_array_equal(possible, which != 2)
    assert kinds[which, drawn][possible].all()
    found = [np.bincount(drawn[which == kind], minlength=5) / np.count_nonzero(which == kind) for kind in (0, 1, 3)]
    np.testing.assert_allclose(found[0], [0, 1 / 6, 2 / 6, 0, 3 / 6], atol=0.015)
    np.testing.assert_allclose(found[1], [0.5, 0, 0, 0.5, 0], atol=0.015)  # neither has a share
    np.testing.assert_allclose(found[2], [0, 0, 0, 0, 1])
    assert not _drawn(np.zeros((3, 6), bool), shares, generator)[1].any()


def test_sets_of_legal_actions_are_numbered_by_the_sum_of_their_codes() -> None:
    """Which may be none, and wraps around."""
    generator = np.random.default_rng(0)
    codes = generator.integers(2**63, size=9, dtype=np.uint64)
    masks = generator.random((50, 9)) < 0.4
    masks[[0, 7, 49]] = False
    assert _code(codes, masks).tolist() == [sum(map(int, codes[mask])) % 2**64 for mask in masks]


def test_planning_takes_all_rows_at_once_or_in_chunks(dream: DreamEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    effort = {"depth": 4, "population": 12, "elites": 3, "iterations": 2, "seed": 0}
    whole = cross_entropy_planning(dream, **effort)
    monkeypatch.setattr(planning, "ROWS_AT_ONCE", 5)
    assert cross_entropy_planning(dream, **effort).actions == whole.actions


def test_senseless_settings_of_cross_entropy_planning_are_refused(dream: DreamEnv) -> None:
    sizes = {"depth": 3, "population": 4, "elites": 2, "iterations": 1, "seed": 0}
    with pytest.raises(ValueError, match="population must be at least 1"):
        cross_entropy_planning(dream, **{**sizes, "population": 0})
    with pytest.raises(ValueError, match="smoothing"):
        cross_entropy_planning(dream, **sizes, smoothing=0.0)
