"""Units of work are done once and read again if their result still applies."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.executors import units


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(units, "COMMITTED", tmp_path / "experiments/results")


def test_an_unfinished_unit_is_done_again(tmp_path: Path) -> None:
    done = []

    def work() -> units.Record:
        done.append(1)
        if len(done) == 1:
            raise KeyboardInterrupt
        return {"value": 3}

    with pytest.raises(KeyboardInterrupt):
        units.once("table", "unit", {"seed": 0}, work)
    assert [units.once("table", "unit", {"seed": 0}, work)["value"] for _ in range(2)] == [3, 3]
    assert len(done) == 2
    units.once("table", "unit", {"seed": 1}, work)
    assert len(done) == 3


def test_a_unit_that_came_with_the_source_serves_where_the_machine_does_not_matter() -> None:
    """The numbers of a unit are rounded, and the same whether it has just been done or is read."""

    def work() -> units.Record:
        return {"share": 1 / 3, "each": [2e-7 / 3, 1, None, "text"], "nothing": float("nan")}

    first = units.once("table", "unit", {}, work, anywhere=True)
    assert (first["share"], first["each"]) == (0.333333, [6.66667e-08, 1, None, "text"])
    path = units.unit_path("table", "unit", {})
    committed = units.COMMITTED / "table" / units.UNITS / path.name
    committed.parent.mkdir(parents=True)
    path.rename(committed)
    again = units.once("table", "unit", {}, lambda: pytest.fail("done again"), anywhere=True)
    assert str(again) == str(first)
    assert units.once("table", "unit", {}, lambda: {"share": 1 / 3})["share"] == 1 / 3, "times are not taken over"


def test_only_finished_units_are_read_where_that_is_asked() -> None:
    with units.reading_only(), pytest.raises(units.UnfinishedError, match="unit is not finished"):
        units.once("table", "unit", {}, lambda: pytest.fail("done"))
    units.once("table", "unit", {}, lambda: {"value": 1})
    with units.reading_only():
        assert units.once("table", "unit", {}, lambda: pytest.fail("done again"))["value"] == 1


def test_of_several_units_that_agree_the_newest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, day in enumerate(("2026-11-02", "2026-11-20", "2026-11-09")):
        monkeypatch.setattr(units.provenance, "made_here", lambda settings, day=day: {"date": day})
        units.once("table", "unit", {"n": seed}, lambda day=day, n=seed: {"settings": {"n": n}, "day": day})
    path = units.unit_path("table", "unit", {"n": 1})
    found = units.once("table", "unit", {"n": 9}, lambda: pytest.fail("done again"), agree=lambda *_: True)
    assert found["day"] == "2026-11-20"
    path.unlink()
    without_a_date = units.unit_path("table", "unit", {"n": 7})
    without_a_date.write_text('{"settings": {"n": 7}, "day": "unknown"}')
    found = units.once("table", "unit", {"n": 9}, lambda: pytest.fail("done again"), agree=lambda *_: True)
    assert found["day"] == "2026-11-09"
