"""Time of a step by placement (Mirhoseini et al. 2017, table 2), simulated on 2 and 4 K80.

rlflow reproduce placement-table2
rlflow reproduce placement-table2 inception-v3 --placers heft,annealing --seeds 0,1

Published seconds are of real machines, and ours are simulated. So only ratios within a row can be compared. METIS
stands in the place of Scotch where that is not installed. The gain is how much longer the best baseline takes than the
best search or agent, as published. Annealing begins with the best baseline, so that it is never slower than these.
Placers that use chance run once for each seed. Data-parallel towers process a batch on each GPU at a time. Their time
is that of one batch, and they are no baseline of the gain, because a step then has more samples (or older weights). An
agent takes up to 20 minutes for a network and seed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from controller.placement.interface import BASELINES, LEARNED, PLACERS, find_placer, place
from environment.placement import find_machine
from environment.placement.errors import PlacementError
from environment.placement.towers import batch_ms
from experiments.errors import require_at_least
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_seeds, chosen_seeds, run_units
from experiments.reproduce.placement.networks import (
    SECONDS,
    Network,
    add_networks,
    chosen_networks,
    graph_of,
    groups_of,
    problem_of,
)
from experiments.reproduce.table import UNDEFINED, Row, Table, interval_of_seeds
from experiments.runs.progress import ProgressDisplay

NAME = "placement-table2"
SEEDS = "0,1,2,3,4"
MACHINES = ("k80x2", "k80x4")
SEARCHES = ("annealing", *(name for name in LEARNED if name != "reinforce-ray"))
TOWERS = {"towers-sync": True, "towers-async": False}
"""Whether the towers of a row wait for one another."""
BUDGET = {"smoke": 40, "full": 20_000}
AGENT_BUDGET = {"smoke": 40, "full": 4_000}
VERSION = 2
"""Version of simulator and placers: it is raised when either changes, so that earlier units are not read."""
GRAPH_PPO_VERSION = 3
"""The same for PPO with a graph encoder."""
_ROWS = (*BASELINES, *SEARCHES, *TOWERS)

COLUMNS = {
    "network": "training step",
    "machine": "a Haswell host with 2 or 4 K80",
    **{name: f"{PLACERS[name].about} [ms]" for name in (*BASELINES, *SEARCHES)},
    "towers-sync": "synchronous data-parallel towers [ms for a batch]",
    "towers-async": "asynchronous data-parallel towers [ms for a batch]",
    "gain": "how much longer the best baseline takes than the best search or agent, mean of the seeds [%]",
    "low": "lower end of its 95 % interval over the seeds",
    "high": "upper end",
    "printed": "the published seconds: single CPU, single GPU, Scotch, MinCut, expert, RL",
    "printed gain": "as published [%]",
}
FORMATS = dict.fromkeys((*BASELINES, *SEARCHES, *TOWERS, "gain", "low", "high", "printed gain"), ".1f")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_networks(parser)
    add_seeds(parser, SEEDS)
    parser.add_argument("--placers", metavar="A,B,…", help=f"placers ({', '.join(_ROWS)})")
    add_budgets(parser)


def add_budgets(parser: argparse.ArgumentParser) -> None:
    """Adds the options for how much searches and agents may simulate."""
    parser.add_argument("--budget", type=int, help=f"simulations of annealing ({BUDGET['full']})")
    parser.add_argument("--agent-budget", type=int, help=f"simulations of an agent ({AGENT_BUDGET['full']})")


def chosen_budget(options: argparse.Namespace, placer: str) -> int:
    """Returns the most simulations of a placer.

    Raises:
      UserError: an option is below 1.
    """
    budget = options.budget or BUDGET[options.scale]
    agent_budget = options.agent_budget or AGENT_BUDGET[options.scale]
    require_at_least(1, budget=budget, **{"agent-budget": agent_budget})
    return (agent_budget if placer in LEARNED else budget) if placer in SEARCHES else 0


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Places every network on both machines; finished placements are not made again.

    Raises:
      PlacementError: a placer is unknown.
    """
    placers = [name.strip() for name in (options.placers or ",".join(_ROWS)).split(",")]
    for name in set(placers) - TOWERS.keys():
        find_placer(name)
    seeds, networks = chosen_seeds(options, SEEDS), chosen_networks(options)
    units = [
        Unit(
            f"{name} {machine} {placer} {seed}",
            partial(placed, network, machine, placer, chosen_budget(options, placer), seed),
        )
        for turn, seed in enumerate(seeds)  # the first seed of all cells comes first
        for placer in placers
        for name, network in networks.items()
        for machine in MACHINES
        if (placer in SEARCHES or not turn) and (placer not in TOWERS or network.towers)
    ]
    records = run_units(units, options, progress)
    rows = [
        row_of(name, network, machine, [each for each in records if _is_of(each, network, machine)])
        for name, network in networks.items()
        for machine in MACHINES
    ]
    notes = (
        f"Annealing has {chosen_budget(options, 'annealing'):,} simulations and an agent "
        f"{chosen_budget(options, 'ppo'):,}, seeds {', '.join(map(str, seeds))}; cells are means. "
        "“oom”: out of memory. A dash: the placer was not asked for, is not installed or finds no room."
    )
    return Table("Time of a step by placement", COLUMNS, FORMATS, rows, options.command_line, notes, finding(rows))


