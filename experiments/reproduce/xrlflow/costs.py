"""The cost model against the clock (X-RLflow, Table 1): the sum of a graph's kernels, and the time of the whole graph.

rlflow reproduce xrlflow-table1

Every kernel is timed by itself, and the graph as a whole, in the same runtime on the same thread. A graph takes a few
minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from environment import GraphSubstitutionEnv
from environment.costs.measured.cost_model import Measured
from environment.costs.prices.settings import setting_of
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_device, add_graphs, chosen_graphs, require_one_process, run_units
from experiments.reproduce.table import UNDEFINED, Table
from experiments.reproduce.xrlflow.printed import DISCREPANCY
from experiments.reproduce.xrlflow.rows import GRAPHS, QUICK
from experiments.runs.progress import ProgressDisplay
from experiments.studies.setting import fingerprint

NAME = "xrlflow-table1"
EFFORTS = {
    "smoke": Effort(resolution=None, pairs=3, sessions=1, control=False),
    "full": Effort(resolution=0.01, pairs=200, seconds=120, sessions=3, control=False),
}
COLUMNS = {
    "graph": "cleaned in full",
    "summed": "sum of the prices of its kernels [ms]",
    "measured": "time of the whole graph [ms]",
    "low": "95 % interval of this time, lower end",
    "high": "upper end",
    "difference": "of the sum from the time [%]",
    "printed": "the paper's difference, of TASO's cost model on a GPU [%]",
}
FORMATS = dict.fromkeys(("summed", "measured", "low", "high"), ".4g") | {"difference": "+.1f"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))
    add_device(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Times each graph and its kernels; finished graphs are not timed again.

    Raises:
      UserError: more than one process.
    """
    require_one_process(options)
    names, runtime = chosen_graphs(options, GRAPHS, QUICK), OnnxRuntime(options.device)
    units = [Unit(name, partial(timed, name, options.device, options.scale)) for name in names]
    rows = run_units(units, options, progress, measures=True)
    return Table(
        "The sum of kernels against the whole graph",
        COLUMNS,
        FORMATS,
        [{**row, "printed": DISCREPANCY.get(row["graph"], UNDEFINED)} for row in rows],
        options.command_line,
        f"{runtime.label}. Printed: Table 1 of X-RLflow.",
        finding(rows),
    )


def timed(name: str, device: str, scale: str, progress: ProgressDisplay) -> Record:
    """Returns the row of a graph; a finished one is not timed again."""
    runtime = OnnxRuntime(device)
    settings = {"setting": str(setting_of(runtime)), "fingerprint": fingerprint(name), "scale": scale}

    def work() -> Record:
        env = GraphSubstitutionEnv(name, costs=Measured(device, predict=False))
        model = env.model.export_checked(env.model.graph)
        ms = measure(Variant(name, runtime, model), [], EFFORTS[scale]).reference.ms
        summed = env.initial_cost.ms
        return {
            "settings": settings,
            "graph": name,
            "summed": summed,
            "measured": ms.value,
            "low": ms.low,
            "high": ms.high,
            "difference": 100 * (summed / ms.value - 1),
        }

    return once(NAME, f"{name}-{scale}", settings, work)


def finding(rows: Sequence[Record]) -> str:
    """Returns how far sums are from times, in a sentence."""
    sizes = [abs(float(row["difference"])) for row in rows]
    mean = sum(sizes) / len(sizes)
    return f"Sums of kernels are {mean:.1f} % from the times of whole graphs on average, {max(sizes):.1f} % at most."
