"""The command `rlflow`. Nothing heavy is imported before a command needs it, so `rlflow --help` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from experiments.costs.command import add_costs
from experiments.rules.command import add_rules

BAD_INPUT = 2

EXAMPLES = """\
examples:
  rlflow optimise model.onnx -o model.opt.onnx
  rlflow optimise model.onnx -o model.opt.onnx --dim batch=1 --controller taso --alpha 1.05 --budget 1000
  rlflow optimise bert-base -o bert.opt.onnx --preset demo --seed 1 --set evaluate.sampled_episodes=20
  rlflow optimise bert-base -o bert.opt.onnx --recollect 3
  rlflow zoo
"""


class _Parser(argparse.ArgumentParser):
    """Errors are one paragraph on standard error, without the usage in front of them."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}. See {self.prog} --help.\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="rlflow",
        description="Finds a faster ONNX graph that computes the same, by reinforcement learning in a world model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_optimise(commands)
    _add_reproduce(commands)
    add_rules(commands, _Parser)
    add_costs(commands, _Parser)
    zoo = commands.add_parser("zoo", help="list the built-in models, or write one to a file")
    zoo.add_argument("name", nargs="?", help="the model to write")
    zoo.add_argument("-o", "--output", type=Path, help="the ONNX file to write")
    zoo.add_argument("--force", action="store_true", help="overwrite an existing output file")
    return parser


class _TableParser(_Parser):
    """Imports the module of its table, for its options, when it is used."""

    table = ""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # overloads of argparse
        from experiments import reproduce

        experiment = reproduce.load(self.table)
        self.description = experiment.description
        experiment.add_options(self)
        return super().parse_known_args(args, namespace)