def placed(network: Network, machine: str, placer: str, budget: int, seed: int, progress: ProgressDisplay) -> Record:
    """Returns the record of one placement: its time, `oom`, or why the placer cannot be used."""
    settings = {
        "network": network.name,
        "model": network.model,
        "training": [network.optimiser, network.loss],
        "groups": network.groups,
        "scopes": list(network.scopes),
        "machine": machine,
        "placer": placer,
        "budget": budget,
        "seed": seed,
        "version": GRAPH_PPO_VERSION if placer == "ppo" else VERSION,
    }

    def work() -> Record:
        if placer in TOWERS:
            waits = TOWERS[placer]
            batch = batch_ms(graph_of(network), groups_of(network), find_machine(machine), synchronous=waits)
            return {**settings, "ms": batch, "missing": "", "assignment": [], "best": []}
        problem = problem_of(network, machine)
        best: list[tuple[int, float]] = []
        with progress.stage(f"{network.name} {machine} {placer} {seed}", total=budget) as bar:

            def report(done: int, ms: float) -> None:
                bar.update(done, best_ms=ms)
                if not best or ms < best[-1][1]:
                    best.append((done, ms))

            found = place(placer, problem, budget=budget, seed=seed, report=report)
        ms = found.outcome.ms if found.outcome.fits else None
        return {
            **settings,
            "ms": ms,
            "missing": problem.failure(found.outcome),
            "assignment": found.assignment.tolist(),
            "best": best,
        }

    try:
        return once(NAME, f"{network.name}-{machine}-{placer}-{seed}", settings, work, anywhere=True)
    except PlacementError as error:  # not installed, or it finds no room: nothing is kept
        return {**settings, "ms": math.nan, "missing": str(error), "assignment": [], "best": []}


def _is_of(record: Mapping[str, Any], network: Network, machine: str) -> bool:
    return bool(record["network"] == network.name and record["machine"] == machine)


def row_of(name: str, network: Network, machine: str, records: Sequence[Mapping[str, Any]]) -> Row:
    """Returns the row of a network on a machine."""
    row: dict[str, str | float] = {"network": name, "machine": machine}
    for placer in _ROWS:
        times = [each["ms"] for each in records if each["placer"] == placer]
        row[placer] = _cell(times)
    row |= _gain(row, records)
    printed = SECONDS.get((network.published, machine))
    if printed is None:
        return row | {"printed": UNDEFINED, "printed gain": UNDEFINED}
    seconds = (printed.single_cpu, printed.single_gpu, printed.scotch, printed.mincut, printed.expert, printed.rl)
    texts = ["oom" if math.isinf(each) else f"{each:.2f}" for each in seconds]
    return row | {"printed": ", ".join(texts), "printed gain": printed.gain}


def _gain(row: Row, records: Sequence[Mapping[str, Any]]) -> Row:
    """Returns by how much the best search or agent is ahead of the best baseline, with the interval of its seeds."""
    baseline, best = _least(row, BASELINES), _least(row, SEARCHES)
    if baseline is None or best is None:
        return dict.fromkeys(("gain", "low", "high"), UNDEFINED)
    gains = [100 * (float(row[baseline]) / each["ms"] - 1) for each in records if each["placer"] == best]
    return dict(zip(("gain", "low", "high"), interval_of_seeds(gains), strict=True))


def _cell(times: Sequence[float | None]) -> str | float:
    if not times or any(ms is not None and math.isnan(ms) for ms in times):
        return UNDEFINED
    known = [ms for ms in times if ms is not None]
    return sum(known) / len(known) if len(known) == len(times) else "oom"


def _least(row: Row, placers: Sequence[str]) -> str | None:
    """Returns the placer with the shortest time; None if none of them has one."""
    known = [placer for placer in placers if not isinstance(row[placer], str)]
    return min(known, key=lambda placer: float(row[placer]), default=None)


def finding(rows: Sequence[Row]) -> str:
    """Returns in how many rows searches or agents beat every baseline, in a sentence."""
    gains = [float(row["gain"]) for row in rows if not isinstance(row["gain"], str)]
    if not gains:
        return "No row has both a baseline and a search."
    return (
        f"The best search or agent is at least as fast as every baseline in {sum(gain >= 0 for gain in gains)} of "
        f"{len(gains)} rows, and 5 % faster or more in {sum(gain >= 5 for gain in gains)}."
    )
