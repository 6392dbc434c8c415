"""`rlflow costs import`: adds the prices of another file to a database."""

from __future__ import annotations

import argparse

from environment.costs.prices.database import PriceDatabase
from experiments.costs.database import path_of, require_other


def run(options: argparse.Namespace) -> int:
    """Copies what is new and says how much that was; returns 0.

    Raises:
      UserError, DatabaseError: what is wrong, and what to do; nothing was added from a damaged file.
    """
    require_other(options.file, path_of(options.database))
    with PriceDatabase(options.file, create=False) as theirs:
        theirs.require_sound()
        total = sum(theirs.settings().values())
        with PriceDatabase(path_of(options.database, create=True)) as mine:
            added = mine.copy_from(theirs)
    print(f"{added:,} prices came to {mine.path}; {total - added:,} of {total:,} were there already.")
    return 0
