"""Groups of operators that ONNX Runtime has fused operators for: what fusing is predicted to save, and what it saves.

rlflow reproduce fusion-groups

Every group of each network is written out as a model of its operators and as one of the fused operator, each shape
once, up to a number for each kind. Both are timed in interleaved pairs on one thread of this CPU. ONNX Runtime runs
them at its level `disabled`, where it fuses nothing by itself. The prediction is that of the prices by which fusion
plans are searched, for the device `xeon`: the kernels of the operators, each for itself, against one kernel. The rank
correlation says whether a search that follows the prices fuses first what pays most here. A group takes up to six
seconds, all of them about five minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from environment import zoo
from environment.fusion.fused_operators import SLOW_ON_CPUS
from environment.fusion.single_groups import RUNTIME, SingleGroup, single_groups
from environment.measurement.effort import Effort
from environment.statistics.intervals import Estimate, bootstrap
from environment.statistics.paired import spearman
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.reproduce.fusion.units import RULES
from experiments.reproduce.options import add_graphs, chosen_graphs, run_units
from experiments.reproduce.table import UNDEFINED, Experiment, Table
from experiments.runs.progress import ProgressDisplay
from experiments.runs.signals import raise_if_received
from taso_ext import OnnxModel

TABLE = "fusion-groups"
DEVICE = "xeon"
GRAPHS: tuple[str, ...] = ("squeezenet1.1", "resnet18", "bert-base", "vit-base", "dalle-mini", "transformer-transducer")
GRAPHS += ("mnasnet", "ssd-mobilenet", "graph-network", "dlrm")
MOST = {"smoke": 1, "full": 6}
"""The most groups of one kind in one network; they are taken at equal distances."""
EFFORTS = {
    "smoke": Effort(resolution=None, pairs=4, sessions=2, control=False),
    "full": Effort(resolution=0.02, pairs=20, sessions=4, seconds=6, control=False),
}
ALL = "all"
COLUMNS = {
    "group": "its operators",
    "graph": "the first network that has it",
    "fused": "the operator of ONNX Runtime that stands for them",
    "unfused_ms": "time of the operators, one thread",
    "measured": "time that the fused operator saves [%]",
    "low": "lower end of the 95 % interval",
    "high": "upper end",
    "predicted": "time that one kernel saves, by the prices [%]",
    "measured_us": "time that the fused operator saves [µs]",
    "predicted_us": "the same, by the prices [µs]",
}
SUMMARY = {
    "group": "operators of the groups",
    "fused": "the operator of ONNX Runtime that stands for them",
    "groups": "number of shapes",
    "measured": "time that fused operators save, mean of the groups [%]",
    "predicted": "the same, by the prices [%]",
    "faster": "groups whose fused operator is faster beyond noise",
    "slower": "groups whose fused operator is slower beyond noise",
    "relative": "rank correlation (Spearman) of predicted and measured saving in percent",
    "relative_interval": "its 95 % interval over the groups",
    "absolute": "rank correlation of predicted and measured saving in µs",
    "absolute_interval": "its 95 % interval over the groups",
    "bytes": "rank correlation of the measured saving in µs with the bytes that are no longer written",
}
FORMATS = {
    **dict.fromkeys(("measured", "low", "high", "predicted", "measured_us", "predicted_us"), ".1f"),
    **dict.fromkeys(("relative", "absolute", "bytes"), ".2f"),
    "unfused_ms": ".3f",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, ", ".join(GRAPHS))


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Times the groups of each network; finished groups are not timed again."""
    units = [Unit(name, partial(timed_groups, name, options.scale)) for name in chosen_graphs(options, GRAPHS)]
    found = [each for record in run_units(units, options, progress, measures=True) for each in record["groups"]]
    records = list({each["signature"]: each for each in reversed(found)}.values())[::-1]
    return Table(
        "What fused operators save, predicted and measured",
        COLUMNS,
        FORMATS,
        [_row(record) for record in records],
        options.command_line,
        f"{RUNTIME.label}, for fused and unfused models alike. Prices of `{DEVICE}`.",
        finding(records),
        figures={ALL: partial(_draw, records)} if records else {},
        summary=Table("", SUMMARY, FORMATS, summary_rows(records), ""),
    )


def timed_groups(name: str, scale: str, progress: ProgressDisplay) -> Record:
    """Returns the figures of the groups of one network; each group is a unit that is kept."""
    model = OnnxModel.load(zoo.build(name))
    chosen = _spread(single_groups(model.export_checked(model.graph)), MOST[scale])
    records = []
    with progress.stage(f"groups of {name}", max(len(chosen), 1)) as bar:
        for done, group in enumerate(chosen, 1):
            raise_if_received()
            records.append({"graph": name, **_timed(group, scale)})
            bar.update(done)
    return {"groups": records}


def _spread(groups: Sequence[SingleGroup], most: int) -> list[SingleGroup]:
    """Returns up to `most` groups of each kind, at equal distances in the order of the network."""
    chosen: list[SingleGroup] = []
    for kind in dict.fromkeys(group.kind for group in groups):
        own = [group for group in groups if group.kind == kind]
        places = np.unique(np.linspace(0, len(own) - 1, min(most, len(own))).round().astype(int))
        chosen += [own[place] for place in places]
    return chosen


