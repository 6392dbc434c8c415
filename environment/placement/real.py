"""Real devices: a machine of the cores and GPUs that are here, and divided models as a runtime that can be measured.

machine = real_machine(["cpu:0", "cpu:1"])
write_divided(Path("out"), exported, stages, machine)
    placed = Variant("placed", PlacedRuntime(Path("out")), exported)
    timing = measure(Variant("one core", OnnxRuntime(), exported), [placed])
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from environment.inputs import Feeds, input_specs
from environment.measurement.effort import WALL, Clock
from environment.placement import runner
from environment.placement.errors import PlacementError
from environment.placement.kernels import LACKING
from environment.placement.machine import Device, Link, Machine
from environment.placement.stages import Stage
from environment.runtimes.onnx_runtime import OnnxRuntime, require_working
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.files import write_text
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model

SCRIPT = "run.py"
TOLERANCE = 1e-4
"""The largest difference of outputs that counts as equal, in their spread, as of models in single precision."""
HAND_OVER_MS = 0.1
"""Latency of a tensor that one thread hands to another: waking the thread and beginning a session.

Threads hand over references, so that their part does not grow with the tensor. Processes copy: in one run of `python -m
tests.perf.hand_over` on two busy cores, 10 MB took 12 µs between threads and 10 ms between processes."""
BOUNDARY_BYTES_PER_MS = 4e6
"""Bytes per ms that handing over costs beside the latency: tensors are not copied, but convolutions work on blocks of
channels, and ONNX Runtime rearranges what leaves or enters a session."""
_NAME = re.compile(r"(cpu|cuda):(0|[1-9][0-9]*)")


def parse_devices(text: str) -> list[str]:
    """Returns the devices of a list such as `cpu:0,cpu:1`.

    Raises:
      PlacementError: one is malformed, is not here or is named twice.
      UnavailableError: CUDA is named, and ONNX Runtime cannot use it.
    """
    names = [name.strip() for name in text.split(",")]
    cores = sorted(os.sched_getaffinity(0))
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None:
            raise PlacementError(f"'{name}' is no device; expected a list such as cpu:0,cpu:1 or cuda:0,cpu:0.")
        if names.count(name) > 1:
            raise PlacementError(f"device '{name}' is named twice; name each one once.")
        if found[1] == "cpu" and int(found[2]) not in cores:
            known = ", ".join(f"cpu:{core}" for core in cores)
            raise PlacementError(f"device '{name}' is not here: this process may use {known}. Name some of these.")
        if found[1] == "cuda":
            require_working("cuda")
    return names


def real_machine(names: Sequence[str]) -> Machine:
    """Returns the machine of some devices that are here, for the simulation that chooses a placement.

    The host is the first CPU, or the first device if there is none. Cores and GPUs hand over by the host's memory.
    """
    ordered = sorted(names, key=lambda name: not name.startswith("cpu"))
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    devices = [
        Device(name, "roofline:xeon", memory)
        if name.startswith("cpu")
        else Device(name, "roofline:h200", memory, lacks=LACKING["cuda"])
        for name in ordered
    ]
    links = [
        Link((one, other), BOUNDARY_BYTES_PER_MS, HAND_OVER_MS)
        for at, one in enumerate(ordered)
        for other in ordered[at + 1 :]
    ]
    return Machine(" + ".join(ordered), tuple(devices), tuple(links))


def without_communication(machine: Machine) -> Machine:
    """Returns a machine whose copies take no time, on which list scheduling gives a bound."""
    links = tuple(Link(link.ends, 1e30, 0.0) for link in machine.links)
    return Machine(f"{machine.name}, free copies", machine.devices, links)


def divided_files(folder: Path, stages: int) -> list[Path]:
    """Returns the files that `write_divided` writes for so many stages."""
    return [folder / name for name in (SCRIPT, runner.PLAN, runner.WHOLE, *map(_file, range(stages)))]


def _file(stage: int) -> str:
    return f"stage-{stage:03d}.onnx"


def write_divided(folder: Path, exported: CheckedModel, stages: Sequence[Stage], machine: Machine) -> None:
    """Writes a divided model: its stages, the whole model, the plan and the script that runs and verifies it.

    The plan comes last, so that a folder without one is not complete. Stages of an earlier model are removed.

    Raises:
      OSError: a file cannot be written.
      ModelError: no inputs can be made up for the model.
    """
    plan = {
        "format": runner.FORMAT,
        "devices": [device.name for device in machine.devices],
        "inputs": [_input_entry(spec) for spec in input_specs(exported)],
        "outputs": [value.name for value in exported.skeleton.graph.output],
        "tolerance": TOLERANCE,
        "stages": [
            {"device": stage.device, "file": _file(at), "reads": stage.reads, "writes": stage.writes}
            for at, stage in enumerate(stages)
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / runner.PLAN).unlink(missing_ok=True)
    for stale in folder.glob("stage-*.onnx*"):
        stale.unlink()
    write_model(exported, folder / runner.WHOLE)
    for at, stage in enumerate(stages):
        write_model(stage.model, folder / _file(at))
    write_text(folder / SCRIPT, Path(runner.__file__).read_text(encoding="utf-8"))
    write_text(folder / runner.PLAN, json.dumps(plan, indent=1) + "\n")


def _input_entry(spec: Any) -> dict[str, Any]:
    if spec.is_string or spec.dtype.kind not in "fiub":
        raise PlacementError(f"input '{spec.name}' is of {spec.dtype}, which cannot be handed to a divided model yet.")
    low, high = spec.limits
    return {"name": spec.name, "dtype": spec.dtype.str, "dims": list(spec.dims), "low": low, "high": high}


@dataclass(frozen=True)
class PlacedRuntime:
    """A divided model as a runtime, which ignores the model that it is given and opens its own stages.

    Attributes:
      folder: what `write_divided` has written.
    """

    folder: Path

    @property
    def label(self) -> str:
        devices = ", ".join(runner.read_plan(self.folder)["devices"])
        return f"ONNX Runtime {ort.__version__}, a session for each stage on {devices}"

    @property
    def clock(self) -> Clock:
        return WALL

    def open(self, model: CheckedModel | Path, feeds: Feeds) -> PlacedSession:
        try:
            return PlacedSession(runner.PlacedModel(self.folder), feeds)
        except runner.PlacedModelError as error:
            raise ModelError(one_paragraph(error)) from error


class PlacedSession:
    """A divided model with its inputs in place."""

    def __init__(self, placed: runner.PlacedModel, feeds: Feeds) -> None:
        self._placed = placed
        placed.place(feeds)

    def run(self) -> None:
        try:
            self._placed.run_placed()
        except runner.PlacedModelError as error:
            raise ModelError(one_paragraph(error)) from error

    def outputs(self) -> list[np.ndarray]:
        return self._placed.results()


@dataclass(frozen=True)
class ParallelExecutor(OnnxRuntime):
    """ONNX Runtime's parallel executor: independent operators run at the same time on several threads."""

    workers: int = 2

    @property
    def label(self) -> str:
        return f"{super().label}, parallel executor with {self.workers} threads"

    @property
    def clock(self) -> Clock:
        return WALL

    def options(self) -> ort.SessionOptions:
        options = super().options()
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = self.workers
        return options
