"""Measures how long random episodes take under costs of several kinds: `python -m tests.perf.collection [GRAPH]`.

Prints a table and asserts nothing: a clock is no test. Measured and learned costs begin with the shipped prices alone,
in a database that is thrown away; the kernels that adapt them to this machine are timed first, and their time is shown.
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
import time
from pathlib import Path

from environment import GraphSubstitutionEnv
from environment.policies.random import RandomAgent
from worldmodel.data.collection import Collection, collect_shards
from worldmodel.data.episodes import BehaviourPolicy, RewriteEnv

COSTS = ("roofline:rtx2070", "learned:cpu", "measured:cpu")


def make_env(graph: str, costs: str) -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(graph, costs=costs, max_steps=50)


def random_agent(_: RewriteEnv) -> BehaviourPolicy:
    return RandomAgent(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graph", nargs="?", default="bert-base")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    print("| costs | processes | adapted in [s] | collected in [s] | CPU [s] |\n|---|---:|---:|---:|---:|", flush=True)
    for costs in COSTS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            begun = time.monotonic()
            make_env(options.graph, costs)  # adapts the prices, which all processes then read
            adapted_s, cpu_before, begun = time.monotonic() - begun, time.process_time(), time.monotonic()
            make = functools.partial(make_env, options.graph, costs)
            collection = Collection(make, random_agent, options.episodes, 0, Path(folder) / "episodes")
            collect_shards(collection, processes=options.processes)
            seconds, cpu = time.monotonic() - begun, time.process_time() - cpu_before
        shown = f"{cpu:.1f}" if options.processes == 1 else "of other processes"
        print(f"| {costs} | {options.processes} | {adapted_s:.1f} | {seconds:.1f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
