"""What other tools make of each zoo graph, beside our best graph: time and memory as ratios, in one interleaved run.

rlflow reproduce baselines
rlflow reproduce baselines --ours runs/best squeezenet1.1

The reference is ONNX Runtime with its full optimisation, on the graph as the zoo builds it, not cleaned. Before
anything is timed, the outputs of all tools are compared with the reference's on the same inputs: one that computes
something else is an error. Every runtime has one thread and single precision, and one clock is read for all.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from environment.costs.prices.settings import processor
from environment.measurement.effort import Effort
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from experiments.baselines.contestants import THREADS, Contestant, installed, makers
from experiments.reproduce import graphs
from experiments.reproduce.baselines.contest import Contest, estimate
from experiments.reproduce.search.our_best import OurBest, our_best
from experiments.reproduce.table import Row, Table
from experiments.reproduce.units import Record
from experiments.runs.progress import ProgressDisplay
from taso_ext.onnx_io.detached import DetachedModel

REFERENCE, OURS, CONTROL = "ort-all", "ours", "control"
EFFORTS = {
    "smoke": Effort(resolution=None, pairs=4, sessions=2),
    "full": Effort(resolution=0.01, pairs=150, seconds=600, sessions=5),
}
DASH = "–"
MEBIBYTE = 1 << 20

FIGURES = {
    "time": "of one inference: milliseconds of the reference, then ratios to it; below 1 is faster",
    "± %": "half the 95 % interval of that, in percent",
    "memory": "peak of a process that loads the model from a file and runs it: MiB of the reference, then ratios to it",
    "added": "the part of that peak that loading and running the model added to interpreter, library and inputs",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside those of all tables."""
    graphs.add_option(parser)
    parser.add_argument("--device", default="cpu", help="where to measure (cpu); OpenVINO and TensorFlow only there")
    parser.add_argument(
        "--ours", metavar="DIR", type=Path, help="holds our best graphs as GRAPH.onnx (default: search for them first)"
    )


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Compares the tools on each graph; what is finished is not measured again."""
    names = graphs.chosen(options.graphs)
    runtime = OnnxRuntime(options.device, THREADS)
    tools, absent = installed(makers(options.device))
    ours = {name: our_best(name, options.scale, runtime, options.ours) for name in names}
    results = []
    with progress.stage("compare on zoo graphs", total=len(names)) as bar:
        for name in names:
            results.append(_compared(name, {**tools, OURS: _ours(runtime, ours[name])}, ours[name], options))
            bar.update(len(results))
    labels = {name: each.label for name, each in tools.items()} | {OURS: f"{runtime.label}, on {ours[names[0]].words}"}
    return Table(
        f"Other tools and ours on {options.device}, {THREADS} thread",
        _columns(labels),
        {"reference": ".4g", **dict.fromkeys((CONTROL, *labels), ".3f")},
        [row for result in results for row in result.rows()],
        options.command_line,
        "\n".join(f"- {note}" for note in _notes(results, absent)),
    )


@dataclass(frozen=True)
class _Result:
    """What was measured on one graph.

    Attributes:
      times: of all, see `Contest.times`.
      memory: by contestant, and of the reference once more as the control, see `Contest.memory`.
    """

    name: str
    times: Record
    memory: Mapping[str, Record]

    def rows(self) -> Iterator[Row]:
        """One for each of `FIGURES`."""
        ms = estimate(self.times["ms"])
        ratios = {
            name: estimate(each) for name, each in (self.times["ratios"] | {CONTROL: self.times["control"]}).items()
        }
        yield self._row("time", ms.value, {name: each.value for name, each in ratios.items()})
        yield self._row("± %", _percent(ms), {name: _percent(each) for name, each in ratios.items()})
        for figure, key in (("memory", "total"), ("added", "added")):
            found = {name: each[key] for name, each in self.memory.items() if key in each}
            if REFERENCE not in found:  # nothing to compare with; the notes say why
                yield self._row(figure, DASH, {})
                continue
            whole = found[REFERENCE]
            yield self._row(figure, whole / MEBIBYTE, {name: size / whole for name, size in found.items()})

    def refused(self) -> Iterator[str]:
        """Why there is a dash."""
        for name, reason in self.times["refused"].items():
            yield f"{self.name}, {name}: {reason}"
        for name, each in self.memory.items():
            if "refused" in each:
                yield f"{self.name}, memory of {name}: {each['refused']}"

    def _row(self, figure: str, reference: float | str, found: Mapping[str, float]) -> Row:
        missing = dict.fromkeys([*self.times["refused"], *self.memory], DASH)
        return {"graph": self.name, "figure": figure, "reference": reference, **missing, **found}


def _compared(name: str, contestants: Mapping[str, Contestant], ours: OurBest, options: argparse.Namespace) -> _Result:
    contest = Contest(name, contestants, REFERENCE, {OURS}, processor(options.device))
    times = contest.times(EFFORTS[options.scale], {"ours": ours.settings})
    fit = [each for each in contestants if each not in times["refused"]]
    memory = {each: contest.memory(each, {"ours": ours.settings} if each == OURS else {}) for each in fit}
    memory[CONTROL] = contest.memory(REFERENCE, {"again": True})
    return _Result(name, times, memory)


def _ours(runtime: OnnxRuntime, ours: OurBest) -> Contestant:
    def prepare(_: onnx.ModelProto) -> DetachedModel:
        return ours.model()

    return Contestant(runtime.label, runtime, prepare)


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
