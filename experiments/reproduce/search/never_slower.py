"""The results of `rlflow optimise`, with its defaults, each measured against its model.

rlflow reproduce never-slower
rlflow reproduce never-slower --models my-models other.onnx

The clock chooses the graph for five minutes. The end-to-end measurement of the run then decides whether it is kept: a
graph that is not faster gives way to the model itself. A run takes up to ten minutes. The ratio in the table comes from
yet another measurement, which decides nothing; see `experiments.reproduce.search.default_runs`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from environment.statistics.sequential import Verdict
from experiments.errors import UserError
from experiments.executors.units import Record, unit_path
from experiments.reproduce.options import add_device, add_graphs, run_units
from experiments.reproduce.search.default_runs import (
    CHANGES,
    RESULT_COLUMNS,
    UNITS,
    DefaultRun,
    add_models,
    chosen_models,
    digest_of,
    finished_run,
    geometric_mean,
)
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.reading import read_model

TABLE = "never-slower"
COLUMNS = {
    "graph": "as the zoo builds it, or as its file has it",
    "estimated": "improvement of the graph found, by the measured cost model [%]",
    "model_ms": "one inference of the model",
    **RESULT_COLUMNS,
    "choice": "what the clock had to say, where it has not confirmed the graph",
}
FORMATS = {"estimated": ".2f", "model_ms": ".2f", "minutes": ".1f"} | dict.fromkeys(
    ("ratio", "low", "high", "control"), ".3f"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser)
    add_models(parser)
    add_device(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Optimises each model; finished models are not optimised again."""
    runs = [DefaultRun(model, options.scale, options.device) for model in chosen_models(options)]
    rows = run_units([run.unit for run in runs], options, progress, measures=True)
    seconds = runs[0].config.search.seconds
    return Table(
        f"What rlflow optimise makes of models on {options.device}",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{verdict(rows)} The defaults{' with fewer samples' * bool(CHANGES[options.scale])}: {seconds:g} s of search "
        f"by the clock; {len(RuleSet.default())} rules. The results: `{unit_path(UNITS, 'GRAPH', {}).parent}`.",
        verdict(rows),
    )


def verdict(rows: Sequence[Record]) -> str:
    """Returns which results are slower than their models, which are the models themselves, and the mean ratio."""
    slower = [row["graph"] for row in rows if row["verdict"] == Verdict.SLOWER]
    same = [row["graph"] for row in rows if row["ratio"] == UNDEFINED]
    return (
        f"Slower than its model beyond noise: {', '.join(slower) or 'none'}. The model itself: "
        f"{', '.join(same) or 'none'}. Geometric mean of all ratios: {geometric_mean(rows):.3f}."
    )


@dataclass(frozen=True)
class OurBest:
    """Our best graph of a zoo network on this machine, which may still have to be found.

    Attributes:
      settings: everything that it depends on, for units of work that use it.
      words: where it comes from, as text for a table.
      model: returns it; finding it can take minutes and may raise ModelError.
    """

    settings: Record
    words: str
    model: Callable[[], CheckedModel]


def our_best(name: str, scale: str, device: str, directory: Path | None, progress: ProgressDisplay) -> OurBest:
    """Returns our best graph of a zoo network: from a search whose result the clock confirms, or from the user's file.

    Args:
      scale: the scale of the search, `smoke` or `full`.
      device: the device that the graph is made for.
      directory: the directory of the user's file `<name>.onnx`; None: search.
    Raises:
      UserError: the directory has no such file.
    """
    return _of_search(name, scale, device, progress) if directory is None else _of_file(name, directory)


def _of_search(name: str, scale: str, device: str, progress: ProgressDisplay) -> OurBest:
    run = DefaultRun(name, scale, device)

    def model() -> CheckedModel:
        finished_run(run, progress)
        return run.result(progress)

    return OurBest({"search": run.settings}, f"the graphs of `rlflow reproduce {TABLE} --scale {scale}`", model)


def _of_file(name: str, directory: Path) -> OurBest:
    path = directory / f"{name}.onnx"
    if not path.is_file():
        raise UserError(
            f"There is no {path}: --ours names a directory that holds an ONNX file for each graph of the table. Leave "
            f"it out to search for the graphs instead."
        )
    return OurBest({"file": digest_of(path)}, f"the graphs in {directory}", lambda: read_model(path))
