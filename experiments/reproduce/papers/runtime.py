"""Run time of the graphs of each controller, and of the model in other runtimes (RLFlow, Figure 7; dissertation, 4.1).

rlflow reproduce fig-runtime
rlflow reproduce fig-runtime bert-base --seeds 0 --costs roofline:rtx2070

The times are those of `rlflow reproduce table2`, which says what they mean; greedy descent, TASO's search, the
model-free agents and those with a world model all have their graphs run by ONNX Runtime. If `table2` was made with the
same `--rows`, nothing is measured again; else a run takes up to 45 minutes, and hours if it is one of the papers'
model-free agent.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from experiments.executors.units import Record
from experiments.reproduce.papers import inference
from experiments.reproduce.papers.inference import Inferences, inferences, ratios_of
from experiments.reproduce.papers.players import PLAYERS, add_rows, named_players, presets_of
from experiments.reproduce.table import Table, interval_of_seeds, iqm_of_seeds
from experiments.runs.progress import ProgressDisplay

COLUMNS = {
    "graph": "as the zoo builds it",
    "row": "a runtime on this graph, the graph that is only cleaned up, or the controller whose graph is run",
    "seeds": "runs",
    "ms": "one inference, mean of the seeds",
    "low": "95 % interval of this mean, lower end; of the measurement if there is one seed",
    "high": "upper end",
    "IQM": "mean of the middle half of the seeds",
}

OURS = {inference.BY_CLOCK, "ppo real", "ppo dream", "xrlflow"}
"""The rows that are drawn as ours."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this figure has."""
    inference.add_options(parser)
    add_rows(parser, PLAYERS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Plays, and measures times; what is finished is not done again."""
    found = inferences(options, progress, memory=False)
    rows = list(rows_of(found))
    return Table(
        "Run time of the graphs of each controller",
        COLUMNS,
        dict.fromkeys(("ms", "low", "high", "IQM"), ".4g"),
        rows,
        options.command_line,
        "\n".join(f"- {line}" for line in found.about(presets_of(named_players(PLAYERS, options)))),
        finding(rows),
        {name: partial(draw, name, [row for row in rows if row["graph"] == name]) for name in found.records},
    )


def rows_of(found: Inferences) -> Iterator[Record]:
    """Yields a row for each runtime and each controller that runs on each graph."""
    for graph, records in found.records.items():
        for row in found.labels:
            known = [record for record in records if row in record["times"]["ratios"]]
            if not known:  # the notes say why
                continue
            whole = [float(record["times"]["ms"]["value"]) for record in known]
            ratios = [ratios_of(record, found.reference)[row] for record in known]
            times = [ms * ratio.value for ms, ratio in zip(whole, ratios, strict=True)]
            mean, low, high = interval_of_seeds(times, least=0.0)
            if len(known) == 1:
                low, high = whole[0] * ratios[0].low, whole[0] * ratios[0].high
            yield {
                "graph": graph,
                "row": row,
                "seeds": len(known),
                "ms": mean,
                "low": low,
                "high": high,
                "IQM": iqm_of_seeds(times),
            }


def finding(rows: Sequence[Record]) -> str:
    """Returns the fastest row on each graph, in a sentence for each."""
    said = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        first, *others = sorted((row for row in rows if row["graph"] == graph), key=lambda row: float(row["ms"]))
        close = [row["row"] for row in others if row["low"] <= first["high"]]
        beside = f"; the intervals of {', '.join(close)} reach it" if close else ""
        said.append(f"{graph}: {first['row']} is fastest, {first['ms']:.4g} ms{beside}.")
    return " ".join(said)


def draw(graph: str, rows: Sequence[Record], path: Path) -> None:
    """Draws a bar for each row."""
    from experiments.reports.bars import plot_bars

    bars = {str(row["row"]): (float(row["ms"]), float(row["low"]), float(row["high"])) for row in rows}
    plot_bars(path, f"{graph}: one inference", bars, "ms", ours=OURS)
