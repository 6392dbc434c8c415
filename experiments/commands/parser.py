"""The parser of the command line, and the table of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple, NoReturn

from experiments.commands.outcome import BAD_INPUT

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


class Command(NamedTuple):
    """A command.

    Attributes:
      module: the module that has its `add_options(parser)` and its `run(options)`, which returns an exit status.
      about: what it does, in a few words.
      aliases: its other names.
    """

    module: str
    about: str
    aliases: tuple[str, ...] = ()

    def add_options(self, parser: Parser) -> None:
        """Adds its options to its parser."""
        import_module(self.module).add_options(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Carries it out, and returns the exit status."""
        status: int = import_module(self.module).run(options)
        return status


COMMANDS: Mapping[str, Command] = {
    "optimise": Command(
        "experiments.commands.optimise", "rewrite a model into a faster one and prove that it is equal", ("optimize",)
    ),
    "train": Command("experiments.commands.train", "train the world model or the controller of a run, and stop there"),
    "check": Command(
        "experiments.commands.check", "prove that two models compute the same, and time them against each other"
    ),
    "validate": Command("experiments.commands.validate", "replay a finished run, prove its result again, and time it"),
    "explain": Command(
        "experiments.commands.explain", "say where a rule applies in a model, or how far it is from applying"
    ),
    "fuse": Command("experiments.commands.fuse", "plan which operators share a kernel, and write the plan"),
    "reproduce": Command(
        "experiments.commands.reproduce", "print a table of the papers or of this project, and write it"
    ),
    "sweep": Command("experiments.sweeps.command", "run every combination of some settings, and show what they do"),
    "report": Command("experiments.reports.command", "build one HTML page of a run, or of a folder of tables"),
    "place": Command(
        "experiments.placement.command", "divide a model among devices, or place it on a simulated machine"
    ),
    "rules": Command("experiments.rules.command", "generate, verify and show rewrite rules"),
    "costs": Command("experiments.costs.command", "record, show, export and import measured prices of operators"),
    "gradients": Command("experiments.gradients", "write the training graph of a model: loss, gradients, optimiser"),
    "zoo": Command("experiments.commands.zoo", "list the built-in models, or write one to a file"),
}
"""The commands by name, in the order of `rlflow --help`."""


class Parser(argparse.ArgumentParser):
    """A parser that prints an error as one paragraph on standard error, without the usage text before it.

    Attributes:
      add_late: adds the options of a command whose module is imported only when the command is used; None if there are
        no such options.
      takes: what a command takes alone, as a sentence about any other option; None: the usual message.
    """

    add_late: Callable[[Parser], None] | None = None
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
            names = (getattr(known, name, None) for name in ("command", "subcommand", "table", "part"))
            command = " ".join(["rlflow", *(name for name in names if isinstance(name, str))])
            self.exit(BAD_INPUT, f"{command}: no option is '{' '.join(others)}' here. See {command} --help.\n")
        return known

    def _check_value(self, action, value):  # type: ignore[no-untyped-def]  # argparse lists dozens of names
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            from taso_ext.errors import near  # here, because the engine comes with it

            hint = f". Did you mean '{found}'?" if (found := near(value, action.choices)) else ""
            raise argparse.ArgumentError(None, f"no {action.metavar} is called '{value}'{hint}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else "."
        self.exit(BAD_INPUT, f"{self.prog}: {message}{end} See {self.prog} --help.\n")


def build_parser() -> Parser:
    """Returns the parser of the whole command line."""
    parser = Parser(
        prog="rlflow",
        description="Finds a faster ONNX graph that computes the same, by reinforcement learning in a world model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.about, aliases=command.aliases).add_late = command.add_options
    return parser


def command_of(name: str) -> Command:
    """Returns the command of a name or an alias."""
    return next(command for known, command in COMMANDS.items() if name in (known, *command.aliases))
