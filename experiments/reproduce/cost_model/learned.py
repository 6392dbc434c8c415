"""How well kernels are priced that were never timed, for networks of families that were never seen.

rlflow reproduce learned

Each family of networks of the zoo is left out in turn: a model is fitted to the shipped prices of all kernels that no
network of this family runs, and predicts those that one does. All kinds of models are compared. Graphs that `rlflow
reproduce discrepancy` has measured show what these predictions make of whole graphs. Nothing is timed.

The last columns play a search among these graphs. It takes the cheapest by the present prices, and times the kernels by
which the difference to the network is unsure, as `environment.costs.measured.retiming` does, until it is sure. A timing
is read from the shipped prices. All of it takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from environment.costs.learned.features import estimate, family_of, features
from environment.costs.learned.prior import Prior, shipped_prior
from environment.costs.learned.regressor import KINDS, LEVEL, Regressor, Rows, Values, fit
from environment.costs.learned.work import FAMILIES
from environment.costs.measured.retiming import LEFT, SURE
from environment.statistics.paired import spearman
from experiments.executors.units import Record
from experiments.reproduce.cost_model.discrepancy import BEYOND
from experiments.reproduce.cost_model.recorded import RecordedGraphs, recorded_graphs
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import ProgressDisplay
from experiments.runs.signals import raise_if_received

COVERED = 0.9
"""Probability of the intervals whose coverage is counted."""
LONG_US = 50.0
"""Kernels that take longer than this many microseconds are also counted apart."""
QUICK = 1
"""How many families a quick look at the scale `smoke` leaves out in turn."""
ALL = "all"

COLUMNS = {
    "model": "kind of model",
    "family": "family of networks that was left out",
    "kernels": "kernels that its networks run and that do work",
    "error": "median error of their predicted times [%]",
    "long": f"the same, of kernels over {LONG_US:.0f} microseconds [%]",
    "total": "error of the sum of their times [%]",
    "covered": f"fraction of them within the predicted interval of probability {COVERED:.0%}",
    "graphs": f"rewritten graphs whose measured time differs from the network's by over {BEYOND:.0%}",
    "spearman": "rank correlation of their predicted and measured ratios",
    "timed": "the same if every kernel has been timed",
    "timings": "kernels that a search among all rewritten graphs times",
    "of": "kernels that it would time if it timed all",
    "lost": "what its graph costs more than that of a search with all kernels timed [% of the network's cost]",
}
FORMATS = {
    **dict.fromkeys(("error", "long", "lost"), ".1f"),
    "total": "+.1f",
    **dict.fromkeys(("covered", "spearman", "timed"), ".2f"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    parser.add_argument("models", nargs="*", metavar="MODEL", choices=[*KINDS, []], help=f"kinds: {', '.join(KINDS)}")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Leaves out each family of networks in turn, for each kind of model."""
    prior, graphs = shipped_prior(), recorded_graphs()
    kinds = list(options.models) or list(KINDS)
    families = prior.families[:QUICK] if options.scale == "smoke" else prior.families
    study = Study(prior, graphs)
    rows: list[Record] = []
    with progress.stage("leave families out", len(kinds) * len(families)) as bar:
        for kind in kinds:
            for number, family in enumerate(families):
                rows.append({"model": kind, **study.row(kind, number, family)})
                raise_if_received()
                bar.update(len(rows))
    summary = [_summary(kind, [row for row in rows if row["model"] == kind]) for kind in kinds]
    shown = [row for kind, total in zip(kinds, summary, strict=True) for row in (*_of(rows, kind), total)]
    return Table(
        "What learned:<device> predicts for families of networks that it has not seen",
        COLUMNS,
        FORMATS,
        shown,
        options.command_line,
        f"{len(prior.kernels):,} kernels, timed on {prior.date} on {prior.setting}. The graphs were measured for "
        f"`rlflow reproduce discrepancy`, at another time.",
        " ".join(
            f"With {total['model']} the median error is {total['error']:.1f} %, and {total['covered']:.2f} of the "
            f"intervals of probability {COVERED:g} hold."
            for total in summary
        ),
    )


