"""Chooses among the cheapest graphs of a run by the clock, so that no result is slower than its model.

The clock chooses only if costs were measured on the device at hand: a roofline describes another device, and so do
prices that were recorded on another machine.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from controller.evaluation import Evaluation, play_episode
from controller.records import EpisodeRecord, is_improvement
from environment.measurement import racing
from environment.measurement.racing import Outcome, Rule
from environment.measurement.timing import Variant
from environment.statistics.intervals import Estimate
from environment.statistics.sequential import Verdict
from experiments.pipeline.clock.measure import feeds_of, runtime_of
from experiments.pipeline.learning.controller import climbed, journal_of
from experiments.pipeline.loading.load import Loaded
from experiments.runs.directory import RunDirectory
from experiments.runs.result import NOISE, MeasuredRatio
from experiments.runs.run import Run
from taso_ext.errors import ModelError

STAGE, CLIMB = "select", "climb"
CHECKPOINT, CLIMB_EPISODE = "checkpoints/selected.json", "checkpoints/climb-episode.json"
MOST = 6
"""Largest number of graphs that are measured."""
APART = 0.003
"""Least difference of their costs, as a fraction of the cost: the clock could not tell nearer ones apart."""
TOGETHER = 3
"""Number of graphs that are in memory at once, beside the model."""


@dataclasses.dataclass(frozen=True)
class Selected:
    """The graph that was chosen for export.

    Attributes:
      record: episode that ends with the chosen graph; if it has no actions, the chosen graph is the model itself.
      note: one sentence if the cheapest graph was not chosen, or if its prices are of another machine; else empty.
    """

    record: EpisodeRecord
    note: str = ""


def select(run: Run, loaded: Loaded, evaluation: Evaluation, records: Iterable[EpisodeRecord]) -> Selected:
    """Returns the graph to export.

    It is the cheapest one. If the clock chooses, it is the fastest that the clock confirms, or what a climb makes of
    it, or else the model. If the clock has already chosen for the controller, it is that graph.
    """
    best = evaluation.best
    if evaluation.deterministic.chosen is not None:
        return Selected(evaluation.deterministic)
    if not best.best_actions:
        return Selected(best)
    if not loaded.clock_chooses:
        return Selected(best, loaded.caveat)
    offered = list(_cheapest(loaded, [best, *records]))
    if run.config.evaluate.climb_seconds and run.config.learns_in:
        return _climbed_from(run, loaded, evaluation, offered)
    if not run.directory.finished(STAGE):
        with run.stage(STAGE, "measure the cheapest graphs", len(offered)) as bar:
            found: list[dict[str, Any]] = []
            for begin in range(0, len(offered), TOGETHER):
                found += _raced(run, loaded, offered[begin : begin + TOGETHER])
                bar.update(len(found))
            run.directory.write_json(CHECKPOINT, found)
    return run.directory.stored(CHECKPOINT, lambda raced: _chosen(offered, raced))


def _climbed_from(run: Run, loaded: Loaded, evaluation: Evaluation, offered: Sequence[EpisodeRecord]) -> Selected:
    """Returns what a climb by the clock makes of the cheapest graphs; the controller's own best graph races first."""
    own = evaluation.controller_best
    given = list(dict.fromkeys(record.best_actions for record in (own, *offered) if record.best_actions))
    climb = climbed(run, loaded, run.config.evaluate.climb_seconds, CLIMB, CLIMB, given)
    if run.directory.read_json(CLIMB_EPISODE) is None:
        record = play_episode(loaded.env, climb, seed=run.seed(CLIMB), deterministic=True, kind=CLIMB)
        run.directory.write_json(CLIMB_EPISODE, record.to_json())
    found = run.directory.stored(CLIMB_EPISODE, EpisodeRecord.from_json)
    return Selected(_first_like(found, own, offered), _own_find(run, loaded, own))


def _first_like(found: EpisodeRecord, own: EpisodeRecord, offered: Sequence[EpisodeRecord]) -> EpisodeRecord:
    """Returns the episode that has found the graph of a climb before it; that of the climb if there is none."""
    same = [record.until(record.best_step) for record in (own, *offered) if record.best_actions == found.best_actions]
    return same[0] if same else found


def selected_before(
    directory: RunDirectory, loaded: Loaded, evaluation: Evaluation, records: Sequence[EpisodeRecord]
) -> EpisodeRecord:
    """Returns the episode whose graph a finished run has selected, from its files alone; see `select`.

    Raises:
      DamagedRun: a file does not fit the episodes.
    """
    best = evaluation.best
    climbed, raced = (directory.path / name for name in (CLIMB_EPISODE, CHECKPOINT))
    if evaluation.deterministic.chosen is not None:
        return evaluation.deterministic
    if not best.best_actions or not (climbed.is_file() or raced.is_file()):
        return best
    offered = list(_cheapest(loaded, [best, *records]))
    if climbed.is_file():
        found = directory.stored(CLIMB_EPISODE, EpisodeRecord.from_json)
        return _first_like(found, evaluation.controller_best, offered)
    return directory.stored(CHECKPOINT, lambda each: _chosen(offered, each)).record


