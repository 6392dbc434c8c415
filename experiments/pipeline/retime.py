"""Times the kernels again on which a gain rests, so that what was found is not what was priced too low.

Under `measured` costs the prices of most kernels are predicted until something depends on them. Whoever minimises
prices finds what they underrate: a search at once, and a policy the more the longer it learns. So the kernels that make
the gain of the best graph unsure are timed after each round of a search, at each checkpoint of a training in the real
environment, and after the episodes of an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environment.costs.measured.cost_model import Measured
from environment.costs.measured.retiming import difference, retime
from experiments.pipeline.load import Loaded
from experiments.runs.run import Run, in_round, of_round
from experiments.runs.signals import raise_if_received

STAGE, TITLE = "retime", "time what the gain rests on [s]"


def retimes(run: Run, loaded: Loaded) -> bool:
    """Returns whether kernels are priced by measuring them on this machine, and may be timed again."""
    costs = loaded.env.costs
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
        loaded.env.reset(options={"graph": loaded.model})
    return facts


def _percent(value: float, half_width: float) -> str:
    return f"{100 * value:.1f} ± {100 * half_width:.1f} %"
