"""Measures how many placements a second the simulator evaluates: `python -m tests.perf.placement`.

Prints a table and asserts nothing: a clock is no test. Each network of the zoo is divided into at most 300 groups, and
random placements on each machine are simulated one after another, in one process and one thread, through
`PlacementProblem.evaluate`, as every search and agent calls it. Seconds are processor time.
"""

from __future__ import annotations

import argparse
import statistics
from time import process_time

import numpy as np

from environment import zoo
from environment.placement import OperatorGraph, PlacementProblem, at_most, find_machine, presets
from taso_ext import OnnxModel

GROUPS = 300
PLACEMENTS, REPEATS = 200, 5


def evaluations_per_second(problem: PlacementProblem, seed: int = 0) -> float:
    """Returns the median over repeats."""
    rng = np.random.default_rng(seed)
    placements = rng.integers(0, problem.machine.num_devices, (PLACEMENTS, problem.num_groups)).astype(np.int32)
    problem.evaluate(placements[0])
    rates = []
    for _ in range(REPEATS):
        before = process_time()
        for placement in placements:
            problem.evaluate(placement)
        rates.append(PLACEMENTS / (process_time() - before))
    return statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["nasnet-a", "bert-base", "transformer-transducer"])
    options = parser.parse_args()
    print("| graph | machine | groups | tasks | tensors | evaluations per second |\n|---|---|---:|---:|---:|---:|")
    for name in options.graphs:
        graph = OperatorGraph.of(OnnxModel.load(zoo.build(name)))
        groups = at_most(graph, GROUPS)
        for machine in presets():
            problem = PlacementProblem.of(graph, find_machine(machine), groups)
            rate = evaluations_per_second(problem)
            print(
                f"| {name} | {machine} | {problem.num_groups} | {problem.num_tasks} | {len(problem.transfers)} | "
                f"{rate:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
