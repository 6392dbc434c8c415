"""Cost models by name, `<kind>:<device>`: kinds roofline, measured and endtoend; or a file of prices."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environment.costs.end_to_end import EndToEnd
from environment.costs.interface import Costs
from environment.costs.measured.cost_model import Measured, Recorded
from environment.costs.roofline import Analytic
from environment.runtimes import available_devices
from environment.runtimes.onnx_runtime import kernel_devices
from taso_ext import CostModel

DATABASE = ".sqlite"


@dataclass(frozen=True)
class Kind:
    """One kind of cost model.

    Attributes:
      devices: those that can be named here.
      make: the cost model of a device; raises ValueError for one that it does not know.
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
    "endtoend": Kind(available_devices, EndToEnd),
}


def names() -> list[str]:
    """All names that work here: what is measured needs a device, and those depend on the machine."""
    return [f"{kind}:{device}" for kind, found in _KINDS.items() for device in found.devices()]


def find(costs: str | Costs | CostModel) -> Costs:
    """The cost model of a name such as `roofline:rtx2070`, `measured:cpu` or `endtoend:cpu`, or of recorded prices.

    A cost model is returned as it is.

    Args:
      costs: the path of a database of prices ends in `.sqlite`.
    Raises:
      DatabaseError: a database that cannot be used.
      UnavailableError: a device that is not here; lists those that are and says how to install others.
      ValueError: an unknown name; suggests the nearest one.
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
