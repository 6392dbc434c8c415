"""Time and memory of an inference against TensorFlow, for the graphs of each controller (the papers' Table II).

rlflow reproduce table2
rlflow reproduce table2 bert-base --rows taso,'ppo dream' --seeds 0

The papers compare their graphs in their own runtime with TensorFlow, which mixes what the graph gains with what the
runtime gains. So each graph is compared with TensorFlow, and, in ONNX Runtime, which runs the graphs, with the graph
that is only cleaned up: in full, and as `--clean basic` leaves it. ONNX Runtime on the model itself and OpenVINO stand
beside; runtimes that are not installed are left out. Controllers minimise the prices of kernels on the device that is
measured on, as in the papers. `rlflow optimise`, our program with its defaults, has the clock choose. A run of our
agents takes up to 45 minutes; under measured prices, one of the papers' model-free agent takes hours, and `--rows` can
leave it out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from experiments.executors.units import Record
from experiments.reproduce.papers import inference
from experiments.reproduce.papers.inference import Inferences, inferences, ratios_of, saved
from experiments.reproduce.papers.players import PLAYERS, add_rows, named_players, presets_of
from experiments.reproduce.papers.printed import INFERENCE
from experiments.reproduce.table import UNDEFINED, Table, spanned
from experiments.runs.progress import ProgressDisplay

GIBIBYTE = 1 << 30
DREAMED = "paper dream"
"""The row that the papers print."""
CLEANED, BASIC = inference.CLEANED
ALONE = {"graph_gain": CLEANED, "basic_gain": BASIC}
"""The columns of what graphs alone save, and the rows that they are compared with."""
COLUMNS = {
    "graph": "as the zoo builds it",
    "row": "a runtime on this graph, the graph that is only cleaned up, or the controller whose graph is run",
    "seeds": "runs",
    "ms": "one inference, mean of the seeds",
    "faster": "time that it saves against the reference, mean of the seeds [%]",
    "low": "95 % interval of this mean, lower end; of the measurement if there is one seed",
    "high": "upper end",
    "IQM": "mean of the middle half of the seeds",
    "graph_gain": "time that the graph alone saves, against the cleaned one in the same runtime, mean of the seeds [%]",
    "basic_gain": "the same against the graph as `--clean basic` leaves it [%]",
    "gib": "peak memory of a process that loads the model and runs it [GiB], mean of the seeds",
    "less": "memory that it saves against the reference, mean of the seeds [%]",
    "graph_less": "memory that the graph alone saves, likewise [%]",
    "printed_ms": "the papers', in TensorFlow: RLFlow / dissertation",
    "printed_faster": "likewise, of their agent in its world model [%]",
    "printed_gib": "likewise, in TensorFlow",
    "printed_less": "likewise, of their agent [%]",
}
FORMATS = {
    "ms": ".4g",
    "gib": ".3f",
    **dict.fromkeys(("faster", "low", "high", "IQM", "graph_gain", "basic_gain", "less", "graph_less"), ".1f"),
}
FIGURES = (*FORMATS,)
"""The columns that are measured."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    inference.add_options(parser)
    add_rows(parser, PLAYERS)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Plays, and measures time and memory; what is finished is not done again."""
    found = inferences(options, progress, memory=True)
    rows = list(rows_of(found))
    about = [
        f"The reference is {found.labels[found.reference]}.",
        "Printed: Table II of RLFlow and Table 4.2 of the dissertation, which differ.",
        *found.about(presets_of(named_players(PLAYERS, options))),
    ]
    return Table(
        "Time and memory of an inference",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        "\n".join(f"- {line}" for line in about),
        finding(rows, found.reference),
    )


def rows_of(found: Inferences) -> Iterator[Record]:
    """Yields a row for each runtime and each controller on each graph, those that cannot run it included."""
    for graph, records in found.records.items():
        for row in found.labels:
            yield {"graph": graph, "row": row, **_measured(row, records, found.reference), **printed(graph, row)}


def _measured(row: str, records: Sequence[Record], reference: str) -> Record:
    """Returns the figures of a row; UNDEFINED stands for those that nothing was measured for."""
    known = [record for record in records if row in record["times"]["ratios"]]
    if not known:
        return {"seeds": 0} | dict.fromkeys(FIGURES, UNDEFINED)
    ratios = [ratios_of(record, reference)[row] for record in known]
    times = [record["times"]["ms"]["value"] * ratio.value for record, ratio in zip(known, ratios, strict=True)]
    rewritten = row not in inference.RUNTIMES
    return {
        "seeds": len(known),
        "ms": float(np.mean(times)),
        **saved("faster", ratios),
        **{key: _mean(_gains(known, row, other) if rewritten else ()) for key, other in ALONE.items()},
        "gib": _mean(own / GIBIBYTE for own, _ in _sizes(known, row, row)),
        "less": _mean(100 * (1 - own / whole) for own, whole in _sizes(known, row, reference)),
        "graph_less": _mean(100 * (1 - own / whole) for own, whole in _sizes(known, row, CLEANED) if rewritten),
    }


def _gains(records: Sequence[Record], row: str, other: str) -> Iterator[float]:
    """Yields the time that a row saves against another one [%], for the records that have both."""
    for record in records:
        if (ratio := ratios_of(record, other).get(row)) is not None:
            yield 100 * (1 - ratio.value)


def _sizes(records: Sequence[Record], row: str, other: str) -> Iterator[tuple[int, int]]:
    """Yields the peak memory of two rows in bytes, for the records that have both."""
    for record in records:
        found = [record["memory"].get(name, {}) for name in (row, other)]
        if all("total" in each for each in found):
            yield found[0]["total"], found[1]["total"]


def _mean(values: Iterable[float]) -> float | str:
    known = list(values)
    return sum(known) / len(known) if known else UNDEFINED


def printed(graph: str, row: str) -> Record:
    """Returns what the two papers print of a row, one behind the other; UNDEFINED where they do not."""
    both = [paper[graph] for paper in INFERENCE.values() if graph in paper]
    shown = dict.fromkeys(("printed_ms", "printed_faster", "printed_gib", "printed_less"), UNDEFINED)
    if both and row == inference.TENSORFLOW:
        shown["printed_ms"] = " / ".join(f"{each.ms:g}" for each in both)
        shown["printed_gib"] = " / ".join(f"{each.gib:g}" for each in both)
    if both and row == DREAMED:
        shown["printed_faster"] = " / ".join(f"{each.faster:g}" for each in both)
        shown["printed_less"] = " / ".join(f"{each.less:g}" for each in both)
    return shown


def finding(rows: Sequence[Record], reference: str) -> str:
    """Returns the range over graphs of what each row saves against the reference, and of what its graph saves."""

    def ranges(figure: str, than: str) -> Iterator[str]:
        for name in dict.fromkeys(row["row"] for row in rows if row["row"] != than):
            values = [float(row[figure]) for row in rows if row["row"] == name and row[figure] != UNDEFINED]
            if values:
                yield f"`{name}` {spanned(values)} %"

    faster, alone = ", ".join(ranges("faster", reference)), ", ".join(ranges("graph_gain", CLEANED))
    said = [f"Time saved against `{reference}`: {faster}."] if faster else []
    said += [f"Time that the graph alone saves, against `{CLEANED}` in the same runtime: {alone}."] if alone else []
    return "\n\n".join(said)
