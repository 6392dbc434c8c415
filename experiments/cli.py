"""The command `rlflow`. Nothing heavy is imported before a command needs it, so `rlflow --help` answers at once."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from experiments.config.flags import OF_CHECK, OF_EXPLAIN, OF_FUSE, add_flags, add_some_flags
from experiments.errors import is_of_the_file_system
from experiments.runs.supervision import remember, remembered, supervised, watch

if TYPE_CHECKING:
    from experiments.config.run import RunConfig

DIFFERENT, BAD_INPUT, UNVERIFIED = 1, 2, 3
ALL = "all"
"""The name that stands for all tables."""

EXAMPLES = """\
examples:
  rlflow optimise model.onnx -o model.opt.onnx
  rlflow optimise model.onnx -o model.opt.onnx --dim batch=1 --controller taso --alpha 1.05 --budget 1000
  rlflow optimise bert-base -o bert.opt.onnx --preset demo --seed 1 --set evaluate.sampled_episodes=20
  rlflow optimise bert-base -o bert.opt.onnx --recollect 3
  rlflow train controller bert-base --preset demo
  rlflow optimise bert-base -o bert.opt.onnx --from runs/RUN
  rlflow check bert-base bert.opt.onnx
  rlflow validate runs/RUN
  rlflow report runs/RUN
  rlflow sweep bert-base --over dream.temperature=0,1,2 --over seed=0..4
  rlflow place inception-v3:batch=32 -o divided --devices cpu:0,cpu:1
  rlflow zoo
"""


class _Parser(argparse.ArgumentParser):
    """A parser that prints an error as one paragraph on standard error, without the usage text before it.

    Attributes:
      add_late: adds the options of a command whose module is imported only when the command is used; None if there are
        no such options.
      takes: what a command takes alone, as a sentence about any other option; None: the usual message.
    """

    add_late: Callable[[_Parser], None] | None = None
    takes: str | None = None

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # overloads of argparse
        if self.add_late is not None:
            self.add_late(self)
            self.add_late = None
        known, others = super().parse_known_args(args, namespace)
        if others and self.takes is not None:
            self.error(f"no option is '{' '.join(others)}' here. {self.takes}")
        return known, others

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # overloads of argparse
        known, others = self.parse_known_args(args, namespace)
        if others:
            names = (getattr(known, name, None) for name in ("command", "table", "part"))
            command = " ".join(["rlflow", *(name for name in names if isinstance(name, str))])
            self.exit(BAD_INPUT, f"{command}: no option is '{' '.join(others)}' here. See {command} --help.\n")
        return known

    def _check_value(self, action, value):  # type: ignore[no-untyped-def]  # argparse lists dozens of names
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            from experiments.errors import near

            hint = f". Did you mean '{found}'?" if (found := near(value, action.choices)) else ""
            raise argparse.ArgumentError(None, f"no {action.metavar} is called '{value}'{hint}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else "."
        self.exit(BAD_INPUT, f"{self.prog}: {message}{end} See {self.prog} --help.\n")


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line."""
    parser = _Parser(
        prog="rlflow",
        description="Finds a faster ONNX graph that computes the same, by reinforcement learning in a world model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_optimise(commands)
    _add_train(commands)
    _add_check(commands)
    _add_validate(commands)
    _add_explain(commands)
    commands.add_parser(
        "fuse", help="plan which operators share a kernel, and write the plan"
    ).add_late = _add_fuse_options
    _add_reproduce(commands)
    sweep = commands.add_parser("sweep", help="run every combination of some settings, and show what they do")
    sweep.add_late = _add_sweep_options
    report = commands.add_parser("report", help="build one HTML page of a run, or of a folder of tables")
    report.add_late = _add_report_options
    place = commands.add_parser("place", help="divide a model among devices, or place it on a simulated machine")
    place.add_late = _add_place_options
    for group, about in {
        "rules": "generate, verify and show rewrite rules",
        "costs": "record, show, export and import measured prices of operators",
    }.items():
        commands.add_parser(group, help=about).add_late = _add_subcommands
    gradients = commands.add_parser("gradients", help="write the training graph of a model: loss, gradients, optimiser")
    gradients.add_late = _add_gradient_options
    zoo = commands.add_parser("zoo", help="list the built-in models, or write one to a file")
    zoo.add_argument("name", nargs="?", help="the model to write")
    zoo.add_argument("-o", "--output", type=Path, help="the ONNX file to write")
    zoo.add_argument("--force", action="store_true", help="overwrite an existing output file")
    return parser


def _add_subcommands(parser: _Parser) -> None:
    group = parser.prog.split()[-1]
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True, parser_class=_Parser)
    import_module(f"experiments.{group}.command").add_subcommands(subcommands)