def _own_find(run: Run, loaded: Loaded, own: EpisodeRecord) -> str:
    """Returns what the clock says of the best graph that the controller has found itself, in a sentence."""
    name = run.config.controller
    if not own.best_actions:
        return f"By itself, {name} found no graph that costs less."
    graph = loaded.env.replay(own.best_actions).hash
    for line in journal_of(run):
        if line["kind"] == "timed" and line["graph"] == graph:
            ratio = Estimate(line["ratio"], line["low"], line["high"])
            return f"By itself, {name} found a graph that takes {ratio} of the model's time."
    return f"The time was up before the graph was timed that {name} found by itself."


def confirmed(selected: Selected, measured: MeasuredRatio | None) -> Selected:
    """Returns the selected graph, or the model if the end-to-end measurement does not confirm that the graph is faster.

    Args:
      measured: the end-to-end measurement of the selected graph; None if it was not measured.
    """
    if measured is None or measured.is_faster:
        return selected
    note = f"The fastest graph, measured again, took {measured.interval} of the model's time: not faster beyond noise. "
    if measured.control is not None:
        note += f"The model itself, measured again, took {measured.control} of it. "
    note += measured.ending
    return Selected(selected.record.until(0), note)


def _cheapest(loaded: Loaded, records: Sequence[EpisodeRecord]) -> Iterator[EpisodeRecord]:
    """Yields episodes that end with the cheapest graphs, cheapest first.

    Graphs whose cost is within `APART` of one before are left out, and at most `MOST` are yielded. To weigh the errors
    of prices too brings nothing: `rlflow reproduce shortlist`.
    """
    ends = [record.until(step) for record in records for step in _improvements(record)]
    hashes: set[str] = set()
    last = 0.0
    for record in sorted(ends, key=lambda each: each.best_cost_ms / each.costs_ms[0]):
        cost = record.best_cost_ms / record.costs_ms[0]
        if cost < last * (1 + APART):
            continue
        graph_hash = loaded.env.replay(record.best_actions).hash
        if graph_hash in hashes:
            continue
        hashes.add(graph_hash)
        last = cost
        yield record
        if len(hashes) == MOST:
            return


def _improvements(record: EpisodeRecord) -> Iterator[int]:
    """Yields the steps after which the graph costs less than all graphs before."""
    least = record.costs_ms[0]
    for step, cost_ms in enumerate(record.costs_ms):
        if is_improvement(cost_ms, least):
            least = cost_ms
            yield step


def _raced(run: Run, loaded: Loaded, records: Sequence[EpisodeRecord]) -> list[dict[str, Any]]:
    """Returns the ratio of each graph to the model, None if the runtime cannot run one of them, and the verdict."""
    try:
        outcomes = _outcomes(run, loaded, records)
    except ModelError:
        if len(records) == 1:
            return [{"value": None, "faster": False}]
        return [found for record in records for found in _raced(run, loaded, [record])]
    return [{"value": each.ratio.value, "faster": each.verdict is Verdict.FASTER} for each in outcomes]


def _outcomes(run: Run, loaded: Loaded, records: Sequence[EpisodeRecord]) -> Sequence[Outcome]:
    runtime = runtime_of(run.config)
    variants = [
        Variant(str(index), runtime, loaded.model.export_checked(loaded.env.replay(record.best_actions)))
        for index, record in enumerate(records)
    ]
    model, settings = Variant("model", runtime, loaded.model.source), run.config.measure
    rule = Rule(margin=NOISE, worth=NOISE, pairs=settings.pairs, seed=run.seed(STAGE))
    return racing.race(model, variants, rule, feeds=feeds_of(loaded), seconds=settings.seconds or math.inf)


def _chosen(offered: Sequence[EpisodeRecord], raced: Sequence[dict[str, Any]]) -> Selected:
    faster = [(each["value"], record) for each, record in zip(raced, offered, strict=True) if each["faster"]]
    cheapest, first = offered[0], raced[0]["value"]
    if not faster:
        return Selected(cheapest.until(0), f"None of {len(offered)} graphs that cost less is faster by the clock.")
    least, fastest = min(faster, key=lambda pair: pair[0])  # among equals, the one that costs less
    if fastest is cheapest:
        return Selected(cheapest)
    of_cheapest = "cannot be run" if first is None else f"takes {first:.3f} of the model's time"
    return Selected(fastest, f"The graph that costs least {of_cheapest}, this one takes {least:.3f}.")
