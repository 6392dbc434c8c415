"""Cost models by name, `<kind>:<device>`: kinds roofline, measured, learned and endtoend; or a file of prices."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environment.costs.end_to_end import EndToEnd
from environment.costs.interface import Costs
from environment.costs.measured.cost_model import Learned, Measured, Recorded
from environment.costs.roofline import Analytic
from environment.runtimes import available_devices
from environment.runtimes.onnx_runtime import kernel_devices
from taso_ext import CostModel

DATABASE = ".sqlite"


@dataclass(frozen=True)
class Kind:
    """One kind of cost model.

    Attributes:
      devices: returns the devices that can be named on this machine.
      make: builds the cost model of a device; raises ValueError for an unknown one.
    """

    devices: Callable[[], Sequence[str]]
    make: Callable[[str], Costs]


def _roofline(device: str) -> Costs:
    if device not in CostModel.devices():
        raise _unknown(f"roofline:{device}")
    return Analytic(CostModel.roofline(device))


_KINDS: Mapping[str, Kind] = {
    "roofline": Kind(CostModel.devices, _roofline),
    "measured": Kind(kernel_devices, Measured),
    "learned": Kind(kernel_devices, Learned),
    "endtoend": Kind(available_devices, EndToEnd),
}


def names() -> list[str]:
    """Returns all names that work on this machine: measured cost models need a device that is here."""
    return [f"{kind}:{device}" for kind, found in _KINDS.items() for device in found.devices()]


def find(costs: str | Costs | CostModel) -> Costs:
    """Returns the cost model of a name such as `roofline:rtx2070`, `measured:cpu`, `learned:cpu` or `endtoend:cpu`.

    Args:
      costs: a name, the path of a database of prices (which ends in `.sqlite`), a `Costs` object, which is returned as
        it is, or a cost model of the engine.
    Raises:
      DatabaseError: the database cannot be used.
      UnavailableError: the device is not here; the message lists the devices that are and how to install others.
      ValueError: the name is unknown; the message suggests the nearest one.
    """
    if isinstance(costs, CostModel):
        return Analytic(costs)
    if isinstance(costs, Costs):
        return costs
    if not isinstance(costs, str):
        raise ValueError(f"expected the name of a cost model or an object with its interface, got {costs!r}")
    if costs.endswith(DATABASE):
        return Recorded(Path(costs))
    kind, _, device = costs.partition(":")
    if kind not in _KINDS or not device:
        raise _unknown(costs)
    return _KINDS[kind].make(device)


def _unknown(name: str) -> ValueError:
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return ValueError(f"no cost model is called {name!r}{hint} Choose one of {', '.join(names())}.")
