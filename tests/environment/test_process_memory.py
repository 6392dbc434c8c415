from __future__ import annotations

import numpy as np

from environment.process_memory import restart_peak, status_bytes

LARGE = 200 << 20


def test_the_peak_begins_anew() -> None:
    restart_peak()
    before = status_bytes("VmHWM")
    large = np.ones(LARGE, np.uint8)
    assert status_bytes("VmRSS") > before + 0.9 * LARGE
    del large
    assert status_bytes("VmHWM") > before + 0.9 * LARGE
    restart_peak()
    assert status_bytes("VmHWM") < before + 0.5 * LARGE
