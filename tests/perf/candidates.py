"""Measures what is saved where candidates are nearly equal: `python -m tests.perf.candidates`.

Prints a table and asserts nothing: a clock is no test. For the start graph of each network, the encoder of `xrlflow`
embeds all candidates, once as it does, and once with every node of every candidate by itself; then some states of a
random episode, once together and once one by one. All of it is done in turn, in one process and one thread. `--out DIR`
writes the table.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import tensorflow as tf

from controller.worlds.candidate_view import CANDIDATES, CandidateObservation
from controller.worlds.ragged import Row
from controller.xrlflow.config import XrlflowConfig
from controller.xrlflow.policy import CandidatePolicy
from environment import GraphSubstitutionEnv, zoo

STATES = 16
"""States of an episode that are encoded together, as in a minibatch of training."""
WHOLE = 500
"""A reach over which nodes see the whole graph before them: next to no two see the same."""
LAYERS = 5
"""Layers of attention, as published; the presets of few minutes have one."""
AT_ONCE = 64
"""Candidates that are encoded by themselves in one batch: more would need several gigabytes for large networks."""


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Returns the median CPU time of a call, after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        before = process_time()
        run()
        times.append(process_time() - before)
    return statistics.median(times)


def each_alone(env: GraphSubstitutionEnv, policy: CandidatePolicy) -> list[CandidateObservation]:
    """Returns every candidate as a state without candidates of its own, in batches."""
    found: list[Row] = []
    present = np.ones(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32), np.array(0)  # no candidates beside it
    view = policy.view(env)
    view.reset(seed=0)
    for rule, location in env.state.legal_actions().tolist():
        after = env.state.copy()
        after.step(rule, location)
        nodes, colours, *others = after.candidate_graphs(WHOLE, 0)
        own = np.arange(len(colours)) + (len(found) << 32)  # so that no two graphs share an embedding
        found.append((nodes, own, *others, *present))
    return [CANDIDATES.stack(found[start : start + AT_ONCE]) for start in range(0, len(found), AT_ONCE)]


def episode(env: GraphSubstitutionEnv, policy: CandidatePolicy) -> list[Row]:
    """Returns the first states of a random episode; an episode that ends is followed by another."""
    view, rng = policy.view(env), np.random.default_rng(0)
    candidates = CandidateObservation._fields.index("candidates")
    seen, _ = view.begin(seed=0)
    states = [seen]
    while len(states) < STATES:
        seen, _, terminated, truncated, _ = view.advance(int(rng.integers(len(seen[candidates]))))
        states.append(view.begin(seed=len(states))[0] if terminated or truncated else seen)
    return states


def measured(name: str, layers: int, repeats: int) -> str:
    """Returns the row of a network, for a policy with some layers of attention."""
    env = GraphSubstitutionEnv(name, costs="roofline:rtx2070", max_steps=50)
    policy = CandidatePolicy(env, XrlflowConfig(layers=layers), seed=0)
    view = policy.view(env)
    seen, _ = view.reset(seed=0)
    number = len(env.state.legal_actions())
    encode = tf.function(policy._encoder, reduce_retracing=True)
    alone = each_alone(env, policy)
    listing = seconds(lambda: env.state.candidate_graphs(layers, 10**6), repeats)
    shared = seconds(lambda: encode(seen), repeats)
    by_itself = seconds(lambda: [encode(batch) for batch in alone], max(1, repeats // 4))
    rows = episode(env, policy)
    states, batch = [CANDIDATES.stack([row]) for row in rows], CANDIDATES.stack(rows)
    together = seconds(lambda: encode(batch), repeats)
    one_by_one = seconds(lambda: [encode(state) for state in states], repeats)
    nodes, whole = len(seen.nodes.flat_values), sum(len(batch.nodes.flat_values) for batch in alone)
    kinds = len(seen.kinds.flat_values) - 1
    return (
        f"| {name} | {number} | {kinds} | {whole:,} | {nodes:,} | {1e6 * listing / number:.0f} | "
        f"{number / shared:,.0f} | {1 / (shared + listing):.1f} | "
        f"{by_itself / shared:.1f} | {one_by_one / together:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", default=[*zoo.published_names(), "bert-l2-h128"])
    parser.add_argument("--out", type=Path, help="also write a table into this folder")
    parser.add_argument("--layers", type=int, default=LAYERS, help=f"layers of attention ({LAYERS}, as published)")
    parser.add_argument("--repeats", type=int, default=12, help="calls of which times are medians (12)")
    options = parser.parse_args()
    lines = [
        "# What is saved where candidates are nearly equal",
        "",
        f"Written by `python -m tests.perf.candidates --layers {options.layers}`. The policy of `xrlflow`, with as "
        "many layers of attention, looks at the start graph of each network and at all graphs that one rewrite leads "
        "to. CPU times of one thread, medians; a step is a list of all candidates by the engine and their embeddings. "
        "Last, the states of a random episode.",
        "",
        "| network | candidates | kinds of them | nodes of all graphs | nodes that are encoded | µs to list one "
        f"| candidates/s | steps/s | times as long if each node is encoded by itself "
        f"| times as long if {STATES} states are encoded one by one |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.graphs:
        lines.append(measured(name, options.layers, options.repeats))
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        table = "table.md" if options.layers == LAYERS else f"table-layers{options.layers}.md"
        (options.out / table).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
