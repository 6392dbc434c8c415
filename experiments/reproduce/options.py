"""Options that several tables share (zoo graphs, device, seed), and the execution of their units of work."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from environment import zoo
from experiments.errors import UserError, nearest_match
from experiments.executors.local import LocalExecutor, Record, Unit, records
from experiments.runs.progress import ProgressDisplay


def add_graphs(parser: argparse.ArgumentParser, default: str = "the full-size ones") -> None:
    """Adds the argument for the names of graphs; `default` describes the default graphs in the help."""
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help=f"zoo graphs (default: {default})")


def chosen_graphs(named: Sequence[str]) -> list[str]:
    """Returns the named graphs; if there are none, the full-size graphs that a paper defines.

    Raises:
      UserError: if a name is not in the zoo.
    """
    for name in named:
        if name not in zoo.names():
            raise UserError(f"No zoo graph is called {name!r}. {nearest_match(name, zoo.names())}")
    return list(named) or zoo.published_names()


def add_device(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Adds the option for the device to measure on; `more` is appended to its help."""
    parser.add_argument("--device", default="cpu", help=f"where to measure (cpu){more}")


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the seed of random rewriting."""
    parser.add_argument("--seed", type=int, default=0, help="of the random rewriting (0)")


def chosen_seed(options: argparse.Namespace) -> int:
    """Returns the seed.

    Raises:
      UserError: if the seed is negative.
    """
    if options.seed < 0:
        raise UserError(f"--seed must be at least 0, got {options.seed}.")
    return int(options.seed)


def run_units(
    units: Sequence[Unit], options: argparse.Namespace, progress: ProgressDisplay, *, measures: bool = False
) -> list[Record]:
    """Runs the units of a table and returns their records, in the order of `units`.

    Args:
      measures: whether the units measure times, so that two at a time would disturb each other.
    Raises:
      UserError: if `--processes` is below 1, or above 1 although the units measure times.
      Exception: the error of the first unit that failed, after all others have ended.
    """
    if measures and options.processes > 1:
        raise UserError(
            f"--processes is {options.processes}, but the units of {options.table} measure times, and would disturb "
            "one another. Leave it at 1."
        )
    if not units:
        return []
    kept = [dataclasses.replace(unit, keeps=True) for unit in units]  # units of tables use `once`
    return records(LocalExecutor(options.table, options.processes, progress), kept)
