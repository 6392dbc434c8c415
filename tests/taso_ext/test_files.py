"""Files are old or new, never half written."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from taso_ext.files import replacing, write_arrays, write_atomically, write_text


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
