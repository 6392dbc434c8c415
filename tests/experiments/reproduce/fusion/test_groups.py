"""The table of fused groups: what its figures say of known times, and units that are not timed twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from environment.fusion.single_groups import SingleGroup
from experiments.executors.local import Record
from experiments.reproduce.fusion.groups import correlations, finding, summary_rows, timed_groups
from experiments.runs.progress import SilentProgress


def record(number: int, saved: float, predicted: float, kind: str = "Conv+Relu") -> Record:
    """A group of 10 ms of which a fused operator saves some percent, known to one percent."""
    ratio = 1 - saved / 100
    return {
        "group": kind,
        "graph": "g",
        "fused": "FusedConv",
        "signature": str(number),
        "unfused_ms": 10.0,
        "ratio": [ratio, ratio - 0.01, ratio + 0.01],
        "predicted_ms": [10.0, 10 - predicted / 10],
        "bytes": number,
    }


def test_the_order_of_the_predictions_decides_the_correlation() -> None:
    same = [record(number, saved=2.0 * number, predicted=number) for number in range(12)]
    (row, whole) = summary_rows(same)
    assert row["relative"] == row["absolute"] == row["bytes"] == whole["relative"] == pytest.approx(1)
    assert row["measured"] == pytest.approx(11) and row["predicted"] == pytest.approx(5.5)
    assert (row["faster"], row["slower"]) == (11, 0)
    reverse = [record(number, saved=-2.0 * number, predicted=number) for number in range(12)]
    assert summary_rows(reverse)[0]["relative"] == pytest.approx(-1)
    assert summary_rows(reverse)[0]["slower"] == 11


def test_each_kind_has_a_row_and_all_have_one() -> None:
    records = [record(0, 1, 1), record(1, 5, 9, "Conv+Clip"), record(2, 3, 3)]
    assert [(row["group"], row["groups"]) for row in summary_rows(records)] == [
        ("Conv+Relu", 2),
        ("Conv+Clip", 1),
        ("all", 3),
    ]
    assert "Over 3 groups" in finding(records)


def test_intervals_hold_the_correlation_of_noise() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"predicted": a, "measured": b, "predicted_us": a, "measured_us": b, "bytes": a}
        for a, b in rng.normal(size=(60, 2))
    ]
    relative, absolute, _ = correlations(rows)
    assert relative.low < 0 < relative.high and relative.low == absolute.low


def test_a_finished_group_is_not_timed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = timed_groups("dlrm-tiny", "smoke", SilentProgress())
    monkeypatch.setattr(SingleGroup, "timed", None)  # a second timing would fail
    assert timed_groups("dlrm-tiny", "smoke", SilentProgress()) == first and len(first["groups"]) == 2
