"""Measures how near `learned:cpu` comes to what the kernels of whole graphs cost, and what finding kernels takes.

    python -m tests.perf.expected_costs [GRAPH ...] [--walks 10] [--steps 40]

Random walks, a fifth of whose steps carry out a rule everywhere, meet new operators in nearly every graph. Their costs
are expected from operators like them, or found by lowering a part of the graph. Every fifth graph of a walk is lowered
as a whole for comparison. Prints a table and asserts nothing: a clock is no test. The database is thrown away.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from environment import zoo
from environment.costs.measured.cost_model import Learned
from environment.policies.random import EVERYWHERE_PROBABILITY, random_step
from taso_ext import OnnxModel, RuleSet, State, UnpricedError
from tests.perf.prices import table

GRAPHS = ("minilm-l6", "squeezenet1.1", "nasrnn")
CHECKED_EVERY = 5
COLUMNS = ("graph", "states", "lowerings", "CPU of a state [ms]", "checked", "rms error [%]", "largest [%]")


def row(name: str, costs: Learned, walks: int, steps: int) -> list[str]:
    """Returns the row of a graph."""
    model = OnnxModel.load(zoo.build(name))
    prices = costs.of(model)
    model.graph.cost(prices.native)  # fits the predictions, which takes seconds once
    before, states, seconds, errors = prices.lowerings, 0, 0.0, list[float]()
    for walk in range(walks):
        state, rng = State(model.graph, RuleSet.default(), prices.native), np.random.default_rng([0, walk])
        for step in range(steps):
            begin = time.process_time()
            try:
                moved = random_step(state, rng, EVERYWHERE_PROBABILITY)
            except UnpricedError:  # the walk has made the graph many times as expensive
                moved = []
            seconds += time.process_time() - begin
            if not moved:
                break
            states += 1
            if step % CHECKED_EVERY == CHECKED_EVERY - 1:
                errors.append(state.cost.ms / prices.full(state.graph).ms - 1)
    off = 100 * np.array(errors)
    figures = (
        f"{1000 * seconds / states:.1f}",
        str(len(off)),
        f"{np.sqrt(np.mean(off**2)):.2f}",
        f"{abs(off).max():.2f}",
    )
    return [name, str(states), str(prices.lowerings - before), *figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS), help="zoo graphs (default: %(default)s)")
    parser.add_argument("--walks", type=int, default=10, help="random walks on each graph (%(default)s)")
    parser.add_argument("--steps", type=int, default=40, help="steps of a walk (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        costs = Learned("cpu", database=Path(folder) / "prices.sqlite")
        rows = [row(name, costs, options.walks, options.steps) for name in options.graphs]
    print(
        "\n".join([f"`{' '.join(['python -m tests.perf.expected_costs', *sys.argv[1:]])}`", "", *table(COLUMNS, rows)])
    )


if __name__ == "__main__":
    main()
