"""The command `rlflow place`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.commands.outcome import DIFFERENT, print_found
from experiments.errors import UserError, require_at_least

if TYPE_CHECKING:  # the command line shows the options without importing what places
    from experiments.placement.divided import Divided
    from experiments.placement.simulated import SimulatedTable

GROUPS, BUDGET = 300, 20_000
_EXAMPLES = """\
examples:
  rlflow place inception-v3:batch=32 -o divided --devices cpu:0,cpu:1
  rlflow place model.onnx -o divided --devices cpu:0,cpu:1 --costs learned:cpu --force
  rlflow place inception-v3:batch=32 --machine k80x4
  rlflow place model.onnx --machine mine.toml --placers single-gpu,heft,annealing
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "With --devices, divides MODEL among devices that are here: DIR gets an ONNX file for each part and run.py, "
        "which runs them and verifies that their outputs equal those of the whole model. With --machine, simulates "
        "placements of MODEL on a machine that need not be here, and prints what each placer finds."
    )
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or a zoo name (see: rlflow zoo)")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--devices", metavar="A,B,…", help="devices that are here: cpu:0,cpu:1 or cuda:0,cpu:0")
    place.add_argument("--machine", metavar="NAME", help="a simulated machine: k80x2, k80x4, v100x8, two-hosts, F.toml")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="with --devices, the folder to write")
    parser.add_argument("--force", action="store_true", help="overwrite what the command has left in DIR")
    parser.add_argument(
        "--placers",
        metavar="A,B,…",
        help="what chooses the placement (--devices: annealing; --machine: all that train nothing)",
    )
    parser.add_argument(
        "--costs", help="with --devices, times of operators: measured:cpu (default), learned:cpu, roofline:xeon"
    )
    parser.add_argument("--groups", metavar="N", type=int, default=GROUPS, help=f"most groups of operators ({GROUPS})")
    parser.add_argument("--scope", metavar="REGEX", action="append", default=[], help="operators that share a device")
    parser.add_argument("--budget", metavar="N", type=int, default=BUDGET, help=f"simulations of a search ({BUDGET})")
    parser.add_argument("--seed", type=int, default=0, help="seed of searches and of inputs (0)")
    parser.add_argument("--dim", metavar="NAME=SIZE", action="append", default=[], help="size of a symbolic dimension")
    parser.add_argument("--clean", default="full", choices=("full", "basic", "none"), help="clean-up at import (full)")
    parser.add_argument("--untimed", action="store_true", help="with --devices, do not time the result")
    parser.add_argument("--pairs", type=int, default=30, help="most timings of each variant (30)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(options: argparse.Namespace) -> int:
    """Carries out `rlflow place`, and prints what was found.

    Returns:
      0, or 1 if outputs of a divided model differ from the model's.
    Raises:
      UserError, PlacementError, ModelError, UnavailableError: the input is bad.
    """
    found = _placed(options)
    print_found(found, options.json)
    return 0 if found.is_equal else DIFFERENT


def _placed(options: argparse.Namespace) -> Divided | SimulatedTable:
    """Returns what came of the command, which has `lines`, `to_json`, and says whether a divided model is equal."""
    from experiments.placement.divided import divide_model
    from experiments.placement.simulated import simulate_model
    from experiments.runs.progress import make_progress

    require_at_least(1, groups=options.groups, budget=options.budget)
    require_at_least(2, pairs=options.pairs)
    require_at_least(0, seed=options.seed)
    if options.devices is None:
        if options.output is not None:
            raise UserError("-o is for --devices: a simulated machine runs nothing, so nothing is written for it.")
        return simulate_model(options, make_progress())
    if options.output is None:
        raise UserError("--devices needs -o DIR, the folder that the parts of the model are written to.")
    return divide_model(options, make_progress())
