"""Measures what repeated timing of kernels brings: `python -m tests.perf.price_timings [GRAPH ...] [--timings N]`.

The price of a kernel is the mean of its timings. This command times all kernels of the graphs that `rlflow reproduce
discrepancy` has measured (if it has not, they are measured now) several times, in a database that is thrown away. After
each pass it compares the predictions of the prices with the measurements.

Prints a table and asserts nothing: a clock is no test.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from environment.costs.measured.cost_model import Measured
from environment.costs.prices.price_list import PriceList
from environment.statistics.paired import spearman
from experiments.reproduce.cost_model.discrepancy import BEYOND, signs_right
from experiments.reproduce.cost_model.discrepancy_study import MeasuredGraph
from experiments.runs.progress import ProgressDisplay, make_progress
from taso_ext import RuleSet
from tests.perf.prices import table

GRAPHS = ("nasrnn", "resnet18")
COLUMNS = ("graph", "timings of each kernel", "rank correlation", "signs right", "of", "price sure to [%]")


def rows(name: str, timings: int, folder: Path, progress: ProgressDisplay) -> list[list[str]]:
    """Returns one row for each pass over a graph's kernels."""
    costs = Measured("cpu", database=folder / f"{name}.sqlite", predict=False)
    study = MeasuredGraph(name, RuleSet.default(), costs, "full", 0, progress)
    found = []
    for number in range(1, timings + 1):
        study.time_kernels(number)
        points = study.record()["points"]
        measured, predicted = ([point[key] for point in points] for key in ("measured", "full"))
        right, differ = signs_right(predicted, measured, BEYOND)
        figures = [
            f"{spearman(predicted, measured):.3f}",
            str(right),
            str(differ),
            f"{median_spread(costs.prices):.1f}",
        ]
        found.append([name, str(number), *figures])
    return found


def median_spread(prices: PriceList) -> float:
    """Returns the median spread of the prices, in percent."""
    return 100 * float(np.median([price.spread for _, price in prices.items()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS), help="zoo graphs (default: %(default)s)")
    parser.add_argument("--timings", type=int, default=4, help="of each kernel (%(default)s)")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    progress = make_progress()
    with tempfile.TemporaryDirectory() as folder:
        found = [row for name in options.graphs for row in rows(name, options.timings, Path(folder), progress)]
    lines = [
        "# What timing kernels more than once brings",
        "",
        f"`{' '.join(['python -m tests.perf.price_timings', *sys.argv[1:]])}`",
        "",
        f"Ratios of run times that the full model predicts, against those measured; signs of those that differ by over "
        f"{BEYOND:.0%}. ONNX Runtime {onnxruntime.__version__}, one thread.",
        "",
        *table(COLUMNS, found),
    ]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
