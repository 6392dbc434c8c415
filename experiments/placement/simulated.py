"""Placements of a model on a simulated machine, one row for each placer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from controller.placement.interface import LEARNED, PLACERS, Placed, find_placer
from environment.placement.errors import PlacementError
from environment.placement.machine import Machine, find_machine
from environment.placement.problem import PlacementProblem
from experiments.placement.loading import load_operators, placed_by
from experiments.runs.progress import ProgressDisplay


@dataclass(frozen=True)
class Row:
    """What one placer finds.

    Attributes:
      placer: its name.
      placed: its placement; None if it cannot be used.
      reason: why it cannot be used, or where memory is missing; else empty.
    """

    placer: str
    placed: Placed | None
    reason: str = ""

    @property
    def ms(self) -> float | None:
        """The time of a step; None if the placement does not fit."""
        return None if self.placed is None or not self.placed.outcome.fits else self.placed.outcome.ms

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        found = {"placer": self.placer, "step_ms": self.ms, "reason": self.reason}
        if self.placed is None:
            return found
        outcome = self.placed.outcome
        return found | {
            "assignment": self.placed.assignment.tolist(),
            "peak_bytes": outcome.peak_bytes.tolist(),
            "busy_ms": outcome.busy_ms.tolist(),
            "copied_bytes": outcome.copied_bytes,
            "copies": outcome.copies,
        }


@dataclass(frozen=True)
class SimulatedTable:
    """The placements of one model on one machine."""

    model: str
    machine: Machine
    problem: PlacementProblem
    rows: Sequence[Row]
    is_equal: ClassVar[bool] = True
    """Nothing runs, so nothing can differ."""

    def to_json(self) -> list[dict[str, Any]]:
        """Returns plain JSON values."""
        return [row.to_json() for row in self.rows]

    def lines(self) -> list[str]:
        """Returns a table as text, the fastest placement marked."""
        known = [row.ms for row in self.rows if row.ms is not None]
        best = min(known, default=None)
        lines = [
            f"{self.model} on {self.machine.name}, simulated: {len(self.problem.graph)} operators in "
            f"{self.problem.num_groups} groups",
            "",
            "| placer | step [ms] | copies | copied [MB] | devices in use |",
            "|---|---:|---:|---:|---:|",
        ]
        for row in self.rows:
            if row.placed is None or row.ms is None:
                lines.append(f"| {row.placer} | – | | | |")
                continue
            outcome, mark = row.placed.outcome, "**" if row.ms == best else ""
            figures = (outcome.copies, f"{outcome.copied_bytes / 1e6:.3g}", int((outcome.busy_ms > 0).sum()))
            lines.append(f"| {row.placer} | {mark}{row.ms:.4g}{mark} | {' | '.join(map(str, figures))} |")
        reasons = [f"{row.placer}: {row.reason}" for row in self.rows if row.reason]
        return [*lines, "", *reasons] if reasons else lines


def simulate_model(options: argparse.Namespace, progress: ProgressDisplay) -> SimulatedTable:
    """Places the model of an `rlflow place --machine` command by each placer.

    Raises:
      UserError, ModelError, PlacementError: the input is bad, or no placement fits into memory.
    """
    machine = find_machine(options.machine)
    usual = [name for name in PLACERS if name not in LEARNED]
    names = usual if options.placers is None else [name.strip() for name in options.placers.split(",")]
    for name in names:
        find_placer(name)
    loaded = load_operators(options, progress, with_values=False)
    whole = PlacementProblem.of(
        loaded.graph, machine, loaded.grouped(options, loaded.graph.operator_ms(_host(machine)))
    )
    rows = [_row(name, whole, options, progress) for name in names]
    fitting = [row for row in rows if row.ms is not None]
    if not fitting:
        reasons = "; ".join(f"{row.placer}: {row.reason}" for row in rows)
        raise PlacementError(
            f"no placement of {loaded.name} fits on machine '{machine.name}': {reasons.rstrip('.')}. Use smaller "
            "batches, more devices or devices with more memory."
        )
    return SimulatedTable(loaded.name, machine, whole, rows)


def _host(machine: Machine) -> Any:
    from taso_ext import CostModel

    return CostModel.roofline(machine.devices[0].costs.partition(":")[2])


def _row(name: str, problem: PlacementProblem, options: argparse.Namespace, progress: ProgressDisplay) -> Row:
    try:
        placed = placed_by(name, problem, options, progress)
    except PlacementError as error:
        if options.placers is not None:
            raise
        return Row(name, None, str(error))
    return Row(name, placed, problem.failure(placed.outcome))
