"""Times the kernels again on which a gain rests, so that what was found is not what was priced too low.

Under `measured` costs the prices of most kernels are predicted until something depends on them. Whoever minimises
prices finds what they underrate: a search at once, and a policy the more the longer it learns. So the kernels that make
the gain of the best graph unsure are timed after each round of a search, at each checkpoint of a training in the real
environment, and after the episodes of an evaluation. If few whole graphs are timed (`timings`), the best graph is
timed at these moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environment.costs.measured.cost_model import Measured
from environment.costs.measured.retiming import difference, retime
from experiments.pipeline.clock.timings import few_timings, follow_prices, time_graph
from experiments.pipeline.loading.load import Loaded
from experiments.runs.run import Run, in_round, of_round
from experiments.runs.signals import raise_if_received
from taso_ext import State

STAGE, TITLE = "retime", "time what the gain rests on [s]"


def retimes(run: Run, loaded: Loaded) -> bool:
    """Returns whether kernels, or few whole graphs, are timed on this machine to make a gain sure."""
    costs = loaded.env.costs
    if few_timings(loaded) is not None:
        return True
    return isinstance(costs, Measured) and costs.times and run.config.search.retiming_seconds > 0


def retime_after_search(run: Run, loaded: Loaded, plan: Sequence[tuple[int, int]], number: int) -> bool:
    """Times what the gain of a search rests on, as a stage; `loaded.env` then uses the new prices.

    Args:
      plan: the actions that the search has found.
      number: number of the round.
    Returns:
      Whether any kernel was timed again; another round may then find another graph.
    """
    if not retimes(run, loaded) or not plan:
        return False
    stage = of_round(STAGE, number)
    name = f"checkpoints/{stage}.json"
    if not run.directory.finished(stage):
        seconds = round(run.config.search.retiming_seconds)
        with run.stage(stage, in_round(TITLE, number), seconds) as bar:

            def keep(facts: Mapping[str, Any], passed: float) -> None:
                run.directory.write_json(name, facts)  # now, because an interruption would lose the prices from before
                bar.update(round(passed))

            facts = retime_gain(run, loaded, plan, run.directory.read_json(name), keep)
            run.directory.write_json(name, facts)
    return run.directory.stored(name, lambda stored: bool(stored["timed"]))


def retime_gain(
    run: Run,
    loaded: Loaded,
    plan: Sequence[tuple[int, int]],
    interrupted: Mapping[str, Any] | None = None,
    on_timed: Callable[[Mapping[str, Any], float], None] = lambda facts, passed: None,
) -> dict[str, Any]:
    """Times the kernels again that make the gain of a plan unsure; `loaded.env` then uses the new prices.

    Args:
      plan: actions from the start graph.
      interrupted: the facts of an earlier call that was interrupted.
      on_timed: called after each timing with the facts so far and the seconds that have passed.
    Returns:
      `timed`, the number of timings, and the gain with half the width of its 95 % interval `before` and `after` them.
    """
    if few_timings(loaded) is not None:
        return _timed_whole(run, loaded, plan, interrupted, on_timed)
    costs = loaded.env.costs
    assert isinstance(costs, Measured)  # see `retimes`
    prices, start, found = costs.of(loaded.model), loaded.model.graph, loaded.env.replay(plan)
    facts = dict(interrupted or {"timed": 0, "before": difference(prices, start, found)})

    def count(passed: float) -> None:
        raise_if_received()
        facts["timed"] += 1
        on_timed(facts, passed)

    retime(prices, start, found, seconds=run.config.search.retiming_seconds, on_timed=count)
    facts["after"] = difference(prices, start, found)
    if facts["timed"]:
        run.progress.note(
            f"Kernels were timed again, {facts['timed']} times: the best graph so far saves "
            f"{_percent(*facts['after'])} of the model's time; {_percent(*facts['before'])} before."
        )
        costs.forget(loaded.model)
        follow_prices(loaded)
    return facts


def _timed_whole(
    run: Run,
    loaded: Loaded,
    plan: Sequence[tuple[int, int]],
    interrupted: Mapping[str, Any] | None,
    on_timed: Callable[[Mapping[str, Any], float], None],
) -> dict[str, Any]:
    """Times the graph of a plan as a whole, unless it was timed before; see `retime_gain`."""
    costs = few_timings(loaded)
    assert costs is not None
    known = len(costs.timed(loaded.model))
    facts = dict(interrupted or {"timed": 0, "known": known, "before": _gain(loaded, plan)})
    on_timed(facts, 0.0)  # before the timing, because an interruption after it would hide that it is new
    time_graph(run, loaded, loaded.env.replay(plan), plan)
    facts["timed"] = len(costs.timed(loaded.model)) - facts["known"]
    return facts | {"after": _gain(loaded, plan)}


def _gain(loaded: Loaded, plan: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Returns the fraction of its cost that a plan saves of the model, and half the width of its 95 % interval."""
    prices = loaded.env.costs.of(loaded.model)
    start, found = (
        prices.price(State(graph, loaded.env.rules, prices.native))
        for graph in (loaded.model.graph, loaded.env.replay(plan))
    )
    return 1 - found.cost.ms / start.cost.ms, found.ratio_noise(start)


def _percent(value: float, half_width: float) -> str:
    return f"{100 * value:.1f} ± {100 * half_width:.1f} %"
