"""Folders for a moment: in memory if there is room, and gone afterwards, whatever becomes of the process."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest

from environment.costs.measured import scratch_folder as module
from environment.costs.measured.scratch_folder import remove_abandoned, scratch_folder


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place, disk = tmp_path / "memory", tmp_path / "disk"
    place.mkdir()
    disk.mkdir()
    monkeypatch.setattr(module, "_MEMORY", place)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    remove_abandoned.cache_clear()
    return place


def test_it_is_gone_afterwards(memory: Path) -> None:
    with pytest.raises(ValueError, match="mine"), scratch_folder(1000) as folder:
        (folder / "weights").write_bytes(b"0" * 1000)
        assert folder.parent == memory
        raise ValueError("mine")
    assert not list(memory.iterdir())


def test_it_is_on_disk_where_memory_has_no_room(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6 - 5000, 5000))
    with scratch_folder(1000) as small, scratch_folder(2000) as large:
        assert small.parent == memory and large.parent == memory.parent / "disk"


def test_it_is_on_disk_where_nothing_is_in_memory(memory: Path) -> None:
    memory.rmdir()
    with scratch_folder(1000) as folder:
        assert folder.parent == memory.parent / "disk"


def _die_inside() -> None:
    with scratch_folder(1000) as folder:
        (folder / "weights").write_bytes(b"0" * 1000)
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_left_is_removed(memory: Path) -> None:
    killed = multiprocessing.get_context("fork").Process(target=_die_inside)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    (left,) = memory.iterdir()
    others = [memory / "rlflow-kernels-old", memory / f"rlflow-kernels-{os.getppid()}-a", memory / "other-1-a"]
    for other in others:
        other.mkdir()
    with scratch_folder(1000) as folder:
        assert not left.exists() and folder.is_dir()
    assert sorted(memory.iterdir()) == sorted(others)
