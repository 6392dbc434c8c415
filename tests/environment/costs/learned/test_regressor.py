"""Regression with intervals that hold for families that were left out."""

from __future__ import annotations

import numpy as np
import pytest

from environment.costs.learned.regressor import KINDS, Regressor, Trees, fit, parts

RNG = np.random.default_rng(0)
ROWS = RNG.random((240, 3), np.float32)
VALUES = ROWS[:, 0] + 0.5 * (ROWS[:, 1] > 0.5) + 0.02 * RNG.standard_normal(240)
GROUPS = [frozenset({number % 4}) for number in range(240)]


@pytest.mark.parametrize("kind", KINDS)
def test_it_predicts_better_than_the_mean(kind: str) -> None:
    model = KINDS[kind](ROWS[:160], VALUES[:160], np.ones(160))
    found, deviation = model.predict(ROWS[160:])
    assert np.abs(found - VALUES[160:]).mean() < 0.6 * np.abs(VALUES[160:] - VALUES.mean()).mean()
    assert deviation.shape == (80,) and (deviation >= 0).all()


def test_trees_as_arrays_predict_what_the_forest_does() -> None:
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(Trees.NUMBER, min_samples_leaf=1, max_features=0.5, random_state=0).fit(ROWS, VALUES)
    found, _ = Trees.fit(ROWS, VALUES, np.ones(len(ROWS))).predict(ROWS[::7])
    assert found == pytest.approx(forest.predict(ROWS[::7]))


def test_equal_data_give_equal_predictions() -> None:
    first, second = (fit(ROWS, VALUES, GROUPS).predict(ROWS[:5]) for _ in range(2))
    assert (first[0] == second[0]).all() and (first[1] == second[1]).all()


def test_intervals_grow_with_their_probability_and_cover_as_often() -> None:
    """Binomial: with 80 kernels, fewer than 64 of intervals of probability 0.9 hold by chance in 1 of 300 tries."""
    regressor = fit(ROWS[:160], VALUES[:160], GROUPS[:160])
    found, narrow = regressor.predict(ROWS[160:], 0.5)
    _, wide = regressor.predict(ROWS[160:], 0.9)
    assert (narrow < wide).all()
    assert (np.abs(found - VALUES[160:]) <= wide).sum() >= 64


def test_the_factor_is_the_conformal_quantile() -> None:
    regressor = Regressor(Trees.fit(ROWS[:9], VALUES[:9], np.ones(9)), np.arange(1.0, 20.0))
    assert regressor.factor(0.9) == 18.0 and regressor.factor(0.95) == 19.0 and regressor.factor(0.999) == 19.0


def test_one_family_cannot_calibrate() -> None:
    with pytest.raises(ValueError, match="at least two families"):
        fit(ROWS[:20], VALUES[:20], [frozenset({0})] * 20)


def test_each_family_is_in_one_part() -> None:
    found = parts(GROUPS, 3)
    assert len(found) == 3 and sorted(each for part in found for each in part) == [0, 1, 2, 3]
