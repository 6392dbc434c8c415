"""Properties of the graphs and the rewrites that they allow (the papers' Table I).

rlflow reproduce table1
rlflow reproduce table1 nasrnn bert-base:layers=24

The papers count substitutions as the number of applicable rules times the number of their matches, which counts no
thing that exists. Beside this product stand the matches themselves and the different graphs that they lead to. The
papers' graphs are cleaned up; a second row has each graph after the basic clean-up alone, which folds nothing. It takes
a minute.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from controller.search.native import MOST_MATCHES
from environment import zoo
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_graphs, chosen_graphs, run_units
from experiments.reproduce.papers.printed import PROPERTIES
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import ProgressDisplay
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State, _core

NAME = "table1"
CLEAN_UPS = ("full", "basic")
COSTS = "rtx2070"

COLUMNS = {
    "graph": "as the zoo builds it",
    "clean": "clean-up before anything is counted",
    "operators": "at run time",
    "layers": "operators that have weights",
    "unique_layers": "of these, with different operators, attributes, shapes of inputs or of weights",
    "rules": "shipped rules that apply",
    "matches": "rewrites that are legal",
    "product": "rules times matches, as the papers count substitutions",
    "graphs": "different graphs that one rewrite leads to",
    "printed_layers": "layers in the papers",
    "printed_unique": "unique layers in the papers",
    "printed_product": "substitutions in the papers, which had other rules",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(PROPERTIES))


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Counts on each graph."""
    names = chosen_graphs(options, list(PROPERTIES))
    units = [Unit(f"{name} {clean}", partial(counted, name, clean)) for name in names for clean in CLEAN_UPS]
    rows = [{**record, **printed(record)} for record in run_units(units, options, progress)]
    return Table(
        "Properties of the graphs",
        COLUMNS,
        dict.fromkeys(("matches", "product", "graphs"), ","),
        rows,
        options.command_line,
        f"{len(RuleSet.default())} rules; at most {MOST_MATCHES} matches of a rule count. Printed figures: Table I of "
        "RLFlow.",
        finding(rows),
    )


def counted(name: str, clean: str, progress: ProgressDisplay) -> Record:
    """Returns the record of one graph; one that this build of the engine has counted is not counted again."""
    engine = hashlib.sha256(Path(_core.__file__).read_bytes()).hexdigest()
    settings = {"clean": clean, "rules": RuleSet.default().fingerprint, "most": MOST_MATCHES, "engine": engine}

    def work() -> Record:
        graph = OnnxModel.load(zoo.build(name), clean=clean).graph
        return {"graph": name, "clean": clean, **properties(graph)}

    return once(NAME, f"{name}-{clean}", settings, work)


def properties(graph: Graph) -> Record:
    """Returns what there is to count on a graph."""
    state = State(graph, RuleSet.default(), CostModel.roofline(COSTS), MOST_MATCHES)
    actions = state.legal_actions()
    layers = list(_layers(graph))
    rules = len({int(rule) for rule, _ in actions})
    reached = set()
    for rule, location in actions:
        after = state.copy()
        after.step(int(rule), int(location))
        reached.add(after.hash)
    return {
        "operators": graph.num_runtime_nodes,
        "layers": len(layers),
        "unique_layers": len(set(layers)),
        "rules": rules,
        "matches": len(actions),
        "product": rules * len(actions),
        "graphs": len(reached),
    }


def _layers(graph: Graph) -> Iterator[str]:
    """Yields for each layer what tells it from others."""
    values = graph.values()
    for node in graph.nodes():
        if node.weight_only or not any(values[index].weight_only for index in node.inputs):
            continue
        shapes = [(tuple(values[index].dims or ()), values[index].weight_only) for index in node.inputs]
        if any(weight and len(dims) > 1 for dims, weight in shapes):  # not a bias or a scale alone
            yield repr((node.op_type, sorted(node.attributes.items()), shapes))


def printed(record: Record) -> Record:
    """Returns the papers' figures of a graph, which are of the cleaned-up one."""
    found = PROPERTIES.get(record["graph"])
    if found is None or record["clean"] != "full":
        return dict.fromkeys(("printed_layers", "printed_unique", "printed_product"), UNDEFINED)
    names = ("printed_layers", "printed_unique", "printed_product")
    return dict(zip(names, (found.layers, found.unique_layers, found.substitutions), strict=True))


def finding(rows: Sequence[Record]) -> str:
    """Returns how far the papers' number is from that of the graphs that rewrites lead to, in a sentence."""
    cleaned = [row for row in rows if row["clean"] == "full" and row["graphs"]]
    if not cleaned:
        return "No rewrite is legal on any graph."
    factors = sorted(row["product"] / row["graphs"] for row in cleaned)
    return (
        f"Counted as in the papers, as rules times matches, substitutions of cleaned-up graphs are {factors[0]:.1f} to "
        f"{factors[-1]:.1f} times as many as different graphs that a rewrite leads to."
    )
