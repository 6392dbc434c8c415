"""`rlflow costs show`, `export` and `import`: shows and copies recorded prices.

The three commands raise UserError, ModelError or DatabaseError; the message says what is wrong and what to do.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from environment.costs.measured.cost_model import MeasuredPrices, runtime_here
from environment.costs.measured.kernel_prices import split_key
from environment.costs.prices.database import PriceDatabase, default_database
from environment.costs.prices.price_list import Price, PriceList
from environment.costs.prices.settings import Setting
from environment.costs.prices.sqlite_file import sidecars
from experiments.config.run import parse_dims
from experiments.errors import UserError, require_at_least
from experiments.output_file import require_writable
from experiments.pipeline.loading.load import find_models
from taso_ext import OnnxModel


def show(options: argparse.Namespace) -> int:
    """Prints each setting with its numbers of prices, and the kernels that the options ask for; returns 0."""
    require_at_least(0, slowest=options.slowest)
    dims = parse_dims(options.dim)
    with PriceDatabase(path_of(options.database), create=False) as database:
        settings = chosen_settings(database, options.setting)
        model = options.model and OnnxModel.load(find_models([options.model])[0].build(), dims=dims)
        print(database.path)
        for setting in settings:
            prices = database.setting(setting)
            print(f"  {setting}: {contents(prices)}")
            for line in [*_slowest(prices, options.slowest), *(_in_order(prices, model) if model else ())]:
                print(f"    {line}")
    return 0


def _slowest(prices: PriceList, count: int) -> Iterator[str]:
    for key, price in heapq.nlargest(count, prices.items(), key=lambda item: item[1].ms):
        weights_mb, kernel = split_key(key)
        yield f"{_amount(price)}  {kernel.description}{f' among {weights_mb} MB of weights' * bool(weights_mb)}"


def _in_order(prices: PriceList, model: OnnxModel) -> Iterator[str]:
    device, runtime = prices.setting.device, runtime_here(prices.setting)
    if runtime is None:
        yield f"{device} cannot be used here: nobody can tell which kernels it runs for this model, or what they cost"
        return
    costs = MeasuredPrices(model, runtime, prices, replay=True)
    kernels = [each.kernel for each in costs.lowered(model.graph)]
    known = [costs.kernels.known(kernel, model.graph.weights_mb) for kernel in kernels]
    for kernel, price in zip(kernels, known, strict=True):
        yield f"{_amount(price) if price else 'not recorded':>20}  {kernel.description}"
    total, missing = sum(price.ms for price in known if price), known.count(None)
    yield f"{total:9.4f} ms in all" + (f", without {missing} that are not recorded" if missing else "")


def _amount(price: Price) -> str:
    return f"{price.ms:9.4f} ms ±{100 * price.spread:4.1f} %"


def export(options: argparse.Namespace) -> int:
    """Writes prices into a file, either all of them or no file; returns 0."""
    output: Path = options.file
    source = path_of(options.database)
    require_other(output, source)
    for file in (output, *sidecars(output)):
        require_writable(file, force=options.force)
    with PriceDatabase(source, create=False) as database:
        database.require_sound()
        settings = chosen_settings(database, options.setting)
        _write(database, settings, output, kernels_alone=options.kernels_alone)
    with PriceDatabase(output, create=False) as written:
        for setting in written.settings():
            prices = written.setting(setting)
            print(f"Wrote {contents(prices)} of {setting} to {output}.")
    return 0


def _write(database: PriceDatabase, settings: Sequence[Setting], output: Path, *, kernels_alone: bool) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    # A folder, because SQLite keeps files beside a database while it writes.
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        unfinished = Path(folder) / output.name
        with PriceDatabase(unfinished) as copy:
            copy.copy_from(database, settings, kernels_alone=kernels_alone)
            copy.settle()
        for file in sidecars(output):  # first: SQLite would take an old log for that of the new file
            file.unlink(missing_ok=True)
        unfinished.replace(output)


def bring_in(options: argparse.Namespace) -> int:
    """Copies the prices that are new, prints how many they are, and returns 0. Copies nothing from a damaged file."""
    require_other(options.file, path_of(options.database))
    with PriceDatabase(options.file, create=False) as theirs:
        theirs.require_sound()
        total = sum(theirs.settings().values())
        with PriceDatabase(path_of(options.database, create=True)) as mine:
            added = mine.copy_from(theirs)
    print(f"{added:,} prices came to {mine.path}; {total - added:,} of {total:,} were there already.")
    return 0


def path_of(named: Path | None, *, create: bool = False) -> Path:
    """Returns the named file, or else the user's own database; `create` makes the folder of the latter."""
    return named or default_database(make_folder=create)


def chosen_settings(database: PriceDatabase, text: str | None) -> list[Setting]:
    """Returns all settings of a database, or those whose names contain a text, ignoring case.

    Raises:
      UserError: there is no such setting.
    """
    known = list(database.settings())
    found = [each for each in known if text is None or text.lower() in str(each).lower()]
    if not found:
        listed = "; ".join(str(each) for each in known) or "nothing yet"
        wanted = "any prices" if text is None else f"prices of a setting that contains {text!r}"
        raise UserError(f"{database.path}: expected {wanted}, but it has {listed}.")
    return found


def require_other(file: Path, database: Path) -> None:
    """Checks that a file is not the database itself.

    Raises:
      UserError: the two are the same file.
    """
    if file.exists() and database.exists() and file.samefile(database):
        raise UserError(f"{file} is the database itself. Name another file.")


def contents(prices: PriceList) -> str:
    """Returns what a setting has: kernels, operators in their surroundings and, if there are any, whole graphs."""
    graphs = len(prices.graphs)
    timed = f", {graphs:,} graph{'s' * (graphs != 1)} end to end" if graphs else ""
    return counted(len(prices), prices.num_operator_costs) + timed


def counted(prices: int, operators: int) -> str:
    """Returns numbers of prices as `12 kernels, 34 operators in their surroundings`."""
    kernels_s, operators_s = ("s" * (count != 1) for count in (prices, operators))
    return f"{prices:,} kernel{kernels_s}, {operators:,} operator{operators_s} in their surroundings"
