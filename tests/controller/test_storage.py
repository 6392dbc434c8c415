from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from controller.storage import write_arrays, write_atomically, write_text


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
