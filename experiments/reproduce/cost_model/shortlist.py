"""Which graphs to time when few can be: what is lost by each way to choose them, on graphs that were all measured.

rlflow reproduce shortlist

The graphs are those of `rlflow reproduce discrepancy`; their prices are predicted by a model that has seen no network
of their family, as in `rlflow reproduce learned`. Forty graphs of a network are drawn, each way chooses some of them by
predicted prices, and the fastest of these by the clock is compared with the fastest of the forty. Nothing is timed; it
takes a minute.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from environment.costs.corrected.choice import expected_best
from environment.costs.corrected.posterior import Posterior, Prices, TimedGraph
from environment.costs.learned.prior import shipped_prior
from environment.costs.learned.regressor import Values
from environment.statistics.intervals import NORMAL_HALF_WIDTH
from environment.statistics.paired import spearman
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


def by_expectation(offered: Offered, most: int) -> list[int]:
    """Returns the batch whose best graph is expected to gain most, by the errors of prices."""
    return expected_best(offered.possible, most)


BATCHES = 3
CORRECTED = "corrected"
WAYS: Mapping[str, Callable[[Offered, int], list[int]]] = {
    "cheapest": cheapest,
    "apart": apart,
    "expected_best": by_expectation,
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
    "corrected": f"lost with {BATCHES} such batches of as many in all, each by prices that the ones before have "
    "corrected: what `endtoend:<device>:timings=N` does [%]",
    "error": "of the logarithms of predicted ratios, root mean square over graphs that are not chosen [%]",
    "error_after": "the same by corrected prices [%]",
    "order": "rank correlation of these ratios with the measured ones",
    "order_after": "the same by corrected prices",
}
OF_PRICES = ("error", "error_after", "order", "order_after")
FORMATS = {
    "noise": ".1f",
    **dict.fromkeys(("random", *WAYS, CORRECTED), ".2f"),
    "difference": "+.2f",
    **dict.fromkeys(OF_PRICES, ".2f"),
}


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
    means = {
        name: float(np.mean([row[name] for row in rows]))
        for name in ("random", *WAYS, "difference", CORRECTED, *OF_PRICES)
    }
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
        f"{means['expected_best']:.2f} %; it is better than those apart on {better} of {len(rows)} networks. In "
        f"{BATCHES} batches, each by prices that the ones before have corrected, {means[CORRECTED]:.2f} % is lost. The "
        f"ratios of graphs that are not timed are wrong by {means['error']:.1f} % without these corrections and by "
        f"{means['error_after']:.1f} % with them; their rank correlation with the measured ones is "
        f"{means['order']:.2f} and {means['order_after']:.2f}.",
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
    rng, of_batches = np.random.default_rng(0), np.random.default_rng(1)
    lost = {name: list[float]() for name in ("random", *WAYS, CORRECTED)}
    of_prices = {name: list[float]() for name in OF_PRICES}
    for _ in range(DRAWS):
        drawn = rng.choice(len(cost), min(DRAWN, len(cost)), replace=False)
        normal = rng.standard_normal((deviations.shape[1], _SAMPLES))
        offered = Offered(cost[drawn], cost[drawn, None] + deviations[drawn] @ normal)
        chosen = {name: way(offered, most) for name, way in WAYS.items()}
        chosen["random"] = rng.permutation(len(drawn))[:most].tolist()
        chosen[CORRECTED], corrected = in_batches(network, prices, drawn, most, of_batches)
        measured = np.minimum(network.measured[drawn], 1)  # the network itself is always at hand
        for name, places in chosen.items():
            lost[name].append(100 * float(measured[places].min(initial=1.0) / measured.min() - 1))
        others = np.setdiff1d(np.arange(len(cost)), drawn[chosen[CORRECTED]])
        for name, value in _errors(cost[others], corrected[others], network.measured[others]).items():
            of_prices[name].append(value)
    means = {name: float(np.mean(each)) for name, each in (lost | of_prices).items()}
    return {
        "graph": network.name,
        "offered": len(cost),
        "noise": 100 * float(np.median(network.half_widths)),
        **means,
        "difference": means["expected_best"] - means["apart"],
    }


def in_batches(
    network: RecordedGraphs, prices: Predicted, drawn: npt.NDArray[np.int_], most: int, rng: np.random.Generator
) -> tuple[list[int], Values]:
    """Times graphs of a network in batches, and corrects prices by each.

    Args:
      drawn: the graphs that are offered, as places among all [d].
    Returns:
      (places of the chosen ones among those that are offered, corrected costs of all graphs as fractions of the
      network's [g])
    """
    keys = [str(each) for each in range(len(network.kernels))]
    bills = [dict(zip(keys, row.astype(int).tolist(), strict=True)) for row in network.runs]
    given = Prices(keys, prices.ratio, prices.half_width / NORMAL_HALF_WIDTH)
    timed: list[TimedGraph] = []
    chosen: list[int] = []
    for batch in range(BATCHES):
        posterior = Posterior(given, bills[0], timed)
        ms = posterior.drawn_ms(network.runs * prices.ratio * posterior.factor, _SAMPLES, rng)
        left = np.setdiff1d(np.arange(len(drawn)), chosen)
        known = max((1 - each.ratio for each in timed), default=0.0)
        wanted = -(-most * (batch + 1) // BATCHES) - len(chosen)
        new = [int(left[each]) for each in expected_best(ms[1 + drawn[left]] / ms[0], wanted, known)]
        chosen += new
        timed += [
            TimedGraph(str(place), bills[1 + place], float(network.measured[place]), float(network.half_widths[place]))
            for place in drawn[new]
        ]
    factor = Posterior(given, bills[0], timed).factor
    ms = network.runs @ (prices.ratio * factor)
    return chosen, ms[1:] / ms[0]


def _errors(cost: Values, corrected: Values, measured: Values) -> dict[str, float]:
    """Returns `OF_PRICES` of some graphs, given what they cost and take as fractions of the network's."""
    errors = [100 * float(np.sqrt(np.mean(np.log(each / measured) ** 2))) for each in (cost, corrected)]
    orders = [spearman(each, measured) if len(measured) > 2 else math.nan for each in (cost, corrected)]
    return dict(zip(OF_PRICES, errors + orders, strict=True))
