"""What the partially equal rules add, under a roofline and, with --clock, by the clock.

rlflow reproduce partial
rlflow reproduce partial --clock

The search of Jia et al. 2019 (alpha 1.05) runs with the default rules and with these and the optional family `partial`,
on each graph at batch 1 and at batch 16. With --clock, the best graphs of both searches are timed against the input
graph too, in one interleaved run; where they are equal, one of them. The published times of PET and of TASO stand
beside them. A graph takes under half a minute, with --clock a few minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from controller.search.native import ALPHA, MOST_MATCHES
from environment import GraphSubstitutionEnv, zoo
from environment.costs.prices.settings import setting_of
from environment.inputs import TIMED_ON
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_device, add_graphs, add_threads, chosen_graphs, chosen_threads, run_units
from experiments.reproduce.search.end_to_end import FINAL
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import ProgressDisplay
from taso_ext import CostModel, OnnxModel, RuleSet, SearchResult, State, search_taso
from taso_ext.rule_sets import load_rule_set

DEVICE = "rtx2070"
RULES = {"without": "default", "with": "default+partial"}
BUDGETS = {"smoke": 40, "full": 20_000}
"""The most graphs that a search expands."""
BATCHES = {"smoke": (1, 2), "full": (1, 16)}
GRAPHS = ("resnet18", "resnet50", "resnext50", "inception-v3", "nasrnn", "bert-base", "csrnet")
QUICK = ("resnet18", "csrnet")

PRINTED = {("resnet18", 1): (1.96, 2.55), ("resnext50", 1): (10.67, 6.65)}
"""Inference in ms by PET and by TASO (Table 2 of X-RLflow)."""

COLUMNS = {
    "graph": "cleaned in full",
    "batch": "images or sequences in the input",
    "input_ms": "estimated cost of the input graph",
    "without": "estimated improvement by the default rules [%]",
    "with": "by these and the partially equal rules [%]",
    "gain": "by how much the best graph with them is cheaper than without [%]",
    "rules": "partially equal rules of the best graph, with how often each was applied",
    "pet_ms": "PET, as printed in Table 2 of X-RLflow, on a GPU",
    "taso_ms": "TASO, as printed there",
}
CLOCKED = {
    "clock_input_ms": "one inference of the input graph on this device",
    "clock_control": "the input graph against itself, measured at the same time, with its 95 % interval",
    "ratio_without": "time of the best graph without the family over that of the input",
    "ratio_with": "the same with the family; one measurement for both if they are the same graph",
}
FORMATS = {"input_ms": ".3f", **dict.fromkeys(("without", "with", "gain", "clock_input_ms"), ".2f")}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, default=", ".join(GRAPHS))
    parser.add_argument("--clock", action="store_true", help="time the best graphs too, on an idle machine")
    add_device(parser)
    add_threads(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Searches each graph at each batch, and times what was found if asked; finished units are not done again."""
    names, budget = chosen_graphs(options, GRAPHS, QUICK), BUDGETS[options.scale]
    for name in names:
        if not zoo.contains(_batched(name, 1)):
            raise UserError(f"{name} has no batch that could be chosen: name others, such as {', '.join(GRAPHS)}.")
    cells = [(name, batch) for name in names for batch in BATCHES[options.scale]]
    rows = run_units([Unit(f"{n} x {b}", partial(_unit, n, b, budget)) for n, b in cells], options, progress)
    if options.clock:
        runtime = OnnxRuntime(options.device, chosen_threads(options))
        works = [partial(_clocked, row, options.scale, runtime) for row in rows]
        units = [Unit(f"{n} x {b}: clock", work) for (n, b), work in zip(cells, works, strict=True)]
        rows = [
            {**row, **timed}
            for row, timed in zip(rows, run_units(units, options, progress, measures=True), strict=True)
        ]
    default, both = (len(load_rule_set(name)) for name in RULES.values())
    return Table(
        "What partially equal rules add",
        {**COLUMNS, **(CLOCKED if options.clock else {})},
        FORMATS,
        rows,
        options.command_line,
        f"Cost model roofline:{DEVICE}, taso search with alpha {ALPHA}, at most {budget:,} graphs. {default} default "
        f"rules, and {both - default} partially equal ones.",
        finding(rows),
    )


