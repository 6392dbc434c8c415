"""Every table is made from its beginning to its end on tiny graphs: what `rlflow reproduce all --scale smoke` makes.

The tables share their units in one folder, as they do for a user, so that all of them run on one worker.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import reproduce
from experiments.cli import main
from tests.commands import read_table

QUICK = ("table1",)
"""Tables that take seconds. The others are made by `make test-full`."""

pytestmark = pytest.mark.xdist_group("smoke")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in reproduce.TABLES]
)
def test_a_table_is_made_on_tiny_graphs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    assert main(["reproduce", name, "--scale", "smoke"]) == 0
    rows, made = read_table(name), Path("runs/reproduce") / name
    assert rows and any(any(value not in ("", "–") for value in row.values()) for row in rows)
    page = (made / "table.md").read_text()
    assert all(f"- `{column}`: " in page for column in rows[0]), "each column says what it means"
    assert f"rlflow reproduce {name} --scale smoke" in (made / "README.md").read_text()
    for picture in made.glob("figure*.png"):
        assert picture.stat().st_size > 5000 and picture.with_suffix(".svg").is_file()
