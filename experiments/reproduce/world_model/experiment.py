"""The common part of all tables of world models: conditions × seeds → units of work → rows.

A table is a `WorldModelTable`. It names the conditions that it compares on each graph (each is a few assignments, as
for `--set`), the parts of a study that are done for every condition and seed, and a function that makes rows of their
records. A new table needs nothing else; see `comparisons`, whose tables are lists of settings.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from experiments.config.run import RunConfig
from experiments.executors.local import Unit
from experiments.executors.units import Record
from experiments.reproduce.options import add_graphs, chosen_graphs, run_units
from experiments.reproduce.table import Experiment, Figure, Table
from experiments.runs.directory import digest
from experiments.runs.progress import ProgressDisplay
from experiments.studies import study
from experiments.studies.setting import Effort, Setting
from experiments.studies.study import SCALES, Study, seeds_of, training_config

Part = tuple[Any, ...]
"""A method of `Study` with its arguments, for example ("exploit", 1)."""
SEARCH: Part = ("search",)
"""The search depends on the graph only, so it is done once, with the first condition and seed of a graph."""


class Studied(NamedTuple):
    """The records of one part of a study, under one condition on one graph.

    Attributes:
      graph: the name of the graph.
      label: the label of the condition.
      part: the part.
      records: one record for each seed, in their order; only one for `SEARCH`.
    """

    graph: str
    label: str
    part: Part
    records: list[Record]


Records = Sequence[Studied]
Conditions = Mapping[str, Sequence[str]]
"""By label, the changes of a condition to the settings, as assignments for `--set`."""
ONE_CONDITION: Conditions = {"": ()}


def _nothing(*_: Any) -> Sequence[Any]:
    return ()


@dataclasses.dataclass(frozen=True)
class WorldModelTable:
    """A table of world models.

    Attributes:
      title, columns, formats: see `Table`.
      graphs: the default graphs, by scale.
      parts: (graph, settings) -> the parts of every condition and seed, in their order.
      rows: (graph, records, effort) -> the rows of a graph.
      notes: (settings, effort) -> what the table was made with.
      finding: rows -> what the table says.
      seeds: the default seeds, as for `--seeds`; None: see `seeds_of`.
      conditions: (graph, options) -> the conditions of a graph; raises UserError if the options make no sense for it.
      later_parts: (records, settings, options) -> further parts, which depend on the records of `parts`.
      alarms: (graph, records) -> lines to show.
      assignments: by scale, changes to its settings that come before those of `--set`.
      most_episodes: the largest number of held-out episodes of each kind of play; None: that of the scale.
      add_options: adds the options that only this table has.
      summary: rows -> the summary of the table, which is printed in its place.
      figures: rows -> figures by graph.
    """

    title: str
    columns: Mapping[str, str]
    formats: Mapping[str, str]
    graphs: Mapping[str, Sequence[str]]
    parts: Callable[[str, RunConfig], Sequence[Part]]
    rows: Callable[[str, Records, Effort], Iterable[Record]]
    notes: Callable[[RunConfig, Effort], str]
    finding: Callable[[Sequence[Record]], str]
    seeds: str | None = None
    conditions: Callable[[str, argparse.Namespace], Conditions] = lambda graph, options: ONE_CONDITION
    later_parts: Callable[[Records, RunConfig, argparse.Namespace], Sequence[Part]] = _nothing
    alarms: Callable[[str, Records], Iterable[str]] = _nothing
    assignments: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    most_episodes: int | None = None
    add_options: Callable[[argparse.ArgumentParser], object] = _nothing
    summary: Callable[[Sequence[Record]], Table] | None = None
    figures: Callable[[Sequence[Record]], Mapping[str, Figure]] = lambda rows: {}

    def experiment(self, description: str) -> Experiment:
        """Returns the table as a command."""
        return Experiment(description, self._add_options, self.reproduce)

    def _add_options(self, parser: argparse.ArgumentParser) -> None:
        add_graphs(parser, default=", ".join(self.graphs["full"]))
        study.add_options(parser)
        self.add_options(parser)

    def reproduce(self, options: argparse.Namespace, progress: ProgressDisplay) -> Table:
        """Trains and evaluates what is not finished yet, and makes the table.

        Raises:
          UserError: the options make no sense; nothing has been trained.
        """
        effort = SCALES[options.scale].effort
        effort = dataclasses.replace(effort, episodes=min(self.most_episodes or effort.episodes, effort.episodes))
        assignments = [*self.assignments.get(options.scale, ()), *options.set]
        config = _config(options, assignments)
        names = chosen_graphs(options, self.graphs[options.scale])
        settings = {
            (name, label): Setting(name, _config(options, [*assignments, *different]))
            for name in names
            for label, different in self.conditions(name, options).items()
        }
        usual = None if options.scale == "smoke" else self.seeds
        seeds = {
            name: seeds_of(name, usual if options.seeds is None else options.seeds, options.scale) for name in names
        }
        run = partial(_run, settings, seeds, effort, options, progress)
        first = run({each: self.parts(each[0], setting.config) for each, setting in settings.items()})
        later = {
            each: self.later_parts([found for found in first if found.graph == each[0]], setting.config, options)
            for each, setting in settings.items()
        }
        studied, rows = [*first, *run(later)], list[Record]()
        for name in names:
            of_graph = [found for found in studied if found.graph == name]
            rows += self.rows(name, of_graph, effort)
            for line in self.alarms(name, of_graph):
                progress.note(line)
        return Table(
            self.title,
            self.columns,
            self.formats,
            rows,
            options.command_line,
            self.notes(config, effort),
            self.finding(rows),
            self.figures(rows),
            self.summary(rows) if self.summary else None,
        )


def _config(options: argparse.Namespace, assignments: Sequence[str]) -> RunConfig:
    return training_config(SCALES[options.scale], assignments, options.preset)


def _run(
    settings: Mapping[tuple[str, str], Setting],
    seeds: Mapping[str, Sequence[int]],
    effort: Effort,
    options: argparse.Namespace,
    progress: ProgressDisplay,
    wanted: Mapping[tuple[str, str], Sequence[Part]],
) -> list[Studied]:
    """Runs parts of studies for all seeds and returns their records.

    Args:
      settings: the settings by (graph, label of the condition).
      seeds: the seeds by graph.
      wanted: the parts by (graph, label of the condition).
    """
    studied, units, places = list[Studied](), list[Unit](), list[list[Record]]()
    for (name, label), parts in wanted.items():
        setting, searched = settings[name, label], any(each.graph == name and each.part == SEARCH for each in studied)
        found = [Studied(name, label, part, []) for part in parts if not searched or part != SEARCH]
        studied += found
        for number, seed in enumerate(seeds[name] if parts else ()):
            lane = digest(setting.seeded(seed).model_record())  # conditions that share a model wait for each other
            for each in found:
                if each.part != SEARCH or not number:
                    title = " ".join(filter(None, (name, label, f"seed {seed}:", *map(str, each.part))))
                    units.append(Unit(title, partial(_study, setting, seed, effort, each.part), lane))
                    places.append(each.records)
    for place, record in zip(places, run_units(units, options, progress), strict=True):
        place.append(record)
    return studied


def _study(setting: Setting, seed: int, effort: Effort, part: Part, progress: ProgressDisplay) -> Record:
    method, *arguments = part
    record: Record = getattr(Study(setting, seed, effort, progress), method)(*arguments)
    return record


def add_variants(parser: argparse.ArgumentParser, variants: Conditions) -> None:
    """Adds the option that chooses among the conditions of a table."""
    parser.add_argument(
        "--variants", metavar="A,B,…", help=f"names with commas between them (all: {', '.join(variants)})"
    )
