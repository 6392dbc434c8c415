"""Measures how long an end-to-end reward takes: `python -m tests.perf.end_to_end_reward [GRAPH ...] [--out FILE]`.

An environment under `endtoend:cpu` waits for a price when its reward looks at a state that was never priced. The time
runs from the graph in the engine to the ratio at 1 % resolution; the start graph is priced once for each model.

Prints a table and asserts nothing: a clock is no test. On a busy machine the CPU time is the better figure, but even
that is higher than on an idle one: samples that were interrupted are taken again, and caches are shared.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime

from environment import zoo
from environment.costs.end_to_end import EFFORT, EndToEnd, EndToEndPrices
from environment.costs.limits import NoisyClockWarning
from environment.policies.random import random_step
from taso_ext import OnnxModel, RuleSet, State

LIMITS_S = {"squeezenet1.1": 3.0, "bert-base": 20.0}
"""The longest time that a price should take on an idle machine, by graph."""
MOST_STEPS = 20
"""The most random rewrites from the start to a state that is priced."""
HEADER = [
    "| graph | state | wall [s] | CPU [s] | within [s] | ratio | ± % |",
    "|---|---|---:|---:|---:|---:|---:|",
]


def rows(name: str, resolution: float, repeats: int) -> Iterator[str]:
    """Yields the rows of the start and of some states."""
    model = OnnxModel.load(zoo.build(name))
    prices = EndToEnd("cpu", effort=replace(EFFORT, resolution=resolution)).of(model)
    start = State(model.graph, RuleSet.default(), prices.native, 4096)
    yield row(name, "start", prices, start, start)
    for seed in range(repeats):
        rng, state = np.random.default_rng(seed), start.copy()
        steps = sum(bool(random_step(state, rng)) for _ in range(int(rng.integers(1, MOST_STEPS + 1))))
        yield row(name, f"{steps} random rewrites", prices, state, start)


def row(name: str, what: str, prices: EndToEndPrices, state: State, start: State) -> str:
    """Prices a state and returns its row."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    priced = prices.price(state)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    limit = f"{LIMITS_S[name]:g}" if name in LIMITS_S else ""
    ratio = priced.cost.ms / prices.price(start).cost.ms
    return f"| {name} | {what} | {wall_s:.2f} | {cpu_s:.2f} | {limit} | {ratio:.3f} | {100 * priced.noise:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=list(LIMITS_S), help="zoo graphs (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--resolution", type=float, default=0.01, help="half of the interval (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="states of each graph (default: %(default)s)")
    options = parser.parse_args()
    warnings.simplefilter("ignore", NoisyClockWarning)  # the last column shows the noise
    lines = [
        "# What an end-to-end reward takes",
        "",
        f"`{' '.join(['python -m tests.perf.end_to_end_reward', *sys.argv[1:]])}`",
        "",
        f"ONNX Runtime {onnxruntime.__version__}, one thread.",
        "",
        *HEADER,
    ]
    print("\n".join(lines), flush=True)
    for name in options.graphs:
        for line in rows(name, options.resolution, options.repeats):
            lines.append(line)
            print(line, flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
