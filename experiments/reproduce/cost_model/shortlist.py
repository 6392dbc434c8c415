"""Which graphs to time when few can be: what is lost by each way to choose them, on graphs that were all measured.

rlflow reproduce shortlist

The graphs are those of `rlflow reproduce discrepancy`; their prices are predicted by a model that has seen no network
of their family, as in `rlflow reproduce learned`. Forty graphs of a network are drawn, each way chooses some of them by
predicted prices, and the fastest of these by the clock is compared with the fastest of the forty. Nothing is timed; it
takes a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from environment.costs.learned.prior import shipped_prior
from environment.costs.learned.regressor import Values
from environment.statistics.intervals import NORMAL_HALF_WIDTH
from experiments.errors import require_at_least
from experiments.executors.units import Record
from experiments.pipeline.select import APART, MOST
from experiments.reproduce.cost_model.learned import Predicted, Study
from experiments.reproduce.cost_model.recorded import RecordedGraphs, recorded_graphs
from experiments.reproduce.table import Table
from experiments.runs.progress import ProgressDisplay
from experiments.runs.signals import raise_if_received

DRAWN, DRAWS = 40, 100
"""Graphs that are offered in a draw, and draws of each network."""
_SAMPLES = 256
"""Joint draws of what the prices may really be."""
ALL = "all"


class Offered(NamedTuple):
    """Graphs that are offered: predicted costs, as fractions of the network's, and what they may really be.

    Attributes:
      cost: predicted [g].
      possible: joint draws of the cost, in which graphs share the errors of their kernels [g, draws].
    """

    cost: Values
    possible: Values


def cheapest(offered: Offered, most: int) -> list[int]:
    """Returns the graphs that cost least, cheapest first."""
    return [int(each) for each in np.argsort(offered.cost, kind="stable")[:most]]


def apart(offered: Offered, most: int) -> list[int]:
    """Returns the graphs that cost least, none within `APART` of one before: the choice of `rlflow optimise`."""
    chosen: list[int] = []
    for each in cheapest(offered, len(offered.cost)):
        if not chosen or offered.cost[each] >= (1 + APART) * offered.cost[chosen[-1]]:
            chosen.append(each)
    return chosen[:most]


def expected_best(offered: Offered, most: int) -> list[int]:
    """Returns the batch whose best graph is expected to gain most, one after the other, the cheapest first.

    The first addition that improves nothing ends it: a graph counts only if it may be better where the others are not,
    which takes disagreement about its price and distance from the others.
    """
    gain = np.maximum(1 - offered.possible, 0)
    chosen = cheapest(offered, 1)
    while len(chosen) < most:
        added = np.maximum(gain - gain[chosen].max(axis=0), 0).mean(axis=1)
        if not added.max():
            break
        chosen.append(int(added.argmax()))
    return chosen


WAYS: Mapping[str, Callable[[Offered, int], list[int]]] = {
    "cheapest": cheapest,
    "apart": apart,
    "expected_best": expected_best,
}
COLUMNS = {
    "graph": "network, of a family that the prices have not seen",
    "offered": "rewritten graphs that were measured",
    "noise": "median half-width of the 95 % intervals of their measured ratios [%]",
    "random": "lost if they are chosen at random: time of the fastest chosen one over that of all, less 1 [%]",
    "cheapest": "lost with those of the least predicted cost [%]",
    "apart": f"the same, none within {100 * APART:g} % of one before: what `rlflow optimise` does [%]",
    "expected_best": "lost with the batch whose best one is expected to gain most, by the errors of prices [%]",
    "difference": "expected_best less apart, mean over draws [points]",
}
FORMATS = {"noise": ".1f", **dict.fromkeys(("random", *WAYS), ".2f"), "difference": "+.2f"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    parser.add_argument("--graphs-timed", metavar="N", type=int, default=MOST, help=f"graphs to choose ({MOST})")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Lets each way choose among the measured graphs of each network."""
    require_at_least(1, graphs_timed=options.graphs_timed)
    prior, graphs = shipped_prior(), recorded_graphs()
    study = Study(prior, graphs)
    rows: list[Record] = []
    with progress.stage("choose graphs", len(graphs)) as bar:
        for number, family in enumerate(prior.families):
            if not (networks := [each for each in graphs if each.family == family]):
                continue
            regressor = study.fitted_without(number)
            for network in networks:
                rows.append(row_of(network, study.predicted(regressor, network), options.graphs_timed))
                raise_if_received()
                bar.update(len(rows))
    means = {name: float(np.mean([row[name] for row in rows])) for name in ("random", *WAYS, "difference")}
    better = sum(row["difference"] < 0 for row in rows)
    return Table(
        "Which graphs to time when few can be",
        COLUMNS,
        FORMATS,
        [*rows, {"graph": ALL, "offered": sum(row["offered"] for row in rows), "noise": "–", **means}],
        options.command_line,
        f"{options.graphs_timed} of {DRAWN} graphs are chosen, {DRAWS} times for each network.",
        f"The {options.graphs_timed} cheapest graphs lose {means['cheapest']:.2f} % on average, those that are also "
        f"{100 * APART:g} % apart {means['apart']:.2f} %, and the batch by expected improvement "
        f"{means['expected_best']:.2f} %; it is better than those apart on {better} of {len(rows)} networks.",
    )


def row_of(network: RecordedGraphs, prices: Predicted, most: int) -> Record:
    """Returns what each way loses on the graphs of a network.

    Args:
      prices: of the network's kernels.
      most: number of graphs to choose.
    """
    ms = network.runs @ prices.ratio
    cost = ms[1:] / ms[0]
    deviations = (network.runs[1:] - network.runs[0]) * prices.ratio * prices.half_width / NORMAL_HALF_WIDTH / ms[0]
    rng, lost = np.random.default_rng(0), {name: list[float]() for name in ("random", *WAYS)}
    for _ in range(DRAWS):
        drawn = rng.choice(len(cost), min(DRAWN, len(cost)), replace=False)
        normal = rng.standard_normal((deviations.shape[1], _SAMPLES))
        offered = Offered(cost[drawn], cost[drawn, None] + deviations[drawn] @ normal)
        chosen = {name: way(offered, most) for name, way in WAYS.items()}
        chosen["random"] = rng.permutation(len(drawn))[:most].tolist()
        measured = np.minimum(network.measured[drawn], 1)  # the network itself is always at hand
        for name, places in chosen.items():
            lost[name].append(100 * float(measured[places].min() / measured.min() - 1))
    means = {name: float(np.mean(each)) for name, each in lost.items()}
    return {
        "graph": network.name,
        "offered": len(cost),
        "noise": 100 * float(np.median(network.half_widths)),
        **means,
        "difference": means["expected_best"] - means["apart"],
    }
