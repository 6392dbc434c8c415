"""Machines: devices, and the links between them, as presets or as a text file of one's own.

A machine is a TOML file. Links join devices and switches; each has a bandwidth in each direction and a latency:

    name = "one GPU"
    [[device]]
    name = "cpu:0"
    costs = "roofline:haswell18"      # any analytic cost model (environment.costs.registry)
    memory_gb = 256
    [[device]]
    name = "cuda:0"
    costs = "roofline:k80"
    memory_gb = 12
    lacks = "cuda"                    # operators that have no kernel there: a known list, or names of operators
    [[link]]
    between = ["cpu:0", "root"]       # a name that is no device is a switch
    gb_per_s = 12.0
    latency_us = 10.0
    [[link]]
    between = ["root", "cuda:0"]
    gb_per_s = 12.0
    latency_us = 10.0

The first device is the host: inputs of a model lie there, and so do operators that have no kernel elsewhere. A copy
takes the route with the fewest links, through switches only. It occupies all links of its route at once, and its
latency is the sum of theirs. `slowdown` of a device multiplies the times of its cost model.
"""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from environment.placement.errors import PlacementError
from environment.placement.kernels import LACKING
from taso_ext import CostModel
from taso_ext.errors import did_you_mean, one_paragraph

_PRESETS = Path(__file__).parent / "machines"
_SUFFIX = ".toml"


@dataclass(frozen=True)
class Device:
    """A device of a machine.

    Attributes:
      name: a kind and a number, such as `cpu:0` or `cuda:1`.
      costs: the name of an analytic cost model, which gives the times of operators.
      memory_bytes: the memory for parameters, activations and optimiser state.
      slowdown: a factor on these times.
      lacks: operators that have no kernel there; "ai.onnx.ml.*" stands for all operators of a domain.
    """

    name: str
    costs: str
    memory_bytes: float
    slowdown: float = 1.0
    lacks: frozenset[str] = frozenset()

    def runs(self, domain: str, op_type: str) -> bool:
        """Returns whether the device has a kernel of an operator."""
        return op_type not in self.lacks and f"{domain}.*" not in self.lacks


@dataclass(frozen=True)
class Link:
    """A connection that carries copies in both directions at once.

    Attributes:
      ends: the names of two devices or switches.
      bytes_per_ms: the bandwidth of each direction.
      latency_ms: the time before the first byte arrives.
    """

    ends: tuple[str, str]
    bytes_per_ms: float
    latency_ms: float


@dataclass(frozen=True)
class Route:
    """The way of copies from one device to another.

    Attributes:
      channels: the directions of links that are occupied: 2 · link, and one more against the order of its ends.
      latency_ms: the sum of their latencies.
    """

    channels: tuple[int, ...]
    latency_ms: float


