"""Times a few of the graphs that a run has met, if its costs are `endtoend:<device>:timings=N`.

Costs are then predicted, and corrected by whole graphs that were timed. A batch of them is timed when a round of
learning has its real episodes, so that each world model learns from the best prices that are known by then; what is
left is spent on the graphs of the evaluation. The timings are kept among the checkpoints of the run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from environment.costs.corrected.cost_model import Corrected
from environment.costs.corrected.posterior import TimedGraph
from experiments.pipeline.loading.load import Loaded
from experiments.runs.directory import RunDirectory
from experiments.runs.run import Run
from taso_ext import Graph, OnnxModel

STAGE, TITLE = "timings", "time whole graphs"
CHECKPOINT = "checkpoints/whole-graphs.json"

Plan = Sequence[tuple[int, int]]
"""Rewrites from the start graph, each a rule and a location."""


def few_timings(loaded: Loaded) -> Corrected | None:
    """Returns the cost model of a run if it times few whole graphs; None for all others."""
    costs = loaded.env.costs
    return costs if isinstance(costs, Corrected) else None


def restore_timings(directory: RunDirectory, loaded: Loaded) -> None:
    """Corrects prices by the graphs that earlier commands of a run have timed.

    Raises:
      DamagedRun: they cannot be read.
    """
    costs = few_timings(loaded)
    if costs is None:
        return
    kept = [each for each, _ in kept_timings(directory)]
    before = len(costs.timed(loaded.model))
    costs.restore(loaded.model, kept)
    if len(costs.timed(loaded.model)) > before:
        follow_prices(loaded)


def kept_timings(directory: RunDirectory) -> list[tuple[TimedGraph, Plan | None]]:
    """Returns the graphs that a run has timed, each with the rewrites that lead to it; older versions kept none.

    Raises:
      DamagedRun: they cannot be read.
    """
    return directory.stored(CHECKPOINT, lambda rows: [_timed_graph(**row) for row in rows or []])


def _timed_graph(actions: Plan | None = None, **fields: Any) -> tuple[TimedGraph, Plan | None]:
    return TimedGraph(**fields), actions and [(int(rule), int(location)) for rule, location in actions]


def adopt_timings(run: Run, loaded: Loaded, other: RunDirectory) -> None:
    """Takes the timings of another run of the same graph as if this run had made them, as the prices it rests on.

    Raises:
      DamagedRun: they cannot be read.
    """
    restore_timings(other, loaded)
    _keep(run, loaded, {each.hash: plan for each, plan in kept_timings(other)})


def time_batch(
    run: Run,
    loaded: Loaded,
    plans: Iterable[Plan],
    stage: str,
    title: str,
    most: int,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Times the graphs at the ends of some plans that are worth it, as a stage; `loaded.env` then has other prices.

    Args:
      stage, title: names of the stage.
      most: largest number of graphs that the run has timed after it, beside the limit of its costs.
      then: called at the end of the stage, to keep what depends on the new prices before the stage is finished.
    """
    costs, model = few_timings(loaded), loaded.model
    if costs is None or run.directory.finished(stage):
        return
    batch = max(0, min(most, costs.timings) - len(costs.timed(model)))
    with run.stage(stage, title, batch) as bar:
        ways = list(dict.fromkeys(tuple(plan) for plan in plans)) if batch else []
        graphs = [loaded.env.replay(plan) for plan in ways]
        chosen = costs.choose(model, graphs, batch, run.seed(stage))
        timed = 0
        for place in chosen:
            timed += time_graph(run, loaded, graphs[place], ways[place])
            bar.update(timed)
        then()
        run.progress.note(_said(costs, model, timed))


def time_graph(run: Run, loaded: Loaded, graph: Graph, plan: Plan) -> int:
    """Times the graph that a plan leads to, unless it was timed before or nothing may be timed any more.

    Returns:
      How many graphs were timed: 1 or 0.
    """
    costs, model = few_timings(loaded), loaded.model
    assert costs is not None
    number = costs.time(model, [graph])
    if number:
        _keep(run, loaded, {graph.hash: plan})
        follow_prices(loaded)
    return number


def _keep(run: Run, loaded: Loaded, plans: Mapping[str, Plan | None]) -> None:
    """Writes down all graphs that were timed.

    Args:
      plans: the rewrites that lead to those that were not written down before, by the hash of the graph.
    """
    costs = few_timings(loaded)
    if costs is None or not costs.timed(loaded.model):
        return
    plans = {**plans, **{each.hash: plan for each, plan in kept_timings(run.directory)}}
    rows = [{**dataclasses.asdict(each), "actions": plans.get(each.hash)} for each in costs.timed(loaded.model)]
    run.directory.write_json(CHECKPOINT, rows)


def share_of(loaded: Loaded, batches: int, number: int) -> int:
    """Returns how many graphs may have been timed after a batch, if all of a run are equally large.

    Args:
      batches: how many there are.
      number: the number of the batch, from 0.
    """
    costs = few_timings(loaded)
    return 0 if costs is None else math.ceil(costs.timings * (number + 1) / batches)


def follow_prices(loaded: Loaded) -> None:
    """Makes the environment follow the prices that are known now."""
    loaded.env.reset(options={"graph": loaded.model})


def _said(costs: Corrected, model: OnnxModel, timed: int) -> str:
    if not timed:
        if not costs.left(model):
            return f"No graph was timed: all {costs.timings} timings of whole graphs were made before."
        return "No graph was timed: none that can be run and was not timed is expected to be faster than what is known."
    best = min(costs.timed(model), key=lambda each: each.ratio)
    return (
        f"Timed {timed} graph{'s' if timed > 1 else ''}, {len(costs.timed(model))} of at most {costs.timings} so far: "
        f"the fastest takes {best.ratio:.3f} of the model's time."
    )
