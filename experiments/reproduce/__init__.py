"""Tables and figures of the papers and of this project, one module each: `rlflow reproduce NAME`.

A module has `add_options(parser)`, for options beside those of all tables, and `reproduce(options, progress)`, which
returns its table. Finished units of work are kept in `runs/reproduce/NAME/units` and not done again; those of accuracy,
which come out alike on every machine, are looked for in `experiments/results/NAME/units` too (see
`experiments.reproduce.units`).
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NamedTuple


class Table(NamedTuple):
    """Where a table is made, below this package, and one line about it."""

    module: str
    about: str


TABLES = {
    "rule-sets": Table(
        "search.rule_sets", "which rules apply to each zoo graph and what they find, against another rule set"
    ),
    "end-to-end": Table(
        "search.end_to_end", "what rewriting gains on this machine when candidates are ranked by the clock"
    ),
    "discrepancy": Table(
        "cost_model.discrepancy",
        "what the measured cost model predicts for whole and for rewritten graphs, against the clock",
    ),
    "discrepancy-rules": Table(
        "cost_model.discrepancy_rules", "the same rule by rule: what each does where it is applied wherever it applies"
    ),
    "never-slower": Table(
        "search.never_slower", "what a search under measured costs makes of the zoo, checked end to end"
    ),
    "baselines": Table(
        "baselines.table", "time and memory of other tools and of our best graphs, as ratios in one interleaved run"
    ),
    "steptime": Table(
        "speed.steptime", "what a step takes in the real environment and in the dream, beside the papers' figures"
    ),
    "accuracy": Table(
        "world_model.accuracy", "what trained world models predict, and what policies make of their dreams"
    ),
    "accuracy-curve": Table(
        "world_model.accuracy_curve",
        "how accuracy grows with the real steps that a world model is trained on, as a picture too",
    ),
    "accuracy-ablations": Table(
        "world_model.accuracy_ablations", "what helps a world model to predict: settings that differ in one thing each"
    ),
    "accuracy-transfer": Table(
        "world_model.accuracy_transfer", "what world models predict of graphs that they were not trained on"
    ),
    "exploit": Table("world_model.exploit", "what keeps a policy from living on the mistakes of its dream"),
    "fig-pairwise": Table(
        "cost_model.fig_pairwise",
        "how run time goes with operations, memory accesses and kernel launches, as a picture too",
    ),
}
"""What can be reproduced."""


def load(name: str) -> ModuleType:
    """The module of a table."""
    return importlib.import_module(f"experiments.reproduce.{TABLES[name].module}")
