"""How long the engine and the environment take: `python -m tests.perf.engine [--csv FILE] [GRAPH ...]`.

Prints a table and asserts nothing: a clock is no test. One thread; medians over the steps of random episodes.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from environment import GraphSubstitutionEnv, zoo
from environment.random_agent import RandomAgent
from taso_ext import OnnxModel, RuleSet, State, search_taso

COLUMNS = {
    "graph": "zoo graph",
    "operators": "run-time operators of the start graph",
    "legal": "legal rewrites in the start state",
    "step_us": "one engine step: apply, match all rules, masks",
    "env_us": "one environment step: the same with the observation arrays",
    "price_us": "pricing one candidate by its delta",
    "search_per_s": "candidates priced per second in taso search, matching and copying included",
}


def microseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e6 * (time.perf_counter() - start)


def random_action(state: State, rng: np.random.Generator) -> tuple[int, int]:
    legal = state.legal_actions()
    actions = legal[legal[:, 0] == rng.choice(np.unique(legal[:, 0]))]
    rule, location = actions[rng.integers(len(actions))]
    return int(rule), int(location)


def engine_steps(start: State, episodes: int, length: int) -> list[float]:
    def step(state: State, action: tuple[int, int]) -> None:
        state.step(*action)
        state.rule_mask()
        state.location_mask()

    rng, times = np.random.default_rng(0), []
    for _ in range(episodes):
        state = start.copy()
        for _ in range(length):
            if not len(state.legal_actions()):
                break
            action = random_action(state, rng)
            times.append(microseconds(lambda state=state, action=action: step(state, action)))  # type: ignore[misc]
    return times


def environment_steps(env: GraphSubstitutionEnv, episodes: int) -> list[float]:
    times = []
    for seed in range(episodes):
        agent = RandomAgent(seed, noop_probability=0.0)
        observation, _ = env.reset(seed=seed)
        done = False
        while not done:
            action = agent(observation)
            start = time.perf_counter()
            observation, _, terminated, truncated, _ = env.step(action)
            times.append(1e6 * (time.perf_counter() - start))
            done = terminated or truncated
    return times


def measure(name: str, episodes: int) -> dict[str, str | float]:
    env = GraphSubstitutionEnv(OnnxModel.load(zoo.build(name)), rules=RuleSet.default())
    start = env.state.copy()
    legal = len(start.legal_actions())
    pricing = [microseconds(start.candidates) / max(1, legal) for _ in range(20)]
    began = time.perf_counter()
    generated = search_taso(start, 1.05, 500).generated
    return {
        "graph": name,
        "operators": start.graph.num_runtime_nodes,
        "legal": legal,
        "step_us": statistics.median(engine_steps(start, episodes, 50)),
        "env_us": statistics.median(environment_steps(env, episodes)),
        "price_us": statistics.median(pricing),
        "search_per_s": generated / (time.perf_counter() - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["squeezenet1.1", "bert-base"], metavar="GRAPH")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--csv", metavar="FILE")
    arguments = parser.parse_args()
    rows = [measure(name, arguments.episodes) for name in arguments.graphs]
    print("  ".join(f"{column:>14}" for column in COLUMNS))
    for row in rows:
        cells = (f"{value:.1f}" if isinstance(value, float) else str(value) for value in row.values())
        print("  ".join(f"{cell:>14}" for cell in cells))
    print("\n" + "\n".join(f"{column}: {meaning}" for column, meaning in COLUMNS.items()), file=sys.stderr)
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
