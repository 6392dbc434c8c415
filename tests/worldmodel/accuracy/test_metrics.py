from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from worldmodel.accuracy import metrics

bits = hnp.arrays(bool, (4, 9))
numbers = hnp.arrays(float, 12, elements=st.integers(-5, 5).map(float))


@given(bits, bits)
def test_perfect_bits_are_perfect_and_copies_score_one(real: np.ndarray, before: np.ndarray) -> None:
    copied = metrics.wrong_bits(before, real)
    if (real ^ before).any():
        assert accuracy_of(real ^ before, real ^ before).f1 == 1.0
        assert metrics.relative_error(metrics.wrong_bits(real, real), copied) == 0.0
        assert metrics.relative_error(copied, copied) == 1.0
        assert math.isnan(accuracy_of(before ^ before, real ^ before).precision)


def accuracy_of(predicted: np.ndarray, real: np.ndarray) -> metrics.BitAccuracy:
    return metrics.BitAccuracy.of(metrics.bit_counts(predicted, real))


@given(bits, bits)
def test_f1_is_the_harmonic_mean_by_counts(predicted: np.ndarray, real: np.ndarray) -> None:
    hits, wrong = np.sum(predicted & real), np.sum(predicted ^ real)
    if hits:
        assert accuracy_of(predicted, real).f1 == pytest.approx(2 * hits / (2 * hits + wrong))


@given(numbers)
def test_determination_is_one_for_truth_and_zero_for_the_mean(real: np.ndarray) -> None:
    if real.std() > 0:
        assert metrics.determination(real, real) == 1.0
        assert metrics.determination(np.full_like(real, real.mean()), real) == pytest.approx(0.0)


def test_latent_error_is_relative_to_copying() -> None:
    before, real = np.zeros((5, 3)), np.ones((5, 3))
    copied = metrics.squared_errors(before, real)
    for predicted, error in ((before, 1.0), (real, 0.0), (0.5 * real, 0.25)):
        assert metrics.relative_error(metrics.squared_errors(predicted, real), copied) == pytest.approx(error)


def test_mean_absolute_error_and_its_unit() -> None:
    predicted, real = np.array([1.0, -1.0]), np.array([0.0, 1.0])
    assert metrics.mean_absolute_error(predicted, real) == 1.5
    assert metrics.relative_absolute_error(predicted, real) == pytest.approx(3.0)
    assert metrics.relative_absolute_error(7 * predicted + 2, 7 * real + 2) == pytest.approx(3.0)


@pytest.mark.parametrize("rounding", [0.0, 1e-7])
def test_what_does_not_vary_is_no_yardstick(rounding: float) -> None:
    constant = np.array([5.0, 5.0 + rounding, 5.0])
    assert math.isnan(metrics.relative_absolute_error(constant + 1, constant))
    assert math.isnan(metrics.determination(constant + 1, constant))


@given(bits, bits, bits, st.permutations(range(4)))
def test_figures_are_made_of_one_number_for_each_state(
    predicted: np.ndarray, real: np.ndarray, before: np.ndarray, order: list[int]
) -> None:
    """A bootstrap over states needs only these numbers, in any order."""
    counts = metrics.bit_counts(predicted, real)[order]
    assert metrics.BitAccuracy.of(counts) == accuracy_of(predicted.reshape(1, -1), real.reshape(1, -1))
    errors, trivial = metrics.wrong_bits(predicted, real)[order], metrics.wrong_bits(before, real)[order]
    expected = metrics.ratio(np.float64((predicted ^ real).sum()), np.float64((before ^ real).sum()))
    assert metrics.relative_error(errors, trivial) == pytest.approx(expected, nan_ok=True)


@given(bits, bits, st.lists(st.integers(0, 4), min_size=9, max_size=9))
def test_sites_are_counted_per_rule(predicted: np.ndarray, real: np.ndarray, rules: list[int]) -> None:
    table = np.array(rules)
    right = concerned = 0
    for row in range(4):
        for rule in set(rules):
            counts = [int(side[row][table == rule].sum()) for side in (predicted, real)]
            concerned += max(counts) > 0
            right += max(counts) > 0 and counts[0] == counts[1]
    assert metrics.exact_counts(predicted, real, table).sum(axis=0).tolist() == [right, concerned]


def test_moving_a_site_keeps_its_rules_count() -> None:
    rules = np.array([0, 0, 2])
    predicted, real = np.array([[True, False, True]]), np.array([[False, True, True]])
    assert metrics.share(metrics.exact_counts(predicted, real, rules)) == 1.0
    assert math.isnan(metrics.share(metrics.exact_counts(*[np.zeros((1, 3), bool)] * 2, rules)))
    assert metrics.sites_per_rule(np.zeros((2, 0), bool), np.zeros(0, int)).shape == (2, 0)


def test_nothing_predicted_of_nothing_is_no_figure() -> None:
    nothing, one = np.zeros((1, 3), bool), np.eye(1, 3, dtype=bool)
    assert math.isnan(accuracy_of(nothing, nothing).f1)
    missed = accuracy_of(nothing, one)
    assert math.isnan(missed.precision) and (missed.recall, missed.f1) == (0.0, 0.0)
