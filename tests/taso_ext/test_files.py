"""Files are old or new, never half written."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from taso_ext.files import is_temporary, remove_abandoned, replacing, write_arrays, write_atomically, write_text


def test_arrays_come_back_under_exactly_the_name_given(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "state"  # np.savez alone would append .npz
    write_arrays(path, {"policy/000": np.arange(3), "num_updates": np.ones(2)})
    with np.load(path) as stored:
        assert {name: stored[name].tolist() for name in stored} == {"policy/000": [0, 1, 2], "num_updates": [1.0, 1.0]}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    write_text(path, "old")

    def fail(file: object) -> None:
        file.write(b"half of the new ")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_belong_together_are_replaced_together(tmp_path: Path) -> None:
    data, model = tmp_path / "m.data", tmp_path / "m"
    for content, fails in ((b"old", False), (b"new", True), (b"new", False)):
        with pytest.raises(OSError, match="disk full") if fails else nullcontext(), replacing(data, model) as files:
            for file in files:
                file.write(content)
            if fails:
                raise OSError("disk full")
        expected = b"old" if fails else content
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"m.data": expected, "m": expected}


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    """Temporary files of this process, of living ones and of other machines stay."""
    (tmp_path / "folder").mkdir()
    with replacing(tmp_path / "model") as (mine,):
        (present,) = tmp_path.glob(".rlflow-*.tmp")
        _, host, _, number = present.stem.split("-")
        dead = subprocess.Popen(["true"])
        dead.wait()
        names = [f".rlflow-{host}-{dead.pid}-{number}.tmp", f"folder/.rlflow-{host}-{dead.pid}-{number}.tmp"]
        kept = [f".rlflow-00000000-{dead.pid}-{number}.tmp", f".rlflow-{host}-1-{number}.tmp", ".rlflow-notes.tmp"]
        for name in (*names, *kept):
            (tmp_path / name).touch()
        remove_abandoned(tmp_path)
        left = [name for name in (*names, *kept) if (tmp_path / name).exists()]
        assert left == [names[1], *kept] and present.exists()
        remove_abandoned(tmp_path, nested=True)
        assert [name for name in names if (tmp_path / name).exists()] == []
        mine.write(b"new")
    assert (tmp_path / "model").read_bytes() == b"new"
    assert is_temporary(tmp_path / names[0]) and not is_temporary(tmp_path / "model")
