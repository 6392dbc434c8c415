from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from environment.measurement import process_memory
from environment.measurement.process_memory import peak_bytes, restart_peak, status_bytes

LARGE = 200 << 20


def test_the_peak_begins_anew() -> None:
    if not restart_peak():
        pytest.skip("this system does not let a process restart its peak")
    before = peak_bytes()
    large = np.ones(LARGE, np.uint8)
    assert status_bytes("VmRSS") > before + 0.9 * LARGE
    del large
    assert peak_bytes() > before + 0.9 * LARGE
    assert restart_peak() and peak_bytes() < before + 0.5 * LARGE


def test_elsewhere_it_is_an_upper_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_memory, "STATUS", tmp_path / "status")
    monkeypatch.setattr(process_memory, "_CLEAR", tmp_path / "not" / "there")
    assert not restart_peak() and peak_bytes() > 10 << 20
