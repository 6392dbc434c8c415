"""Functions that tests of commands share: they run commands that have to fail, and read the tables of commands."""

from __future__ import annotations

import contextlib
import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cli import main

ROOT = Path(__file__).parents[1]


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command that must refuse its input and leave no file behind; returns the last line of its message.

    It runs in the current directory if a test has chosen one, else in an empty one.
    """
    capsys.readouterr()
    with _outside_the_repository():
        before = contents()
        try:
            status = main([*arguments])
        except SystemExit as stop:  # argparse
            status = int(stop.code or 0)
        error = capsys.readouterr().err
        message = error.strip().splitlines()[-1]
        assert status == 2, error
        assert message.startswith("rlflow") and "Traceback" not in error
        assert contents() == before, "a failed command changed or left files"
    return message


@contextlib.contextmanager
def _outside_the_repository() -> Iterator[None]:
    """Other tests write below the repository meanwhile, and to read all of it takes seconds."""
    if Path.cwd() != ROOT:
        yield
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


def contents() -> dict[str, bytes]:
    """Returns the files and folders below the current directory, with their contents."""
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in Path.cwd().rglob("*")}


def read_table(name: str, directory: Path | None = None) -> list[dict[str, str]]:
    """Returns the rows of the table that `rlflow reproduce NAME` has written, in `directory` if it is given."""
    with ((directory or Path("runs/reproduce") / name) / "table.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
