"""A table says where, when and with which settings its units were made."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.executors import provenance, units
from experiments.executors.local import LocalExecutor, Unit, records
from experiments.runs.progress import ProgressDisplay, make_progress


def of(settings: str, date: str, processor: str = "a CPU") -> dict[str, dict[str, str]]:
    return {provenance.KEY: {"settings": settings, "date": date, "processor": processor}}


def test_records_say_where_they_were_made_and_tables_gather_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def work(progress: ProgressDisplay) -> units.Record:
        return units.once("table", "unit", {"seed": 0}, lambda: {"value": 1})

    with provenance.using() as used:
        first, again = (records(LocalExecutor("t", 1, make_progress()), [Unit("u", work)]) for _ in range(2))
    assert first == again and used == first + again
    made = used[0][provenance.KEY]
    assert made["processor"] and len(made["date"]) == len("2026-01-31")
    assert provenance.said_of(used[:1]).endswith(f"1 unit of {made['date']} on {made['processor']}.")
    records(LocalExecutor("t", 1, make_progress()), [Unit("u", work)])
    assert len(used) == 2, "outside the block nothing is noted"


def test_days_processors_and_units_that_do_not_know_are_said() -> None:
    said = provenance.said_of([of("a", "2026-01-02"), of("b", "2026-01-01", "another"), {"value": 1}])
    assert "2 units of 2026-01-01 to 2026-01-02 on a CPU; another." in said
    assert said.endswith("When and where 1 older unit was made is not known.")
    assert provenance.said_of([]) == ""
    assert provenance.said_of([{"value": 1}, {"value": 2}]) == (
        "With which hash of settings, when and where the 2 units were made is not known."
    )


def test_the_hash_depends_on_all_settings_and_not_on_their_order() -> None:
    one, other = of("a", "2026-01-01"), of("b", "2026-01-01")
    assert provenance.said_of([one, other]).split(";")[0] == provenance.said_of([other, one]).split(";")[0]
    assert provenance.said_of([one]).split(";")[0] != provenance.said_of([one, other]).split(";")[0]
