"""Improvements of the zoo graphs by the shipped rules, compared with those by another rule set.

rlflow reproduce rule-sets --baseline runs/taso.rules

The estimated improvement over the cleaned input graph comes from the search of Jia et al. 2019 (alpha 1.05, 50,000
graphs). With the shipped rules the search runs twice: from the input, and from the best graph that the baseline's rules
found. A graph takes some twenty seconds with the shipped rules alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial

from controller.search.native import ALPHA, MOST_MATCHES
from environment import zoo
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_graphs, chosen_graphs, run_units
from experiments.reproduce.table import Table
from experiments.runs.progress import ProgressDisplay
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State, search_taso

DEVICE = "rtx2070"
BUDGETS = {"smoke": 500, "full": 50_000}

COLUMNS = {
    "graph": "cleaned in full",
    "operators": "run-time operators",
    "rules": "shipped rules that apply to the input graph",
    "matches": "their matches",
    "substitutions": "the product of the two, which the papers give as the number of substitutions",
    "applied": "shipped rules that led to some graph that the search expanded",
    "baseline": "estimated improvement by the baseline's rules [%]",
    "improvement": "by the shipped rules, from the input [%]",
    "continued": "by the shipped rules, from the baseline's best graph [%]",
    "best": "the better of the two [%]",
    "gain": "by how much the best graph is cheaper than the baseline's [%]",
}
COMPARED = ("baseline", "continued", "best", "gain")
PERCENT = dict.fromkeys(("improvement", *COMPARED), ".2f")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser)
    parser.add_argument("--baseline", metavar="FILE", help="rule file to compare with (default: no comparison)")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Searches each graph; finished graphs are not searched again."""
    baseline, budget = _load(options.baseline), BUDGETS[options.scale]
    units = [Unit(name, partial(_unit, name, budget, options.baseline)) for name in chosen_graphs(options)]
    rows = run_units(units, options, progress)
    return Table(
        "What the shipped rules find",
        COLUMNS if baseline else {key: text for key, text in COLUMNS.items() if key not in COMPARED},
        PERCENT,
        rows,
        options.command_line,
        f"Cost model roofline:{DEVICE}, taso search with alpha {ALPHA}, at most {budget:,} graphs. "
        f"{len(RuleSet.default())} shipped rules" + (f", {len(baseline)} of the baseline." if baseline else "."),
        finding(rows),
    )


def finding(rows: Sequence[Record]) -> str:
    """Returns how much the shipped rules improve, in a sentence."""
    improved = [row for row in rows if row["improvement"] >= 1]
    text = f"The shipped rules make {len(improved)} of {len(rows)} graphs cheaper by 1 % or more"
    gains = sorted((float(row["gain"]), row["graph"]) for row in rows if "gain" in row)
    most = f"; the most against the best graph of the baseline is {gains[-1][0]:.1f} %, {gains[-1][1]}" if gains else ""
    return f"{text}{most}."


def _load(path: str | None) -> RuleSet | None:
    if path is None:
        return None
    try:
        return RuleSet.load(path, proven=False)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read the rules of --baseline: {error}") from error


def _unit(name: str, budget: int, path: str | None, progress: ProgressDisplay) -> Record:
    rules, baseline = RuleSet.default(), _load(path)
    settings = {"budget": budget, "rules": _texts(rules), "baseline": _texts(baseline) if baseline else None}
    return once("rule-sets", f"{name}-{budget}", settings, lambda: _search(name, budget, rules, baseline))


def _texts(rules: RuleSet) -> list[str]:
    return [rules.text(index) for index in range(len(rules))]


def _search(name: str, budget: int, rules: RuleSet, baseline: RuleSet | None) -> Record:
    graph = OnnxModel.load(zoo.build(name)).graph
    start = _state(graph, rules)
    actions = start.legal_actions()
    applying = len({int(rule) for rule, _ in actions})
    found = search_taso(start, ALPHA, budget)
    row: Record = {
        "graph": name,
        "operators": graph.num_runtime_nodes,
        "rules": applying,
        "matches": len(actions),
        "substitutions": applying * len(actions),
        "applied": len(found.rules),
        "improvement": _percent(found.cost_ms, start),
        "applied_rules": sorted(rules.names[rule] for rule in found.rules),
        "stop_reason": found.stop_reason,
    }
    if baseline is not None:
        before = _state(graph, baseline)
        reached = search_taso(before, ALPHA, budget)
        continued = search_taso(_state(_replay(before, reached.actions), rules), ALPHA, budget)
        best_ms = min(found.cost_ms, continued.cost_ms)
        row |= {
            "baseline": _percent(reached.cost_ms, start),
            "continued": _percent(continued.cost_ms, start),
            "best": _percent(best_ms, start),
            "gain": 100 * (1 - best_ms / reached.cost_ms),
        }
    return row


def _state(graph: Graph, rules: RuleSet) -> State:
    return State(graph, rules, CostModel.roofline(DEVICE), MOST_MATCHES)


def _replay(start: State, actions: Iterable[tuple[int, int]]) -> Graph:
    state = start.copy()
    for rule, location in actions:
        state.step(rule, location)
    return state.graph


def _percent(cost_ms: float, start: State) -> float:
    return 100 * (1 - cost_ms / start.cost.ms)
