from __future__ import annotations

import numpy as np
import pytest

from worldmodel.accuracy.components import Components


def some_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(500, 6)) * [1, 5, 0.1, 3, 0.5, 0.2] @ np.linalg.qr(rng.normal(size=(6, 6)))[0] + 7.0


def test_the_first_hold_most_of_the_variance() -> None:
    rows = some_rows()
    found = Components.fit([rows], 2)
    np.testing.assert_allclose(found.axes @ found.axes.T, np.eye(2), atol=1e-9)
    points = found.project(rows)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(points.var(axis=0) / rows.var(axis=0).sum(), found.explained, rtol=1e-6)
    assert found.explained.sum() > 0.9 and found.explained[0] > found.explained[1]


def test_batches_do_not_matter_and_all_components_keep_all() -> None:
    rows = some_rows()
    whole, parts = Components.fit([rows], 9), Components.fit(np.split(rows, [3, 100]), 9)
    assert whole.axes.shape == (6, 6)
    np.testing.assert_allclose(np.abs(np.sum(whole.axes * parts.axes, axis=1)), 1.0, atol=1e-6)
    np.testing.assert_allclose(whole.restored(rows), rows, atol=1e-9)


def test_no_linear_code_of_the_same_width_keeps_more() -> None:
    rows, rng = some_rows() > 7.0, np.random.default_rng(1)
    found = Components.fit([rows], 3)
    error = np.mean((found.restored(rows) - rows) ** 2)
    for _ in range(20):
        code = np.linalg.qr(rng.normal(size=(6, 3)))[0]
        centred = rows - rows.mean(axis=0)
        assert error < np.mean((centred @ code @ code.T - centred) ** 2)


def test_what_never_varies_explains_nothing() -> None:
    found = Components.fit([np.full((4, 3), 2.0)], 2)
    np.testing.assert_allclose(found.explained, 0.0)
    np.testing.assert_allclose(found.restored(np.full((1, 3), 2.0)), 2.0)


def test_nothing_to_be_fitted_on_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        Components.fit([], 2)
