"""Runs a model that is divided among devices, and checks that it returns what the undivided model returns.

    python run.py                                  # compares the outputs of both on random inputs
    python run.py --inputs in.npz --outputs out.npz

This file stands alone: it needs NumPy, ONNX Runtime and the folder that it lies in, with `plan.json`, the stages and
`model.onnx`. Each device has one thread, which for `cpu:N` is pinned to core N. ONNX Runtime releases Python's lock
while it computes, so threads compute at the same time, and tensors are handed over by reference, without a copy.

As a module:

    placed = PlacedModel(Path("DIR"))
    outputs = placed.run({"input": array})
    placed.close()
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

PLAN, WHOLE = "plan.json", "model.onnx"
FORMAT = 1
_FATAL_SEVERITY = 4  # errors arrive as exceptions
_INPUT_SETS = 3


class PlacedModelError(Exception):
    """A folder that holds no divided model, a device that is not here, or inputs that do not fit."""


def _options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_SEVERITY
    return options


def _providers(device: str) -> list[Any]:
    """Returns ONNX Runtime's providers for a device such as `cpu:1` or `cuda:0`."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    if kind == "cuda" and "CUDAExecutionProvider" in ort.get_available_providers():
        return [("CUDAExecutionProvider", {"device_id": int(number)}), "CPUExecutionProvider"]
    raise PlacedModelError(
        f"device '{device}' is not here: ONNX Runtime has {', '.join(ort.get_available_providers())}"
    )


def _pin(device: str) -> None:
    """Pins the calling thread to the core of a CPU device; other threads stay where they are."""
    kind, _, number = device.partition(":")
    if kind != "cpu" or not hasattr(os, "sched_setaffinity"):
        return
    try:
        os.sched_setaffinity(0, {int(number)})
    except OSError as error:
        raise PlacedModelError(f"device '{device}' is not here: core {number} cannot be used ({error})") from error


class _Step:
    """What the threads of one model share.

    Attributes:
      values: tensors by name: inputs, and results of stages.
      error: the first exception of any stage; the others then do nothing.
    """

    def __init__(self) -> None:
        self.values: dict[str, ort.OrtValue] = {}
        self.error: BaseException | None = None


class _Stage:
    """A stage with its session, the locks that it waits for, and those that it opens."""

    def __init__(self, entry: Mapping[str, Any], folder: Path) -> None:
        self.reads, self.writes = list(entry["reads"]), list(entry["writes"])
        self.path = folder / entry["file"]
        self.waits: list[threading.Lock] = []
        self.opens: list[threading.Lock] = []
        self.session: ort.InferenceSession | None = None

    def run(self, step: _Step) -> None:
        for lock in self.waits:
            lock.acquire()
        try:
            if step.error is None:
                assert self.session is not None
                feeds = {name: step.values[name] for name in self.reads}
                found = self.session.run_with_ort_values(self.writes, feeds)
                step.values.update(zip(self.writes, found, strict=True))
        except BaseException as error:  # reported by the caller's thread
            step.error = step.error or error
        finally:
            for lock in self.opens:
                lock.release()


class _Worker:
    """The thread of one device. It holds no reference to the model, so that a dropped model ends its threads."""

    def __init__(self, device: str, stages: Sequence[_Stage], step: _Step) -> None:
        self._device, self._stages, self._step = device, stages, step
        self.begin, self.done = threading.Lock(), threading.Lock()
        self.begin.acquire()
        self.done.acquire()
        self._ends = False
        self._thread = threading.Thread(target=self._work, name=device, daemon=True)
        self._thread.start()
        self.done.acquire()  # until its sessions are open

    def _work(self) -> None:
        try:
            _pin(self._device)
            for stage in self._stages:  # opened here, so that weights lie near the core that reads them
                providers = _providers(self._device)
                stage.session = ort.InferenceSession(str(stage.path), _options(), providers=providers)
        except BaseException as error:  # reported by the caller's thread
            self._step.error = error
        self.done.release()
        while True:
            self.begin.acquire()
            if self._ends:
                return
            for stage in self._stages:
                stage.run(self._step)
            self.done.release()

    def end(self) -> None:
        if not self._ends:
            self._ends = True
            self.begin.release()


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.end()


