"""Values from JSON are compared with the types of the fields that they are for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from environment.statistics.sequential import Verdict
from experiments.runs.typed import require_types


@dataclasses.dataclass
class Part:
    ms: float
    pairs: int = 0
    verdict: Verdict = Verdict.FASTER


@dataclasses.dataclass
class Whole:
    name: str
    part: Part
    other: Part | None
    seconds: dict[str, float]
    rows: list[dict[str, Any]]
    last: int | None = None


GOOD = {
    "name": "a",
    "part": {"ms": 1, "verdict": "faster"},
    "other": None,
    "seconds": {"load": 0.5},
    "rows": [{"x": []}],
}


@pytest.mark.parametrize(
    "changes", [{}, {"seconds": {"load": None}}, {"last": 3}, {"last": 1.5}, {"of_a_later_version": "x"}]
)
def test_what_fits_is_taken(changes: dict[str, Any]) -> None:
    require_types(Whole, {**GOOD, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": 3}, "'name' must be a text, but 3 came"),
        ({"part": None}, "'part' must be an object"),
        ({"part": {"ms": "fast"}}, "'part.ms' must be a number, but 'fast' came"),
        ({"other": {"pairs": None}}, "'other.pairs' must be a number"),
        ({"seconds": []}, "'seconds' must be an object"),
        ({"seconds": {"load": "abc"}}, "'seconds.load' must be a number, but 'abc' came"),
        ({"rows": [3]}, "'rows.0' must be an object"),
        ({"last": True}, "'last' must be a number"),
    ],
)
def test_what_does_not_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        require_types(Whole, {**GOOD, **changes})
