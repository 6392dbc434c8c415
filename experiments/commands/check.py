"""`rlflow check`: whether two models compute the same, and how long each takes."""

from __future__ import annotations

import argparse

from experiments.commands.outcome import DIFFERENT, UNVERIFIED, print_found
from experiments.config.flags import OF_CHECK, add_some_flags


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow check`."""
    parser.description = (
        "Compares the outputs of MODEL and OUT on random and edge-case inputs, and times both in turn. The "
        "exit status is 0 if they are equal, 1 if they differ, and 3 if nothing could be proved."
    )
    parser.add_argument("model", metavar="MODEL", help="the original: path of an ONNX file, or a zoo name")
    parser.add_argument("result", metavar="OUT", help="the other model, for example a result of rlflow optimise")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    add_some_flags(parser, OF_CHECK)


def run(options: argparse.Namespace) -> int:
    """Compares and times the models, and prints what was found."""
    from experiments.pipeline.check import check
    from experiments.request import settings_of
    from experiments.runs.progress import make_progress

    found = check(options.model, options.result, settings_of(options), make_progress())
    print_found(found, options.json)
    if not found.is_judged:
        return UNVERIFIED
    return 0 if found.verification.equal else DIFFERENT
