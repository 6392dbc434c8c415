"""`rlflow validate`: whether a finished run is what it says."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.commands.outcome import DIFFERENT, UNVERIFIED, print_found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow validate`."""
    parser.description = (
        "Replays every action log of RUN without TensorFlow, recomputes its costs, compares OUT with the "
        "model and times both in turn. The exit status is 0 if everything is as the run recorded it, 1 if anything "
        "differs, and 3 if nothing could be proved of OUT."
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the run directory that rlflow optimise has left")
    parser.add_argument("--device", help="where the result is timed: cpu, cuda, tensorrt (where the run timed it)")
    parser.add_argument("--untimed", action="store_true", help="do not time the result")
    parser.add_argument("--model", metavar="MODEL", help="where the model is now (where the run found it)")
    parser.add_argument("--output", "-o", metavar="OUT", type=Path, help="where OUT is now (where the run wrote it)")
    parser.add_argument("--reward", metavar="MODULE:FUNCTION", help="the run's own reward function, to be imported")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")


def run(options: argparse.Namespace) -> int:
    """Replays, verifies and times the run, and prints what was found."""
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
    print_found(found, options.json)
    if not found.holds:
        return DIFFERENT
    return 0 if found.is_judged else UNVERIFIED