def finding(rows: Sequence[Record]) -> str:
    """Returns where the family helps, in a sentence."""
    helped = [row for row in rows if row["gain"] >= 1]
    text = f"The family makes the best graph cheaper by 1 % or more in {len(helped)} of {len(rows)} cases"
    named = ", ".join(f"{row['graph']} at batch {row['batch']} ({row['gain']:.1f} %)" for row in helped)
    return f"{text}{': ' * bool(helped)}{named}."


def _unit(name: str, batch: int, budget: int, progress: ProgressDisplay) -> Record:
    settings = {"budget": budget, "rules": [load_rule_set(rules).fingerprint for rules in RULES.values()]}
    return once("partial", f"{name}-batch{batch}-{budget}", settings, lambda: _searched(name, batch, budget))


def _model(name: str, batch: int) -> OnnxModel:
    return OnnxModel.load(zoo.build(_batched(name, batch)))


def _batched(name: str, batch: int) -> str:
    return f"{name}{',' if ':' in name else ':'}batch={batch}"


def _searched(name: str, batch: int, budget: int) -> Record:
    graph, model = _model(name, batch).graph, CostModel.roofline(DEVICE)
    start_ms = graph.cost(model).ms
    found: dict[str, SearchResult] = {}
    for key, rules in RULES.items():
        found[key] = search_taso(State(graph, load_rule_set(rules), model, MOST_MATCHES), ALPHA, budget)
    pet, taso = PRINTED.get((name, batch), (UNDEFINED, UNDEFINED))
    return {
        "graph": name,
        "batch": batch,
        "input_ms": start_ms,
        **{key: 100 * (1 - each.cost_ms / start_ms) for key, each in found.items()},
        "gain": 100 * (1 - found["with"].cost_ms / found["without"].cost_ms),
        "rules": _partial_rules(load_rule_set(RULES["with"]), found["with"]),
        "pet_ms": pet,
        "taso_ms": taso,
        "actions": {key: [list(action) for action in each.actions] for key, each in found.items()},
    }


def _partial_rules(rules: RuleSet, found: SearchResult) -> str:
    """Returns the partially equal rules on the way to the best graph, with how often each was applied."""
    names = [rules.names[rule] for rule, _ in found.actions if Path(rules.place(rule)[0]).stem == "partial"]
    return ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names)) or "none"


def _clocked(row: Record, scale: str, runtime: OnnxRuntime, progress: ProgressDisplay) -> Record:
    settings = {
        "actions": row["actions"],
        "rules": [load_rule_set(rules).fingerprint for rules in RULES.values()],
        "final": [FINAL[scale].pairs, FINAL[scale].sessions],
        "setting": str(setting_of(runtime)),
        "feeds": TIMED_ON,
    }
    return once("partial", f"{row['graph']}-batch{row['batch']}-clock", settings, lambda: _timed(row, scale, runtime))


def _timed(row: Record, scale: str, runtime: OnnxRuntime) -> Record:
    model, bests = _model(row["graph"], row["batch"]), {}
    for key, rules in RULES.items():
        env = GraphSubstitutionEnv(model, rules=load_rule_set(rules), max_locations=MOST_MATCHES)
        bests[key] = env.replay([(rule, location) for rule, location in row["actions"][key]])
    distinct = {best.hash: best for best in bests.values()}
    variants = [Variant(digest, runtime, model.export_checked(best)) for digest, best in distinct.items()]
    timing = measure(Variant("input", runtime, model.export_checked(model.graph)), variants, FINAL[scale])
    ratios = {each.name: str(each.ratio) for each in timing.candidates}
    return {
        "clock_input_ms": timing.reference.ms.value,
        "clock_control": str(timing.control and timing.control.ratio),
        **{f"ratio_{key}": ratios[best.hash] for key, best in bests.items()},
    }
