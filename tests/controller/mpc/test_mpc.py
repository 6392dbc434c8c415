from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from controller.evaluation import play_episode
from controller.mpc.config import MpcConfig
from controller.mpc.controller import MpcController
from controller.records import EpisodeRecord
from tests.controller.tiny_worlds import TinyView, TinyWorld, detour, independent_sites
from worldmodel.dream import planning

QUICK = MpcConfig(plans=32, elites=6, iterations=3, horizon=6, replan=2)
MIXED = independent_sites(np.array([[1.0, 2.0, -1.0], [-1.0, -1.0, 3.0]]))
HARMFUL = independent_sites(-np.ones((2, 3)))


def controller(dream: TinyWorld, config: MpcConfig = QUICK, seed: int = 0) -> MpcController:
    return MpcController(lambda state, structure: dream, config, view=lambda env: env, seed=seed)  # type: ignore[arg-type,return-value]


def played(
    player: MpcController, world: TinyWorld, seed: int = 0, *, deterministic: bool = True, max_steps: int = 50
) -> EpisodeRecord:
    return play_episode(TinyView(world, max_steps), player, seed=seed, deterministic=deterministic)


def earned(record: EpisodeRecord) -> float:
    return record.costs_ms[0] - record.costs_ms[-1]


@pytest.mark.parametrize("world", [MIXED, HARMFUL, detour()], ids=["mixed", "harmful", "detour"])
def test_it_reaches_the_optimum_of_what_can_be_enumerated(world: TinyWorld) -> None:
    """In 8 of 8 seeds, in a dream that is true."""
    for seed in range(8):
        record = played(controller(world, seed=seed), world)
        assert earned(record) == pytest.approx(world.best_return(QUICK.horizon))
    if world is HARMFUL:
        assert record.num_steps == 1  # NO-OP at once


def test_seeds_of_episodes_decide_unless_it_plays_deterministically() -> None:
    config = dataclasses.replace(QUICK, plans=4, elites=2, iterations=1)
    player = controller(MIXED, config)
    assert len({played(player, MIXED, seed).actions for seed in range(6)}) == 1
    sampled = [played(player, MIXED, seed, deterministic=False).actions for seed in (0, 1, 2, 3, 0)]
    assert sampled[0] == sampled[-1] and len(set(sampled)) > 1


@pytest.mark.parametrize(("replan", "plans"), [(1, 6), (2, 3), (6, 1)])
def test_it_plans_again_after_so_many_steps(replan: int, plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = independent_sites(np.ones((2, 3)))  # every plan takes all six rewrites
    calls: list[Sequence[int]] = []
    search = planning.cross_entropy_planning

    def counted(dream: object, **options: object) -> planning.Plan:
        calls.append(options["guess"])  # type: ignore[arg-type]
        return search(dream, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("controller.mpc.controller.cross_entropy_planning", counted)
    assert earned(played(controller(world, dataclasses.replace(QUICK, replan=replan)), world)) == 6
    assert len(calls) == plans
    assert [len(guess) for guess in calls] == [0, *range(6 - replan, 0, -replan)]  # the rest of the last plan


def test_a_dream_that_pays_for_a_loop_is_left_after_one_round() -> None:
    """In the dream the way there and back earns 1; in reality nothing. Without a memory it would never end."""
    legal, following = np.array([[True, False], [False, True]]), np.array([[1, 0], [0, 0]])
    true, lying = (TinyWorld(np.array([0, 1]), np.array([0, 0]), legal, following, rewards) for rewards in _loops())
    record = played(controller(lying, dataclasses.replace(QUICK, replan=1)), true, max_steps=30)
    assert record.num_steps <= 3 and record.terminated


def _loops() -> tuple[np.ndarray, np.ndarray]:
    return np.array([[1.0, 0.0], [0.0, -1.0]]), np.array([[1.5, 0.0], [0.0, -0.5]])


def test_what_the_real_state_forbids_is_not_taken() -> None:
    """In reality action 1 rules out action 2, which the dream does not know. `TinyView` takes legal actions only."""
    dream = independent_sites(np.array([[1.0, 2.0, 3.0, -4.0]]))
    legal = dream.legal.copy()
    legal[np.arange(len(legal)) & 2 > 0, 2] = False
    real, config = dataclasses.replace(dream, legal=legal), dataclasses.replace(QUICK, replan=6)
    record = played(controller(dream, config), real)
    assert record.actions == ((0, 0), (0, 1), (1, 0))  # of equal plans, 0 1 2 is the first; instead of 2 comes NO-OP


def test_it_needs_an_episode_and_sensible_settings() -> None:
    with pytest.raises(ValueError, match="begin_episode"):
        controller(MIXED).act(MIXED.observe(tf.constant([0])), deterministic=True)
    for wrong, said in (
        ({"plans": 0}, "plans is 0"),
        ({"elites": 300}, "300 elites cannot be chosen from 64 plans"),
        ({"replan": 21}, "replan is 21, but plans end after 15 steps"),
    ):
        with pytest.raises(ValueError, match=said):
            MpcConfig(**wrong)