@dataclass(frozen=True)
class Machine:
    """Devices and the links between them.

    Attributes:
      name: what tables call it.
      devices: the first one is the host.
      links: see `Link`.
    Raises:
      PlacementError: a name occurs twice, a number is out of range, or two devices have no connection.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = field(default=())

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        if not names:
            raise PlacementError(f"machine '{self.name}' has no device; describe at least one in a [[device]] table.")
        for name in names:
            if names.count(name) > 1:
                raise PlacementError(f"machine '{self.name}' has two devices called '{name}'; names must differ.")
        for device in self.devices:
            if not (device.memory_bytes >= 0 and device.slowdown > 0):
                raise PlacementError(
                    f"device '{device.name}': expected memory of at least 0 bytes and a slowdown above 0, got "
                    f"{device.memory_bytes:g} and {device.slowdown:g}."
                )
        for link in self.links:
            if not (link.bytes_per_ms > 0 and link.latency_ms >= 0):
                raise PlacementError(
                    f"the link between '{link.ends[0]}' and '{link.ends[1]}' needs a bandwidth above 0 and a latency "
                    f"of at least 0, got {link.bytes_per_ms:g} bytes/ms and {link.latency_ms:g} ms."
                )
        for start in range(len(names)):
            for end in range(len(names)):
                self.route(start, end)

    @property
    def num_devices(self) -> int:
        """D, the number of devices."""
        return len(self.devices)

    def index(self, name: str) -> int:
        """Returns the number of a device.

        Raises:
          PlacementError: no device has this name.
        """
        names = [device.name for device in self.devices]
        if name not in names:
            hint = did_you_mean(name, names)
            raise PlacementError(
                f"machine '{self.name}' has no device '{name}'{hint}; it has {', '.join(names)}. Name one of these."
            )
        return names.index(name)

    def route(self, start: int, end: int) -> Route:
        """Returns the way of copies between two devices; an empty one from a device to itself.

        Raises:
          PlacementError: the machine has no connection between them.
        """
        return self._routes[start][end]

    @cached_property
    def _routes(self) -> list[list[Route]]:
        return [self._routes_from(device.name) for device in self.devices]

    def _routes_from(self, start: str) -> list[Route]:
        neighbours: dict[str, list[tuple[str, int]]] = {}
        for number, link in enumerate(self.links):
            first, second = link.ends
            neighbours.setdefault(first, []).append((second, 2 * number))
            neighbours.setdefault(second, []).append((first, 2 * number + 1))
        names = [device.name for device in self.devices]
        ways: dict[str, tuple[int, ...]] = {start: ()}
        pending = deque([start])
        while pending:
            place = pending.popleft()
            if place in names and place != start:
                continue  # devices do not pass copies on
            for other, channel in neighbours.get(place, []):
                if other not in ways:
                    ways[other] = (*ways[place], channel)
                    pending.append(other)
        for name in names:
            if name not in ways:
                raise PlacementError(
                    f"machine '{self.name}' describes no link by which '{start}' reaches '{name}'; add a [[link]] "
                    f"table with these ends, or links of both to one switch."
                )
        return [Route(ways[name], sum(self.links[each // 2].latency_ms for each in ways[name])) for name in names]


def presets() -> list[str]:
    """Returns the names of the machines that come with the program."""
    return sorted(path.stem for path in _PRESETS.glob(f"*{_SUFFIX}"))


def find_machine(name: str) -> Machine:
    """Returns a preset, or the machine of a text file.

    Args:
      name: one of `presets()`, or the path of a file that ends in `.toml`.
    Raises:
      PlacementError: there is no such preset or file, or it describes no machine.
    """
    path = Path(name) if name.endswith(_SUFFIX) else _PRESETS / f"{name}{_SUFFIX}"
    if not name.endswith(_SUFFIX) and name not in presets():
        raise PlacementError(
            f"no machine is called '{name}'{did_you_mean(name, presets())}; choose one of {', '.join(presets())}, or "
            f"give the path of a file that ends in {_SUFFIX}."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlacementError(f"cannot read the machine {path}: {one_paragraph(error)}. Name another file.") from error
    return parse_machine(text, str(path))


def parse_machine(text: str, source: str = "<text>") -> Machine:
    """Returns the machine that a TOML text describes.

    Args:
      source: what errors call the text.
    Raises:
      PlacementError: the text is not as the head of this module says.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlacementError(f"{source} is no TOML file: {error}. See environment/placement/machine.py.") from error
    _require_keys(tables, f"{source}", required={"name": str, "device": list}, optional={"link": list})
    devices = [_device(each, f"{source}, device {at}") for at, each in enumerate(tables["device"], 1)]
    links = [_link(each, f"{source}, link {at}") for at, each in enumerate(tables.get("link", []), 1)]
    return Machine(tables["name"], tuple(devices), tuple(links))


_NUMBER = (int, float)


def _device(table: Mapping[str, Any], place: str) -> Device:
    required = {"name": str, "costs": str, "memory_gb": _NUMBER}
    _require_keys(table, place, required=required, optional={"slowdown": _NUMBER, "lacks": (str, list)})
    kind, _, device = table["costs"].partition(":")
    if kind != "roofline" or device not in CostModel.devices():
        known = [f"roofline:{each}" for each in CostModel.devices()]
        raise PlacementError(
            f"{place}: no analytic cost model is called '{table['costs']}'{did_you_mean(table['costs'], known)}; "
            f"choose one of {', '.join(known)}."
        )
    memory_bytes = float(table["memory_gb"]) * 1e9
    lacks = _lacking(table.get("lacks", []), place)
    return Device(table["name"], table["costs"], memory_bytes, float(table.get("slowdown", 1.0)), lacks)


def _lacking(given: str | Sequence[str], place: str) -> frozenset[str]:
    if not isinstance(given, str):
        return frozenset(given)
    if given not in LACKING:
        raise PlacementError(
            f"{place}: no list of missing kernels is called '{given}'{did_you_mean(given, list(LACKING))}; choose one "
            f"of {', '.join(LACKING)}, or list the names of operators."
        )
    return LACKING[given]


def _link(table: Mapping[str, Any], place: str) -> Link:
    required = {"between": list, "gb_per_s": _NUMBER, "latency_us": _NUMBER}
    _require_keys(table, place, required=required, optional={})
    ends = table["between"]
    if len(ends) != 2 or not all(isinstance(end, str) for end in ends) or ends[0] == ends[1]:
        raise PlacementError(f"{place}: `between` has to name two different devices or switches, got {ends}.")
    return Link((ends[0], ends[1]), float(table["gb_per_s"]) * 1e6, float(table["latency_us"]) * 1e-3)


def _require_keys(table: object, place: str, *, required: Mapping[str, Any], optional: Mapping[str, Any]) -> None:
    if not isinstance(table, Mapping):
        raise PlacementError(f"{place}: expected a table, got {table!r}.")
    known = {**required, **optional}
    for key, value in table.items():
        if key not in known:
            raise PlacementError(
                f"{place}: unknown key '{key}'{did_you_mean(key, list(known))}; known: {', '.join(known)}."
            )
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise PlacementError(f"{place}: '{key}' has a value of the wrong kind: {value!r}.")
    missing = [key for key in required if key not in table]
    if missing:
        raise PlacementError(f"{place}: {', '.join(missing)} is missing; add it.")
