"""The parser of `rlflow costs`, with the options of all subcommands, so that `--help` imports nothing heavy."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

SUBCOMMANDS = {
    "record": ("experiments.costs.record", "run"),
    "show": ("experiments.costs.database", "show"),
    "export": ("experiments.costs.database", "export"),
    "import": ("experiments.costs.database", "bring_in"),
    "prior": ("experiments.costs.prior", "run"),
}
WALKS, STEPS = 4, 30
_OWN = "the user's own, rlflow/prices.sqlite in the cache folder"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `rlflow costs`, with the options of each."""
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    _add_record(subcommands)
    _add_show(subcommands)
    _add_export(subcommands)
    _add_import(subcommands)
    _add_prior(subcommands)


def run(options: argparse.Namespace) -> int:
    """Runs the subcommand and returns the exit status."""
    module, function = SUBCOMMANDS[options.subcommand]
    status: int = getattr(import_module(module), function)(options)
    return status


def _add_record(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "record",
        help="time the kernels of models and of their rewritten graphs",
        description="Times every kernel that ONNX Runtime makes of each MODEL, and of the graphs met on random walks "
        "of rewrites, and keeps the prices for --costs measured:<device>. What is known is not timed again, so the "
        "same command goes on after an interruption; several may record into one database at once, by turns.",
    )
    parser.add_argument(
        "models", metavar="MODEL", nargs="*", help="ONNX files or zoo names (default: the full-size zoo)"
    )
    parser.add_argument("--device", default="cpu", help="where to time: cpu (default), cuda")
    parser.add_argument("--threads", metavar="N", type=int, default=1, help="threads of each operator (1)")
    parser.add_argument("--level", default="all", help="how much ONNX Runtime optimises, as measure.level (all)")
    _add_database(parser)
    parser.add_argument(
        "--walks", metavar="K", type=int, default=WALKS, help=f"number of random walks from each model ({WALKS})"
    )
    parser.add_argument(
        "--steps", metavar="N", type=int, default=STEPS, help=f"number of rewrites of each walk ({STEPS})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the walks (0)")
    parser.add_argument(
        "--again",
        action="store_true",
        help="time all kernels of the models once more, or all that are known if none is named; prices become the "
        "means of all their timings",
    )
    _add_dim(parser)


def _add_show(subcommands: Any) -> None:
    parser = subcommands.add_parser("show", help="list what has been recorded, and where")
    _add_database(parser)
    _add_setting(parser)
    parser.add_argument("--slowest", metavar="N", type=int, default=0, help="list the N dearest kernels too")
    parser.add_argument("--model", metavar="MODEL", help="list the prices of this model's kernels, in their order")
    _add_dim(parser)


def _add_export(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "export",
        help="write prices into a file of their own",
        description="Writes prices into FILE, which can be replayed anywhere without measuring: --costs FILE.",
    )
    parser.add_argument("file", metavar="FILE.sqlite", type=Path, help="the file to write")
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    parser.add_argument(
        "--kernels-alone",
        action="store_true",
        help="leave out which kernels operators run, and whole graphs: the file is small, and its replay needs the "
        "device to find the kernels out again",
    )
    _add_database(parser)
    _add_setting(parser)


def _add_import(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "import",
        help="add the prices of another file",
        description="Adds the prices of FILE to a database; those that are there already stay.",
    )
    parser.add_argument("file", metavar="FILE.sqlite", type=Path, help="the file to read")
    _add_database(parser)


def _add_prior(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "prior",
        help="write the prices that come with RLFlow, from which others are predicted",
        description="Times the kernels of all graphs of `rlflow reproduce discrepancy`, the networks in turn, and "
        "writes them with their provenance. What is known is not timed again, so the same command goes on after an "
        "interruption.",
    )
    parser.add_argument("--output", metavar="FILE", type=Path, help="the file to write (default: the shipped one)")
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    parser.add_argument("--timings", metavar="N", type=int, default=1, help="fewest timings of each kernel (1)")
    parser.add_argument("--threads", metavar="N", type=int, default=1, help="threads of each operator (1)")
    parser.add_argument("--write-only", action="store_true", help="time nothing: write what is known")
    _add_database(parser)


def _add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--database", metavar="FILE", type=Path, help=f"the database of prices (default: {_OWN})")


def _add_setting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--setting", metavar="TEXT", help="only what was recorded where the name, as `show` lists it, contains TEXT"
    )


def _add_dim(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dim", metavar="NAME=VALUE", action="append", default=[], help="bind a symbolic dimension (repeatable)"
    )
