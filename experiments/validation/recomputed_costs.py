"""How the costs of a finished run are recomputed: exactly, within their noise, or not at all."""

from __future__ import annotations

import statistics
from typing import Literal

from environment.costs import registry as cost_models
from environment.costs.prices.settings import setting_of
from environment.costs.roofline import ROOFLINE_VERSION, predicting_preset
from environment.runtimes import OnnxRuntime, UnavailableError
from environment.runtimes.onnx_runtime import require_working
from experiments.config.run import MEASURED_COSTS, RunConfig
from experiments.errors import UserError
from experiments.pipeline.loading.load import Loaded
from experiments.pipeline.stored import StoredRun

Recomputed = Literal["exactly", "within noise", "not at all"]
FALSE_ALARM = 0.01
"""Largest probability that noise alone makes a measured cost of a run look different."""


def recomputable(run: StoredRun) -> tuple[Recomputed, str, str]:
    """Returns how the costs of a run can be recomputed here, why not exactly, and the cost model that replays it."""
    config = run.config
    name = cost_models.parse(config.costs)
    kind, device = name.kind, name.place
    on_paper = f"roofline:{predicting_preset(config.device)}"
    if kind == "roofline" and (then := run.manifest.get("roofline", ROOFLINE_VERSION)) != ROOFLINE_VERSION:
        raise UserError(
            f"The costs of {run.path} are those of version {then} of the roofline, and this program has version "
            f"{ROOFLINE_VERSION}. Validate the run with the version that made it, or repeat it with --restart."
        )
    if not config.measures_costs:
        return "exactly", "", config.costs
    if kind == "endtoend" and name.timings is None:
        return "not at all", "all graphs would have to be timed again; of the result this is done", on_paper
    runtime, there = OnnxRuntime(device, config.measure.num_threads, config.measure.level), run.fingerprint["prices"]
    here = str(setting_of(runtime)) if _works(device) else "no such device"
    if here != there:
        return "not at all", f"prices were measured elsewhere ({there}), and here is {here}", on_paper
    why = (
        "prices of kernels are measured or predicted: they are those that the database has today. Episodes of the "
        "collection keep no noise, and of them graphs and rewrites were compared"
    )
    return "within noise", why, config.costs


def widened(comparisons: int) -> float:
    """Returns the factor that widens 95 % intervals so that none of many is left with more than `FALSE_ALARM`."""
    normal = statistics.NormalDist()
    return normal.inv_cdf(1 - FALSE_ALARM / 2 / max(1, comparisons)) / normal.inv_cdf(0.975)


def _works(device: str) -> bool:
    try:
        require_working(device)
    except UnavailableError:
        return False
    return True


def device_of(costs: str, run: RunConfig) -> str:
    """Returns the device with which costs are loaded: nothing is run on it unless they are measured there."""
    name = cost_models.parse(costs)
    if not name.is_file and name.kind in MEASURED_COSTS:
        return name.place
    return run.device if name.is_file and _works(run.device) else "cpu"


def require_same_prices(run: StoredRun, loaded: Loaded) -> None:
    """Raises UserError if the file of recorded prices has changed since the run."""
    then, now = run.fingerprint["prices"], loaded.fingerprint["prices"]
    if then != now:
        raise UserError(
            f"The prices in {run.config.costs} have changed since the run of {run.path}: fingerprint {then} then, "
            f"{now} now. Restore the file, or repeat the run with --restart."
        )
