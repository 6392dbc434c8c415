"""How much memory this process has, as Linux tells it."""

from __future__ import annotations

import contextlib
from pathlib import Path

STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def status_bytes(field: str) -> int:
    """A figure of this process, "VmRSS" or "VmHWM"; unlike the one of `getrusage`, its peak begins with the program."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def restart_peak() -> None:
    """Lets "VmHWM" begin anew from what is resident now; where the system forbids that, it stays an upper bound."""
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")
