"""What is the same in the settings of all runtimes."""

from __future__ import annotations


def require_threads(threads: int) -> None:
    """Raises ValueError unless there is a thread to work with."""
    if threads < 1:
        raise ValueError(f"expected at least 1 thread, got {threads}")


def threads_text(threads: int) -> str:
    """`1 thread` or `2 threads`."""
    return f"{threads} thread{'s' * (threads > 1)}"
