"""Run time and memory of other tools and of our best graph on each zoo graph, as ratios to one reference.

rlflow reproduce baselines
rlflow reproduce baselines --ours runs/best squeezenet1.1

The reference is ONNX Runtime with its full optimisation, on the graph as the zoo builds it, without clean-up. Before
anything is timed, the outputs of all tools are compared with the reference's on the same inputs; a tool that computes
something else is an error. Then all tools are timed in one interleaved run, by one clock. Every runtime has one thread
and single precision. A graph takes about a quarter of an hour: up to ten minutes of timing, after the five in which
`rlflow optimise` finds our graph; all eleven take about three hours.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from environment.costs.prices.settings import processor
from environment.measurement.effort import Effort
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from experiments.baselines.tools import THREADS, Tool, installed, makers
from experiments.executors.local import Unit
from experiments.executors.units import Record
from experiments.reproduce.baselines.comparison import Comparison, estimate
from experiments.reproduce.options import add_device, add_graphs, chosen_graphs, run_units
from experiments.reproduce.search.never_slower import OurBest, our_best
from experiments.reproduce.table import UNDEFINED, Row, Table
from experiments.runs.progress import ProgressDisplay
from taso_ext.onnx_io.checked_model import CheckedModel

REFERENCE, OURS, CONTROL = "ort-all", "ours", "control"
EFFORTS = {
    "smoke": Effort(resolution=None, pairs=4, sessions=2),
    "full": Effort(resolution=0.01, pairs=150, seconds=600, sessions=5),
}
MEBIBYTE = 1 << 20

FIGURES = {
    "time": "of one inference: milliseconds of the reference, then ratios to it; below 1 is faster",
    "± %": "half the 95 % interval of that, in percent",
    "memory": "peak of a process that loads the model from a file and runs it: MiB of the reference, then ratios to it",
    "added": "the part of that peak that loading and running the model added to interpreter, library and inputs",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser)
    add_device(parser, "; OpenVINO and TensorFlow only there, TensorRT beside cuda")
    parser.add_argument(
        "--ours", metavar="DIR", type=Path, help="holds our best graphs as GRAPH.onnx (default: search for them first)"
    )


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Compares the tools on each graph; what is finished is not measured again."""
    names = chosen_graphs(options)
    runtime = OnnxRuntime(options.device, THREADS)
    tools, absent = installed(makers(options.device))
    ours = {name: our_best(name, options.scale, options.device, options.ours, progress) for name in names}

    def compared(name: str, progress: ProgressDisplay) -> Record:
        return _compared(name, {**tools, OURS: _ours(runtime, ours[name])}, ours[name], options)

    found = run_units([Unit(name, partial(compared, name)) for name in names], options, progress, measures=True)
    results = [_Result(name, **record) for name, record in zip(names, found, strict=True)]
    labels = {name: each.label for name, each in tools.items()} | {OURS: f"{runtime.label}, on {ours[names[0]].words}"}
    return Table(
        f"Other tools and ours on {options.device}, {THREADS} thread",
        _columns(labels),
        {"reference": ".4g", **dict.fromkeys((CONTROL, *labels), ".3f")},
        [row for result in results for row in result.rows()],
        options.command_line,
        "\n".join(f"- {note}" for note in _notes(results, absent)),
        finding(results),
    )


def finding(results: Sequence[_Result]) -> str:
    """Returns the range of every tool's times, as ratios to the reference, in a sentence."""
    ratios: dict[str, list[float]] = {}
    for result in results:
        for name, each in result.times["ratios"].items():
            ratios.setdefault(name, []).append(each["value"])
    ranges = [f"{name} {min(each):.3f} to {max(each):.3f}" for name, each in ratios.items() if name != REFERENCE]
    return f"Time as a ratio to {REFERENCE}: {', '.join(ranges)}."


@dataclass(frozen=True)
class _Result:
    """The measurements of one graph.

    Attributes:
      name: the name of the graph.
      times: the times of all tools, see `Comparison.times`.
      memory: the memory by tool, and that of the reference once more as the control; see `Comparison.memory`.
    """

    name: str
    times: Record
    memory: Mapping[str, Record]

    def rows(self) -> Iterator[Row]:
        """Yields one row for each of `FIGURES`."""
        ms = estimate(self.times["ms"])
        ratios = {
            name: estimate(each) for name, each in (self.times["ratios"] | {CONTROL: self.times["control"]}).items()
        }
        yield self._row("time", ms.value, {name: each.value for name, each in ratios.items()})
        yield self._row("± %", _percent(ms), {name: _percent(each) for name, each in ratios.items()})
        for figure, key in (("memory", "total"), ("added", "added")):
            found = {name: each[key] for name, each in self.memory.items() if key in each}
            if REFERENCE not in found:  # nothing to compare with; the notes say why
                yield self._row(figure, UNDEFINED, {})
                continue
            whole = found[REFERENCE]
            yield self._row(figure, whole / MEBIBYTE, {name: size / whole for name, size in found.items()})

    def refused(self) -> Iterator[str]:
        """Yields a line for each missing measurement that says why it is missing."""
        for name, reason in self.times["refused"].items():
            yield f"{self.name}, {name}: {reason}"
        for name, each in self.memory.items():
            if "refused" in each:
                yield f"{self.name}, memory of {name}: {each['refused']}"

    def _row(self, figure: str, reference: float | str, found: Mapping[str, float]) -> Row:
        missing = dict.fromkeys([*self.times["refused"], *self.memory], UNDEFINED)
        return {"graph": self.name, "figure": figure, "reference": reference, **missing, **found}


def _compared(name: str, tools: Mapping[str, Tool], ours: OurBest, options: argparse.Namespace) -> Record:
    comparison = Comparison(name, tools, REFERENCE, {OURS}, processor(options.device))
    times = comparison.times(EFFORTS[options.scale], {"ours": ours.settings})
    fit = [each for each in tools if each not in times["refused"]]
    memory = {each: comparison.memory(each, {"ours": ours.settings} if each == OURS else {}) for each in fit}
    memory[CONTROL] = comparison.memory(REFERENCE, {"again": True})
    return {"times": times, "memory": memory}


def _ours(runtime: OnnxRuntime, ours: OurBest) -> Tool:
    def prepare(_: CheckedModel) -> CheckedModel:
        return ours.model()

    return Tool(runtime.label, runtime, prepare)


def _percent(interval: Estimate) -> float:
    return 100 * interval.half_width


def _columns(labels: Mapping[str, str]) -> dict[str, str]:
    about = {
        "graph": "as the zoo builds it",
        "figure": "; ".join(f"{figure}: {meaning}" for figure, meaning in FIGURES.items()),
        "reference": f"{labels[REFERENCE]}",
        CONTROL: "the reference measured a second time, in other sessions and another process",
    }
    return {**about, **labels}


def _notes(results: list[_Result], absent: Mapping[str, str]) -> Iterator[str]:
    clocks = sorted({result.times["clock"] for result in results})
    yield f"All in single precision; clock: {', '.join(clocks)}."
    for name, reason in absent.items():
        yield f"Left out, {name}: {reason}"
    for result in results:
        yield from result.refused()
    for result in results:
        yield f"{result.name}: {result.times['ending']}"