def _of(rows: Sequence[Record], kind: str) -> list[Record]:
    return [row for row in rows if row["model"] == kind]


@dataclass(frozen=True)
class Predicted:
    """Prices of one network's kernels as ratios to the reference kernel, all [k]: predicted ones with half the width of
    their 95 % interval as a fraction, and timed ones, which are NaN where the kernel was not timed."""

    ratio: Values
    half_width: Values
    timed: Values


class Study:
    """The shipped prices in the form that the models take, and the measured graphs."""

    def __init__(self, prior: Prior, graphs: Sequence[RecordedGraphs]) -> None:
        self._prior, self._graphs = prior, graphs
        self._rows = features([each.key for each in prior.kernels])
        self._ratios = np.array([each.ratio for each in prior.kernels])
        self._values = np.log(self._ratios) - estimate(self._rows)
        self._works = family_of(self._rows) != FAMILIES.index("view")
        self._timed = {each.key: each.ratio for each in prior.kernels}

    def row(self, kind: str, number: int, family: str) -> Record:
        """Returns the figures of a kind of model for a family of networks that it was not fitted to."""
        regressor, out = self.fitted_without(number, kind), self._run_by(number)
        networks = [each for each in self._graphs if each.family == family]
        return self._of_kernels(regressor, family, out & self._works) | self._of_graphs(regressor, networks)

    def fitted_without(self, number: int, kind: str = "trees") -> Regressor:
        """Returns a model that was fitted to the kernels that no network of a family runs."""
        out = self._run_by(number)
        groups = [each.families for each in self._prior.kernels if number not in each.families]
        return fit(self._rows[~out], self._values[~out], groups, kind=KINDS[kind])

    def _run_by(self, number: int) -> npt.NDArray[np.bool_]:
        return np.array([number in each.families for each in self._prior.kernels])

    def _of_kernels(self, regressor: Regressor, family: str, chosen: npt.NDArray[np.bool_]) -> Record:
        found, half_width = regressor.predict(self._rows[chosen], COVERED)
        off, true = found - self._values[chosen], self._ratios[chosen]
        errors = np.abs(np.expm1(off))
        return {
            "family": family,
            "kernels": int(chosen.sum()),
            "errors": errors,
            "is_long": true > LONG_US / 1e3 / _REFERENCE_MS,
            "within": np.abs(off) <= half_width,
            "error": 100 * float(np.median(errors)),
            "long": _median_percent(errors[true > LONG_US / 1e3 / _REFERENCE_MS]),
            "total": 100 * float((true * np.exp(off)).sum() / true.sum() - 1),
            "covered": float(np.mean(np.abs(off) <= half_width)),
        }

    def _of_graphs(self, regressor: Regressor, networks: Sequence[RecordedGraphs]) -> Record:
        predicted, measured, timed = list[float](), list[float](), list[float]()
        timings, kernels, lost = 0, 0, list[float]()
        for network in networks:
            prices = self.predicted(regressor, network)
            differ = np.flatnonzero(np.abs(network.measured - 1) > BEYOND)
            for runs, ratio in zip(network.runs[1:][differ], network.measured[differ], strict=True):
                predicted.append(float(runs @ prices.ratio / (network.runs[0] @ prices.ratio)))
                timed.append(_ratio_of_timed(runs, network.runs[0], prices.timed))
                measured.append(float(ratio))
            used, all_of_them, loss = played_search(network.runs, prices)
            timings, kernels = timings + used, kernels + all_of_them
            lost.append(loss)
        known = np.flatnonzero(np.isfinite(timed))
        enough = len(measured) > 2
        return {
            "graphs": len(measured),
            "spearman": spearman(predicted, measured) if enough else UNDEFINED,
            "timed": spearman(np.array(timed)[known], np.array(measured)[known]) if len(known) > 2 else UNDEFINED,
            "timings": timings,
            "of": kernels,
            "lost": 100 * max(lost, default=0.0),
        }

    def predicted(self, regressor: Regressor, network: RecordedGraphs) -> Predicted:
        """Returns the prices of a network's kernels."""
        rows: Rows = features(list(network.kernels))
        value, half_width = regressor.predict(rows, LEVEL)
        timed = np.array([self._timed.get(key, math.nan) for key in network.kernels])
        return Predicted(np.exp(value + estimate(rows)), half_width, timed)


