"""Correlations of run time, operations, memory accesses and kernel launches (the papers' Figure 5).

rlflow reproduce fig-pairwise

Each point is a graph on a path: of random rewriting, or of TASO's search to the best graph that it found. All
quantities are in percent of the start graph's. The run time comes from the cost model and is only as accurate as that.
If one of the counted quantities predicted the run time, nobody would have to measure it.
A graph takes about five minutes, and longer if many of its kernels have no price yet.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from controller.search.native import ALPHA, MOST_MATCHES
from environment import zoo
from environment.costs import registry as cost_models
from environment.costs.end_to_end import EndToEnd
from environment.costs.interface import Cost, Costs, ModelCosts
from environment.costs.limits import affordable
from environment.costs.measured.cost_model import Measured, Recorded
from environment.costs.prices.settings import processor, setting_of
from environment.policies.random import random_step
from environment.statistics.paired import Numbers, pearson, spearman
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_graphs, add_seed, chosen_graphs, chosen_seed, run_units
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import Bar, ProgressDisplay
from experiments.runs.signals import raise_if_received
from taso_ext import OnnxModel, RuleSet, State, UnpricedError, search_taso

DEFAULT_GRAPH, DEFAULT_COSTS = "bert-base", "measured:cpu"
QUANTITIES = {
    "ms": "run time",
    "flops": "operations",
    "memory_bytes": "memory accesses",
    "kernel_launches": "kernel launches",
}
KINDS = ("random", "search")
FEWEST = 3
"""Smallest number of graphs that have a correlation: two points always lie on a line."""

COLUMNS = {
    "graph": "cleaned in full",
    "pair": "of quantities, in percent of the start graph's",
    "random": "distinct graphs met by random rewriting",
    "random_pearson": "their linear correlation (Pearson)",
    "random_spearman": "their rank correlation (Spearman)",
    "search": "distinct graphs on the ways of TASO's searches to the best graphs that they found",
    "search_pearson": "their linear correlation",
    "search_spearman": "their rank correlation",
}
FORMATS = {f"{kind}_{name}": ".3f" for kind in KINDS for name in ("pearson", "spearman")}

RANKS = tuple(f"{kind}_spearman" for kind in KINDS)

AWAY = 20
"""Number of random rewrites before each search except the first, which starts where the walks do."""


@dataclass(frozen=True)
class Ways:
    """The number and the length of the paths.

    Attributes:
      walks: the number of walks of random rewriting.
      steps: the number of rewrites of each walk.
      searches: the number of searches.
      budget: the budget of each search, in graphs.
    """

    walks: int
    steps: int
    searches: int
    budget: int

    @property
    def text(self) -> str:
        return (
            f"{self.walks} walks of {self.steps} random rewrites. {self.searches} searches of {self.budget} graphs, "
            f"alpha {ALPHA}, the first from the start graph, the others from {AWAY} random rewrites away."
        )


SCALES = {"smoke": Ways(2, 10, 2, 20), "full": Ways(10, 40, 10, 200)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, default=DEFAULT_GRAPH)
    parser.add_argument("--costs", default=DEFAULT_COSTS, help=f"cost model or file of prices ({DEFAULT_COSTS})")
    add_seed(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Walks and searches from each graph; finished ones are not done again."""
    names = chosen_graphs(options, [DEFAULT_GRAPH])
    seed, scale = chosen_seed(options), options.scale
    try:
        costs = found_costs(options.costs)
    except ValueError as error:  # the text lists what there is
        raise UserError(str(error)) from error
    ways = list(itertools.product(names, KINDS))
    units = [Unit(f"{name} {kind}", partial(points_of, name, kind, options.costs, scale, seed)) for name, kind in ways]
    records = run_units(units, options, progress, measures=isinstance(costs, Measured | EndToEnd))
    found: dict[str, dict[str, list[Record]]] = {name: {} for name in names}
    for (name, kind), record in zip(ways, records, strict=True):
        found[name][kind] = record["points"]
    rows_of_all = [row for name, points in found.items() for row in rows(name, points)]
    return Table(
        "How run time goes with what can be counted",
        COLUMNS,
        FORMATS,
        rows_of_all,
        options.command_line,
        f"Costs of {costs.name} ({where(costs)}). {SCALES[options.scale].text}",
        finding(rows_of_all),
        figures={name: partial(_draw, name, points) for name, points in found.items()},
    )


def finding(made: Sequence[Record]) -> str:
    """Returns the rank correlations of run time, a sentence for each graph and counted quantity."""
    sentences = []
    for name, counted in itertools.product(dict.fromkeys(row["graph"] for row in made), list(QUANTITIES.values())[1:]):
        row = next(row for row in made if (row["graph"], row["pair"]) == (name, f"{QUANTITIES['ms']}, {counted}"))
        each = [value if isinstance(value, str) else f"{value:.2f}" for value in map(row.get, RANKS)]
        sentences.append(f"{name}: rank correlation of run time with {counted} {each[0]} (random), {each[1]} (search).")
    return " ".join(sentences)


