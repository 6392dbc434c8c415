"""`rlflow optimise`: makes models faster, one after another, each in a run directory of its own."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.commands.outcome import BAD_INPUT, UNVERIFIED, carried_out, print_json
from experiments.commands.parser import EXAMPLES
from experiments.config.flags import add_flags
from experiments.runs.supervision import remember, remembered

if TYPE_CHECKING:
    from experiments.request import Request


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow optimise`."""
    parser.description = (
        "Rewrites MODEL into a faster, equivalent graph and writes it to OUT once it is verified. "
        "The same command resumes an interrupted run."
    )
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
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


def run(options: argparse.Namespace) -> int:
    """Optimises all models that are named; one that cannot be does not keep the others from it."""
    from experiments.pipeline.optimise import optimise
    from experiments.reports.summary import print_summary
    from experiments.request import one_by_one, parse_request
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

    statuses = [carried_out(partial(optimised, request)) for request in requests]
    statuses += [each["status"] for each in finished.values()]
    found = [each["figures"] for each in finished.values()]
    if options.json and found:
        print_json(found if len(named) > 1 else found[0])
    return BAD_INPUT if BAD_INPUT in statuses else max(statuses)