def _add_sweep_options(parser: _Parser) -> None:
    from experiments.sweeps.command import add_options

    add_options(parser)


def _add_report_options(parser: _Parser) -> None:
    from experiments.reports.command import add_options

    add_options(parser)


def _add_gradient_options(parser: _Parser) -> None:
    from experiments.gradients import add_options

    add_options(parser)


def _add_place_options(parser: _Parser) -> None:
    from experiments.placement.command import add_options

    add_options(parser)


def _add_table_options(parser: _Parser) -> None:
    from experiments import reproduce

    experiment = reproduce.load(parser.prog.split()[-1])
    parser.description = experiment.description
    experiment.add_options(parser)


def _add_reproduce(commands: argparse._SubParsersAction[_Parser]) -> None:
    from experiments.executors.choice import add_executor
    from experiments.reproduce import TABLES

    parser = commands.add_parser("reproduce", help="print a table of the papers or of this project, and write it")
    tables = parser.add_subparsers(dest="table", metavar="TABLE", required=True, parser_class=_Parser)
    everything = tables.add_parser(ALL, help="all of these, one after another; goes on when one fails")
    everything.add_argument("--scale", choices=("smoke", "full"), default="full", help="smoke: a quick look (full)")
    everything.add_argument("-o", "--output", metavar="DIR", type=Path, help="folder of their folders (runs/reproduce)")
    everything.add_argument("--force", action="store_true", help="overwrite what the tables have left in DIR")
    everything.takes = (
        f"{ALL} takes only --scale, -o and --force, and makes every table with its own graphs and seeds. Name one "
        "table to choose them, as in rlflow reproduce table1 bert-base or rlflow reproduce controllers --seeds 0..2"
    )
    for name, (_, about) in TABLES.items():
        table = tables.add_parser(name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        table.add_late = _add_table_options
        table.add_argument("--scale", choices=("smoke", "full"), default="full", help="smoke: a quick look (full)")
        table.add_argument(
            "-o",
            "--output",
            metavar="DIR",
            type=Path,
            help="default: runs/reproduce/TABLE; with --device another than the CPU, the folder of that name in it",
        )
        table.add_argument("--force", action="store_true", help="overwrite what TABLE has left in DIR")
        add_executor(table, "units of work")


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
    parser.add_argument(
        "models", metavar="MODEL", nargs="+", help="path of an ONNX file, or a zoo name (see: rlflow zoo)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        required=True,
        help="the ONNX file to write; the folder to write into if there are several models",
    )
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")
    parser.add_argument(
        "--unverified",
        action="store_true",
        help="end with exit status 0, and not 3, if the outputs of the result cannot be compared with the model's",
    )
    parser.add_argument("--json", action="store_true", help="print the figures of the summary as JSON")
    parser.add_argument(
        "--from",
        dest="trained",
        metavar="RUN",
        type=Path,
        help="play the controller that a run has trained, on this or another graph, instead of training one",
    )
    add_flags(parser)


def _add_train(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("train", help="train the world model or the controller of a run, and stop there")
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True, parser_class=_Parser)
    for part, about in {
        "world-model": "collect episodes and train the world model; with --recollect also the rounds before the last",
        "controller": "train the controller too, in the dream (--world real: in the environment)",
    }.items():
        training = parts.add_parser(
            part,
            help=about,
            description=f"{about[0].upper()}{about[1:]}; prints what came of it. Options and run directory are those "
            "of `rlflow optimise`, which goes on from there. The same command resumes an interrupted training.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        training.add_argument("model", metavar="MODEL", help="path of an ONNX file, or a zoo name (see: rlflow zoo)")
        add_flags(training)


def _add_check(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "check",
        help="prove that two models compute the same, and time them against each other",
        description="Compares the outputs of MODEL and OUT on random and edge-case inputs, and times both in turn. The "
        "exit status is 0 if they are equal, 1 if they differ, and 3 if nothing could be proved.",
    )
    parser.add_argument("model", metavar="MODEL", help="the original: path of an ONNX file, or a zoo name")
    parser.add_argument("result", metavar="OUT", help="the other model, for example a result of rlflow optimise")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    add_some_flags(parser, OF_CHECK)


def _add_validate(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "validate",
        help="replay a finished run, prove its result again, and time it",
        description="Replays every action log of RUN without TensorFlow, recomputes its costs, compares OUT with the "
        "model and times both in turn. The exit status is 0 if everything is as the run recorded it, 1 if anything "
        "differs, and 3 if nothing could be proved of OUT.",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the run directory that rlflow optimise has left")
    parser.add_argument("--device", help="where the result is timed: cpu, cuda, tensorrt (where the run timed it)")
    parser.add_argument("--untimed", action="store_true", help="do not time the result")
    parser.add_argument("--model", metavar="MODEL", help="where the model is now (where the run found it)")
    parser.add_argument("--output", "-o", metavar="OUT", type=Path, help="where OUT is now (where the run wrote it)")
    parser.add_argument("--reward", metavar="MODULE:FUNCTION", help="the run's own reward function, to be imported")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")


def _add_explain(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "explain",
        help="say where a rule applies in a model, or how far it is from applying",
        description="Names the operators of each match of a rule; if there is none, the largest part of the rule that "
        "fits somewhere, what is missing, and which conditions do not hold.",
    )
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or a zoo name")
    parser.add_argument("--rule", metavar="RULE", required=True, help="the rule's name (see: rlflow rules show)")
    parser.add_argument("--at", metavar="NODE", default="", help="the name of an operator that has to take part")
    add_some_flags(parser, OF_EXPLAIN)


def _add_fuse_options(parser: _Parser) -> None:
    from controller.fusion.search import METHODS
    from environment.fusion import DEVICES
    from experiments.pipeline.fuse import QUERIES, SEARCH

    parser.description = (
        "Searches a fusion plan of MODEL, from the compiler's, by predicted prices of a device. OUT is the model with "
        "the kernels as metadata of its operators, and with ONNX Runtime's operators for the groups that it has."
    )
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or a zoo name")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the ONNX file to write")
    parser.add_argument("--prices", default=DEVICES[0], help=f"of which device: {', '.join(DEVICES)} ({DEVICES[0]})")
    parser.add_argument("--search", default=SEARCH, help=f"{', '.join(METHODS)} ({SEARCH})")
    parser.add_argument("--budget", metavar="N", type=int, help=f"queries ({QUERIES} for each decision)")
    parser.add_argument("--advantages", metavar="FILE", type=Path, help="the trained model that guided search follows")
    parser.add_argument("--force", action="store_true", help="overwrite an existing OUT")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    add_some_flags(parser, OF_FUSE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: None means those of the command line; the command then runs in a child process, see
        `experiments.runs.supervision`.
    Returns:
      0 if the command did what was asked; 1 if `rlflow check` finds that two models differ, or `rlflow validate` that
      a run is not as it was recorded; 2 for bad input or a
      training that comes to NaN or infinity, with one paragraph on standard error and no output file; 2 also if `rlflow
      rules verify` rejects a rule; 3 if nothing could be proved of what `rlflow optimise` wrote or of what `rlflow
      check` compared; 130 after Ctrl-C and 143 after SIGTERM; 128 and the number of a signal if native code crashed and
      there was no going on.
    """
    from experiments.runs.signals import Interrupted, listening

    def listened() -> int:
        with listening():
            try:
                return _main(arguments)
            except ImportError as error:
                if error.name != "taso_ext._core":
                    raise
                print(f"rlflow: {error}", file=sys.stderr)
                return BAD_INPUT

    try:
        return supervised(listened) if arguments is None else listened()
    except Interrupted as interruption:
        return _stopped(str(interruption), interruption.signal)
    except KeyboardInterrupt:  # it came before `listening` took over, or a library raised it
        return _stopped("SIGINT", signal.SIGINT)


def _main(arguments: Sequence[str] | None) -> int:
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(f"rlflow {version('rlflow')}")
        return 0
    if options.command is None:
        parser.print_help()
        return 0
    options.arguments = tuple(sys.argv[1:] if arguments is None else arguments)
    if watch() is not None and options.command != "zoo":  # which runs no model, and lists them at once
        from taso_ext.onnx_io.session import set_watch

        set_watch(watch())
    return _carried_out(lambda: COMMANDS[options.command](options))


def _carried_out(command: Callable[[], int]) -> int:
    """Runs a command and turns its errors into a sentence and an exit status."""
    try:
        return command()
    except _input_errors() as error:
        print(f"rlflow: {error}{_advice(error)}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        if not is_of_the_file_system(error):
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(
            f"rlflow: a file cannot be written or read: {place}{error.strerror}. What was finished is kept; when there "
            "is space and permission, the same command goes on.",
            file=sys.stderr,
        )
        return BAD_INPUT


def _advice(error: BaseException) -> str:
    """Returns what to do if ONNX Runtime has crashed where a command cannot do without it; else an empty text."""
    from taso_ext.errors import CrashError, root_cause

    if not isinstance(root_cause(error), CrashError):
        return ""
    return (
        ". What has to be timed cannot be left out. Time it without ONNX Runtime's optimisations: --set "
        "measure.level=disabled. Or choose costs that time nothing, such as --costs roofline:xeon."
    )


def _stopped(name: str, number: int) -> int:
    """Says that a signal has ended the command, and returns the exit status that shells report: 130 after Ctrl-C."""
    print(f"rlflow: stopped by {name}. The same command resumes where this one stopped.", file=sys.stderr)
    return 128 + number


def _optimise(options: argparse.Namespace) -> int:
    from experiments.pipeline.optimise import optimise
    from experiments.reports.summary import print_summary
    from experiments.request import Request, one_by_one, parse_request
    from experiments.runs.progress import make_progress

    finished = {each["output"]: each for each in remembered("finished")}  # before a crash
    named = list(one_by_one(options))
    requests = [parse_request(each) for each in named if str(each.output) not in finished]  # fails before any work

    def optimised(request: Request) -> int:
        result, run_directory = optimise(request, make_progress())
        figures = {**result.to_json(), "output": str(request.output), "run_directory": str(run_directory)}
        if not options.json:
            print_summary(result, str(request.output), str(run_directory))
        status = UNVERIFIED if result.unverified and not options.unverified else 0
        finished[str(request.output)] = {"output": str(request.output), "status": status, "figures": figures}
        remember("finished", finished[str(request.output)])
        return status

    statuses = [_carried_out(partial(optimised, request)) for request in requests]
    statuses += [each["status"] for each in finished.values()]
    found = [each["figures"] for each in finished.values()]
    if options.json and found:
        _print_json(found if len(named) > 1 else found[0])
    return BAD_INPUT if BAD_INPUT in statuses else max(statuses)


def _settings(options: argparse.Namespace) -> RunConfig:
    """Returns the settings of a command that needs no preset, with what `auto` stands for here."""
    from experiments.config.flags import given_settings
    from experiments.config.run import load_config
    from experiments.request import resolved

    return resolved(load_config("best", given_settings(options), options.set))


def _check(options: argparse.Namespace) -> int:
    from experiments.pipeline.check import check
    from experiments.runs.progress import make_progress

    found = check(options.model, options.result, _settings(options), make_progress())
    _print_found(found, options.json)
    if not found.is_judged:
        return UNVERIFIED
    return 0 if found.verification.equal else DIFFERENT


def _validate(options: argparse.Namespace) -> int:
    from experiments.runs.progress import make_progress
    from experiments.validation.validate import validate

    found = validate(
        options.run,
        make_progress(),
        device=options.device,
        timed=not options.untimed,
        model=options.model,
        output=options.output,
        reward=options.reward,
    )
    _print_found(found, options.json)
    if not found.holds:
        return DIFFERENT
    return 0 if found.is_judged else UNVERIFIED


def _explain(options: argparse.Namespace) -> int:
    from experiments.pipeline.explain import explanation

    print("\n".join(explanation(options.model, options.rule, options.at, _settings(options)).lines()))
    return 0


def _fuse(options: argparse.Namespace) -> int:
    from experiments.pipeline.fuse import fuse
    from experiments.runs.progress import make_progress

    found = fuse(
        options.model,
        options.output,
        _settings(options),
        make_progress(),
        device=options.prices,
        method=options.search,
        budget=options.budget,
        advantages=options.advantages,
        force=options.force,
    )
    _print_found(found, options.json)
    return 0


def _print_found(found: Any, as_json: bool) -> None:
    """Prints the result of a command, which has `lines` for people and `to_json` for programs."""
    if as_json:
        _print_json(found.to_json())
    else:
        print("\n".join(found.lines()))


def _print_json(figures: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Prints figures as JSON, which has no infinities and no NaN: they become null."""
    from experiments.runs.directory import without_nonfinite

    print(json.dumps(without_nonfinite(figures), indent=2))


def _train(options: argparse.Namespace) -> int:
    from experiments.pipeline.optimise import train
    from experiments.request import parse_request
    from experiments.runs.progress import make_progress

    train(parse_request(options), options.part, make_progress())
    return 0


def _reproduce_all(options: argparse.Namespace) -> int:
    """Makes every table; one that cannot be made does not keep the others from it."""
    from experiments.reproduce import TABLES
    from experiments.runs.progress import format_duration

    failed = []
    for number, name in enumerate(TABLES, start=1):
        begun = time.monotonic()
        output = [] if options.output is None else ["-o", str(options.output / name)]
        arguments = ["reproduce", name, "--scale", options.scale, *output, *["--force"] * options.force]
        each = build_parser().parse_args(arguments)
        each.arguments = tuple(arguments)
        try:
            status = _carried_out(partial(_reproduce, each))
        except Exception:  # a defect, which is shown like one
            traceback.print_exc()
            status = DIFFERENT
        if status:
            failed.append(name)
        print(f"{name} took {format_duration(time.monotonic() - begun)} ({number} of {len(TABLES)} tables).\n")
    made = len(TABLES) - len(failed)
    print(f"\n{made} of {len(TABLES)} tables are made{': all but ' * bool(failed)}{', '.join(failed)}.")
    return BAD_INPUT if failed else 0


def _reproduce(options: argparse.Namespace) -> int:
    if options.table == ALL:
        return _reproduce_all(options)
    from experiments import reproduce
    from experiments.executors import provenance
    from experiments.reproduce.options import settle
    from experiments.reproduce.other_devices import with_other_devices
    from experiments.reproduce.table import require_writable_folder
    from experiments.runs.progress import make_progress

    settle(options)
    device = getattr(options, "device", "cpu")  # not every table has the option
    directory = options.output or Path("runs/reproduce", options.table, *([device] if device != "cpu" else []))
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


def _with_subcommands(options: argparse.Namespace) -> int:
    status: int = import_module(f"experiments.{options.command}.command").run(options)
    return status


def _sweep(options: argparse.Namespace) -> int:
    from experiments.sweeps.command import run

    return run(options)


def _report(options: argparse.Namespace) -> int:
    from experiments.reports.command import run

    return run(options)


def _gradients(options: argparse.Namespace) -> int:
    from experiments.gradients import run

    return run(options)


def _place(options: argparse.Namespace) -> int:
    from experiments.placement.command import placed

    found = placed(options)
    _print_found(found, options.json)
    return 0 if found.is_equal else 1


def _zoo(options: argparse.Namespace) -> int:
    from environment import zoo
    from experiments.errors import UserError
    from experiments.output_file import require_writable
    from taso_ext.onnx_io.model_file import write_model
    from taso_ext.onnx_io.reading import read_model

    if options.name is None:
        if options.output is not None or options.force:
            raise UserError("-o and --force write a graph of the zoo, but no graph is named: rlflow zoo NAME -o OUT.")
        print("\n".join(zoo.names()))
        return 0
    output = options.output or Path(f"{options.name}.onnx")
    require_writable(output, force=options.force)
    write_model(read_model(zoo.build(options.name)), output)
    print(f"Wrote {output}.")
    return 0


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "optimise": _optimise,
    "optimize": _optimise,
    "train": _train,
    "check": _check,
    "validate": _validate,
    "explain": _explain,
    "fuse": _fuse,
    "reproduce": _reproduce,
    "sweep": _sweep,
    "report": _report,
    "place": _place,
    "rules": _with_subcommands,
    "costs": _with_subcommands,
    "gradients": _gradients,
    "zoo": _zoo,
}


def _input_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that bad input raises in each package; any other error is a defect and keeps its traceback.

    FloatingPointError is raised if the numbers of a training become NaN or infinite.
    """
    from controller.foreign import BrokenControllerError
    from controller.interface import StoredControllerError
    from controller.registry import UnknownControllerError, UnknownOptionError
    from environment.costs.prices.sqlite_file import DatabaseError
    from environment.measurement.effort import ClockError
    from environment.placement.errors import PlacementError
    from environment.rewards import RewardError
    from environment.runtimes import UnavailableError
    from environment.zoo import ZooError
    from experiments.errors import UserError
    from taso_ext.errors import ModelError, UnpricedError
    from worldmodel import errors as of_world_models

    return (
        *(UserError, ModelError, UnpricedError, UnavailableError, ClockError, DatabaseError, ZooError, RewardError),
        PlacementError,
        *(of_world_models.IncompatibleWorldModel, of_world_models.IncompatibleCheckpoint),
        *(of_world_models.IncompatibleEpisodes, of_world_models.NothingToLearn, of_world_models.CollectionStopped),
        of_world_models.IllegalAction,
        *(UnknownControllerError, UnknownOptionError, BrokenControllerError, StoredControllerError, FloatingPointError),
    )


if __name__ == "__main__":
    sys.exit(main())
