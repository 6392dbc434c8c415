"""Which rule files a subcommand works on, and reading them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import taso_ext
from experiments.errors import UserError
from taso_ext.verify.rule_file import RuleEntry, read_rule_file

SHIPPED = Path(taso_ext.__file__).parent / "rules"


def rule_files(named: Sequence[Path]) -> list[Path]:
    """The named files, or the shipped ones in the engine's order."""
    return list(named) or sorted(SHIPPED.glob("*.rules"))


def read_entries(path: Path) -> list[RuleEntry]:
    """The rules of a file.

    Raises:
      UserError: `file:line:column`, what was expected and what came.
    """
    try:
        return read_rule_file(path)
    except ValueError as error:
        raise UserError(f"{error}.") from error
