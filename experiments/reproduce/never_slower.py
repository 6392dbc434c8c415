"""What `rlflow optimise --costs measured:<device>` makes of each zoo graph, and that nothing it makes is slower.

rlflow reproduce never-slower

A TASO search (Jia et al. 2019, alpha 1.05) under the measured cost model, from the model and from where whole passes of
rules lead. The cheapest graphs that it finds are measured end to end against the model, the fastest is measured anew,
and what that does not confirm is given up for the model itself. The graphs are left beside the table, as GRAPH.onnx.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.config import RunConfig, load_config
from experiments.optimise import optimised
from experiments.progress import ProgressDisplay
from experiments.reproduce import graphs
from experiments.reproduce.tables import Table
from experiments.reproduce.units import Record, once, unit_path
from experiments.request import Request
from taso_ext import RuleSet

TABLE = "never-slower"
SEARCHES = {"smoke": {"budget": 20}, "full": {"budget": 1000, "seconds": 240, "passes": True}}

COLUMNS = {
    "graph": "as the zoo builds it",
    "estimated": "improvement of the cheapest graph found, by the measured cost model [%]",
    "model_ms": "one inference of the model",
    "ratio": "time of the result over the model's, below 1 is faster; 1 where the result is the model",
    "low": "95 % interval of the ratio, lower end",
    "high": "upper end",
    "control": "the model against itself, measured at the same time",
    "steps": "rewrites of the result",
    "minutes": "for everything, prices that were not known before included",
    "choice": "what the clock had to say, where it is not simply the cheapest graph",
}
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
    slower = [row["graph"] for row in rows if row["low"] > 1]
    return Table(
        TABLE,
        f"What rlflow optimise --costs measured:{options.device} makes of the zoo",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"Slower than its model beyond the interval: {', '.join(slower) or 'none'}. taso search, {limits}; "
        f"{len(RuleSet.default())} rules.",
    )


def optimised_graph(name: str, scale: str, device: str, progress: ProgressDisplay) -> Record:
    """The row of a graph; its result is at `result_path`."""
    path = result_path(name, scale, device)

    def work() -> Record:
        request = Request(name, path, config_of(scale, device), path.with_suffix(""), (TABLE, name))
        result, _ = optimised(request, progress)
        measured = result.measured
        return {
            "graph": name,
            "estimated": max(result.improvements.values()),
            "model_ms": measured.before_ms if measured else result.before.cost_ms,
            "ratio": measured.ratio if measured else 1.0,
            "low": measured.low if measured else 1.0,
            "high": measured.high if measured else 1.0,
            "control": measured.control_ratio if measured and measured.control_ratio else 1.0,
            "steps": sum(result.rules_applied.values()),
            "minutes": sum(result.stage_seconds.values()) / 60,
            "choice": result.selection,
            "rules": result.rules_applied,
        }

    record = once(TABLE, f"{name}-{scale}", settings_of(scale, device), work)
    return record if path.is_file() else work()  # the run is finished; only its result has been removed


def config_of(scale: str, device: str) -> RunConfig:
    """Of each run."""
    values = {
        "controller": "taso",
        "costs": f"measured:{device}",
        "device": device,
        "search": SEARCHES[scale],
    }
    return load_config("best", values, [])


def settings_of(scale: str, device: str) -> Record:
    """All that a result depends on."""
    return {"search": SEARCHES[scale], "device": device, "rules": RuleSet.default().fingerprint}


def result_path(name: str, scale: str, device: str) -> Path:
    """Where the result of a graph is left."""
    return unit_path(TABLE, f"{name}-{scale}", settings_of(scale, device)).with_suffix(".onnx")
