"""Measures how many flips of a fusion plan the engine prices in a second: `python -m tests.perf.fusion`.

Prints a table and asserts nothing: a clock is no test. The plans of each graph are the compiler's and a random one;
every configurable tensor is asked for, again and again, for about a second of CPU time.
"""

from __future__ import annotations

import argparse
from time import process_time

from environment.fusion import DEFAULT, DEVICES, RANDOM, load
from taso_ext import FusionPlan

GRAPHS = ("bert-base:layers=96", "nasnet-a", "nasrnn", "transformer-transducer", "inception-v3")


def deltas_per_second(plan: FusionPlan, tensors: list[int]) -> float:
    """Returns how many deltas are priced in a second of CPU time."""
    done, begin = 0, process_time()
    while process_time() - begin < 1.0:
        plan.deltas_ms(tensors)
        done += len(tensors)
    return done / (process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=GRAPHS, help=f"zoo graphs ({', '.join(GRAPHS)})")
    parser.add_argument("--device", default=DEVICES[0], choices=DEVICES)
    options = parser.parse_args()
    print(f"{'graph':24} configurable  deltas/s (compiler's plan)  deltas/s (random plan)")
    for name in options.graphs:
        graph = load(name, options.device)
        rates = [
            deltas_per_second(FusionPlan(graph.problem, graph.start(start)), graph.configurable.tolist())
            for start in (DEFAULT, RANDOM)
        ]
        print(f"{name:24} {len(graph.configurable):12} {rates[0]:26,.0f} {rates[1]:23,.0f}", flush=True)


if __name__ == "__main__":
    main()
