"""Prices follow the timings of whole graphs as far as they share kernels, and say how sure they then are."""

from __future__ import annotations

import numpy as np
import pytest

from environment.costs.corrected.choice import expected_best
from environment.costs.corrected.posterior import MISFIT, Posterior, Prices, TimedGraph
from environment.statistics.intervals import NORMAL_HALF_WIDTH

KERNELS = 20


def drawn(seed: int, deviation: float = 0.1) -> tuple[Prices, np.ndarray, list[dict[str, int]]]:
    """Returns prices, the true times of the same kernels, and the bills of some graphs."""
    rng = np.random.default_rng(seed)
    ms = rng.uniform(0.1, 2.0, KERNELS)
    prices = Prices([f"kernel {each}" for each in range(KERNELS)], ms, np.full(KERNELS, deviation))
    true = ms * np.exp(deviation * rng.standard_normal(KERNELS))
    runs = rng.integers(0, 4, (40, KERNELS))
    bills = [{prices.keys[k]: int(count) for k, count in enumerate(row) if count} for row in runs]
    return prices, true, bills


def true_ratios(prices: Prices, true: np.ndarray, bills: list[dict[str, int]]) -> np.ndarray:
    ms = prices.parts_ms(bills) / prices.ms @ true
    return ms / ms[0]


def ratios(prices: Prices, bills: list[dict[str, int]], factor: np.ndarray) -> np.ndarray:
    ms = (prices.parts_ms(bills) * factor).sum(axis=1)
    return ms / ms[0]


def timed_of(bills: list[dict[str, int]], measured: np.ndarray, spread: float = 0.001) -> list[TimedGraph]:
    return [TimedGraph(str(each), bills[each], float(measured[each]), spread) for each in range(1, len(bills))]


def test_without_timings_prices_stay() -> None:
    prices, _, bills = drawn(0)
    posterior = Posterior(prices, bills[0], [])
    assert posterior.factor == pytest.approx(1.0)
    parts = prices.parts_ms(bills)
    assert posterior.deviations(parts) == pytest.approx(parts * prices.deviation)


@pytest.mark.parametrize("seed", range(5))
def test_other_graphs_are_nearer_to_the_truth(seed: int) -> None:
    prices, true, bills = drawn(seed)
    measured = true_ratios(prices, true, bills)
    few = bills[:21]
    posterior = Posterior(prices, bills[0], timed_of(few, measured))
    rest = [bills[0], *bills[21:]]
    of_rest = np.log([1.0, *measured[21:]])
    before = np.log(ratios(prices, rest, np.ones(KERNELS))) - of_rest
    after = np.log(ratios(prices, rest, posterior.factor)) - of_rest
    assert np.abs(after).mean() < 0.5 * np.abs(before).mean()


@pytest.mark.parametrize("deviation", [0.1, 0.3])
def test_it_is_the_posterior_of_a_gaussian_process_over_graphs(deviation: float) -> None:
    """The same by the textbook's formulas, which work on graphs and not on kernels."""
    prices, true, bills = drawn(3, deviation)
    measured = true_ratios(prices, true, bills)
    posterior = Posterior(prices, bills[0], timed_of(bills[:6], measured, 0.02))
    parts = prices.parts_ms(bills) * posterior.factor
    shares = parts / parts.sum(axis=1, keepdims=True)
    slopes = (shares[1:] - shares[0]) * prices.deviation
    covariance, seen = slopes @ slopes.T, slice(0, 5)
    noise = np.diag(np.full(5, (0.02 / NORMAL_HALF_WIDTH) ** 2 + MISFIT**2))
    weights = np.linalg.solve(covariance[seen, seen] + noise, covariance[seen]).T
    expected = np.sqrt(np.diag(covariance - weights @ covariance[seen]))
    found = posterior.deviations(parts) / parts.sum(axis=1, keepdims=True)
    assert np.linalg.norm(found[1:] - found[0], axis=1) == pytest.approx(expected, rel=1e-3, abs=1e-6)
    # At the most probable errors, their prior pulls as much as the timings do.
    error = np.log(posterior.factor)
    residual = np.log(measured[1:6]) - np.log(ratios(prices, bills[:6], posterior.factor)[1:])
    pull = slopes[seen].T @ np.linalg.solve(noise, residual)
    assert error / prices.deviation == pytest.approx(pull, rel=1e-2, abs=1e-3)


def test_a_kernel_without_a_known_size_does_not_make_it_swing() -> None:
    """A price that errs by a factor of ten or so makes ratios anything but linear."""
    prices, true, bills = drawn(1)
    prices = Prices(prices.keys, prices.ms * np.where(np.arange(KERNELS) == 3, 0.05, 1.0), prices.deviation.copy())
    prices.deviation[3] = 2.5
    measured = true_ratios(prices, true, bills)
    posterior = Posterior(prices, bills[0], timed_of(bills[:6], measured, 0.01))
    assert ratios(prices, bills[:6], posterior.factor) == pytest.approx(measured[:6], rel=3 * MISFIT)


def test_the_most_expected_gain_is_first_and_ends_when_nothing_is_expected() -> None:
    rng = np.random.default_rng(0)
    sure, same, unsure, slow = (
        np.full(400, 0.8),
        np.full(400, 0.81),
        0.85 + 0.1 * rng.standard_normal(400),
        1.3 + 0.01 * rng.standard_normal(400),
    )
    possible = np.array([slow, sure, same, unsure])
    assert expected_best(possible, 4) == [1, 3], "the same one less can add nothing, and one that is slow cannot either"
    assert expected_best(possible, 1) == [1]
    assert expected_best(possible, 4, known=0.199) == [3, 1]
    assert expected_best(possible[:1], 4) == []
    assert expected_best(np.zeros((0, 5)), 4) == []