def _add_reproduce(commands: argparse._SubParsersAction[_Parser]) -> None:
    from experiments.reproduce import TABLES

    parser = commands.add_parser("reproduce", help="print a table of the papers or of this project, and write it")
    tables = parser.add_subparsers(dest="table", metavar="TABLE", required=True, parser_class=_TableParser)
    for name, (_, about) in TABLES.items():
        table = tables.add_parser(name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        table.table = name
        table.add_argument("--scale", choices=("smoke", "full"), default="full", help="smoke: a quick look (full)")
        table.add_argument("-o", "--output", metavar="DIR", type=Path, help="default: runs/reproduce/TABLE")
        table.add_argument("--force", action="store_true", help="overwrite what TABLE has left in DIR")
        table.add_argument("--processes", metavar="N", type=int, default=1, help="units of work at a time (1)")


def _add_optimise(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "optimise",
        aliases=["optimize"],
        help="rewrite a model into a faster one and prove that it is equal",
        description="Rewrites MODEL into a faster, equivalent graph and writes it to OUT once it is verified. "
        "The same command resumes an interrupted run.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or a zoo name (see: rlflow zoo)")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the ONNX file to write")
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")

    search = parser.add_argument_group("what searches")
    search.add_argument("--controller", help="ppo (default), random, greedy, taso, beam, restarts, passes")
    search.add_argument("--world", help="dream (default): train ppo inside the world model; real: in the environment")
    search.add_argument(
        "--temperature",
        type=float,
        help="τ of the dream's latents: 0 deterministic, 1 as predicted (1)",
    )
    search.add_argument("--dynamics", help="of the world model's latents: mdn (default), discrete, deterministic")
    search.add_argument("--reward-head", help="of the world model: shared (default) or separate from the others")
    search.add_argument("--ensemble", type=int, help="members of the world model, whose disagreement shows doubt (1)")
    search.add_argument(
        "--recollect",
        metavar="N",
        type=int,
        help="rounds in which the world model learns from real episodes of ppo, and ppo starts anew (0)",
    )
    search.add_argument("--alpha", type=float, help="taso: how much dearer than the best a graph may be (1.05)")
    search.add_argument("--width", type=int, help="beam: graphs of a level (16)")
    search.add_argument("--walk", type=int, help="restarts: random rewrites before each descent (10)")
    search.add_argument("--budget", type=int, help="graphs to expand, or passes to try (1000)")
    search.add_argument("--time", dest="seconds", metavar="SECONDS", type=float, help="time limit of searching (none)")
    search.add_argument("--memory", dest="memory_mb", metavar="MB", type=int, help="memory limit (512)")
    search.add_argument("--threads", type=int, help="of the search; the result does not depend on it (1)")
    search.add_argument("--rules", metavar="FILE", help="a rule file instead of the built-in rules")
    search.add_argument("--opset", help="raise (default): rewrites may need a newer opset than MODEL has; keep: not")
    search.add_argument(
        "--portable", action="store_true", default=None, help="no rewrites into operators that only ONNX Runtime has"
    )

    costs = parser.add_argument_group("what is counted")
    costs.add_argument(
        "--costs",
        help="cost model: roofline:<device> (default roofline:rtx2070), measured:<device>, endtoend:<device>, or a "
        "file of recorded prices (.sqlite)",
    )
    costs.add_argument("--device", help="where the result is measured end to end: cpu (default), cuda, tensorrt")

    model = parser.add_argument_group("how the model is read")
    model.add_argument(
        "--dim", metavar="NAME=VALUE", action="append", default=[], help="bind a symbolic dimension (repeatable)"
    )
    model.add_argument("--clean", help="clean-up before the search: full (default), basic, none")
    model.add_argument("--inputs", metavar="FILE.npz", help="inputs to verify and to time with, by input name")

    run = parser.add_argument_group("the run")
    run.add_argument("--preset", help="settings: demo (minutes), best (default), paper (the papers' numbers)")
    run.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override one setting (repeatable)"
    )
    run.add_argument("--seed", type=int, help="two runs with one seed are identical (0)")
    run.add_argument("--run-dir", metavar="DIR", type=Path, help="default: runs/, named after model and settings")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
      0 when it did what was asked; 2 for bad input, a training that came to NaN or infinity, or a result that failed
      verification, with one paragraph on standard error and nothing written; 130 after Ctrl-C and 143 after SIGTERM.
    """
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(f"rlflow {version('rlflow')}")
        return 0
    if options.command is None:
        parser.print_help()
        return 0
    if options.command in ("rules", "costs"):
        return _with_subcommands(options)
    run = {"zoo": _zoo, "reproduce": _reproduce}.get(options.command)
    return run(options) if run else _optimise(options, arguments)


def _optimise(options: argparse.Namespace, arguments: Sequence[str] | None) -> int:
    from experiments.runs.interruption import Interrupted, listening

    try:
        with listening():
            from experiments.pipeline.optimise import optimise
            from experiments.request import parse_request
            from experiments.runs.progress import make_progress

            optimise(parse_request(options, sys.argv[1:] if arguments is None else arguments), make_progress())
    except _input_errors() as error:
        print(f"rlflow: {error}", file=sys.stderr)
        return BAD_INPUT
    except Interrupted as interruption:
        print(f"rlflow: stopped by {interruption}. The same command resumes this run.", file=sys.stderr)
        return 128 + interruption.signal  # as shells report it: 130 after Ctrl-C
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    from experiments import reproduce
    from experiments.reproduce.table import require_writable_folder
    from experiments.runs.interruption import Interrupted, listening
    from experiments.runs.progress import make_progress

    directory = options.output or Path("runs/reproduce") / options.table
    options.command_line = " ".join(["rlflow", *sys.argv[1:]])
    try:
        with listening():
            require_writable_folder(directory, force=options.force or options.output is None)
            table = reproduce.load(options.table).reproduce(options, make_progress())
            table.write(directory)
    except _input_errors() as error:
        print(f"rlflow: {error}", file=sys.stderr)
        return BAD_INPUT
    except Interrupted as interruption:
        print(f"rlflow: stopped by {interruption}. The same command goes on from here.", file=sys.stderr)
        return 128 + interruption.signal
    print(table.brief(directory), end="")
    return 0


def _with_subcommands(options: argparse.Namespace) -> int:
    from experiments.runs.interruption import Interrupted, listening

    try:
        with listening():
            status: int = import_module(f"experiments.{options.command}.command").run(options)
            return status
    except _input_errors() as error:
        print(f"rlflow: {error}", file=sys.stderr)
        return BAD_INPUT
    except Interrupted as interruption:
        print(f"rlflow: stopped by {interruption}. The same command goes on from here.", file=sys.stderr)
        return 128 + interruption.signal


def _zoo(options: argparse.Namespace) -> int:
    from environment import zoo
    from experiments.output_file import require_writable, write_model

    try:
        if options.name is None:
            print("\n".join(zoo.names()))
            return 0
        output = options.output or Path(f"{options.name}.onnx")
        require_writable(output, force=options.force)
        write_model(zoo.build(options.name), output)
    except _input_errors() as error:
        print(f"rlflow: {error}", file=sys.stderr)
        return BAD_INPUT
    print(f"Wrote {output}.")
    return 0


def _input_errors() -> tuple[type[Exception], ...]:
    """What bad input raises in each package; anything else is a defect and keeps its traceback.

    What comes to NaN or infinity raises a FloatingPointError.
    """
    from controller.interface import StoredControllerError, UnknownControllerError
    from environment.costs.prices.sqlite_file import DatabaseError
    from environment.rewards import RewardError
    from environment.runtimes import UnavailableError
    from environment.zoo import ZooError
    from experiments.errors import UserError
    from taso_ext.errors import ModelError
    from worldmodel import errors as of_world_models

    return (
        *(UserError, ModelError, UnavailableError, DatabaseError, ZooError, RewardError),
        *(of_world_models.IncompatibleWorldModel, of_world_models.IncompatibleCheckpoint),
        *(of_world_models.IncompatibleEpisodes, of_world_models.NothingToLearn, of_world_models.CollectionStopped),
        *(UnknownControllerError, StoredControllerError, FloatingPointError),
    )


if __name__ == "__main__":
    sys.exit(main())
