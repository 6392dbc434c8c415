"""`rlflow train`: a run up to its world model or its controller."""

from __future__ import annotations

import argparse

from experiments.config.flags import add_flags


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the parts of a run that can be trained, with the options of each."""
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
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


def run(options: argparse.Namespace) -> int:
    """Trains the part, and prints what came of it."""
    from experiments.pipeline.optimise import train
    from experiments.request import parse_request
    from experiments.runs.progress import make_progress

    train(parse_request(options), options.part, make_progress())
    return 0
