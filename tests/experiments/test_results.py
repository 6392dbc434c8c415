"""Tests of the committed results: all folders have one layout, and every link leads somewhere."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from experiments.cli import build_parser
from experiments.reproduce.other_devices import SHOWN, with_other_devices
from experiments.reproduce.table import ABOUT

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "experiments/results"
RUNS = sorted(path.parent for path in RESULTS.glob("*/manifest.json"))
"""Kept runs of `rlflow optimise`, whose files are those of a run directory."""
TABLES = sorted(path for path in RESULTS.iterdir() if path.is_dir() and path not in RUNS)
PAGES = [
    page
    for part in (".", "docs", "taso_ext", "environment", "worldmodel", "controller", "experiments", "tests")
    for page in sorted((ROOT / part).glob("*.md" if part == "." else "**/*.md"))
]
COMMAND = re.compile(r"^`((?:rlflow|python3? -m) .+)`$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)\)")


@pytest.mark.parametrize("folder", TABLES, ids=lambda path: path.name)
def test_every_table_has_its_folder(folder: Path) -> None:
    assert (folder / "README.md").is_file()
    assert (folder / "table.csv").is_file() or (folder / "table.md").is_file()
    folders, pages = r"units|cuda|tensorrt", r"README\.md|about\.md|tried\.md|(cpu|bert-base)\.sqlite"
    known = re.compile(rf"{folders}|{pages}|table(-[a-z0-9]+)?\.(csv|md)|figure(-.+)?\.(svg|png)")
    assert not [path.name for path in folder.iterdir() if not known.fullmatch(path.name)]


@pytest.mark.parametrize("folder", TABLES, ids=lambda path: path.name)
def test_a_page_shows_what_was_written_about_it_and_says_where_it_comes_from(folder: Path) -> None:
    page, about = (folder / "README.md").read_text(encoding="utf-8"), folder / ABOUT
    assert not about.is_file() or about.read_text(encoding="utf-8").strip() in page, "README.md shows it"
    assert re.search(r"Settings [0-9a-f]{16}|hash of (their )?settings", page)


@pytest.mark.parametrize("name", SHOWN)
def test_pages_say_what_other_devices_have_measured(name: str) -> None:
    page = (RESULTS / name / "table.md").read_text(encoding="utf-8")
    assert page == with_other_devices(page, name, results=RESULTS), "tests/gpu/run.sh pages renews it"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_pages_of_the_site(page: Path) -> None:
    """`make docs` leaves folders of units out, and what README.md shows of about.md."""
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert not [link for link in links if Path(link).name in ("units", ABOUT)]


def commands_of(folder: Path) -> list[str]:
    return COMMAND.findall((folder / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", TABLES, ids=lambda path: path.name)
def test_a_readme_names_a_command_of_today(folder: Path) -> None:
    assert commands_of(folder)
    for command in commands_of(folder):
        program, *words = shlex.split(command)
        if program == "rlflow":
            assert build_parser().parse_args(words).command  # raises SystemExit for an unknown option
        else:
            assert importlib.util.find_spec(words[words.index("-m") + 1]) is not None


def test_the_list_names_the_commands_of_the_pages() -> None:
    rows = re.findall(
        r"^\| \[.+?\]\((.+?)/README\.md\) \|.*\| `(.+)` \|$", (RESULTS / "README.md").read_text(), re.MULTILINE
    )
    assert len(rows) == len(TABLES)
    assert not [(name, command) for name, command in rows if command not in commands_of(RESULTS / name)]


def test_every_table_and_every_kept_run_is_listed() -> None:
    links = LINK.findall((RESULTS / "README.md").read_text(encoding="utf-8"))
    listed = {link for link in links if not link.startswith("..")}
    assert {f"{folder.name}/README.md" for folder in TABLES} | {f"{run.name}/report.md" for run in RUNS} == listed
