"""Times kernels again that make the gain of what a search has found unsure, where kernels are priced by measuring."""

from __future__ import annotations

from controller.search.replayed import Actions
from environment.costs.measured.cost_model import Measured
from environment.costs.measured.retiming import difference, sharpen
from experiments.pipeline.load import Loaded
from experiments.runs.run import Run, in_round, of_round

STAGE = "sharpen"


def can_sharpen(loaded: Loaded) -> bool:
    """Whether kernels are priced by measuring, here."""
    return isinstance(loaded.env.costs, Measured)


def sharpen_gain(run: Run, loaded: Loaded, plan: Actions, number: int) -> bool:
    """Makes the price of what a search has found by some round surer; `loaded.env` goes by the new prices.

    Returns:
      Whether any price has changed; then another round may find something else.
    """
    costs, seconds = loaded.env.costs, run.config.search.sharpen_seconds
    if not isinstance(costs, Measured) or not plan or not seconds:
        return False
    stage = of_round(STAGE, number)
    name = f"checkpoints/{stage}.json"
    if not run.directory.finished(stage):
        prices, start, found = costs.of(loaded.model), loaded.model.graph, loaded.env.replay(plan)
        facts = run.directory.read_json(name) or {"timed": 0, "before": difference(prices, start, found)}
        with run.stage(stage, in_round("time what the gain rests on [s]", number), round(seconds)) as bar:

            def on_timed(passed: float) -> None:
                facts["timed"] += 1
                run.directory.write_json(name, facts)  # what prices were before would be lost to an interruption
                bar.update(round(passed))

            sharpen(prices, start, found, seconds=seconds, on_timed=on_timed)
            facts["after"] = difference(prices, start, found)
            run.directory.write_json(name, facts)
        if facts["timed"]:
            run.progress.note(
                f"Kernels were timed again, {facts['timed']} times: what the search has found saves "
                f"{_percent(*facts['after'])} of the model's time; {_percent(*facts['before'])} before."
            )
            costs.forget(loaded.model)
            loaded.env.reset(options={"graph": loaded.model})
    return bool(run.directory.read_json(name)["timed"])


def _percent(value: float, half_width: float) -> str:
    return f"{100 * value:.1f} ± {100 * half_width:.1f} %"
