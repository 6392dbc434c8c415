"""Cost models by name, `<kind>:<device>`: kinds roofline, measured, learned and endtoend; or a file of prices.

A parameter may follow: `measured:cpu:noise=resampled` (`environment.costs.resampling`). With `endtoend:cpu:pairs=4`,
each graph is timed exactly four times against the start graph, however sure its price then is. With
`endtoend:cpu:timings=64`, at most 64 graphs are timed, and prices of all others agree with these.

The parameters of a file are `noise` and `kind`: `prices.sqlite:kind=endtoend,noise=resampled` replays times of whole
graphs instead of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environment.costs.corrected.cost_model import Corrected
from environment.costs.end_to_end import EFFORT, EndToEnd, RecordedEndToEnd, effort_of
from environment.costs.interface import FROZEN, Costs, Noise
from environment.costs.measured.cost_model import Learned, Measured, Recorded
from environment.costs.resampling import require_noise
from environment.costs.roofline import Analytic
from environment.measurement.effort import FEWEST_PAIRS
from environment.parameters import parsed
from environment.runtimes import available_devices
from environment.runtimes.onnx_runtime import kernel_devices
from taso_ext import CostModel
from taso_ext.errors import did_you_mean, near

DATABASE = ".sqlite"


@dataclass(frozen=True)
class Kind:
    """One kind of cost model.

    Attributes:
      devices: returns the devices that can be named on this machine.
      make: builds the cost model of a device with some noise; raises ValueError for an unknown one.
    """

    devices: Callable[[], Sequence[str]]
    make: Callable[[str, Noise], Costs]


def _roofline(device: str, noise: Noise) -> Costs:
    if device not in CostModel.devices():
        raise _unknown(f"roofline:{device}")
    if noise != FROZEN:
        raise ValueError(
            f"the costs of 'roofline:{device}' are a formula, which has no noise: leave noise={noise} out, or choose "
            f"costs that are timed, such as measured:<device>:noise={noise}"
        )
    return Analytic(CostModel.roofline(device))


_KINDS: Mapping[str, Kind] = {
    "roofline": Kind(CostModel.devices, _roofline),
    "measured": Kind(kernel_devices, lambda device, noise: Measured(device, noise=noise)),
    "learned": Kind(kernel_devices, lambda device, noise: Learned(device, noise=noise)),
    "endtoend": Kind(available_devices, lambda device, noise: EndToEnd(device, noise=noise)),
}
_REPLAYS: Mapping[str, Callable[[Path, Noise], Costs]] = {"measured": Recorded, "endtoend": RecordedEndToEnd}
"""What a file of prices replays: the kind of cost model that has recorded them."""


@dataclass(frozen=True)
class Name:
    """The parts of a cost model's name.

    Attributes:
      kind: the kind of the cost model; for a file of prices the kind that it replays.
      place: the device, or the path of a file of prices.
      is_file: whether `place` is a file.
      noise: whether rewards are made of drawn costs.
      pairs: number of times that a whole graph is timed; None: as often as its price needs.
      timings: number of whole graphs that are timed at most; None: all.
    """

    kind: str
    place: str
    is_file: bool
    noise: Noise
    pairs: int | None = None
    timings: int | None = None


def parse(costs: str) -> Name:
    """Returns the parts of a name; whether there is such a kind and such a device, is not checked.

    Raises:
      ValueError: a parameter or its value is unknown.
    """
    base, colon, text = costs.rpartition(":")
    if not colon or "=" not in text or costs.endswith(DATABASE):  # no parameters; a path may hold any character
        base, text = costs, ""
    is_file = base.endswith(DATABASE)
    given = parsed(base, text, "cost model")
    whole = base.partition(":")[0] == "endtoend"
    known = ("kind", "noise") if is_file else ("noise", "pairs", "timings") if whole else ("noise",)
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ValueError(f"the cost model {base!r} has no parameter {key!r}{hint}: it takes {', '.join(known)}")
    try:
        noise = require_noise(given.get("noise", FROZEN))
    except ValueError as error:
        raise ValueError(f"the cost model {base!r}: {error}") from error
    if not is_file:
        kind, _, device = base.partition(":")
        pairs = _number(base, "pairs", given.get("pairs"), FEWEST_PAIRS, "timings")
        timings = _number(base, "timings", given.get("timings"), 1, "graphs")
        if timings is not None and noise != FROZEN:
            raise ValueError(
                f"the cost model {base!r}: noise={noise} draws from the timings of every graph, and with timings="
                f"{timings} most graphs have none: leave one of the two out"
            )
        return Name(kind, device, is_file, noise, pairs, timings)
    kind = given.get("kind", "measured")
    if kind not in _REPLAYS:
        raise ValueError(f"the file {base!r} replays the kind {' or '.join(_REPLAYS)}, got {kind!r}")
    return Name(kind, base, is_file, noise)


def _number(base: str, name: str, text: str | None, least: int, of: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise ValueError(
            f"the cost model {base!r}: {name!r} must be a whole number of {of}, at least {least}, got {text!r}"
        )
    return int(text)


def names() -> list[str]:
    """Returns all names that work on this machine: measured cost models need a device that is here."""
    return [f"{kind}:{device}" for kind, found in _KINDS.items() for device in found.devices()]


def find(costs: str | Costs | CostModel) -> Costs:
    """Returns the cost model of a name such as `roofline:rtx2070`, `measured:cpu`, `learned:cpu` or `endtoend:cpu`.

    Args:
      costs: a name, the path of a database of prices (which ends in `.sqlite`), both with parameters if there are any,
        a `Costs` object, which is returned as it is, or a cost model of the engine.
    Raises:
      DatabaseError: the database cannot be used.
      UnavailableError: the device is not here; the message lists the devices that are and how to install others.
      ValueError: the name or a parameter is unknown; the message suggests the nearest one.
    """
    if isinstance(costs, CostModel):
        return Analytic(costs)
    if isinstance(costs, Costs):
        return costs
    if not isinstance(costs, str):
        raise ValueError(f"expected the name of a cost model or an object with its interface, got {costs!r}")
    name = parse(costs)
    if name.is_file:
        return _REPLAYS[name.kind](Path(name.place), name.noise)
    if name.kind not in _KINDS or not name.place:
        raise _unknown(costs)
    if name.timings is not None:
        return Corrected(name.place, name.timings, pairs=name.pairs)
    if name.pairs is not None:
        return EndToEnd(name.place, effort=effort_of(EFFORT, name.pairs), noise=name.noise)
    return _KINDS[name.kind].make(name.place, name.noise)


def _unknown(name: str) -> ValueError:
    found = near(":".join(name.split(":")[:2]), names())  # without its parameters
    hint = f"; did you mean {found!r}?" if found else "."
    return ValueError(f"no cost model is called {name!r}{hint} Choose one of {', '.join(names())}.")
