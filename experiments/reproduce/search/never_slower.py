"""What `rlflow optimise --costs measured:<device>` makes of each zoo graph, and that nothing it makes is slower.

rlflow reproduce never-slower

A TASO search (Jia et al. 2019, alpha 1.05) under the measured cost model, from the model and from where whole passes of
rules lead; again, after the kernels that its gain rests on have been timed once more. The cheapest graphs that it finds
are measured end to end against the model, the fastest is measured anew, and what that does not confirm is given up for
the model itself. What is left is measured a last time for the table: of
measurements that decide something, those are kept that turned out well.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from environment import zoo
from environment.costs.prices.settings import setting_of
from environment.inputs.model_inputs import TIMED_ON
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from experiments.config.run import RunConfig, load_config
from experiments.config.tree import as_mapping
from experiments.pipeline.optimise import optimised
from experiments.reproduce import graphs
from experiments.reproduce.table import Table
from experiments.reproduce.units import Record, once, unit_path
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay
from experiments.runs.seeds import seed_for
from taso_ext import RuleSet
from taso_ext.onnx_io.reading import read_model

TABLE = "never-slower"
SEARCHES: Mapping[str, Record] = {
    "smoke": {"budget": 20, "rounds": 1, "sharpen_seconds": 2.0},
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
UNDEFINED = "–"
FORMATS = {"estimated": ".2f", "model_ms": ".2f", "minutes": ".1f"} | dict.fromkeys(
    ("ratio", "low", "high", "control"), ".3f"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside those of all tables."""
    graphs.add_option(parser)
    parser.add_argument("--device", default="cpu", help="where to measure (cpu)")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Optimises each graph; finished graphs are not optimised again."""
    names = graphs.chosen(options.graphs)
    rows = [optimised_graph(name, options.scale, options.device, progress) for name in names]
    limits = ", ".join(f"{key} {value}" for key, value in SEARCHES[options.scale].items())
    return Table(
        f"What rlflow optimise --costs measured:{options.device} makes of the zoo",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{verdict(rows)} taso search, {limits}; {len(RuleSet.default())} rules. The graphs: "
        f"`{unit_path(TABLE, 'GRAPH', {}).parent}`.",
    )


def verdict(rows: Sequence[Record]) -> str:
    """One sentence on which results are slower than their models."""
    slower = [row["graph"] for row in rows if row["low"] != UNDEFINED and row["low"] > 1]
    same = [row["graph"] for row in rows if row["low"] == UNDEFINED]
    return (
        f"Slower than its model beyond the interval: {', '.join(slower) or 'none'}. The model itself: "
        f"{', '.join(same) or 'none'}."
    )


def optimised_graph(name: str, scale: str, device: str, progress: ProgressDisplay) -> Record:
    """The row of a graph; its result is at `result_path`."""
    path = result_path(name, scale, device)

    def work() -> Record:
        result, _ = optimised(_request(name, scale, device), progress)
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
    if not path.is_file():  # it has been removed: the run, which is finished, writes it anew
        optimised(_request(name, scale, device), progress)
    return record


def _request(name: str, scale: str, device: str) -> Request:
    path = result_path(name, scale, device)
    return Request(name, path, config_of(scale, device), path.with_suffix(""), (TABLE, name))


def _measured(name: str, scale: str, device: str) -> Record:
    """A result against its model, by a measurement that decides nothing."""
    result, config = result_path(name, scale, device), config_of(scale, device)
    runtime = OnnxRuntime(config.device, config.measure.threads, config.measure.level)
    found = measure(
        Variant("model", runtime, zoo.build(name)),
        [Variant("result", runtime, read_model(result))],
        Effort(
            resolution=config.measure.resolution,
            pairs=config.measure.pairs,
            sessions=config.measure.sessions,
            seed=seed_for(config.seed, TABLE),
        ),
    )
    ratio, control = found.ratio, found.control
    assert control is not None  # the effort has one
    values = found.reference.ms.value, ratio.value, ratio.low, ratio.high, control.ratio.value
    return dict(zip(MEASURED, values, strict=True))


def config_of(scale: str, device: str) -> RunConfig:
    """Of each run."""
    values = {
        "controller": "taso",
        "costs": f"measured:{device}",
        "device": device,
        "search": SEARCHES[scale],
        "measure": MEASUREMENTS[scale],
    }
    return load_config("best", values, [])


def settings_of(scale: str, device: str) -> Record:
    """All that a result depends on."""
    setting, config = setting_of(OnnxRuntime(device)), as_mapping(config_of(scale, device))
    return {"config": config, "setting": str(setting), "rules": RuleSet.default().fingerprint, "feeds": TIMED_ON}


def result_path(name: str, scale: str, device: str) -> Path:
    """Where the result of a graph is left."""
    return unit_path(TABLE, f"{name}-{scale}", settings_of(scale, device)).with_suffix(".onnx")
