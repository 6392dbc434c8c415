"""Whether the extra `report` is installed, which pages need. Importing this module imports nothing of it."""

from __future__ import annotations

from importlib.util import find_spec

from experiments.errors import UserError

PARTS = ("altair", "vl_convert")
MISSING = (
    "No HTML page can be made, because the extra `report` is not installed (from a clone: .venv/bin/pip install -e "
    "'.[report]'); report.md and table.md have the same figures."
)


def is_installed() -> bool:
    """Returns whether pages can be made here."""
    return all(find_spec(part) is not None for part in PARTS)


def require() -> None:
    """Raises UserError unless pages can be made here."""
    if not is_installed():
        raise UserError(MISSING)
