"""`rlflow reproduce`: a table of the papers or of this project, or all of them."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments import reproduce
from experiments.commands.outcome import BAD_INPUT, DIFFERENT, carried_out
from experiments.commands.parser import Parser, build_parser
from experiments.executors.choice import add_cluster, add_executor

ALL = "all"
"""The name that stands for all tables."""
PASSED_ON = ("seeds", "device", "executor", "address")
"""Options of `all` that go to those tables that have them."""


def add_options(parser: Parser) -> None:
    """Adds all tables, and the options that all of them have; the table's own are added when it is used."""
    tables = parser.add_subparsers(dest="table", metavar="TABLE", required=True)
    everything = tables.add_parser(
        ALL, help="all of these, one after another; goes on when one fails", allow_abbrev=False
    )
    everything.add_argument("--scale", choices=("smoke", "full"), default="full", help="smoke: a quick look (full)")
    everything.add_argument(
        "-o", "--output", metavar="DIR", type=_folder, help="folder of their folders (runs/reproduce)"
    )
    everything.add_argument("--force", action="store_true", help="overwrite what the tables have left in DIR")
    everything.add_argument("--seeds", metavar="A,B..C", help="of the tables that take seeds (default: each its own)")
    everything.add_argument("--device", help="of the tables that take a device to measure on (cpu)")
    add_cluster(everything)
    everything.set_defaults(processes=1)
    everything.takes = (
        f"{ALL} takes --scale, --seeds, --device, --executor, --address, -o and --force, and makes every table with "
        "its own graphs, which are of many kinds, in one process at a time, since many measure times. Name one table "
        "to choose more, as in rlflow reproduce table1 bert-base"
    )
    for name, (_, about) in reproduce.TABLES.items():
        table = tables.add_parser(name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        table.add_late = _add_table_options
        table.add_argument("--scale", choices=("smoke", "full"), default="full", help="smoke: a quick look (full)")
        table.add_argument(
            "-o",
            "--output",
            metavar="DIR",
            type=_folder,
            help="default: runs/reproduce/TABLE; with --device another than the CPU, the folder of that name in it",
        )
        table.add_argument("--force", action="store_true", help="overwrite what TABLE has left in DIR")
        add_executor(table, "units of work")


def _folder(text: str) -> Path:
    """Returns the folder of `-o`; an empty name would be the current one."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected the name of a folder, got an empty one")
    return Path(text)


def _add_table_options(parser: Parser) -> None:
    experiment = reproduce.load(parser.prog.split()[-1])
    parser.description = experiment.description
    experiment.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Makes the table, writes it and prints it; units of work that are finished are not done again.

    Raises:
      UserError: an option is bad, or the folder cannot be written.
    """
    if options.table == ALL:
        return _everything(options)
    from experiments.executors import provenance
    from experiments.reproduce.options import settle
    from experiments.reproduce.other_devices import with_other_devices
    from experiments.reproduce.table import require_writable_folder
    from experiments.runs.progress import make_progress

    settle(options)
    device = _device_of(options)
    directory = options.output or _of_device(Path("runs/reproduce", options.table), device)
    options.command_line = shlex.join(["rlflow", *options.arguments])
    require_writable_folder(directory, force=options.force or options.output is None)
    progress = make_progress()
    if (seed := (getattr(options, "seeds", None) or "").strip()).isdecimal() and int(seed) > 1:
        progress.note(f"--seeds {seed} is one seed, that of this number. {seed} seeds are 0..{int(seed) - 1}.")
    with provenance.using() as records:
        table = reproduce.load(options.table).reproduce(options, progress)
    said = provenance.said_of(records) if records else provenance.computed(table.command)
    table = dataclasses.replace(table, provenance=said)

    def beside(page: str) -> str:
        return with_other_devices(page, options.table, device)

    table.write(directory, beside)
    print(beside(table.brief(directory)), end="")
    return 0


def _everything(options: argparse.Namespace) -> int:
    """Makes every table; one that cannot be made does not keep the others from it.

    A table that the same command has left is written again, from its units, so that an interrupted command goes on.

    Raises:
      UserError: an option is bad, or the folder cannot be written.
    """
    from experiments.executors.choice import chosen_executor
    from experiments.output_file import require_writable_directory
    from experiments.reproduce.options import chosen_seeds, settle
    from experiments.runs.progress import format_duration, make_progress

    settle(options)
    if options.seeds is not None:
        chosen_seeds(options, options.seeds)
    chosen_executor(options, ALL, make_progress())  # what it refuses, no table could use
    if options.output is not None:
        require_writable_directory(options.output)
    failed, most = [], len(reproduce.TABLES)
    for number, name in enumerate(reproduce.TABLES, start=1):
        begun = time.monotonic()
        arguments = ["reproduce", name, "--scale", options.scale]
        arguments += _passed_on(options, build_parser().parse_args(arguments))
        if options.output is not None:
            folder = _of_device(options.output / name, _device_of(build_parser().parse_args(arguments)))
            arguments += ["-o", str(folder)]
        if options.force or (options.output is not None and _is_left_by(arguments, folder)):
            arguments.append("--force")
        each = build_parser().parse_args(arguments)
        each.arguments = tuple(arguments)
        try:
            status = carried_out(partial(run, each))
        except Exception:  # a defect, which is shown like one
            traceback.print_exc()
            status = DIFFERENT
        if status:
            failed.append(name)
        print(f"{name} took {format_duration(time.monotonic() - begun)} ({number} of {most} tables).\n")
    print(f"\n{most - len(failed)} of {most} tables are made{': all but ' * bool(failed)}{', '.join(failed)}.")
    return BAD_INPUT if failed else 0


def _passed_on(options: argparse.Namespace, table: argparse.Namespace) -> list[str]:
    """Returns those options of `all` that differ from a table's own and that the table has."""
    given = {name: getattr(options, name) for name in PASSED_ON}
    return [
        part
        for name, value in given.items()
        if value is not None and value != getattr(table, name, value)
        for part in (f"--{name}", value)
    ]


def _device_of(table: argparse.Namespace) -> str:
    """Returns the device that a table measures on; not every table has the option."""
    return str(getattr(table, "device", "cpu"))


def _of_device(folder: Path, device: str) -> Path:
    """Returns the folder of a table, or the one in it of a device that is not the CPU."""
    return folder if device == "cpu" else folder / device


def _is_left_by(arguments: Sequence[str], folder: Path) -> bool:
    """Returns whether a folder holds the table of a command, which its page names."""
    page = folder / "README.md"
    said = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    return any(f"`{shlex.join(['rlflow', *arguments, *forced])}`" in said for forced in ((), ("--force",)))
