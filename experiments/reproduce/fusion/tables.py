"""Fusion by local advantages: what searches find and how many prices they ask for.

rlflow reproduce fusion-table1        # from the compiler's plan
rlflow reproduce fusion-figure1       # from random plans
rlflow reproduce fusion-ablations     # guided search and its model, one change in each row

A model of advantages learns on training graphs. Searches of unseen graphs then have equal budgets of queries. The
columns compare a search with random search of the same seed: the queries until it was as good as random search in the
end. After the paper on local advantage functions, table 1 and figure 1. All tables share their units, which lie in the
folder of fusion-table1. Without ppo, a full table takes up to an hour on one core, and the ablations take two hours;
one run of ppo takes 1 to 30 minutes.
"""

from __future__ import annotations

import argparse
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from controller.fusion.run import SearchConfig, best_after, queries_to
from controller.fusion.search import METHODS
from environment.fusion import DEFAULT, RANDOM
from experiments.errors import UserError
from experiments.executors.local import Record, Unit
from experiments.reproduce.fusion.units import (
    BY_BYTES,
    PLANS,
    PREDICTORS,
    SEEDS,
    Learning,
    Plan,
    devices_of,
    judged,
    learned,
    searched,
)
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, named, run_units
from experiments.reproduce.table import UNDEFINED, Experiment, Figure, Table, interval_of_seeds
from experiments.runs.progress import ProgressDisplay

DESCRIPTION = __doc__ or ""
PUBLISHED = "18 % at 1400 / 3500 queries (GraphNets), 5 % at 300 / 4500 (U-Net), 5 % at 2000 / 4500 (DeepRank), 2 % at "
PUBLISHED += "2100 / 2.8 % at 3000 (MnasNet), 2.3 % at 400 / 0.5 % at 100 (SSD-MobileNet)"
COLUMNS = {
    "device": "preset of the prices",
    "graph": "an unseen graph",
    "configurable": "its decisions",
    "search": "method",
    "improvement": "over the start, of the best plan after the whole budget; mean of the seeds [%]",
    "low": "lower end of the 95 % interval",
    "high": "upper end",
    "reached": "share of the seeds that became as good as random search in the end [%]",
    "queries": "queries until then, mean of the seeds; the whole budget for a seed that never did",
    "share": "the same relative to random search's queries until its own best plan [%]",
    "early": "queries until 90 % of random search's improvement, relative to its own queries until there [%]",
    "spearman": "rank correlation of predicted and true |advantage|, on plans of this graph",
    "recall": "share of the top decile of |advantage| that is in the top decile of the predictions [%]",
    "trivial": "the better of two trivial predictors, mean of the operator type and bytes moved, by recall [%]",
}
FORMATS = {
    **dict.fromkeys(("improvement", "low", "high"), ".2f"),
    **dict.fromkeys(("reached", "share", "early", "recall", "trivial", "queries"), ".0f"),
    "spearman": ".2f",
    "configurable": ",d",
}
_STARTS = {DEFAULT: "the compiler’s plan", RANDOM: "random plans"}
OF_LARGE = ("random", "sweeps", "guided", BY_BYTES)
"""The searches of the graphs that `Plan.large` names."""
EARLY = 0.9
"""The share of random search's improvement that is found early: the rest comes from the last few decisions."""


@dataclass(frozen=True)
class Ablation:
    """What a row of the ablations changes.

    Attributes:
      of_model, of_search: changed fields of `AdvantageConfig` and of `SearchConfig`.
      method: the search; those without predictions tell what their moves bring by themselves.
      training: the graphs that the model learns from, out of a plan.
    """

    of_model: Mapping[str, Any] = field(default_factory=dict)
    of_search: Mapping[str, Any] = field(default_factory=dict)
    method: str = "guided"
    training: Callable[[Plan], tuple[str, ...]] = operator.attrgetter("training")


ABLATIONS = {
    "guided": Ablation(),
    "signed advantages": Ablation({"signed": True}),
    "label a / σ": Ablation({"label": "linear"}),
    "samples as they come": Ablation({"top_share_of_batch": 0.1}),
    "no memory (published)": Ablation(of_search={"memory": False}),
    "distance 0": Ablation(of_search={"distance": 0}),
    "distance 2": Ablation(of_search={"distance": 2}),
    "top 1 %": Ablation(of_search={"alpha": 1.0}),
    "top 20 %": Ablation(of_search={"alpha": 20.0}),
    "3 training graphs": Ablation(training=lambda plan: plan.training[:3]),
    "1 training graph": Ablation(training=lambda plan: plan.training[:1]),
    "small training graphs": Ablation(training=operator.attrgetter("small")),
    "random": Ablation(method="random"),
    "random at distance 0": Ablation(of_search={"distance": 0}, method="random"),
    "sweeps at distance 0": Ablation(of_search={"distance": 0}, method="sweeps"),
}
"""The rows of the ablations. With `small` training graphs alone, most unseen graphs are several times as large as all
that the model has seen."""


