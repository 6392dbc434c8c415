"""The results of `rlflow optimise --costs measured:<device>` on the zoo, each measured against its model.

rlflow reproduce never-slower

A TASO search (Jia et al. 2019, alpha 1.05) runs under the measured cost model. At full scale it starts from the model
and from the graph to which whole passes of rules lead; then the kernels on which its gain rests are timed once more,
and it runs again. The cheapest graphs that it finds are measured end to end against the model, and the fastest one is
measured a second time. If that does not confirm that it is faster, the result is the model itself.

The result is measured a last time for the table, because the measurements before are biased: they decided which graph
is kept, and so the kept ones are those that turned out well.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from environment import zoo
from environment.costs.prices.settings import setting_of
from environment.inputs import TIMED_ON
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from experiments.config.run import RunConfig, load_config
from experiments.config.tree import as_mapping
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once, unit_path
from experiments.pipeline.measure import effort_of, runtime_of
from experiments.pipeline.optimise import optimise
from experiments.reproduce.options import add_device, add_graphs, chosen_graphs, run_units
from experiments.reproduce.table import UNDEFINED, Table
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.reading import read_model

TABLE = "never-slower"
SEARCHES: Mapping[str, Record] = {
    "smoke": {"budget": 20, "rounds": 1, "retiming_seconds": 2.0},
    "full": {"budget": 1000, "seconds": 360, "passes": True},
}
MEASUREMENTS: Mapping[str, Record] = {"smoke": {"pairs": 24}, "full": {"pairs": 150, "sessions": 5, "seconds": 120}}

COLUMNS = {
    "graph": "as the zoo builds it",
    "estimated": "improvement of the cheapest graph found, by the measured cost model [%]",
    "model_ms": "one inference of the model",
    "ratio": "time of the result over the model's, below 1 is faster; no figure where the result is the model",
    "low": "95 % interval of the ratio, lower end",
    "high": "upper end",
    "control": "the model against itself, measured at the same time",
    "steps": "rewrites of the result",
    "minutes": "for everything, prices that were not known before included",
    "choice": "what the clock had to say, where it is not simply the cheapest graph",
}
MEASURED = ("model_ms", "ratio", "low", "high", "control")
FORMATS = {"estimated": ".2f", "model_ms": ".2f", "minutes": ".1f"} | dict.fromkeys(
    ("ratio", "low", "high", "control"), ".3f"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser)
    add_device(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Optimises each graph; finished graphs are not optimised again."""
    names = chosen_graphs(options.graphs)
    units = [Unit(name, partial(optimised_graph, name, options.scale, options.device)) for name in names]
    rows = run_units(units, options, progress, measures=True)
    limits = ", ".join(f"{key} {value}" for key, value in SEARCHES[options.scale].items())
    return Table(
        f"What rlflow optimise --costs measured:{options.device} makes of the zoo",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{verdict(rows)} taso search, {limits}; {len(RuleSet.default())} rules. The graphs: "
        f"`{unit_path(TABLE, 'GRAPH', {}).parent}`.",
        verdict(rows),
    )


def verdict(rows: Sequence[Record]) -> str:
    """Returns which results are slower than their models, and which are the models themselves, in two sentences."""
    slower = [row["graph"] for row in rows if row["low"] != UNDEFINED and row["low"] > 1]
    same = [row["graph"] for row in rows if row["low"] == UNDEFINED]
    return (
        f"Slower than its model beyond the interval: {', '.join(slower) or 'none'}. The model itself: "
        f"{', '.join(same) or 'none'}."
    )


def optimised_graph(name: str, scale: str, device: str, progress: ProgressDisplay) -> Record:
    """Optimises a graph unless this was done before; returns its row and leaves its result at `result_path`."""
    path = result_path(name, scale, device)

    def work() -> Record:
        result, _ = optimise(_request(name, scale, device), progress)
        return {
            "graph": name,
            "estimated": max(result.improvements.values()),
            **(_measured(name, scale, device) if result.measured else dict.fromkeys(MEASURED, UNDEFINED)),
            "steps": sum(result.rules_applied.values()),
            "minutes": sum(result.stage_seconds.values()) / 60,
            "choice": result.selection,
            "rules": result.rules_applied,
        }

    record = once(TABLE, f"{name}-{scale}", settings_of(scale, device), work)
    if not path.is_file():  # it was removed; the run is finished and writes it again
        optimise(_request(name, scale, device), progress)
    return record


def _request(name: str, scale: str, device: str) -> Request:
    path = result_path(name, scale, device)
    return Request(name, path, config_of(scale, device), path.with_suffix(""), (TABLE, name))


def _measured(name: str, scale: str, device: str) -> Record:
    """Measures a result against its model; no decision depends on this measurement."""
    result, config = result_path(name, scale, device), config_of(scale, device)
    runtime = runtime_of(config)
    found = measure(
        Variant("model", runtime, read_model(zoo.build(name))),
        [Variant("result", runtime, read_model(result))],
        effort_of(config, TABLE, control=True),
    )
    ratio, control = found.ratio, found.control
    assert control is not None  # the effort has one
    values = found.reference.ms.value, ratio.value, ratio.low, ratio.high, control.ratio.value
    return dict(zip(MEASURED, values, strict=True))


def config_of(scale: str, device: str) -> RunConfig:
    """Returns the configuration of a run."""
    values = {
        "controller": "taso",
        "costs": f"measured:{device}",
        "device": device,
        "search": SEARCHES[scale],
        "measure": MEASUREMENTS[scale],
    }
    return load_config("best", values, [])


def settings_of(scale: str, device: str) -> Record:
    """Returns everything that a result depends on."""
    setting, config = setting_of(OnnxRuntime(device)), as_mapping(config_of(scale, device))
    return {"config": config, "setting": str(setting), "rules": RuleSet.default().fingerprint, "feeds": TIMED_ON}


def result_path(name: str, scale: str, device: str) -> Path:
    """Returns the path of the result of a graph."""
    return unit_path(TABLE, f"{name}-{scale}", settings_of(scale, device)).with_suffix(".onnx")


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
    def model() -> CheckedModel:
        optimised_graph(name, scale, device, progress)
        return read_model(result_path(name, scale, device))

    return OurBest(
        {"search": settings_of(scale, device)},
        f"the graphs of `rlflow reproduce {TABLE} --scale {scale}`",
        model,
    )


def _of_file(name: str, directory: Path) -> OurBest:
    path = directory / f"{name}.onnx"
    if not path.is_file():
        raise UserError(
            f"There is no {path}: --ours names a directory that holds an ONNX file for each graph of the table. Leave "
            f"it out to search for the graphs instead."
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return OurBest({"file": digest}, f"the graphs in {directory}", lambda: read_model(path))
