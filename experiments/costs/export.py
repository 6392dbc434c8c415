"""`rlflow costs export`: prices in a file of their own, to be replayed or brought in elsewhere."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.settings import Setting
from environment.costs.prices.sqlite_file import sidecars
from experiments.costs.database import chosen_settings, counted, path_of, require_other
from experiments.output_file import require_writable


def run(options: argparse.Namespace) -> int:
    """Writes the file, complete or not at all; returns 0.

    Raises:
      UserError, DatabaseError: what is wrong, and what to do.
    """
    output: Path = options.file
    source = path_of(options.database)
    require_other(output, source)
    for file in (output, *sidecars(output)):
        require_writable(file, force=options.force)
    with PriceDatabase(source, create=False) as database:
        database.require_sound()
        settings = chosen_settings(database, options.setting)
        _write(database, settings, output)
    with PriceDatabase(output, create=False) as written:
        for setting in written.settings():
            prices = written.setting(setting)
            print(f"Wrote {counted(len(prices), prices.num_operator_costs)} of {setting} to {output}.")
    return 0


def _write(database: PriceDatabase, settings: Sequence[Setting], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    # A folder, since SQLite keeps files beside a database while it writes.
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        unfinished = Path(folder) / output.name
        with PriceDatabase(unfinished) as copy:
            copy.copy_from(database, settings)
            copy.settle()
        for file in sidecars(output):  # before: SQLite would take an old log for the new file's
            file.unlink(missing_ok=True)
        unfinished.replace(output)
