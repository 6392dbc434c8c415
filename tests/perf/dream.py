"""Measures how fast states are encoded and steps dreamed: `python -m tests.perf.dream [GRAPH ...] [--out FILE]`.

Prints two tables and asserts nothing: a clock is no test. World models have the sizes of the preset best and the
actions of their random episodes, but are hardly trained, because their speed does not depend on the weights.
`TF_NUM_INTRAOP_THREADS` and `TF_NUM_INTEROP_THREADS` set the number of TensorFlow's threads. With one thread, the CPU
time is the better figure on a busy machine.

Dreams are timed with two policies: the first legal action in a fixed order, which costs next to nothing, and the policy
that ppo trains. Masks are predicted for both, and only legal actions are taken. XLA compiles the steps of a dream, or
whole rollouts with their policies (`DreamEnv`, `xla`). With the policy of ppo, which draws other rewrites in each row,
dreams are also timed in which the engine says what is legal (`dream.legality=exact`).
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from controller.policies.latent import LatentPolicy
from controller.ppo.config import PolicyConfig
from environment import GraphSubstitutionEnv
from environment.measurement.effort import PROCESS_CPU, WALL
from experiments.config.run import load_config
from experiments.reproduce.speed.dream_times import FixedOrder, barely_trained, dream_env, dream_ms, encode_ms
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.world_model import WorldModel

GRAPHS = ("squeezenet1.1", "bert-base")
BATCHES = (1, 32, 256)
ASKED = {1: 3000, 256: 40_000}
"""The required number of dreamed steps per second on two cores, by batch."""
ASKED_ENCODED = {"squeezenet1.1": 400, "bert-base": 120}
"""The required number of encoded states per second on two cores, by graph."""
KINDS = ("message_passing", "attention")
FEW = 2
"""The number of episodes for a world model of which only the encoder is timed."""
NEVER = -30.0
"""A logit of NO-OP so low that no rollout ends by it."""


def dream_rows(
    name: str, model: WorldModel, buffer: EpisodeBuffer, repeats: int, engine: GraphSubstitutionEnv
) -> Iterator[list[str]]:
    """Yields rows of steps per second, by batch, policy and what is compiled."""
    policies = {
        "fixed order": FixedOrder(model.num_actions),
        "ppo's": LatentPolicy.for_world_model(model, config=PolicyConfig(noop_logit=NEVER), seed=0),
    }
    dreams = {"steps": dream_env(model, buffer), "rollouts": dream_env(model, buffer, xla=True)}
    exact = ("ppo's", policies["ppo's"]), ("steps, legal by the engine", dream_env(model, buffer, engine=engine))
    for batch in BATCHES:
        for (label, policy), (compiled, dream) in [*itertools.product(policies.items(), dreams.items()), exact]:
            rates = [
                1e3 / dream_ms(dream, policy, batch=batch, repeats=repeats, clock=clock)
                for clock in (PROCESS_CPU, WALL)
            ]
            told = [name, label, str(model.num_actions), compiled, str(batch)]
            yield [*told, *(f"{rate:.0f}" for rate in rates), str(ASKED.get(batch, ""))]


def encoder_rows(name: str, kind: str, model: WorldModel, buffer: EpisodeBuffer, repeats: int) -> Iterator[list[str]]:
    """Yields rows of states per second, by batch; the start graph is encoded over and over."""
    graph = buffer.graphs[buffer[0].hashes[0]]
    for batch in (1, 16):
        rates = [
            1e3 / encode_ms(model, graph, batch=batch, repeats=5 * repeats, clock=clock)
            for clock in (PROCESS_CPU, WALL)
        ]
        sizes = f"{len(graph.nodes)}, {len(graph.edges)}"
        asked = str(ASKED_ENCODED.get(name, ""))
        yield [name, kind, sizes, str(batch), *(f"{rate:.0f}" for rate in rates), asked]


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table; the first two columns are texts, the others numbers."""
    aligned = "|---|---|" + "---:|" * (len(columns) - 2)
    return "\n".join([f"| {' | '.join(columns)} |", aligned, *(f"| {' | '.join(row)} |" for row in rows)])


def timed(name: str, episodes: int, repeats: int) -> tuple[list[list[str]], list[list[str]]]:
    """Returns the rows of both tables."""
    env, dreamed, encoded = GraphSubstitutionEnv(name), [], []
    for kind in KINDS:
        sizes = load_config("best", {}).world_model
        sizes = replace(sizes, encoder=replace(sizes.encoder, kind=kind))
        # Dreams are the same for both kinds, so that only the encoder of the second world model is timed.
        model, buffer = barely_trained(env, FEW if dreamed else episodes, sizes)
        encoded += encoder_rows(name, kind, model, buffer, repeats)
        dreamed += [] if dreamed else dream_rows(name, model, buffer, repeats, env)
    return dreamed, encoded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS), help="zoo graphs (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=200, help="random ones for each world model (%(default)s)")
    parser.add_argument("--repeats", type=int, default=10, help="rollouts of each row (%(default)s)")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    options = parser.parse_args()
    dreamed, encoded = [], []
    for name in options.graphs:
        rows = timed(name, options.episodes, options.repeats)
        dreamed += rows[0]
        encoded += rows[1]
    threads = os.environ.get("TF_NUM_INTRAOP_THREADS", f"up to {os.cpu_count()}")
    rates = ["per second of CPU time", "per second", "asked on 2 cores"]
    parts = [
        "# How fast it dreams",
        f"`{' '.join(['python -m tests.perf.dream', *sys.argv[1:]])}`",
        f"{threads} threads in TensorFlow. {options.episodes} random episodes for each world model. Steps dreamed:",
        table(["graph", "policy", "actions", "compiled", "batch", *rates], dreamed),
        "States encoded:",
        table(["graph", "kind", "nodes, edges", "batch", *rates], encoded),
    ]
    print("\n\n".join(parts))
    if options.out is not None:
        options.out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
