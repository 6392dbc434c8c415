"""Placements of networks that a policy was not trained on: PPO with a graph encoder, trained on all others.

rlflow reproduce placement-zero-shot
rlflow reproduce placement-zero-shot rnnlm inception-v3 --updates 100
rlflow reproduce placement-zero-shot rnnlm nmt inception-v3 --held-out nmt

For each network, a policy is trained on the other ones, on 2 and on 4 K80 in turn. Then it places this network without
training: its likeliest placement takes one simulation, and the best of 64 samples takes 64. Beside it are the best
baseline and the best of 64 placements that are drawn at random. A policy of 400 updates takes two minutes or so.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from controller.placement.annealing import starts
from controller.placement.graph_ppo import GraphPpo, PlacementView
from environment.placement import PlacementProblem
from experiments.errors import UserError, require_at_least
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_seed, chosen_seed, named, run_units
from experiments.reproduce.placement.networks import Network, add_networks, chosen_networks, problem_of
from experiments.reproduce.placement.table2 import GRAPH_PPO_VERSION, MACHINES
from experiments.reproduce.table import UNDEFINED, Row, Table
from experiments.runs.progress import ProgressDisplay

NAME = "placement-zero-shot"
DEFAULT = {"smoke": ("inception-v3", "rnnlm"), "full": ("rnnlm", "nmt", "inception-v3", "bert-base")}
UPDATES = {"smoke": 2, "full": 400}
SAMPLES = 64

COLUMNS = {
    "network": "held out: the policy was trained on the other ones",
    "machine": "a Haswell host with 2 or 4 K80",
    "baseline": "the fastest placement of all baselines [ms]",
    "random": f"the best of {SAMPLES} random placements [ms]",
    "zero-shot": "the likeliest placement of the policy [ms]",
    "sampled": f"the best of {SAMPLES} placements that it samples [ms]",
    "gain": "how much longer the baseline takes than the best of the policy's [%]",
}
FORMATS = {**dict.fromkeys(("baseline", "random", "zero-shot", "sampled"), ".1f"), "gain": ".1f"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_networks(parser)
    add_seed(parser)
    parser.add_argument("--held-out", metavar="A,B", help="those of the networks that are held out in turn (all)")
    parser.add_argument("--updates", type=int, help=f"updates of each policy ({UPDATES['full']})")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains a policy for each network; finished ones are not trained again.

    Raises:
      UserError: fewer than two networks are named, one that is held out is not among them, or the number of updates is
        below 1.
    """
    chosen = chosen_networks(options, DEFAULT[options.scale])
    networks, held_out = list(chosen.values()), list(named(options.held_out, chosen, "chosen network").values())
    if len(networks) < 2:
        raise UserError(
            f"A policy is trained on other networks than it places: name two at least, not {networks[0].name}."
        )
    updates = UPDATES[options.scale] if options.updates is None else options.updates
    require_at_least(1, updates=updates)
    seed = chosen_seed(options)
    units = [
        Unit(each.name, partial(placed, each, [other for other in networks if other is not each], updates, seed))
        for each in held_out
    ]
    rows = [
        row_of(network, machine, record["machines"][machine])
        for network, record in zip(held_out, run_units(units, options, progress), strict=True)
        for machine in MACHINES
    ]
    notes = (
        f"Each policy is trained on the others of {', '.join(each.name for each in networks)}: {updates:,} updates, "
        f"seed {seed}. “oom”: out of memory."
    )
    return Table("Placement without training", COLUMNS, FORMATS, rows, options.command_line, notes)


def placed(network: Network, others: Sequence[Network], updates: int, seed: int, progress: ProgressDisplay) -> Record:
    """Returns the record of one held-out network, with its times by machine."""
    settings = {
        "network": network.name,
        "model": network.model,
        "others": [each.model for each in others],
        "groups": [each.groups for each in (network, *others)],
        "updates": updates,
        "seed": seed,
        "version": GRAPH_PPO_VERSION,
    }

    def work() -> Record:
        agent = GraphPpo(seed=seed)
        problems = [problem_of(each, machine) for each in others for machine in MACHINES]
        with progress.stage(f"train without {network.name}", total=updates) as bar:
            agent.train(problems, updates, on_update=lambda done, ms: bar.update(done, median_ms=ms))
        return {**settings, "machines": {each: _times(agent, problem_of(network, each), seed) for each in MACHINES}}

    return once(NAME, f"{network.name}-{seed}", settings, work, anywhere=True)


def _times(agent: GraphPpo, problem: PlacementProblem, seed: int) -> dict[str, float | None]:
    """Returns the times by the columns of the table; None where nothing fits into memory."""
    rng = np.random.default_rng(seed)
    sampled, _ = agent.sample(PlacementView(problem), SAMPLES)
    drawn = rng.integers(0, problem.machine.num_devices, (SAMPLES, problem.num_groups))
    return {
        "baseline": _best_ms(problem, starts(problem, seed)),
        "random": _best_ms(problem, list(drawn)),
        "zero-shot": _best_ms(problem, [agent.place(problem)]),
        "sampled": _best_ms(problem, list(sampled[-1].numpy())),
    }


def _best_ms(problem: PlacementProblem, assignments: Sequence[np.ndarray]) -> float | None:
    outcomes = [problem.evaluate(each) for each in assignments]
    return min((each.ms for each in outcomes if each.fits), default=None)


def row_of(network: Network, machine: str, times: Mapping[str, Any]) -> Row:
    """Returns the row of a network on a machine."""
    row: dict[str, str | float] = {"network": network.name, "machine": machine}
    row |= {name: "oom" if ms is None else ms for name, ms in times.items()}
    best = min((times[each] for each in ("zero-shot", "sampled") if times[each] is not None), default=math.inf)
    known = times["baseline"] is not None and math.isfinite(best)
    return row | {"gain": 100 * (times["baseline"] / best - 1) if known else UNDEFINED}
