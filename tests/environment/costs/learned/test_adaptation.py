"""Predictions on this machine: reference kernels, factors of families, and what is known already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from environment.costs.learned import adaptation
from environment.costs.learned.adaptation import (
    REFERENCES,
    Predictions,
    Predictor,
    errors_of,
    family_factors,
    missing_references,
    references,
)
from environment.costs.learned.prior import Prior, shipped_prior
from environment.costs.learned.work import FAMILIES
from environment.costs.measured import kernel_prices
from environment.costs.measured.kernel import Kernel
from environment.costs.measured.kernel_prices import price_key, split_key
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.price_list import Price, PriceList
from environment.runtimes import OnnxRuntime
from tests.environment.costs.fake_kernels import price_without_a_clock

PRIOR: Prior = replace(shipped_prior(), kernels=shipped_prior().kernels[::10])
RATIOS = {each.key: each.ratio for each in PRIOR.kernels}
REFERENCE_MS = 0.5


@pytest.fixture(autouse=True)
def small_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "shipped_prior", lambda: PRIOR)


def price_list(folder: Path, processor: str) -> PriceList:
    found = PriceDatabase(folder / "prices.sqlite").setting(replace(PRIOR.setting, processor=processor))
    found.keep_reference_ms(REFERENCE_MS)
    return found


def test_the_setting_of_the_prior_needs_no_reference_kernels(tmp_path: Path) -> None:
    assert missing_references(price_list(tmp_path, PRIOR.setting.processor)) == []
    assert set(missing_references(price_list(tmp_path, "another"))) == set(references(PRIOR))


def test_the_shipped_errors_are_those_of_the_shipped_kernels() -> None:
    prior = shipped_prior()
    assert errors_of(prior.kernels) == pytest.approx(prior.errors, rel=1e-3)


def test_reference_kernels_are_few_and_of_many_kinds() -> None:
    found = references(PRIOR)
    assert len(found) == len(set(found)) == REFERENCES
    assert len({split_key(key)[1].op_type for key in found}) > 15


def test_a_machine_that_is_slower_at_one_family_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data movement takes three times as long there, relative to the reference kernel, and nothing else."""
    timed = list[str]()

    def slower(key: str) -> float:
        moves = split_key(key)[1].op_type in ("Concat", "Split", "Slice", "Transpose", "ReorderInput", "ReorderOutput")
        return 3.0 if moves else 1.0

    def time_kernel(kernel: Kernel, weights_mb: int, *_: object) -> Price:
        key = price_key(kernel, weights_mb)
        timed.append(key)
        return Price(RATIOS[key] * REFERENCE_MS * slower(key), 0.01)

    monkeypatch.setattr(kernel_prices, "time_kernel", time_kernel)
    predictions = Predictions(price_list(tmp_path, "another"), OnnxRuntime())
    assert predictions.predict([]) == [] and not timed, "nothing is timed before something is asked for"
    others = [key for key in RATIOS if key not in references(PRIOR)]
    found = predictions.predict(others)
    assert len(timed) == REFERENCES
    factors = np.array([price.ms / REFERENCE_MS / RATIOS[key] for key, price in zip(others, found, strict=True)])
    moved = np.array([slower(key) > 1 for key in others])
    assert 1.8 < np.median(factors[moved]) < 3.3 and 0.8 < np.median(factors[~moved]) < 1.25
    assert all(price.timings == 0 and price.spread > 0 for price in found)
    again = Predictions(price_list(tmp_path, "another"), OnnxRuntime())
    assert again.predict(others[:3]) == found[:3] and len(timed) == REFERENCES, "they are timed once for a setting"


def test_factors_are_drawn_to_that_of_all_families() -> None:
    families, residuals = np.array([0] * 40 + [1]), np.array([0.5] * 40 + [-2.0])
    found = family_factors(families, residuals)
    assert found[0] == pytest.approx(0.5, abs=0.06)
    assert -2.0 < found[1] < 0.1, "one timing does not decide"
    assert found[2] == pytest.approx(residuals.sum() / 45) and len(found) == len(FAMILIES)


def test_a_price_list_without_its_reference_kernel_cannot_be_predicted_for(tmp_path: Path) -> None:
    prices = PriceDatabase(tmp_path / "prices.sqlite").setting(PRIOR.setting)
    with pytest.raises(ValueError, match="reference kernel"):
        Predictor(prices, PRIOR)


def test_what_cannot_be_read_is_said_when_something_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from environment.costs.learned.prior import read_prior
    from environment.costs.prices.sqlite_file import DatabaseError

    price_without_a_clock(monkeypatch)
    monkeypatch.setattr(adaptation, "shipped_prior", lambda: read_prior(tmp_path / "missing.json.gz"))
    with pytest.raises(DatabaseError, match=r"measure\.predict=false"):
        Predictions(price_list(tmp_path, "another"), OnnxRuntime()).predict(["4 x"])
