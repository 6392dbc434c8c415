"""`rlflow fuse`: a plan of which operators share a kernel."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.commands.outcome import print_found
from experiments.config.flags import OF_FUSE, add_some_flags


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow fuse`."""
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


def run(options: argparse.Namespace) -> int:
    """Searches the plan, writes the model with it, and prints what was found."""
    from experiments.pipeline.fuse import fuse
    from experiments.request import settings_of
    from experiments.runs.progress import make_progress

    found = fuse(
        options.model,
        options.output,
        settings_of(options),
        make_progress(),
        device=options.prices,
        method=options.search,
        budget=options.budget,
        advantages=options.advantages,
        force=options.force,
    )
    print_found(found, options.json)
    return 0
