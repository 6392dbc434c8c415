"""How much memory this process has, as Linux tells it."""

from __future__ import annotations

import resource
from pathlib import Path

STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def status_bytes(field: str) -> int:
    """A figure of this process, "VmRSS" or "VmHWM"; unlike the one of `getrusage`, its peak begins with the program."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def peak_bytes() -> int:
    """The largest size so far, since `restart_peak` where that works and else of the process: then an upper bound."""
    if STATUS.exists():
        return status_bytes("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def restart_peak() -> bool:
    """Lets `peak_bytes` begin anew from what is resident now; False where the system forbids it."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True
