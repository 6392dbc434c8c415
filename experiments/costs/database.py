"""Which database, and which of its settings, a subcommand works on."""

from __future__ import annotations

from pathlib import Path

from environment.costs.prices.database import PriceDatabase, default_database
from environment.costs.prices.settings import Setting
from experiments.errors import UserError


def path_of(named: Path | None, *, create: bool = False) -> Path:
    """The named file, or the user's own, whose folder is made if the file is to be created."""
    return named or default_database(make_folder=create)


def chosen_settings(database: PriceDatabase, text: str | None) -> list[Setting]:
    """All settings of a database, or those whose names contain a text.

    Raises:
      UserError: if there is none.
    """
    known = list(database.settings())
    found = [each for each in known if text is None or text.lower() in str(each).lower()]
    if not found:
        listed = "; ".join(str(each) for each in known) or "nothing yet"
        wanted = "any prices" if text is None else f"prices of a setting that contains {text!r}"
        raise UserError(f"{database.path}: expected {wanted}, but it has {listed}.")
    return found


def require_other(file: Path, database: Path) -> None:
    """
    Raises:
      UserError: the two are one file.
    """
    if file.exists() and database.exists() and file.samefile(database):
        raise UserError(f"{file} is the database itself. Name another file.")


def counted(prices: int, operators: int) -> str:
    """`12 kernels, 34 operators in their surroundings`."""
    kernels_s, operators_s = ("s" * (count != 1) for count in (prices, operators))
    return f"{prices:,} kernel{kernels_s}, {operators:,} operator{operators_s} in their surroundings"
