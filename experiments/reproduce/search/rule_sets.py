"""What the shipped rules find in each zoo graph, beside another rule set.

rlflow reproduce rule-sets --baseline runs/taso.rules

The estimated improvement over the cleaned input graph is that of the search of Jia et al. 2019 (alpha 1.05, 50,000
graphs). With the shipped rules it starts twice: from the input, and from the graph that the baseline's rules found.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from environment import zoo
from experiments.errors import UserError
from experiments.reproduce import graphs
from experiments.reproduce.table import Table
from experiments.reproduce.units import Record, once
from experiments.runs.progress import ProgressDisplay
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State, search_taso

DEVICE = "rtx2070"
ALPHA = 1.05
MOST_MATCHES = 4096  # of one rule that are counted and searched
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
    """Options beside those of all tables."""
    graphs.add_option(parser)
    parser.add_argument("--baseline", metavar="FILE", help="rule file to compare with (default: no comparison)")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Searches each graph; finished graphs are not searched again."""
    names = graphs.chosen(options.graphs)
    baseline = _load(options.baseline)
    with progress.stage("search zoo graphs", total=len(names)) as bar:
        rows = []
        for name in names:
            rows.append(_unit(name, BUDGETS[options.scale], baseline))
            bar.update(len(rows))
    return Table(
        "What the shipped rules find",
        COLUMNS if baseline else {key: text for key, text in COLUMNS.items() if key not in COMPARED},
        PERCENT,
        rows,
        options.command_line,
        f"Cost model roofline:{DEVICE}, taso search with alpha {ALPHA}, at most {BUDGETS[options.scale]:,} graphs. "
        f"{len(RuleSet.default())} shipped rules" + (f", {len(baseline)} of the baseline." if baseline else "."),
    )


def _load(path: str | None) -> RuleSet | None:
    if path is None:
        return None
    try:
        return RuleSet.load(path, proven=False)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read the rules of --baseline: {error}") from error


def _unit(name: str, budget: int, baseline: RuleSet | None) -> Record:
    rules = RuleSet.default()
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
