"""The parser of `rlflow rules`, with the options of all subcommands, so that `--help` imports nothing heavy."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

DEFAULT_SHAPES = 128
GENERATED, PARTIAL = "generated.rules", "partial.rules"
CHECKPOINTS = Path("runs/rules-generate")
"""The folder in which finished parts of a generation are kept."""
FAMILIES = ("equal", "partial")
_FILES = "rule files; the shipped ones, unless given"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `rlflow rules`, with the options of each."""
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    _add_generate(subcommands)
    _add_verify(subcommands)
    _add_show(subcommands)


def run(options: argparse.Namespace) -> int:
    """Runs the subcommand, whose module has its name, and returns the exit status."""
    status: int = import_module(f"experiments.rules.{options.subcommand}").run(options)
    return status


def _add_generate(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "generate",
        help="find rules by enumerating tensor expressions, and write them to a file",
        description="Enumerates all small tensor expressions, finds which are equal, and writes the rules that are "
        "worth having and that the hand-written ones do not imply, with their proofs. Finished work is kept in "
        "runs/rules-generate: the same command goes on after an interruption.",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help=f"default: {GENERATED}, or {PARTIAL} for the family partial"
    )
    parser.add_argument(
        "--family",
        metavar="NAME",
        default=FAMILIES[0],
        help="equal: laws between small expressions; partial: operators that are first equal in most places only, and "
        "are then corrected (equal)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE and the tables if they exist")
    parser.add_argument(
        "--operators", metavar="N", type=int, default=3, help="largest side, 1 to 3; linear expressions go to 4 (3)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random tensors (0)")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of the enumeration; the result does not depend on them (1)"
    )
    parser.add_argument("--table", metavar="FILE.md", type=Path, help="write the counts there, and as .csv beside it")


def _add_verify(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "verify",
        help="verify the rules of files, and record the proofs in them",
        description="Verifies rules in prime fields, by axioms, and against ONNX Runtime. Rules whose proof is current "
        "are passed over, so the same command goes on after an interruption.",
    )
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help=_FILES)
    parser.add_argument("--write", action="store_true", help="record the proofs in the files; nothing else changes")
    parser.add_argument("--again", action="store_true", help="verify rules whose proof is current too")
    parser.add_argument("--rule", metavar="NAME", action="append", default=[], help="only this rule (repeatable)")
    parser.add_argument(
        "--instances",
        metavar="N",
        type=int,
        default=DEFAULT_SHAPES,
        help=f"number of graphs that test each rule ({DEFAULT_SHAPES})",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of these graphs and of all data (0)")
    parser.add_argument("--processes", type=int, default=2, help="number of rules that are verified at a time (2)")


def _add_show(subcommands: Any) -> None:
    parser = subcommands.add_parser("show", help="list rules: names, operators, proofs")
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help=_FILES)