_REFERENCE_MS = 0.2
"""Usual time of the reference kernel; it only decides which kernels count as long."""
_TIMED_SPREAD = 0.01
"""Half the width of the 95 % interval of a timed price, as a fraction of it."""


def played_search(runs: Values, prices: Predicted) -> tuple[int, int, float]:
    """Plays a search among graphs, which times kernels until it is sure of its gain.

    Args:
      runs: how often each graph runs each kernel [g + 1, k], the start graph first.
      prices: prices of the kernels. Graphs with kernels that have not been timed cannot be played and are left out.
    Returns:
      (timings, kernels of all graphs, what the found graph costs more than the cheapest as a fraction of the start's
      cost), by timed prices.
    """
    playable: npt.NDArray[np.bool_] = ~np.any((runs > 0) & np.isnan(prices.timed), axis=1)
    if not playable[0]:
        return 0, 0, 0.0
    runs = runs[playable]
    needed = (runs > 0).any(axis=0)
    runs, timed = runs[:, needed], prices.timed[needed]
    ms, spread = prices.ratio[needed].copy(), prices.half_width[needed].copy()
    is_timed = np.zeros(len(ms), np.bool_)
    while True:
        best = int((runs @ ms).argmin())
        errors = np.abs(runs[0] - runs[best]) * ms * spread
        doubtful = [each for each in _doubtful(errors, SURE * float(runs[0] @ ms)) if not is_timed[each]]
        if not doubtful:
            break
        is_timed[doubtful], ms[doubtful], spread[doubtful] = True, timed[doubtful], _TIMED_SPREAD
    costs = runs @ timed
    return int(is_timed.sum()), len(ms), float((costs[best] - costs.min()) / costs[0])


def _doubtful(errors: Values, enough: float) -> list[int]:
    """Returns the smallest set of kernels that keeps a difference from being sure, as `retiming` does."""
    chosen, left = np.argsort(-errors).tolist(), 0.0
    if math.hypot(*errors) <= enough:
        return []
    while chosen and math.hypot(left, errors[chosen[-1]]) <= LEFT * enough:
        left = math.hypot(left, errors[chosen.pop()])
    return chosen


def _ratio_of_timed(runs: Values, start: Values, timed: Values) -> float:
    used = (runs > 0) | (start > 0)
    return float(runs[used] @ timed[used] / (start[used] @ timed[used]))


def _median_percent(errors: Values) -> float | str:
    return 100 * float(np.median(errors)) if len(errors) else UNDEFINED


def _summary(kind: str, rows: Sequence[Record]) -> Record:
    errors, is_long, within = (np.concatenate([row[key] for row in rows]) for key in ("errors", "is_long", "within"))
    correlations = {key: [row[key] for row in rows if isinstance(row[key], float)] for key in ("spearman", "timed")}
    return {
        "model": kind,
        "family": ALL,
        "kernels": len(errors),
        "error": 100 * float(np.median(errors)),
        "long": _median_percent(errors[is_long]),
        "covered": float(within.mean()),
        "graphs": sum(row["graphs"] for row in rows),
        **{key: float(np.median(each)) if each else UNDEFINED for key, each in correlations.items()},
        "timings": sum(row["timings"] for row in rows),
        "of": sum(row["of"] for row in rows),
        "lost": max(row["lost"] for row in rows),
    }
