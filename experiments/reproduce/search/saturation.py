"""What equality saturation finds, and what it takes, beside TASO's search: Tensat's comparison (Yang et al. 2021).

rlflow reproduce saturation
rlflow reproduce saturation squeezenet1.1 --k-multi 0,1

All graphs that the shipped rules lead to are held in one e-graph. Rules with several roots are looked for in the first
`k_multi` rounds only. The cheapest graph is extracted by integer programming, written as a model and compared
with the original in ONNX Runtime. A unit is one graph and one k_multi, and takes up to four minutes; TASO's search
takes up to fifteen. Needs the extra `saturation`.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from controller.saturation.config import ExplorationLimits
from controller.saturation.saturate import require_egglog, saturate
from controller.search.native import ALPHA
from environment import zoo
from environment.verification import verify
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_graphs, chosen_graphs, run_units
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import ProgressDisplay
from experiments.studies.study import numbers_of
from taso_ext import CostModel, OnnxModel, RuleSet, State, search_taso

DEVICE = "rtx2070"
GRAPHS = ("nasrnn", "bert-base", "resnext50", "nasnet-a", "squeezenet1.1", "inception-v3", "vgg19")
QUICK = ("squeezenet1.1-tiny",)
"""The graph that a quick look at the scale `smoke` is content with."""
K_MULTI = "0,1,2"
BUDGETS = {"smoke": 500, "full": 50_000}
"""Graphs that TASO's search expands at most."""
LIMITS = {
    "smoke": ExplorationLimits(nodes=2_000, rounds=4),
    "full": ExplorationLimits(nodes=20_000, seconds=60),
}
EXTRACTION_SECONDS = {"smoke": 10.0, "full": 120.0}
PUBLISHED = {
    "nasrnn": (68.9, 45.4),
    "bert-base": (9.2, 8.5),
    "resnext50": (8.8, 5.5),
    "nasnet-a": (7.3, 1.9),
    "squeezenet1.1": (24.5, 6.7),
    "inception-v3": (10.0, 6.3),
    "vgg19": (8.9, 8.9),
}
"""Improvements of Tensat and of TASO on a T4 [%], second-hand: section 6 of the reference gives their source."""