def _add_shared_options(parser: argparse.ArgumentParser, searches: str) -> None:
    add_graphs(parser, ", ".join(PLANS["full"].unseen))
    parser.add_argument("--presets", metavar="A,B", help="device presets of the prices (v100,h100)")
    add_seeds(parser, SEEDS)
    parser.add_argument("--searches", metavar="A,B", help=f"{searches} (all)")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only these tables have."""
    _add_shared_options(parser, ",".join((*METHODS, BY_BYTES)))


def add_ablation_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the ablations."""
    _add_shared_options(parser, "rows of the table")
    parser.add_argument("--start", choices=(DEFAULT, RANDOM), default=RANDOM, help="plans that searches begin with")


def _reproduce(start: str, options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    plan, seeds, devices = PLANS[options.scale], chosen_seeds(options, SEEDS), devices_of(options.presets)
    graphs = chosen_graphs(options) if options.graphs else [*plan.unseen, *(plan.large if start == DEFAULT else ())]
    methods = list(named(options.searches, dict.fromkeys((*METHODS, BY_BYTES)), "fusion search"))
    require_search("random", methods)
    learnings = [Learning(device, seed, plan) for device in devices for seed in seeds]
    run_units(
        [Unit(f"model {each.device} {each.seed}", partial(learned, each)) for each in learnings], options, progress
    )
    found = [
        Unit(
            f"{graph} {method} {each.device} {each.seed}",
            partial(searched, graph, method, _limits(plan, graph, start), each, method),
        )
        for graph in graphs
        for method in methods
        if graph not in plan.large or method in OF_LARGE
        for each in learnings
    ]
    records = run_units(found, options, progress)
    judgements = [
        Unit(f"quality {graph} {each.device} {each.seed}", partial(judged, each, graph))
        for graph in graphs
        if graph not in plan.large and "guided" in methods
        for each in learnings
    ]
    rows = rows_of(records, run_units(judgements, options, progress))
    figures: dict[str, Figure] = {
        f"{graph.split(':')[0]}-{device}": partial(
            _draw, graph, device, [r for r in records if (r["graph"], r["device"]) == (graph, device)]
        )
        for graph in graphs
        for device in devices
    }
    return Table(
        f"What fusion searches find from {_STARTS[start]}",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"Training graphs: {', '.join(plan.training)}; {plan.frames} configurations of each, {plan.steps:,} gradient "
        f"steps. Budget: {plan.queries} queries for each decision. Seeds {', '.join(map(str, seeds))}. Published "
        f"(guided / random, from the default): {PUBLISHED}.",
        finding(rows),
        figures,
    )


def _limits(plan: Plan, graph: str, start: str) -> SearchConfig:
    return SearchConfig(budget=1 if graph in plan.large else plan.queries, start=start)


def require_search(name: str, chosen: Sequence[str]) -> None:
    """Checks that a search with which the others are compared is among the chosen ones.

    Raises:
      UserError: it is not.
    """
    if name not in chosen:
        raise UserError(
            f"--searches names {', '.join(chosen)} without {name}, with which the columns compare every search. Add it."
        )


def _reproduce_ablations(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    plan, seeds, devices = PLANS[options.scale], chosen_seeds(options, SEEDS), devices_of(options.presets)
    graphs = chosen_graphs(options) if options.graphs else list(plan.unseen)
    ablations = named(options.searches, ABLATIONS, "row of the ablations")
    require_search("random", list(ablations))
    models, searches = [], []
    for device in devices[:1] if options.presets is None else devices:
        for seed in seeds:
            for variant, ablation in ablations.items():
                learned_from = replace(plan, training=ablation.training(plan))
                learning = Learning(device, seed, learned_from, tuple(ablation.of_model.items()))
                if ablation.method == "guided" and learning not in models:
                    models.append(learning)
                config = SearchConfig(budget=plan.queries, start=options.start, **ablation.of_search)
                searches += [(graph, ablation.method, config, learning, variant) for graph in graphs]
    run_units([Unit(f"model {i}", partial(learned, each)) for i, each in enumerate(models)], options, progress)
    units = [
        Unit(
            " ".join((graph, variant, each.device, str(each.seed))),
            partial(searched, graph, method, config, each, variant),
        )
        for graph, method, config, each, variant in searches
    ]
    rows = rows_of(run_units(units, options, progress), [])
    columns = {key: text for key, text in COLUMNS.items() if key not in ("spearman", "recall", "trivial")}
    return Table(
        "What guided fusion search owes to its parts",
        columns,
        FORMATS,
        rows,
        options.command_line,
        f"From {_STARTS[options.start]}; each row changes one thing of `guided`, or of a search without predictions. "
        f"Training graphs: {', '.join(plan.training)}.",
    )


def rows_of(records: Sequence[Record], judgements: Sequence[Record]) -> list[Record]:
    """Returns the rows of the table from the records of searches and of the quality of predictions."""
    rows = []
    for device, graph, variant in dict.fromkeys((r["device"], r["graph"], r["variant"]) for r in records):
        here = [r for r in records if (r["device"], r["graph"]) == (device, graph)]
        own, plain = (sorted((r for r in here if r["variant"] == each), key=_seed) for each in (variant, "random"))
        mean, low, high = interval_of_seeds([_improvement(record) for record in own])
        asked = [queries_to(record["curve"], base["curve"][-1][1]) for record, base in zip(own, plain, strict=True)]
        until = [each or record["budget"] for each, record in zip(asked, own, strict=True)]
        row = {"device": device, "graph": graph, "search": variant, "configurable": own[0]["configurable"]}
        row |= {"improvement": mean, "low": low, "high": high, "queries": float(np.mean(until))}
        row["reached"] = 100 * float(np.mean([each is not None for each in asked]))
        row["share"] = 100 * float(np.mean(until)) / float(np.mean([base["curve"][-1][0] for base in plain]))
        row["early"] = 100 * _early(own, plain)
        quality = [j for j in judgements if (j["device"], j["graph"]) == (device, graph)] if variant == "guided" else []
        if quality:
            row["spearman"] = float(np.mean([each["learned"]["spearman"] for each in quality]))
            row["recall"] = 100 * float(np.mean([each["learned"]["recall"] for each in quality]))
            trivial = [np.mean([each[name]["recall"] for each in quality]) for name in PREDICTORS[1:]]
            row["trivial"] = 100 * float(max(trivial))
        rows.append({**dict.fromkeys(("spearman", "recall", "trivial"), UNDEFINED), **row})
    return rows


def finding(rows: Sequence[Record]) -> str:
    """Returns on how many graphs guided search needs at most half of random search's queries, and where it does not."""
    parts = []
    for device in dict.fromkeys(row["device"] for row in rows):
        guided = [row for row in rows if row["device"] == device and row["search"] == "guided"]
        wins = [row["graph"] for row in guided if row["share"] <= 50]
        losses = [
            f"{row['graph']} ({row['share']:.0f} %, reached by {row['reached']:.0f} % of the seeds)"
            for row in guided
            if row["share"] > 50
        ]
        parts.append(
            f"Under the prices of {device}, guided search needs at most half of random search's queries to results as "
            f"good on {len(wins)} of {len(guided)} unseen graphs{'; not on ' * bool(losses)}{', '.join(losses)}."
            f" To {EARLY:.0%} of random search's improvement it needs at most half of the queries on "
            f"{sum(row['early'] <= 50 for row in guided)} of them."
        )
    return " ".join(parts)


def _seed(record: Record) -> int:
    return int(record["seed"])


def _improvement(record: Record) -> float:
    return float(100 * (1 - record["curve"][-1][1] / record["start_ms"]))


def _early(own: Sequence[Record], plain: Sequence[Record]) -> float:
    """Returns the mean queries to EARLY of random search's improvement, relative to those of random search."""
    goals = [base["start_ms"] - EARLY * (base["start_ms"] - base["curve"][-1][1]) for base in plain]
    return _mean_queries(own, goals) / _mean_queries(plain, goals)


def _mean_queries(records: Sequence[Record], goals: Sequence[float]) -> float:
    """Returns the mean queries to costs, one of each record; the whole budget counts where one is not reached."""
    asked = (queries_to(record["curve"], goal) or record["budget"] for record, goal in zip(records, goals, strict=True))
    return float(np.mean(list(asked)))


def _draw(graph: str, device: str, records: Sequence[Record], path: Path) -> None:
    from experiments.reports.plots import plot_steps

    lines = {}
    for method in dict.fromkeys(record["method"] for record in records):
        own = [record for record in records if record["method"] == method]
        places = sorted({asked for record in own for asked, _ in record["curve"]} | {own[0]["budget"]})
        lines[method] = [(float(place), float(np.mean([_after(record, place) for record in own]))) for place in places]
    plot_steps(path, f"{graph}, {device}", lines, "queries", "improvement, mean of the seeds [%]", logarithmic=True)


def _after(record: Record, queries: int) -> float:
    """Returns the improvement that was known after so many queries, in percent."""
    best = best_after(record["curve"], queries)
    return float(100 * (1 - best / record["start_ms"]))


TABLE1 = Experiment(DESCRIPTION, add_options, partial(_reproduce, DEFAULT))
FIGURE1 = Experiment(DESCRIPTION, add_options, partial(_reproduce, RANDOM))
ABLATIONS_TABLE = Experiment(DESCRIPTION, add_ablation_options, _reproduce_ablations)
