"""Ctrl-C: work that can end early ends with what it has found, but a unit of a table is whole or is not kept."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from experiments.executors.units import once
from experiments.runs.signals import Interrupted, finishing, listening


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def search() -> dict[str, Any]:
    """A search that asks after each step whether it should end; Ctrl-C comes in the first one."""
    with finishing() as is_asked_to_end:
        interrupt()
        return {"ended_early": is_asked_to_end()}


def test_the_first_interrupt_ends_a_search_and_the_second_one_the_command() -> None:
    with listening():
        assert search() == {"ended_early": True}
        with pytest.raises(Interrupted), finishing():
            interrupt()
            interrupt()


def test_a_unit_whose_search_is_interrupted_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Interrupted), listening():
        once("table", "unit", {}, search)
    assert not list(tmp_path.rglob("*.json"))
    with listening():
        assert search() == {"ended_early": True}  # elsewhere it ends early as before