COLUMNS = {
    "graph": "cleaned in full",
    "k_multi": "rounds in which rules with several roots are looked for",
    "improvement": "of the extracted graph over the input [%]",
    "bound": "no graph of the e-graph gains more [%]",
    "taso": "improvement by TASO's search [%]",
    "nodes": "e-nodes",
    "classes": "classes that extraction chose from: of run-time tensors that outputs could need",
    "rounds": "rounds of the exploration",
    "stop": "why it stopped",
    "explore_s": "time of the exploration [s]",
    "extract_s": "time of the extraction [s]",
    "taso_s": "time of TASO's search [s]",
    "memory_mb": "growth of the process [MB]",
    "difference": "largest difference of an output from the original's, in standard deviations of its values",
    "tensat": "published improvement of Tensat [%]",
    "published_taso": "published improvement of TASO beside it [%]",
}
FORMATS = {
    **dict.fromkeys(("improvement", "bound", "taso"), ".2f"),
    **dict.fromkeys(("nodes", "classes"), ",d"),
    **dict.fromkeys(("explore_s", "extract_s", "taso_s", "tensat", "published_taso"), ".1f"),
    "memory_mb": ".0f",
    "difference": ".1e",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    parser.add_argument("--k-multi", metavar="A,B,…", default=K_MULTI, help=f"values of k_multi ({K_MULTI})")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Saturates and searches each graph; finished units are not done again."""
    require_egglog()
    names, values = chosen_graphs(options, GRAPHS, QUICK), numbers_of("--k-multi", options.k_multi, least=0)
    scale = options.scale
    units = [Unit(f"{name} TASO", partial(_searched, name, BUDGETS[scale])) for name in names]
    units += [
        Unit(f"{name} k_multi={k_multi}", partial(_saturated, name, k_multi, scale))
        for name in names
        for k_multi in values
    ]
    records = run_units(units, options, progress)
    searches = {record["graph"]: record for record in records if "taso" in record}
    rows = [{**record, **_beside(record["graph"], searches)} for record in records if "k_multi" in record]
    limits = LIMITS[scale]
    return Table(
        "What equality saturation finds",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"Cost model roofline:{DEVICE}; exploration: {limits.nodes:,} e-nodes, {limits.rounds} rounds, "
        f"{limits.seconds:g} s; extraction: {EXTRACTION_SECONDS[scale]:g} s. TASO: alpha {ALPHA}, at most "
        f"{BUDGETS[scale]:,} graphs. {len(RuleSet.default())} shipped rules.",
        finding(rows),
    )


def finding(rows: Sequence[Record]) -> str:
    """Returns where saturation finds more than TASO's search and where less, and where it is optimal, in a sentence."""
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    best = {graph: max(row["improvement"] for row in rows if row["graph"] == graph) for graph in graphs}
    taso = {row["graph"]: row["taso"] for row in rows}
    more = [graph for graph in graphs if best[graph] > taso[graph] + 0.01]
    less = [graph for graph in graphs if best[graph] < taso[graph] - 0.01]
    exact = [row for row in rows if row["bound"] <= row["improvement"] + 1e-3]
    return (
        f"With its best k_multi, saturation finds more than TASO's search on {len(more)} of {len(graphs)} graphs"
        f"{': ' * bool(more)}{', '.join(more)}; less on {len(less)}{': ' * bool(less)}{', '.join(less)}. The extracted "
        f"graph is the cheapest of its e-graph in {len(exact)} of {len(rows)} cases."
    )


def _beside(graph: str, searches: dict[str, Record]) -> Record:
    tensat, taso = PUBLISHED.get(graph, (UNDEFINED, UNDEFINED))
    search = searches[graph]
    return {"taso": search["taso"], "taso_s": search["taso_s"], "tensat": tensat, "published_taso": taso}


def _searched(name: str, budget: int, progress: ProgressDisplay) -> Record:
    rules = RuleSet.default()

    def work() -> Record:
        costs = CostModel.roofline(DEVICE)
        graph = OnnxModel.load(zoo.build(name)).graph
        result = search_taso(State(graph, rules, costs), ALPHA, budget)
        return {"graph": name, "taso": 100 * (1 - result.cost_ms / graph.cost(costs).ms), "taso_s": result.seconds}

    return once("saturation", f"{name}-taso", {"budget": budget, "rules": rules.fingerprint}, work)


def _saturated(name: str, k_multi: int, scale: str, progress: ProgressDisplay) -> Record:
    rules, limits = RuleSet.default(), dataclasses.replace(LIMITS[scale], k_multi=k_multi)
    seconds = EXTRACTION_SECONDS[scale]
    settings = {"limits": dataclasses.asdict(limits), "extraction": seconds, "rules": rules.fingerprint}

    def work() -> Record:
        # A process of its own, in which memory that others have freed does not hide what this takes.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(_record, name, limits, seconds).result()

    return once("saturation", f"{name}-{k_multi}", settings, work)


def _record(name: str, limits: ExplorationLimits, seconds: float) -> Record:
    model = OnnxModel.load(zoo.build(name))
    costs, rules = CostModel.roofline(DEVICE), RuleSet.default()
    found = saturate(model.graph, rules, costs, limits=limits, extraction_seconds=seconds)
    compared = verify(model.source, model.export_checked(found.graph))
    if not compared.equal:
        raise UserError(f"{name}: the extracted graph computes something else: {compared.reason}.")
    return {
        "graph": name,
        "k_multi": limits.k_multi,
        "improvement": 100 * found.improvement,
        "bound": 100 * (1 - found.bound_ms / found.initial_cost_ms),
        "nodes": found.explored.nodes,
        "classes": found.classes,
        "rounds": found.explored.rounds,
        "stop": str(found.explored.stop),
        "explore_s": found.explored.seconds,
        "extract_s": found.extraction_seconds,
        "memory_mb": found.memory_bytes / 1e6,
        "difference": compared.largest_difference,
    }
