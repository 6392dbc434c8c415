"""The cost model of a run, and whether the clock here has the last word on what it says."""

from __future__ import annotations

import dataclasses

from environment.costs import registry as cost_models
from environment.costs.end_to_end import EFFORT, EndToEnd
from environment.costs.interface import Costs
from environment.costs.measured.cost_model import Measured, Recorded, runtime_here
from environment.costs.prices.settings import setting_of
from environment.runtimes import OnnxRuntime
from environment.runtimes.interface import threads_text
from experiments.config.run import RunConfig
from experiments.errors import UserError


@dataclasses.dataclass(frozen=True)
class RunCosts:
    """
    Attributes:
      costs: one cost model for all environments of the run.
      clock_chooses: whether it was measured on the device that the result is for; then the clock has the last word on
        what is exported.
      caveat: one sentence where it was measured on a machine that is not here; else empty.
      prices: what the costs depend on beside the configuration; empty where that is nothing.
    """

    costs: Costs
    clock_chooses: bool = False
    caveat: str = ""
    prices: str = ""


def find_costs(config: RunConfig) -> RunCosts:
    """The cost model that the configuration names.

    Raises:
      UserError: an unknown one, or one of another device or number of threads than the result is measured with.
    """
    kind, _, device = config.costs.partition(":")
    try:
        if config.measures_costs and device:
            return _measuring(kind, device, config)
        costs = cost_models.find(config.costs)
    except ValueError as error:  # an unknown cost model or device: the texts list what there is
        raise UserError(str(error)) from error
    return _replayed(costs, config) if isinstance(costs, Recorded) else RunCosts(costs)


def _measuring(kind: str, device: str, config: RunConfig) -> RunCosts:
    """What measures does it as the final measurement will."""
    settings = config.measure
    runtime = OnnxRuntime(device, settings.threads, settings.level)
    if device != config.device:
        raise UserError(
            f"Costs are measured on {device} and the result on {config.device}: expected one device. Add --device "
            f"{device}, or choose other --costs."
        )
    costs: Costs
    if kind == "measured":
        costs = Measured(device, threads=settings.threads, level=settings.level)
    else:
        effort = dataclasses.replace(EFFORT, resolution=settings.resolution or EFFORT.resolution)
        costs = EndToEnd(device, runtime=runtime, effort=effort)
    return RunCosts(costs, clock_chooses=True, prices=str(setting_of(runtime)))


def _replayed(costs: Recorded, config: RunConfig) -> RunCosts:
    """Prices of this machine are as good as new ones; of another machine's nobody here can tell how true they are."""
    setting, measure = costs.setting, config.measure
    here = runtime_here(setting)
    if here is None or setting_of(here) != setting:
        caveat = f"The prices are of another machine, {setting}: that the result is faster there was not checked."
        return RunCosts(costs, caveat=caveat, prices=costs.digest)
    if (setting.device, setting.threads, setting.level) != (config.device, measure.threads, measure.level):
        raise UserError(
            f"The prices in {config.costs} are of this machine's {setting}, but the result is measured on "
            f"{config.device}, {threads_text(measure.threads)}, optimisation {measure.level}: expected the same of "
            f"both. Add --device {setting.device} --set measure.threads={setting.threads} "
            f"--set measure.level={setting.level}, or choose other --costs."
        )
    return RunCosts(costs, clock_chooses=True, prices=costs.digest)
