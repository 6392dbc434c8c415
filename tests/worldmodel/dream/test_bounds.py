"""Dreamed rewards add up to no more than the potential of the state that they lead to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import LENIENT, QUICK, SIGNATURE
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.bounds import bounded, open_account
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dynamics.potential import fitted
from worldmodel.fitting import fit
from worldmodel.world_model import WorldModel


def paid(rewards: list[float], worth: list[float], *, of_log_cost: bool = True, whole: bool = False) -> np.ndarray:
    """Returns the rewards that a dream pays whose states save `worth` percent of the start's cost, the first first."""
    spent: list[float] = [0.0]
    model: Any = SimpleNamespace(
        cost=SimpleNamespace(
            per_reward=1.0 if of_log_cost else None,
            reward_scale=lambda z, inputs: tf.exp(tf.constant([spent[0] / 100.0])),
        ),
    )
    nothing: Any = None
    states = [tf.constant([each]) for each in worth]
    account = open_account(model, nothing, states[0], nothing)
    for reward, state in zip(rewards, states[1:], strict=True):
        earned, account = bounded(model, account, tf.constant([reward]), nothing, state, nothing, whole=whole)
        spent.append(float(earned[0]))
        spent[0] += spent[-1]
    return np.array(spent[1:])


def of_saving(percent: float) -> float:
    return float(-100 * np.log(1 - percent / 100))


def test_what_is_worth_more_than_it_earns_is_paid_as_predicted() -> None:
    np.testing.assert_allclose(paid([1.0, 2.0, -1.0], [0.0, 10.0, 20.0, 30.0]), [1.0, 2.0, -1.0], atol=1e-5)


def test_no_sum_of_rewards_exceeds_what_the_state_is_worth() -> None:
    total = np.cumsum(paid([9.0, 9.0, 9.0], [0.0, 5.0, 5.0, 8.0]))
    np.testing.assert_allclose(total, [of_saving(5), of_saving(5), of_saving(8)], rtol=1e-4)


@pytest.mark.parametrize("of_log_cost", [True, False])
def test_where_the_graph_is_known_its_worth_is_paid_whatever_was_predicted(of_log_cost: bool) -> None:
    worth = [1.0, 6.0, 4.0, 21.0]
    total = np.cumsum(paid([0.0, 50.0, -50.0], worth, of_log_cost=of_log_cost, whole=True))
    savings = [each - worth[0] for each in worth[1:]]
    expected = [of_saving(each) for each in savings] if of_log_cost else savings
    np.testing.assert_allclose(total, expected, rtol=1e-4)


def test_only_differences_of_the_potential_matter() -> None:
    rewards, worth = [9.0, 9.0, -3.0], [0.0, 5.0, 12.0, 11.0]
    np.testing.assert_allclose(paid(rewards, worth), paid(rewards, [each + 40.0 for each in worth]), rtol=1e-4)


def test_what_was_held_back_is_paid_when_the_state_is_worth_it() -> None:
    np.testing.assert_allclose(np.cumsum(paid([5.0, 0.0], [0.0, 2.0, 50.0])), [of_saving(2), 5.0], rtol=1e-4)


def test_around_a_loop_nothing_is_earned() -> None:
    assert np.isclose(paid([7.0, 3.0, 5.0], [4.0, 9.0, 6.0, 4.0]).sum(), 0.0, atol=1e-4)


def test_rewards_that_are_differences_are_bounded_by_differences() -> None:
    earned = paid([9.0, -1.0, 9.0, 4.0], [40.0, 45.0, 45.0, 48.0, 70.0], of_log_cost=False)
    np.testing.assert_allclose(np.cumsum(earned), [5.0, 5.0, 8.0, 21.0], rtol=1e-5)
    assert np.isclose(paid([7.0, 3.0, 5.0], [4.0, 9.0, 6.0, 4.0], of_log_cost=False).sum(), 0.0, atol=1e-5)


def test_a_dream_of_rewards_that_telescope_pays_no_more_than_its_states_save(
    world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer], tmp_path: Path
) -> None:
    world_model.save(tmp_path / "model")
    trained = WorldModel.load(tmp_path / "model", SIGNATURE)
    trained.mdn_rnn.config = dataclasses.replace(trained.mdn_rnn.config, potential=True)
    (graph,) = trained.start_graphs.values()
    whole, _ = fitted(split[0], graph.table, of_log_cost=False)
    halved = whole._replace(bits=whole.bits / 2, weights=whole.weights / 2)
    model = trained.with_start_graphs([dataclasses.replace(graph, potential=halved)])
    dream = DreamEnv.of_episodes(model, split[0], dataclasses.replace(LENIENT, root_fraction=1.0))
    state = dream.start(16, tf.constant([0, 0], tf.int32))
    inputs, rng = dream._codes.inputs, np.random.default_rng(0)

    def saved() -> np.ndarray:
        found: np.ndarray = model.mdn_rnn.saved(state.action_mask, state.past, inputs).numpy()
        return found

    first, total, held = saved(), np.zeros(16), 0.0
    for t in range(4):
        action = [int(rng.choice(np.flatnonzero(row[:-1]))) for row in state.action_mask.numpy()]
        state, reward, _ = dream.step(state, tf.constant(action), tf.constant([1, t], tf.int32))
        total += reward.numpy()
        assert (total <= saved() - first + 1e-3).all()
        held = max(held, float(state.account[:, 1].numpy().max()))
    assert held > 0.1, "some rewards were held back"


def test_rewards_that_do_not_telescope_have_no_potential(episodes: EpisodeBuffer) -> None:
    config = dataclasses.replace(QUICK, mdn_rnn=dataclasses.replace(QUICK.mdn_rnn, potential=True))
    model = fit(episodes, dataclasses.replace(SIGNATURE, telescopes=False), config)
    assert not model.mdn_rnn.has_potential and not model.statistics.rule_potential.bits.any()
