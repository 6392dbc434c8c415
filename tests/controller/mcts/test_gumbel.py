from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from controller.mcts.gumbel import completed_q, improved_logits, inner_choice, mixed_value, softmax, sweeps


@pytest.mark.parametrize(
    ("simulations", "considered", "expected"),
    [
        (16, 4, {4: 2, 2: 4}),  # 2 visits for each of 4 actions, 4 more for each of the better 2
        (200, 16, {16: 3, 8: 6, 4: 12, 2: 28}),  # figure 1 of the paper; what rounding leaves over goes to the last 2
        (32, 16, {16: 1, 8: 1, 4: 2}),
        (8, 16, {8: 1}),  # too few simulations for all
        (5, 1, {1: 5}),
        (7, 3, {3: 1, 2: 2}),
    ],
)
def test_sequential_halving_shares_simulations_as_in_the_paper(
    simulations: int, considered: int, expected: dict[int, int]
) -> None:
    widths = list(sweeps(simulations, considered))
    assert sum(widths) == simulations
    assert Counter(widths) == expected
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("simulations", range(1, 70))
def test_every_simulation_is_spent(simulations: int) -> None:
    for considered in range(1, 20):
        widths = list(sweeps(simulations, considered))
        assert sum(widths) == simulations
        assert max(widths) <= considered


def bandits(number: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns random (log prior, true values, visits) of bandits with 2 to 12 arms; some arms were not visited."""
    generator, drawn = np.random.default_rng(0), []
    for _ in range(number):
        arms = int(generator.integers(2, 13))
        prior = generator.dirichlet(np.full(arms, 0.5)) + 1e-9
        drawn.append((np.log(prior / prior.sum()), generator.normal(size=arms), generator.integers(0, 5, arms)))
    return drawn


def test_the_improved_policy_is_never_worse_where_the_values_are_exact() -> None:
    """Danihelka et al. 2022, appendix C: with exact values of visited arms, and of the prior's mean, π' earns at least
    what π earns from the completed values."""
    gains = []
    for log_prior, values, visits in bandits(300):
        prior = np.exp(log_prior)
        completed = completed_q(float(prior @ values), log_prior, values, visits)
        improved = softmax(improved_logits(float(prior @ values), log_prior, values, visits, c_visit=50, c_scale=0.1))
        gains.append(improved @ completed - prior @ completed)
        assert gains[-1] >= -1e-12
    assert max(gains) > 0.5


def test_values_of_unvisited_actions_are_mixed_as_in_equation_33() -> None:
    prior, q, visits = np.array([0.5, 0.3, 0.2]), np.array([1.0, -2.0, 99.0]), np.array([3, 1, 0])
    expected = (0.7 + 4 * (0.5 * 1.0 + 0.3 * -2.0) / 0.8) / 5
    assert mixed_value(0.7, np.log(prior), q, visits) == pytest.approx(expected)
    np.testing.assert_allclose(completed_q(0.7, np.log(prior), q, visits), [1.0, -2.0, expected])
    assert mixed_value(0.7, np.log(prior), q, np.zeros(3, int)) == 0.7


def test_visits_below_the_root_follow_the_improved_policy() -> None:
    improved, visits = np.log([0.6, 0.3, 0.1]), np.zeros(3, int)
    for _ in range(100):
        visits[inner_choice(improved, visits)] += 1
    np.testing.assert_allclose(visits / 100, [0.6, 0.3, 0.1], atol=0.02)
