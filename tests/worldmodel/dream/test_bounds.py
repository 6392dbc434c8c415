"""Dreamed rewards add up to no more than the potential of the state that they lead to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel.dream.bounds import bounded, open_account


def paid(rewards: list[float], worth: list[float]) -> np.ndarray:
    """Returns the rewards that a dream pays whose states save `worth` percent of the start's cost, the first first."""
    spent: list[float] = [0.0]
    model: Any = SimpleNamespace(
        saved=lambda legal, past, inputs: legal,  # the states of these dreams are what they save
        cost=SimpleNamespace(reward_scale=lambda z, inputs: tf.exp(tf.constant([spent[0] / 100.0]))),
    )
    nothing: Any = None
    states = [tf.constant([each]) for each in worth]
    account = open_account(model, nothing, states[0], nothing, nothing)
    for reward, state in zip(rewards, states[1:], strict=True):
        earned, account = bounded(model, account, tf.constant([reward]), nothing, state, nothing, nothing)
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


def test_only_differences_of_the_potential_matter() -> None:
    rewards, worth = [9.0, 9.0, -3.0], [0.0, 5.0, 12.0, 11.0]
    np.testing.assert_allclose(paid(rewards, worth), paid(rewards, [each + 40.0 for each in worth]), rtol=1e-4)


def test_what_was_held_back_is_paid_when_the_state_is_worth_it() -> None:
    np.testing.assert_allclose(np.cumsum(paid([5.0, 0.0], [0.0, 2.0, 50.0])), [of_saving(2), 5.0], rtol=1e-4)


def test_around_a_loop_nothing_is_earned() -> None:
    assert np.isclose(paid([7.0, 3.0, 5.0], [4.0, 9.0, 6.0, 4.0]).sum(), 0.0, atol=1e-4)