class PlacedModel:
    """A divided model with its threads and sessions.

    Attributes:
      inputs, outputs: names, in the order of the model.
      devices: such as `cpu:0`.
    """

    def __init__(self, folder: Path) -> None:
        """Opens the model of a folder.

        Raises:
          PlacedModelError: the folder holds none, or a device is not here.
        """
        self.plan = read_plan(folder)
        self.inputs = [each["name"] for each in self.plan["inputs"]]
        self.outputs: list[str] = list(self.plan["outputs"])
        self.devices: list[str] = list(self.plan["devices"])
        self._step = _Step()
        stages = [_Stage(entry, folder) for entry in self.plan["stages"]]
        device_of = [int(entry["device"]) for entry in self.plan["stages"]]
        self._connect(stages, device_of)
        own = [
            [stage for stage, at in zip(stages, device_of, strict=True) if at == number]
            for number in range(len(self.devices))
        ]
        self._workers = [_Worker(name, each, self._step) for name, each in zip(self.devices, own, strict=True) if each]
        self.close = weakref.finalize(self, _end, self._workers)
        if self._step.error is not None:
            self.close()
            raise PlacedModelError(f"{folder} cannot be opened: {self._step.error}") from self._step.error

    @staticmethod
    def _connect(stages: Sequence[_Stage], device_of: Sequence[int]) -> None:
        """Gives each pair of a stage and one of another device that reads its results a lock, closed at first."""
        writer = {name: at for at, stage in enumerate(stages) for name in stage.writes}
        for at, stage in enumerate(stages):
            for before in dict.fromkeys(writer[name] for name in stage.reads if name in writer):
                if device_of[before] != device_of[at]:
                    lock = threading.Lock()
                    lock.acquire()
                    stages[before].opens.append(lock)
                    stage.waits.append(lock)

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Runs one inference.

        Args:
          feeds: an array for each input, by name.
        Returns:
          The outputs, in the order of the model.
        Raises:
          PlacedModelError: an input is missing or unknown, or an operator failed.
        """
        self.place(feeds)
        self.run_placed()
        return self.results()

    def place(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Puts inputs in place, for `run_placed`; see `run`."""
        if set(feeds) != set(self.inputs):
            raise PlacedModelError(f"expected the inputs {', '.join(self.inputs)}, got {', '.join(feeds) or 'none'}")
        self._feeds = {
            name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)) for name, array in feeds.items()
        }

    def run_placed(self) -> None:
        """Runs one inference on the inputs that are in place; see `run`."""
        self._step.values.clear()
        self._step.values.update(self._feeds)
        for worker in self._workers:
            worker.begin.release()
        for worker in self._workers:
            worker.done.acquire()
        if self._step.error is not None:
            error, self._step.error = self._step.error, None
            raise PlacedModelError(f"the divided model cannot be run: {error}") from error

    def results(self) -> list[np.ndarray]:
        """Returns the outputs of the last inference, in the order of the model."""
        return [self._step.values[name].numpy() for name in self.outputs]


def read_plan(folder: Path) -> dict[str, Any]:
    """Returns the plan of a divided model.

    Raises:
      PlacedModelError: there is none, or it is of another version.
    """
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlacedModelError(f"{folder} holds no divided model: {error}") from error
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        raise PlacedModelError(f"{folder / PLAN} is not of format {FORMAT}; make it again with rlflow place")
    return plan


def random_inputs(plan: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Returns random inputs: standard normal floats, and integers of the range that the plan gives."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for each in plan["inputs"]:
        dtype = np.dtype(each["dtype"])
        if dtype.kind == "f":
            feeds[each["name"]] = rng.standard_normal(each["dims"]).astype(dtype)
        else:
            feeds[each["name"]] = rng.integers(each["low"], each["high"], each["dims"], endpoint=True).astype(dtype)
    return feeds


def largest_difference(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> float:
    """Returns the largest difference of outputs, in standard deviations of the expected one; infinite if they differ in
    shape or in anything but rounding."""
    worst = 0.0
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return float("inf")
        if one.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(one, other) else float("inf"))
        elif one.size:
            finite = np.isfinite(one)
            if not np.array_equal(finite, np.isfinite(other)):
                return float("inf")
            spread = float(one[finite].std()) if finite.any() else 1.0
            gap = np.abs(one[finite].astype(np.float64) - other[finite].astype(np.float64)).max(initial=0.0)
            worst = max(worst, float(gap) / max(spread, 1e-6 * float(np.abs(one[finite]).max(initial=1.0))))
    return worst


def verify(folder: Path, input_sets: int = _INPUT_SETS) -> float:
    """Returns the largest difference between the divided and the whole model on random inputs, in spreads.

    Raises:
      PlacedModelError: see `PlacedModel`.
    """
    placed = PlacedModel(folder)
    whole = ort.InferenceSession(str(folder / WHOLE), _options(), providers=["CPUExecutionProvider"])
    worst = 0.0
    for seed in range(input_sets):
        feeds = random_inputs(placed.plan, seed)
        worst = max(worst, largest_difference(whole.run(placed.outputs, feeds), placed.run(feeds)))
    placed.close()
    return worst


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes arrays to an npz file, which is complete or not there at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if the outputs are equal, 1 if they differ, 2 if the folder or the inputs cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="where the plan and the stages are")
    parser.add_argument("--inputs", type=Path, help="an npz file with an array for each input; runs on these alone")
    parser.add_argument("--outputs", type=Path, default=Path("outputs.npz"), help="where --inputs puts the outputs")
    parser.add_argument("--force", action="store_true", help="overwrite the file of --outputs")
    options = parser.parse_args(arguments)
    try:
        if options.inputs is not None:
            if options.outputs.exists() and not options.force:
                raise PlacedModelError(f"{options.outputs} exists; add --force to overwrite it, or name another file")
            placed = PlacedModel(options.folder)
            with np.load(options.inputs) as given:
                found = placed.run({name: given[name] for name in given.files})
            _save(options.outputs, dict(zip(placed.outputs, found, strict=True)))
            print(f"Wrote {options.outputs}.")
            return 0
        tolerance = float(read_plan(options.folder)["tolerance"])
        worst = verify(options.folder)
    except (PlacedModelError, OSError, ValueError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    verdict = "Equal" if worst <= tolerance else "DIFFERENT"
    print(f"{verdict}: on {_INPUT_SETS} random input sets, outputs differ by at most {worst:.2e} of their spread.")
    return 0 if worst <= tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