def _timed(group: SingleGroup, scale: str) -> Record:
    settings = {"rules": RULES, "signature": group.signature, "scale": scale, "runtime": RUNTIME.label}

    def work() -> Record:
        apart, together = group.predicted_ms(DEVICE)
        timing = group.timed(EFFORTS[scale])
        return {
            "unfused_ms": timing.reference.ms.value,
            "ratio": [timing.ratio.value, timing.ratio.low, timing.ratio.high],
            "predicted_ms": [apart, together],
            "bytes": group.inner_bytes,
        }

    known = {"group": group.kind, "fused": group.fused_operator, "signature": group.signature}
    return {**once(TABLE, f"{group.kind}-{group.signature}", settings, work), **known}


def _row(record: Record) -> Record:
    ratio, low, high = record["ratio"]
    apart, together = record["predicted_ms"]
    return {
        **{key: record[key] for key in ("group", "graph", "fused", "unfused_ms", "bytes")},
        "measured": 100 * (1 - ratio),
        "low": 100 * (1 - high),
        "high": 100 * (1 - low),
        "predicted": 100 * (1 - together / apart),
        "measured_us": 1e3 * record["unfused_ms"] * (1 - ratio),
        "predicted_us": 1e3 * (apart - together),
    }


def summary_rows(records: Sequence[Record]) -> list[Record]:
    """Returns a row for each kind of group, and one for all of them."""
    rows = [_row(record) for record in records]
    kinds = dict.fromkeys((row["group"], row["fused"]) for row in rows)
    own = [[row for row in rows if (row["group"], row["fused"]) == kind] for kind in kinds]
    return [_summary(each[0]["group"], each[0]["fused"], each) for each in own] + [_summary(ALL, "", rows)]


def _summary(group: str, fused: str, rows: Sequence[Record]) -> Record:
    relative, absolute, by_bytes = correlations(rows)
    figures = {"relative": relative, "absolute": absolute, "bytes": by_bytes}
    return {
        "group": group,
        "fused": fused,
        "groups": len(rows),
        "measured": float(np.mean([row["measured"] for row in rows])),
        "predicted": float(np.mean([row["predicted"] for row in rows])),
        "faster": sum(row["low"] > 0 for row in rows),
        "slower": sum(row["high"] < 0 for row in rows),
        **{key: UNDEFINED if np.isnan(each.value) else each.value for key, each in figures.items()},
        **{f"{key}_interval": _interval(figures[key]) for key in ("relative", "absolute")},
    }


def correlations(rows: Sequence[Record]) -> tuple[Estimate, Estimate, Estimate]:
    """Returns the rank correlations of savings in percent and in µs, and of the bytes with the savings in µs."""
    pairs = (("predicted", "measured"), ("predicted_us", "measured_us"), ("bytes", "measured_us"))
    columns = [[np.array([row[key] for row in rows]) for key in pair] for pair in pairs]
    relative, absolute, by_bytes = (bootstrap(spearman, each) for each in columns)
    return relative, absolute, by_bytes


def _interval(estimate: Estimate) -> str:
    return UNDEFINED if np.isnan(estimate.low) else f"{estimate.low:.2f} to {estimate.high:.2f}"


def finding(records: Sequence[Record]) -> str:
    """Returns in how far the order of the predictions is that of the measurements."""
    rows = [_row(record) for record in records]
    relative, absolute, by_bytes = correlations(rows)
    faster = sum(row["low"] > 0 for row in rows)
    return (
        f"Over {len(rows)} groups the rank correlation of predicted and measured saving is {absolute} in µs and "
        f"{relative} in percent; that of the bytes that are no longer written with the saving in µs is {by_bytes}. The "
        f"fused operator is faster beyond noise for {faster} of the groups, and slower for "
        f"{sum(row['high'] < 0 for row in rows)}.{_without_slow_operators(rows)}"
    )


def _without_slow_operators(rows: Sequence[Record]) -> str:
    """Returns the correlations without the operators that `rlflow fuse` does not write, if there are such."""
    rest = [row for row in rows if row["fused"] not in SLOW_ON_CPUS]
    if len(rest) == len(rows):
        return ""
    relative, absolute, _ = correlations(rest)
    slow = ", ".join(sorted({row["fused"] for row in rows} & SLOW_ON_CPUS))
    return (
        f" The prices do not know that the kernel of {slow} is slow on CPUs. Without it {len(rest)} groups are left, "
        f"and the correlations are {absolute} in µs and {relative} in percent."
    )


def _draw(records: Sequence[Record], path: Path) -> None:
    from experiments.reports.plots import plot_agreement

    panels = {}
    for kind in dict.fromkeys(record["fused"] for record in records):
        own = [record for record in records if record["fused"] == kind]
        ratios = [record["ratio"][0] for record in own]
        widths = [(record["ratio"][2] - record["ratio"][1]) / 2 / record["ratio"][0] for record in own]
        predicted = [record["predicted_ms"][1] / record["predicted_ms"][0] for record in own]
        panels[kind] = {"a group": (ratios, widths, predicted)}
    plot_agreement(path, "Time of a fused operator over that of its group", panels)


GROUPS = Experiment(__doc__ or "", add_options, reproduce)