def found_costs(name: str) -> Costs:
    """Returns the cost model of a name; kernels are timed and not predicted, because predictions rest on counts."""
    costs = cost_models.find(name)
    if isinstance(costs, Measured) and name.startswith("measured:"):
        return Measured(costs.runtime.device, predict=False)
    return costs


def where(costs: Costs) -> str:
    """Returns what the prices depend on beside the name of their cost model, as text."""
    if isinstance(costs, Measured):
        return str(setting_of(costs.runtime))
    if isinstance(costs, EndToEnd):
        return f"{costs.runtime.label}, {processor(costs.device)}"
    return f"{costs.setting}, file {costs.digest}" if isinstance(costs, Recorded) else "analytic"


def rows(name: str, points: dict[str, list[Record]]) -> list[Record]:
    """Returns one row for each pair of quantities."""
    made: list[Record] = []
    for first, second in itertools.combinations(QUANTITIES, 2):
        row: Record = {"graph": name, "pair": f"{QUANTITIES[first]}, {QUANTITIES[second]}"}
        for kind in KINDS:
            sides = [[point[key] for point in points[kind]] for key in (first, second)]
            values = {each.__name__: _correlation(each, *sides) for each in (pearson, spearman)}
            row[kind] = len(points[kind])
            row |= {f"{kind}_{key}": UNDEFINED if np.isnan(value) else value for key, value in values.items()}
        made.append(row)
    return made


def _correlation(kind: Callable[[Numbers, Numbers], float], first: Numbers, second: Numbers) -> float:
    return kind(first, second) if len(first) >= FEWEST else float("nan")


def _draw(name: str, points: dict[str, list[Record]], path: Path) -> None:
    from experiments.reports.plots import plot_pairs

    groups = {
        f"{kind} ({len(found)} graphs)": {text: [point[key] for point in found] for key, text in QUANTITIES.items()}
        for kind, found in points.items()
    }
    title = f"{name}, in percent of the start graph; above the diagonal: rank correlations"
    plot_pairs(path, title, groups, partial(_correlation, spearman))


def points_of(name: str, kind: str, costs_name: str, scale: str, seed: int, progress: ProgressDisplay) -> Record:
    """Returns under "points" the distinct graphs on paths of one kind, in percent of the start; done once."""
    costs, rules, ways = found_costs(costs_name), RuleSet.default(), SCALES[scale]
    settings = {"scale": asdict(ways), "rules": rules.fingerprint, "seed": seed}
    settings |= {"costs": costs.name, "where": where(costs)}

    def work() -> Record:
        model = OnnxModel.load(zoo.build(name))
        prices = costs.of(model)
        met = Met(State(model.graph, rules, prices.native, MOST_MATCHES), prices)
        total = ways.walks * ways.steps if kind == "random" else ways.searches
        with progress.stage(f"{name}: {kind}", total) as bar:
            (_walk if kind == "random" else _follow)(met, ways, seed, bar)
        return {"points": met.points}

    return once("fig-pairwise", f"{name}-{kind}-{scale}", settings, work)


def _walk(met: Met, ways: Ways, seed: int, bar: Bar) -> None:
    """Walks at random from the start graph; a step to a graph without a price, or too large to run, ends a walk."""
    for walk in range(ways.walks):
        rng, state = np.random.default_rng((seed, walk)), met.start.copy()
        for step in range(ways.steps):
            if not _stepped(state, rng) or not affordable(met.start.cost, state.cost):
                break
            met.add(state)
            bar.update(walk * ways.steps + step + 1)


def _follow(met: Met, ways: Ways, seed: int, bar: Bar) -> None:
    """Searches from the start graph, then from graphs that random rewriting leads to."""
    for search in range(ways.searches):
        rng, state = np.random.default_rng((seed, search)), met.start.copy()
        for _ in range(AWAY if search else 0):
            if not _stepped(state, rng):
                break
        met.add(state)
        for action in search_taso(state, ALPHA, ways.budget, progress=_unless_interrupted).actions:
            state.step(*action)
            met.add(state)
        bar.update(search + 1)


def _stepped(state: State, rng: np.random.Generator) -> bool:
    """Takes a random step; returns False if no rewrite is legal or the new graph has no price."""
    try:
        return bool(random_step(state, rng))
    except UnpricedError:
        return False


def _unless_interrupted(expanded: int, best_ms: float) -> None:
    raise_if_received()


class Met:
    """The distinct graphs that were met, in percent of the start graph, which is the first of them."""

    def __init__(self, start: State, prices: ModelCosts) -> None:
        self.start, self._prices, self._hashes = start, prices, {start.hash}
        self._start_cost = prices.price(start).cost
        self.points = [self._percent(self._start_cost)]

    def add(self, state: State) -> None:
        raise_if_received()
        if state.hash not in self._hashes:
            self._hashes.add(state.hash)
            self.points.append(self._percent(self._prices.price(state).cost))

    def _percent(self, cost: Cost) -> Record:
        return {key: 100 * getattr(cost, key) / getattr(self._start_cost, key) for key in QUANTITIES}
