"""Placements by colour, a Gantt chart of computation and copies, and the best time by simulations.

rlflow reproduce placement-figures
rlflow reproduce placement-figures inception-v3 --placers annealing

It draws the placements of `placement-table2`, whose finished ones are not made again. Colours are devices. The upper
part of a picture has the groups in their order, as wide as their time on the host. The middle is the simulated step:
above, what each device computes, and below, the copies that leave it. The lower part is the best time so far. A picture
takes seconds; a search that was not made yet takes minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure as Picture

from environment.placement import PlacementProblem
from environment.placement.features import group_ms
from environment.placement.problem import HOST
from experiments.executors.local import Unit
from experiments.reports.plots import save
from experiments.reproduce.options import add_seed, chosen_seed, run_units
from experiments.reproduce.placement.networks import add_networks, chosen_networks, problem_of
from experiments.reproduce.placement.table2 import MACHINES, add_budgets, chosen_budget, placed
from experiments.reproduce.table import Figure, Row, Table
from experiments.runs.progress import ProgressDisplay

COLUMNS = {
    "network": "training step",
    "machine": "a Haswell host with 2 or 4 K80",
    "placer": "see placement-table2",
    "step": "simulated [ms]",
    "devices": "devices that compute something",
    "copies": "tensors that go from one device to another",
    "busy": "share of the step in which the busiest device computes [%]",
}
FORMATS = {"step": ".2f", "busy": ".1f"}
_DEFAULT = "heft,annealing,reinforce"
_COLOURS = matplotlib.colormaps["tab10"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_networks(parser)
    add_seed(parser)
    parser.add_argument("--placers", metavar="A,B,…", default=_DEFAULT, help=f"placers ({_DEFAULT})")
    add_budgets(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Draws every placement, and returns the table of their simulated steps."""
    seed = chosen_seed(options)
    cases = [
        (name, network, machine, placer.strip())
        for name, network in chosen_networks(options).items()
        for machine in MACHINES
        for placer in options.placers.split(",")
    ]
    units = [
        Unit(
            " ".join((name, machine, placer)),
            partial(placed, network, machine, placer, chosen_budget(options, placer), seed),
        )
        for name, network, machine, placer in cases
    ]
    rows: list[Row] = []
    figures: dict[str, Figure] = {}
    for (name, network, machine, placer), record in zip(cases, run_units(units, options, progress), strict=True):
        if not record["assignment"]:
            progress.note(f"{placer} is left out: {record['missing']}")
            continue
        problem = problem_of(network, machine)
        rows.append({"network": name, "machine": machine, "placer": placer, **described(problem, record)})
        title = f"{name} on {machine}, placed by {placer}"
        figures[f"{name}-{machine}-{placer}"] = partial(draw, problem, record, title)
    most = {placer: chosen_budget(options, placer) for placer in ("annealing", "ppo")}
    notes = f"Annealing: {most['annealing']:,} simulations, agents: {most['ppo']:,}; seed {seed}."
    return Table("Placements", COLUMNS, FORMATS, rows, options.command_line, notes, "", figures)


def described(problem: PlacementProblem, record: Mapping[str, Any]) -> dict[str, float | int]:
    """Returns the figures of one placement."""
    outcome = problem.evaluate(record["assignment"])
    return {
        "step": outcome.ms,
        "devices": int((outcome.busy_ms > 0).sum()),
        "copies": outcome.copies,
        "busy": 100 * float(outcome.busy_ms.max()) / outcome.ms,
    }


def draw(problem: PlacementProblem, record: Mapping[str, Any], title: str, file: Path) -> None:
    """Draws one placement into a file."""
    figure = Picture(figsize=(9, 8), layout="constrained")
    groups, gantt, curve = figure.subplots(3, 1, height_ratios=(1, 4, 2))
    names = [device.name for device in problem.machine.devices]
    draw_groups(groups, problem, record["assignment"])
    groups.set_title(title)
    draw_gantt(gantt, problem, record["assignment"], names)
    draw_curve(curve, record["best"])
    save(figure, file)


def draw_groups(axes: Any, problem: PlacementProblem, assignment: Sequence[int]) -> None:
    """Draws the groups in their order, coloured by device."""
    widths = group_ms(problem)[:, HOST]
    begins = np.cumsum(widths) - widths
    axes.barh(0, widths, left=begins, color=[_COLOURS(device) for device in assignment])
    axes.set_yticks([])
    axes.set_xlim(0, widths.sum())
    axes.set_xlabel("groups in their order, by their time on the host [ms]")


def draw_gantt(axes: Any, problem: PlacementProblem, assignment: Sequence[int], names: Sequence[str]) -> None:
    """Draws the tasks of each device, and the copies that leave it in the colour of where they go."""
    timeline = problem.timeline(np.array(assignment, np.int32))
    for device in range(len(names)):
        own = np.flatnonzero(timeline.devices == device)
        spans = [(timeline.begin_ms[task], timeline.end_ms[task] - timeline.begin_ms[task]) for task in own]
        axes.broken_barh(spans, (device - 0.05, 0.4), color=_COLOURS(device))
        copies = [copy for copy in timeline.copies if copy.source == device]
        axes.broken_barh(
            [(copy.begin_ms, copy.end_ms - copy.begin_ms) for copy in copies],
            (device - 0.4, 0.25),
            color=[_COLOURS(copy.destination) for copy in copies],
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0)
    axes.set_xlabel("time [ms]")


def draw_curve(axes: Any, best: Sequence[Sequence[float]]) -> None:
    """Draws the best time so far by simulations."""
    if best:
        axes.step([count for count, _ in best], [ms for _, ms in best], where="post")
        axes.set_xscale("log")
    axes.set_xlabel("simulations" if best else "no search")
    axes.set_ylabel("best time [ms]")
