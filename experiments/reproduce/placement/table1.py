"""Operators and groups of the networks that are placed (Mirhoseini et al. 2017, table 1).

rlflow reproduce placement-table1

Both graphs are of a training step. The published ones are of TensorFlow, where an operation is smaller than an operator
of ONNX: weights, their initialisation and the queue of inputs count there too. It takes a quarter of a minute.
"""

from __future__ import annotations

import argparse

from experiments.reproduce.placement.networks import (
    OPERATIONS,
    add_networks,
    by_rules,
    chosen_networks,
    graph_of,
    groups_of,
)
from experiments.reproduce.table import UNDEFINED, Row, Table
from experiments.runs.progress import ProgressDisplay

COLUMNS = {
    "network": "training step",
    "operators": "at run time",
    "by rules": "groups that the published rules of co-location give",
    "groups": "groups that are placed",
    "printed operations": "in the paper",
    "printed groups": "in the paper",
}
add_options = add_networks


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Counts operators and groups."""
    rows: list[Row] = []
    networks = chosen_networks(options)
    with progress.stage("group operators", total=len(networks)) as bar:
        for done, (name, network) in enumerate(networks.items(), 1):
            printed = OPERATIONS.get(network.published, (UNDEFINED, UNDEFINED))
            counts = (
                len(graph_of(network)),
                int(by_rules(network).max(initial=-1)) + 1,
                int(groups_of(network).max(initial=-1)) + 1,
            )
            rows.append(dict(zip(COLUMNS, (name, *counts, *printed), strict=True)))
            bar.update(done)
    return Table(
        "Operators and groups",
        COLUMNS,
        dict.fromkeys(("operators", "printed operations"), ","),
        rows,
        options.command_line,
        "Where the rules give more groups than the paper has, groups with little work are merged.",
    )
