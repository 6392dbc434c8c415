"""Options that several tables share (zoo graphs, device, seed), and the execution of their units of work.

The command line calls `settle` before a table is made, so that what it refuses is refused before any unit of work.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

from environment import zoo
from environment.runtimes.onnx_runtime import require_working
from experiments.errors import UserError, nearest_match, require_at_least
from experiments.executors.choice import chosen_executor
from experiments.executors.local import Record, Unit, records, without_compiling
from experiments.runs.progress import ProgressDisplay
from experiments.studies.study import SEEDS_HELP, SEEDS_METAVAR, numbers_of

Choice = TypeVar("Choice")


_BETWEEN_GRAPHS = re.compile(r",(?![^,:=]+=)")
"""A comma between names of graphs, and not between the sizes of one, as in `bert-base:layers=2,heads=2`."""

LISTED_GRAPHS = "listed_graphs"
"""Where `--graphs` is kept, beside `graphs`, until `settle` joins them."""


def settle(options: argparse.Namespace) -> None:
    """Checks what a table cannot be made with, and joins both forms in which graphs are named into `graphs`.

    Raises:
      UserError: the value of an option is empty.
      UnavailableError: the device to measure on does not work here.
    """
    for name, value in vars(options).items():
        if isinstance(value, str) and not value.strip():
            flag = "graphs" if name == LISTED_GRAPHS else name.replace("_", "-")
            raise UserError(f"--{flag} expects a value, got an empty one. Leave the option out for its default.")
    if named_by_option := getattr(options, LISTED_GRAPHS, None):
        parts = [part.strip() for part in _BETWEEN_GRAPHS.split(named_by_option)]
        options.graphs = list(dict.fromkeys([*options.graphs, *parts]))
    if device := getattr(options, "device", None):
        require_working(device)


def add_graphs(parser: argparse.ArgumentParser, default: str = "the full-size ones", about: str = "zoo graphs") -> None:
    """Adds the argument for the names of graphs, and the option `--graphs` for the same, which `settle` joins with it.

    Args:
      default: describes the default graphs in the help.
      about: what the graphs are, likewise.
    """
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help=f"{about} (default: {default})")
    parser.add_argument("--graphs", dest=LISTED_GRAPHS, metavar="A,B,…", help="the same as a list")


def chosen_graphs(
    options: argparse.Namespace, default: Sequence[str] = (), quick: Sequence[str] | None = None
) -> list[str]:
    """Returns the named graphs; if there are none, the default ones, at the scale `smoke` their tiny variants.

    Args:
      default: empty: the full-size graphs that a paper defines.
      quick: those of the default ones whose tiny variants are enough at the scale `smoke`; None: all.
    Raises:
      UserError: if a name is not in the zoo.
    """
    for name in options.graphs:
        if not zoo.contains(name):
            raise UserError(f"No zoo graph is called {name!r}. {nearest_match(name, zoo.names())}")
    if options.graphs:
        return list(options.graphs)
    names = default or zoo.published_names()
    return list(dict.fromkeys(map(zoo.tiny, quick or names))) if options.scale == "smoke" else list(names)


def add_device(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Adds the option for the device to measure on; `more` is appended to its help."""
    parser.add_argument("--device", default="cpu", help=f"where to measure (cpu){more}")


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the threads of ONNX Runtime."""
    parser.add_argument("--threads", type=int, default=1, help="threads of ONNX Runtime (1)")


def chosen_threads(options: argparse.Namespace) -> int:
    """Returns the number of threads.

    Raises:
      UserError: if it is below 1.
    """
    require_at_least(1, threads=options.threads)
    return int(options.threads)


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the seed of random rewriting."""
    parser.add_argument("--seed", type=int, default=0, help="seed of the random rewrites (0)")


def chosen_seed(options: argparse.Namespace) -> int:
    """Returns the seed.

    Raises:
      UserError: if the seed is negative.
    """
    require_at_least(0, seed=options.seed)
    return int(options.seed)


def add_seeds(parser: argparse.ArgumentParser, default: str, more: str = "") -> None:
    """Adds the option for the seeds of the runs; `more` is appended to the default ones in its help."""
    parser.add_argument("--seeds", metavar=SEEDS_METAVAR, help=f"{SEEDS_HELP} ({default}{more})")


def chosen_seeds(options: argparse.Namespace, default: str) -> list[int]:
    """Returns the seeds in ascending order, each once; at the scale `smoke`, the first two of the default ones.

    Raises:
      UserError: if the option is no list of numbers and ranges.
    """
    given = options.seeds is not None
    seeds = sorted(set(numbers_of("--seeds", options.seeds if given else default, least=0)))
    return seeds if given or options.scale != "smoke" else seeds[:2]


def require_one_process(options: argparse.Namespace) -> None:
    """Checks `--processes` of a table that measures times: two measurements at a time would disturb each other.

    Raises:
      UserError: if it is not 1.
    """
    if options.processes != 1:
        raise UserError(
            f"--processes is {options.processes}, but {options.table} measures times, and measurements that run at the "
            "same time would disturb one another. Leave it at 1."
        )


def run_units(
    units: Sequence[Unit],
    options: argparse.Namespace,
    progress: ProgressDisplay,
    *,
    measures: bool = False,
    times_tensorflow: bool | None = None,
) -> list[Record]:
    """Runs the units of a table and returns their records, in the order of `units`.

    At the scale `smoke`, trainings are so short that TensorFlow compiles none of them.

    Args:
      measures: whether the units measure times, so that two at a time would disturb each other.
      times_tensorflow: whether they time TensorFlow, which then compiles as ever; None: as `measures`.
    Raises:
      UserError: if `--processes` is below 1, or not 1 although the units measure times.
      Exception: the error of the first unit that failed, after all others have ended.
    """
    if measures:
        require_one_process(options)
    if not units:
        return []
    compiles = options.scale != "smoke" or (measures if times_tensorflow is None else times_tensorflow)
    works = [unit.work if compiles else partial(without_compiling, unit.work) for unit in units]
    kept = [  # units of tables use `once`
        dataclasses.replace(unit, work=work, keeps=True, measures=measures)
        for unit, work in zip(units, works, strict=True)
    ]
    return records(chosen_executor(options, options.table, progress), kept)


def named(given: str | None, choices: Mapping[str, Choice], kind: str, separator: str = ",") -> dict[str, Choice]:
    """Returns the choices that an option names.

    Args:
      given: names with separators between them; None: all choices.
      kind: what a choice is called in an error.
    Raises:
      UserError: if a name is not among the choices.
    """
    names = list(choices) if given is None else [name.strip() for name in given.split(separator)]
    for name in names:
        if name not in choices:
            raise UserError(f"No {kind} is called '{name}'. {nearest_match(name, choices, separator)}")
    return {name: choices[name] for name in names}
