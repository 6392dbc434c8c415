"""Measures how long prices take under `measured:cpu`: `python -m tests.perf.prices [GRAPH ...] [--out FILE]`.

A new kernel is timed once, and its price is kept; what was met before is looked up. Prints two tables and asserts
nothing: a clock is no test. Kernels are timed into a database that is thrown away.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from environment import zoo
from environment.costs.measured.cost_model import Measured, MeasuredPrices
from taso_ext import OnnxModel

GRAPHS = ("squeezenet1.1", "resnet18", "bert-base")
KERNEL_LIMIT_S, LOOKUP_LIMIT_NS = 0.5, 100
REPEATS = 200


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table; the first column is text."""
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def price_of_kernels(name: str, prices: MeasuredPrices, model: OnnxModel) -> list[str]:
    """Returns a row of seconds to time each distinct kernel of a graph.

    The first kernel is left out, because with it the reference kernel is timed.
    """
    kernels = list(dict.fromkeys(each.kernel for each in prices.lowered(model.graph)))
    known, weights_mb, seconds = prices.kernels, model.graph.weights_mb, []
    for kernel in kernels:
        if known.known(kernel, weights_mb) is None:
            begin = time.perf_counter()
            known.price(kernel, weights_mb)
            seconds.append(time.perf_counter() - begin)
    taken = np.array(seconds[1:])
    figures = [np.median(taken), np.quantile(taken, 0.99), taken.max()]
    return [name, str(len(taken)), *(f"{value:.2f}" for value in figures), f"{KERNEL_LIMIT_S}"]


def price_of_lookups(name: str, prices: MeasuredPrices, model: OnnxModel) -> list[str]:
    """Returns a row of nanoseconds per operator: the price of a known graph, its signatures, and the difference."""
    graph, opset = model.graph, model.opset
    operators = len(graph.neighbourhood_signatures(opset))
    graph.cost(prices.native)
    works = (lambda: graph.cost(prices.native)), (lambda: graph.neighbourhood_signatures(opset))
    whole, naming = (median_ns(work) / operators for work in works)
    figures = [f"{value:.0f}" for value in (whole, naming, max(whole - naming, 0.0))]
    return [name, str(operators), *figures, str(LOOKUP_LIMIT_NS)]


def median_ns(work: Callable[[], object]) -> float:
    """Returns the median CPU time of a call, in nanoseconds."""
    taken = []
    for _ in range(REPEATS):
        begin = time.thread_time_ns()
        work()
        taken.append(time.thread_time_ns() - begin)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS), help="zoo graphs (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    options = parser.parse_args()
    kernels, lookups = [], []
    with tempfile.TemporaryDirectory() as folder:
        costs = Measured("cpu", database=Path(folder) / "prices.sqlite", predict=False)
        for name in options.graphs:
            model = OnnxModel.load(zoo.build(name))
            prices = costs.of(model)
            kernels.append(price_of_kernels(name, prices, model))
            lookups.append(price_of_lookups(name, prices, model))
    lines = [
        "# What prices take",
        "",
        f"`{' '.join(['python -m tests.perf.prices', *sys.argv[1:]])}`",
        "",
        f"ONNX Runtime {onnxruntime.__version__}, one thread. Kernels that were never met, timed:",
        "",
        *table(["graph", "kernels", "median [s]", "99 % within [s]", "longest [s]", "asked [s]"], kernels),
        "",
        "Operators that were met, priced by the fast model:",
        "",
        *table(["graph", "operators", "price of a graph [ns each]", "signatures", "looking up", "asked"], lookups),
    ]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
