"""What each rule does to each zoo graph where it is applied wherever it applies: predicted and measured.

rlflow reproduce discrepancy-rules

These graphs are among those of `rlflow reproduce discrepancy`, whose units are read if they are there. Which classical
substitutions pay on a device, and which do not, can be read off here.
"""

from __future__ import annotations

import argparse

from experiments.reproduce.cost_model import discrepancy
from experiments.reproduce.cost_model.agreement import signs_right
from experiments.reproduce.cost_model.discrepancy import BEYOND, label, studies, timings_of
from experiments.reproduce.cost_model.discrepancy_study import of_rules, records
from experiments.reproduce.table import Table
from experiments.reproduce.units import Record
from experiments.runs.progress import ProgressDisplay
from experiments.runs.warnings_noted import warnings_noted

COLUMNS = {
    "graph": "cleaned in full",
    "rule": "applied until it applies no longer; `early`: in the first part of the graph only",
    "steps": "how often",
    "measured": "time over that of the start graph, below 1 is faster",
    "±": "half of its 95 % interval",
    "fast": "the same, predicted by the fast model",
    "full": "by the full model",
    "sign": f"whether the fast model has it on the right side of 1; only where it differs by over {BEYOND:.0%}",
}
FORMATS = dict.fromkeys(("measured", "±", "fast", "full"), ".3f")

add_options = discrepancy.add_options


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """One row for each graph and rule, slowest last; finished graphs are not measured again."""
    with warnings_noted(progress):
        predicted = records(studies(options, progress), timings_of(options))
    rows = [
        _row(record["graph"], point)
        for record in predicted
        for point in sorted(of_rules(record), key=lambda point: float(point["measured"]))
    ]
    return Table(
        f"What rules do to graphs on {options.device}: predicted, and measured",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{label(options)}.",
    )


def _row(graph: str, point: Record) -> Record:
    right, counts = signs_right([point["fast"]], [point["measured"]], BEYOND)
    return {
        "graph": graph,
        "rule": point["how"],
        "steps": point["steps"],
        "measured": point["measured"],
        "±": point["half_width"] * point["measured"],
        "fast": point["fast"],
        "full": point["full"],
        "sign": ("right" if right else "wrong") if counts else "",
    }
