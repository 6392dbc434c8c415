"""Time and memory of an inference: other runtimes on a model, and the graphs that controllers make of it.

For each graph and seed, all of them are timed in one interleaved run by one clock, and each loads its model in a
process of its own for the memory. A unit checks first that all compute the same. `table2` shows both, `fig-runtime` the
times, and their units are the same if both have the same `--rows`; `headline` times the same runs anew against the
model itself. What every unit has twice, such as a search without random draws, is timed with
every seed again, so that the interval over seeds also holds what the clock makes of equal graphs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from environment.costs.prices.settings import processor
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from experiments.baselines.tools import THREADS, Tool, installed, makers
from experiments.executors.local import Unit
from experiments.executors.units import Record
from experiments.reproduce.baselines.comparison import Comparison, estimate
from experiments.reproduce.baselines.table import EFFORTS
from experiments.reproduce.options import (
    add_device,
    add_graphs,
    add_seeds,
    chosen_graphs,
    chosen_seeds,
    require_one_process,
    run_units,
)
from experiments.reproduce.papers.players import PLAYERS, add_long, named_players
from experiments.reproduce.search.controllers import GRAPHS, QUICK
from experiments.reproduce.search.never_slower import OurBest, our_best
from experiments.reproduce.search.plays import PRICES, SECONDS, Play, Player
from experiments.reproduce.table import WHOLE, of_seeds
from experiments.runs.progress import ProgressDisplay
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model import OnnxModel

TABLE = "table2"
TENSORFLOW, ONNX_RUNTIME = "tf-grappler", "ort-all"
RUNTIMES = (TENSORFLOW, "openvino", "tensorrt", ONNX_RUNTIME)
"""The runtimes, on the graph as the zoo builds it; those that the device has."""
CLEANED = {"cleaned": "full", "basic": "basic"}
"""The rows of the graph that is only cleaned up, which ONNX Runtime runs, and how much (`--clean`)."""
BY_CLOCK = "rlflow optimise"
"""The row of our program with its defaults, whose runs are those of `never-slower`."""
BESIDE = (*RUNTIMES, *CLEANED, BY_CLOCK)
"""What stands beside the controllers."""
SEEDS = "0,1,2,3,4"


class Playable(Protocol):
    """A run that ends with a graph."""

    @property
    def name(self) -> str:
        """The name of its unit of work."""

    @property
    def settings(self) -> Record:
        """Everything that its result depends on."""

    @property
    def measures_costs(self) -> bool:
        """Whether its costs are measured on this machine."""

    @property
    def unit(self) -> Unit:
        """The unit of work that finishes it."""

    def models(self, progress: ProgressDisplay) -> tuple[CheckedModel, CheckedModel]:
        """Returns the start graph and the one that it ends with, as models."""


Plays = Mapping[tuple[str, int], Mapping[str, Playable]]
"""Runs by graph and seed, and row."""


@dataclass(frozen=True)
class Inference:
    """The inferences of one graph with one seed: a unit of work.

    Attributes:
      graph: its name in the zoo.
      plays: the runs whose graphs are timed, by row.
      ours: the result of our program with its defaults; None: without it.
      tools: the runtimes, and the graphs that are only cleaned up, by name.
      reference: the name of the runtime or of the row that all are compared with.
      device: the device.
      scale: `smoke` or `full`.
    """

    graph: str
    plays: Mapping[str, Playable]
    ours: OurBest | None
    tools: Mapping[str, Tool]
    reference: str
    device: str
    scale: str

    def record(self, memory: bool, progress: ProgressDisplay) -> Record:
        """Returns the record of `Comparison.times`, and those of `Comparison.memory` if they are asked for."""
        runtime = OnnxRuntime(self.device, THREADS)
        graphs = {
            row: Tool(runtime.label, runtime, partial(_played, play, progress)) for row, play in self.plays.items()
        }
        settings = {row: play.settings for row, play in self.plays.items()}
        if (ours := self.ours) is not None:
            graphs[BY_CLOCK] = Tool(runtime.label, runtime, lambda _: ours.model())
            settings[BY_CLOCK] = ours.settings
        tools = {**self.tools, **graphs}
        comparison = Comparison(self.graph, tools, self.reference, set(graphs), processor(self.device), table=TABLE)
        times = comparison.times(EFFORTS[self.scale], {"graphs": settings})
        fit = [name for name in tools if memory and name not in times["refused"]]
        found = {name: comparison.memory(name, {"graph": settings.get(name)}) for name in fit}
        return {"times": times, "memory": found}


def _played(play: Playable, progress: ProgressDisplay, _: CheckedModel) -> CheckedModel:
    return play.models(progress)[1]


def add_options(parser: argparse.ArgumentParser, graphs: Sequence[str] = GRAPHS, seeds: str = SEEDS) -> None:
    """Adds the options of the tables that are made of these units; `graphs` and `seeds` are the default ones."""
    add_measured(parser, graphs, seeds)
    add_long(parser)


def add_measured(parser: argparse.ArgumentParser, graphs: Sequence[str], seeds: str) -> None:
    """Adds these options without the one for the full presets."""
    add_graphs(parser, ", ".join(graphs))
    add_seeds(parser, seeds)
    add_device(parser, "; TensorFlow and OpenVINO only there, TensorRT beside cuda")
    parser.add_argument(
        "--costs",
        metavar="NAME",
        help=f"what controllers minimise (full: measured:DEVICE; smoke: {PRICES}, as `controllers`)",
    )


class Inferences(NamedTuple):
    """All inferences of a table.

    Attributes:
      records: those of `Inference.record`, by graph, one for each seed.
      plays: those of the controllers' runs, each once.
      labels: name, version and settings of each runtime and graph, by row.
      reference: the row that all are compared with.
      costs: what the controllers minimise.
      notes: sentences on what is missing.
    """

    records: Mapping[str, Sequence[Record]]
    plays: Sequence[Record]
    labels: Mapping[str, str]
    reference: str
    costs: str
    notes: Sequence[str]

    def about(self, presets: str) -> list[str]:
        """Returns sentences on how the graphs were found, on what is missing, and on each row.

        Args:
          presets: a sentence on the presets of the controllers.
        """
        found = f"Controllers minimise {self.costs}. {presets}".rstrip()
        return [found, *self.notes, *(f"{row}: {label}." for row, label in self.labels.items())]


def inferences(
    options: argparse.Namespace,
    progress: ProgressDisplay,
    *,
    memory: bool,
    graphs: Sequence[str] = GRAPHS,
    players: Mapping[str, Player] | None = None,
    reference: str | None = None,
    beside: Sequence[str] = BESIDE,
) -> Inferences:
    """Plays each controller on each graph and measures; what is finished is not done again.

    Args:
      graphs: the default graphs.
      players: the controllers by the names of their rows; None: those that `--rows` names of the papers' figures.
      memory, reference, beside: as in `inferences_of`.
    Raises:
      UserError: `--processes` is not 1, there is no such row, or something computes something else than its model.
    """
    names, seeds = chosen_graphs(options, graphs, QUICK), chosen_seeds(options, SEEDS)
    players = named_players(PLAYERS, options) if players is None else players
    plays = _plays(names, players, seeds, chosen_costs(options), options)
    return inferences_of(plays, options, progress, memory=memory, reference=reference, beside=beside)


def chosen_costs(options: argparse.Namespace) -> str:
    """Returns what controllers minimise."""
    return options.costs or (PRICES if options.scale == "smoke" else f"measured:{options.device}")


def inferences_of(
    plays: Plays,
    options: argparse.Namespace,
    progress: ProgressDisplay,
    *,
    memory: bool,
    reference: str | None = None,
    beside: Sequence[str] = BESIDE,
) -> Inferences:
    """Finishes runs and measures their graphs; what is finished is not done again.

    Args:
      plays: the runs; every graph and seed has the same rows.
      memory: whether memory is measured too.
      reference: the runtime or row that all are compared with; None: TensorFlow, or ONNX Runtime where it is not here.
      beside: those of `BESIDE` that are timed too.
    Raises:
      UserError: `--processes` is not 1, or something computes something else than its model.
    """
    require_one_process(options)
    names = list(dict.fromkeys(graph for graph, _ in plays))
    players = next(iter(plays.values()))
    units = {play.name: play.unit for found in plays.values() for play in found.values()}
    measures = any(play.measures_costs for found in plays.values() for play in found.values())
    played = run_units(list(units.values()), options, progress, measures=measures, times_tensorflow=False)
    wanted = {name: make for name, make in makers(options.device).items() if name in beside}
    tools, absent = installed(wanted)
    runtime = OnnxRuntime(options.device, THREADS)
    tools |= {
        row: Tool(f"the graph with the clean-up `{clean}` in {runtime.label}", runtime, partial(_cleaned, clean))
        for row, clean in CLEANED.items()
        if row in beside
    }
    reference = reference or (TENSORFLOW if TENSORFLOW in tools else ONNX_RUNTIME)
    by_clock = names if BY_CLOCK in beside else ()
    ours = {name: our_best(name, options.scale, options.device, None, progress) for name in by_clock}
    timed = [
        Inference(graph, found, ours.get(graph), tools, reference, options.device, options.scale)
        for (graph, _), found in plays.items()
    ]
    measured = run_units(
        [
            Unit(f"{graph} seed {seed}", partial(each.record, memory))
            for (graph, seed), each in zip(plays, timed, strict=True)
        ],
        options,
        progress,
        measures=True,
    )
    records: dict[str, list[Record]] = {name: [] for name in names}
    for (graph, _), record in zip(plays, measured, strict=True):
        records[graph].append(record)
    labels = {name: tools[name].label for name in (*RUNTIMES, *CLEANED) if name in tools}
    labels |= {row: f"the graph of `{row}` in {runtime.label}" for row in (*players, *([BY_CLOCK] if ours else []))}
    notes = [f"Left out, {name}: {reason}" for name, reason in absent.items()]
    return Inferences(records, played, labels, reference, chosen_costs(options), [*notes, *_refusals(records)])


def _cleaned(clean: str, model: CheckedModel) -> CheckedModel:
    """Returns a model with its graph cleaned up and otherwise as it is."""
    loaded = OnnxModel.load(model, clean=clean)
    return loaded.export_checked(loaded.graph)


def _plays(
    names: Sequence[str],
    players: Mapping[str, Player],
    seeds: Sequence[int],
    costs: str,
    options: argparse.Namespace,
) -> dict[tuple[str, int], dict[str, Play]]:
    """Returns the runs by graph and seed, and row; what draws nothing at random has the first seed in all of them."""
    seconds = SECONDS[options.scale]
    return {
        (name, seed): {
            row: Play(
                name, row, player, options.scale, seconds, seed if player.drawn else seeds[0], costs, options.device
            )
            for row, player in players.items()
        }
        for seed in seeds
        for name in names
    }


def _refusals(records: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Yields a line for each measurement that is missing, which says why; equal lines once."""
    lines = [
        f"{graph}, {name}: {reason}"
        for graph, found in records.items()
        for record in found
        for name, reason in [
            *record["times"]["refused"].items(),
            *((row, each["refused"]) for row, each in record["memory"].items() if "refused" in each),
        ]
    ]
    yield from dict.fromkeys(lines)


def saved(key: str, ratios: Sequence[Estimate]) -> Record:
    """Returns the time that is saved, mean of the seeds [%], as `of_seeds` does.

    Args:
      key: the column of the mean.
      ratios: of each seed; if there is one, the interval is that of its measurement.
    """
    found = of_seeds(key, [100 * (1 - ratio.value) for ratio in ratios], largest=WHOLE)
    if len(ratios) == 1:
        found |= {"low": 100 * (1 - ratios[0].high), "high": 100 * (1 - ratios[0].low)}
    return found


def ratios_of(record: Record, reference: str) -> dict[str, Estimate]:
    """Returns by row the ratio of its time to that of another row, with its interval if this is the unit's reference.

    Args:
      record: one of `Inferences.records`.
      reference: the row that is divided by.
    """
    ratios = {name: estimate(each) for name, each in record["times"]["ratios"].items()}
    if reference not in ratios:
        return {}
    by = ratios[reference].value
    return ratios if by == 1.0 else {name: Estimate.without_interval(each.value / by) for name, each in ratios.items()}
