"""Options that several tables share (zoo graphs, device, seed), and the execution of their units of work."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

from environment import zoo
from experiments.errors import UserError, nearest_match, require_at_least
from experiments.executors.choice import chosen_executor
from experiments.executors.local import Record, Unit, records, without_compiling
from experiments.runs.progress import ProgressDisplay
from experiments.studies.study import numbers_of

Choice = TypeVar("Choice")


def add_graphs(parser: argparse.ArgumentParser, default: str = "the full-size ones") -> None:
    """Adds the argument for the names of graphs; `default` describes the default graphs in the help."""
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help=f"zoo graphs (default: {default})")


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
    parser.add_argument("--seeds", metavar="A,B,…", help=f"seeds of the runs ({default}{more})")


def chosen_seeds(options: argparse.Namespace, default: str) -> list[int]:
    """Returns the seeds in ascending order, each once; at the scale `smoke`, the first two of the default ones.

    Raises:
      UserError: if the option is no list of numbers.
    """
    seeds = sorted(set(numbers_of("--seeds", options.seeds or default, least=0)))
    return seeds if options.seeds or options.scale != "smoke" else seeds[:2]


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
            raise UserError(f"No {kind} is called '{name}'. {nearest_match(name, list(choices))}")
    return {name: choices[name] for name in names}
