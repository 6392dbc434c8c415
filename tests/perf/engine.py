"""Measures how long the engine and the environment take: `python -m tests.perf.engine [--csv FILE] [GRAPH ...]`.

Prints two tables and asserts nothing: a clock is no test. Times are CPU times of one thread, medians over the steps of
random episodes. `resnet50:basic` is the graph whose batch norms are not folded. The second table shows how a step on
BERT grows with its layers. `--csv FILE` writes the first table to FILE, the second to FILE with `-scaling` in its name.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from environment import GraphSubstitutionEnv, zoo
from environment.policies.random import RandomAgent
from environment.zoo import bert
from taso_ext import CostModel, OnnxModel, RuleSet, SearchResult, State, search_restarts, search_taso

GRAPHS = [*zoo.published_names(), "resnet50:basic"]
LAYERS = (12, 24, 48, 96)
COLUMNS = {
    "graph": "zoo graph, cleaned in full unless it says so",
    "operators": "run-time operators of the start graph",
    "legal": "legal rewrites in the start state",
    "step_us": "one engine step of a random episode: apply, match all rules, rule and location masks",
    "env_us": "one environment step: the same with info and the observation arrays",
    "full_us": "matching the state after a step from scratch",
    "full_per_step": "full_us / step_us",
    "price_us": "pricing one rewrite by its delta, none of them known",
    "priced_per_s": "taso search (alpha 1.05): rewrites priced per second, prices inherited from the parent included",
    "expand_us": "the same search: per graph expanded, duplicates, matching and the queue included",
    "bytes_per_rewrite": "held by the search at its end per rewrite priced: queue, hashes, states",
    "restarts_per_s": "search by random restarts: rewrites priced per second, no graph is looked up",
    "evicted": "rewrites given up for want of memory (512 MB)",
}
SCALING = {"layers": "of BERT-Base's shape", "operators": COLUMNS["operators"], "step_us": COLUMNS["step_us"]}

Row = dict[str, str | float]


def microseconds(work: Callable[[], object]) -> float:
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / 1e3


def random_action(state: State, rng: np.random.Generator) -> tuple[int, int]:
    legal = state.legal_actions()
    actions = legal[legal[:, 0] == rng.choice(np.unique(legal[:, 0]))]
    rule, location = actions[rng.integers(len(actions))]
    return int(rule), int(location)


def play(start: State, episodes: int, visit: Callable[[State, tuple[int, int]], None], length: int = 50) -> None:
    """Calls `visit(state, action)`, which has to take the action, along random episodes, the same every time."""
    rng = np.random.default_rng(0)
    for _ in range(episodes):
        state = start.copy()
        for _ in range(length):
            if not len(state.legal_actions()):
                break
            visit(state, random_action(state, rng))


def engine_steps(start: State, episodes: int) -> list[float]:
    """Returns the microseconds of each step with its masks."""

    def step(state: State, action: tuple[int, int]) -> None:
        state.step(*action)
        state.rule_mask()
        state.location_mask()

    times: list[float] = []
    play(start, episodes, lambda state, action: times.append(microseconds(lambda: step(state, action))))
    return times


def full_matches(start: State, episodes: int) -> tuple[list[float], list[float]]:
    """Returns the microseconds of matching each state after a step from scratch, and of pricing one of its rewrites."""
    matching: list[float] = []
    pricing: list[float] = []

    def visit(state: State, action: tuple[int, int]) -> None:
        state.step(*action)
        matching.append(microseconds(state.rematched))
        fresh = state.rematched()
        pricing.append(microseconds(fresh.candidates) / max(1, len(fresh.legal_actions())))

    play(start, episodes, visit)
    return matching, pricing


def environment_steps(env: GraphSubstitutionEnv, episodes: int) -> list[float]:
    times = []
    for seed in range(episodes):
        agent = RandomAgent(seed, noop_probability=0.0)
        observation, _ = env.reset(seed=seed)
        done = False
        while not done:
            action = agent(observation)
            start = time.process_time_ns()
            observation, _, terminated, truncated, _ = env.step(action)
            times.append((time.process_time_ns() - start) / 1e3)
            done = terminated or truncated
    return times


def load(name: str) -> OnnxModel:
    graph, _, clean = name.partition(":")
    return OnnxModel.load(zoo.build(graph), clean=clean or "full")


def rewrites_per_second(run: Callable[[], SearchResult]) -> float:
    began = time.process_time()
    generated = run().generated
    return generated / (time.process_time() - began)


def measure(name: str, episodes: int, budget: int) -> Row:
    env = GraphSubstitutionEnv(load(name), rules=RuleSet.default())
    start = env.state.copy()
    steps = statistics.median(engine_steps(start, episodes))
    rematches, prices = (statistics.median(times) for times in full_matches(start, episodes))
    began = time.process_time()
    search = search_taso(start, 1.05, budget)
    seconds = time.process_time() - began
    return {
        "graph": name,
        "operators": start.graph.num_runtime_nodes,
        "legal": len(start.legal_actions()),
        "step_us": steps,
        "env_us": statistics.median(environment_steps(env, episodes)),
        "full_us": rematches,
        "full_per_step": rematches / steps,
        "price_us": prices,
        "priced_per_s": search.generated / seconds,
        "expand_us": 1e6 * seconds / search.expanded,
        "bytes_per_rewrite": search.memory_bytes / search.generated,
        "restarts_per_s": rewrites_per_second(lambda: search_restarts(start, 50, 0, budget)),
        "evicted": search.evicted,
    }


def measure_scaling(layers: int, episodes: int) -> Row:
    model = bert.build(f"bert-{layers}", replace(bert.BERT_BASE_TINY, layers=layers))
    start = State(OnnxModel.load(model).graph, RuleSet.default(), CostModel.roofline("rtx2070"))
    steps = engine_steps(start, episodes)
    return {"layers": layers, "operators": start.graph.num_runtime_nodes, "step_us": statistics.median(steps)}


def exponent(rows: list[Row]) -> float:
    """Returns the slope of log time over log operators."""
    operators, times = ([float(row[key]) for row in rows] for key in ("operators", "step_us"))
    return float(np.polyfit(np.log(operators), np.log(times), 1)[0])


def show(columns: dict[str, str], rows: list[Row], path: Path | None) -> None:
    print("  ".join(f"{column:>{max(10, len(column))}}" for column in columns))
    for row in rows:
        cells = {key: f"{value:.1f}" if isinstance(value, float) else str(value) for key, value in row.items()}
        print("  ".join(f"{cells[column]:>{max(10, len(column))}}" for column in columns))
    print("\n" + "\n".join(f"{column}: {meaning}" for column, meaning in columns.items()) + "\n", file=sys.stderr)
    if path:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="*", default=GRAPHS, metavar="GRAPH", help=f"default: {' '.join(GRAPHS)}")
    parser.add_argument("--episodes", type=int, default=20, help="of 50 steps")
    parser.add_argument("--budget", type=int, default=10_000, help="graphs that the search expands")
    parser.add_argument("--layers", type=int, nargs="*", default=LAYERS, help="of BERT, for the second table")
    parser.add_argument("--csv", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = [measure(name, arguments.episodes, arguments.budget) for name in arguments.graphs]
    show(COLUMNS, rows, arguments.csv)
    if arguments.layers:
        scaling = [measure_scaling(layers, arguments.episodes) for layers in arguments.layers]
        show(SCALING, scaling, arguments.csv and arguments.csv.with_stem(arguments.csv.stem + "-scaling"))
        print(f"a step on BERT grows with the {exponent(scaling):.2f}th power of its operators")


if __name__ == "__main__":
    main()
