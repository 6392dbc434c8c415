"""Runs of `rlflow optimise`, with its defaults unless a table changes them, and a last measurement of each result.

A run is one unit of work: one model and one seed. It is kept in `runs/reproduce/defaults/units`, with the run directory
and the result beside it, so that a run that was interrupted goes on, and a finished one is not done again.

The last measurement decides nothing. Those of the run are biased: they have decided which graph is kept, and so the
kept ones are those that turned out well.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from controller.search.journal import FILE, Actions, as_actions, moves
from environment import zoo
from environment.costs.prices.settings import setting_of
from environment.inputs import TIMED_ON
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, measure
from environment.processes import begin_worker, starting_workers
from environment.runtimes import OnnxRuntime
from experiments.config.effect import in_effect
from experiments.config.run import RunConfig, load_config
from experiments.config.sections import num_cores
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once, unit_path
from experiments.pipeline.clock.measure import floor_of, runtime_of
from experiments.pipeline.loading.load import find_model
from experiments.pipeline.optimise import optimise
from experiments.reproduce.options import chosen_graphs
from experiments.reproduce.table import UNDEFINED
from experiments.request import Request, resolved
from experiments.runs.progress import ProgressDisplay
from experiments.runs.result import NOISE
from taso_ext import RuleSet
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.reading import read_model

UNITS = "defaults"
"""The folder of `runs/reproduce` in which the runs are kept."""
CHANGES: Mapping[str, Record] = {
    "smoke": {"search": {"seconds": 4.0}, "measure": {"pairs": 24, "all_cores": False}},
    "full": {},
}
"""Changes of the default settings by scale; at full scale there are none."""
LAST = {
    "smoke": Effort(resolution=None, pairs=12, sessions=2),
    "full": Effort(resolution=0.01, pairs=150, seconds=120, sessions=5, floor=NOISE),
}
"""Efforts of the last measurement, by scale."""
MEASURED = ("model_ms", "ratio", "low", "high", "control", "verdict")


RESULT_COLUMNS = {
    "ratio": "time of the result over the model's, below 1 is faster; no figure where the result is the model",
    "low": "95 % interval of the ratio, lower end",
    "high": "upper end",
    "control": "the model against itself, measured at the same time",
    "verdict": "of these samples: faster or slower beyond noise, or undecided",
    "steps": "rewrites of the result",
    "timed": "whole graphs that were timed",
    "minutes": "for everything, prices that were not known before included",
}
"""The columns of a result that every table of these runs has, with their meaning."""


@dataclass(frozen=True)
class DefaultRun:
    """One run of `rlflow optimise MODEL --device DEVICE --seed SEED`, or with other settings.

    Attributes:
      model: zoo name, or path of an ONNX file.
      scale: `smoke` or `full`.
      device: the device that the result is made for.
      seed: the seed.
      busy: whether processes keep all cores but one busy during the search and the measurements.
      variant: name of the settings if they are not the defaults.
      preset, changes: the settings, as for `--preset` and `--set`; `changes` come after those of the scale.
      from_prior: whether the run begins with the shipped prices alone, in a database of its own.
      costs: the kind of costs on the device, with its parameters: `measured`, or `endtoend:timings=64`.
    """

    model: str
    scale: str = "full"
    device: str = "cpu"
    seed: int = 0
    busy: bool = False
    variant: str = ""
    preset: str = "auto"
    changes: tuple[str, ...] = ()
    from_prior: bool = False
    costs: str = "measured"

    @property
    def name(self) -> str:
        """The name of the model, as tables show it."""
        return find_model(self.model).name

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        kind, *parameters = self.costs.split(":")
        costs = ":".join([kind, self.device, *parameters])
        values = {"costs": costs, "device": self.device, "seed": self.seed, **CHANGES[self.scale]}
        return resolved(load_config(self.preset, values, self.changes))

    @property
    def settings(self) -> Record:
        """Everything that the result depends on."""
        path = find_model(self.model).path
        return {
            "config": in_effect(self.config),
            "setting": str(setting_of(OnnxRuntime(self.device))),
            "rules": RuleSet.default().fingerprint,
            "feeds": TIMED_ON,
            "busy": self.busy,
            **({"from_prior": True} if self.from_prior else {}),
            **({} if path is None else {"file": digest_of(path)}),
        }

    @property
    def output(self) -> Path:
        """The path of the result."""
        variant = f"-{self.variant}" if self.variant else ""
        name = f"{self.name}{variant}-{self.scale}-{self.seed}{'-busy' * self.busy}"
        return unit_path(UNITS, name, self.settings).with_suffix(".onnx")

    @property
    def unit(self) -> Unit:
        """The unit of work that finishes the run and returns its record."""
        label = " ".join(filter(None, (self.name, self.variant, f"seed {self.seed}"))) + ", busy" * self.busy
        return Unit(label, partial(finished_run, self))

    def source(self) -> CheckedModel:
        """Returns the model before the run."""
        return read_model(find_model(self.model).build())

    def result(self, progress: ProgressDisplay) -> CheckedModel:
        """Returns the result; one whose file was removed is written again by the finished run."""
        if not self.output.is_file():
            optimise(self._request(), progress)
        return read_model(self.output)

    def actions(self) -> Actions:
        """Returns the rewrites of the result, as the finished run has left them."""
        stored = json.loads((self.output.with_suffix("") / "actions.json").read_text(encoding="utf-8"))
        return as_actions([(each["rule"], each["location"]) for each in stored["actions"]])

    def _request(self) -> Request:
        arguments = ("reproduce", UNITS, self.model)
        return Request(self.model, self.output, self.config, self.output.with_suffix(""), arguments)


def finished_run(run: DefaultRun, progress: ProgressDisplay) -> Record:
    """Finishes a run unless this was done before.

    Returns:
      The row of the tables, the rewrites of the result by rule under "rules", what the run took under "counts", and
      under "curve" the moves of the climb: seconds, number of graphs timed until then, and ratio to the start.
    """

    def work() -> Record:
        with contextlib.ExitStack() as during:
            if run.busy:
                during.enter_context(busy_cores())
            if run.from_prior:
                during.enter_context(own_cache(run.output.with_suffix(".cache")))
            result, directory = optimise(run._request(), progress)
            measured = last_measurement(run) if result.measured else dict.fromkeys(MEASURED, UNDEFINED)
        return {
            "graph": run.name,
            "seed": run.seed,
            "estimated": max(result.improvements.values()),
            **measured,
            "steps": sum(result.rules_applied.values()),
            "timed": result.timed,
            "minutes": sum(result.stage_seconds.values()) / 60,
            "choice": result.selection,
            "rules": result.rules_applied,
            "counts": result.counts.to_json(),
            "curve": moves(directory / "checkpoints" / FILE),
        }

    path = run.output
    return once(UNITS, path.stem.rpartition("-")[0], run.settings, work)


def last_measurement(run: DefaultRun) -> Record:
    """Measures a result against its model; no decision depends on this measurement."""
    runtime = runtime_of(run.config)
    model, result = Variant("model", runtime, run.source()), Variant("result", runtime, read_model(run.output))
    found = measure(model, [result], LAST[run.scale])
    return dict(zip(MEASURED, _figures(found), strict=True))


def _figures(found: Timing) -> tuple[float | str, ...]:
    control = found.control
    assert control is not None  # the effort has one
    ratio, (result,) = found.ratio, found.candidates
    verdict = result.verdict(floor_of(control.ratio))
    return found.reference.ms.value, ratio.value, ratio.low, ratio.high, control.ratio.value, str(verdict)


def ratio_of(record: Record) -> float:
    """Returns the last measured ratio of a run; 1 if the result is the model itself."""
    return 1.0 if record["ratio"] == UNDEFINED else float(record["ratio"])


def geometric_mean(records: Sequence[Record]) -> float:
    """Returns the geometric mean of the ratios of runs."""
    return float(np.exp(np.mean([np.log(ratio_of(record)) for record in records])))


def digest_of(path: Path) -> str:
    """Returns the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def add_models(parser: argparse.ArgumentParser) -> None:
    """Adds the option for ONNX files of the user."""
    parser.add_argument(
        "--models",
        metavar="DIR_OR_FILE",
        type=Path,
        nargs="+",
        default=[],
        help="ONNX files of your own, and folders of such files, instead of zoo graphs",
    )


def chosen_models(options: argparse.Namespace) -> list[str]:
    """Returns the files that `--models` names, or else the chosen zoo graphs.

    Raises:
      UserError: a path does not exist, a folder holds no ONNX file, two files have one name, or both kinds are named.
    """
    if not options.models:
        return chosen_graphs(options)
    if options.graphs:
        raise UserError(f"--models names files, and {', '.join(options.graphs)} zoo graphs. Name one kind.")
    files = [file for path in options.models for file in _files(path)]
    stems = [file.stem for file in files]
    for file in files:
        if stems.count(file.stem) > 1 or zoo.contains(file.stem):
            raise UserError(f"Two models would be called {file.stem}. Give {file} another name.")
    return [str(file) for file in files]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.glob("*.onnx")) if path.is_dir() else []
    if not found:
        raise UserError(f"--models {path}: expected an ONNX file, or a folder that holds files named *.onnx.")
    return found


@contextlib.contextmanager
def own_cache(folder: Path) -> Iterator[None]:
    """Makes the database of prices in a folder the user's own inside the block."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder.absolute())
    try:
        yield
    finally:
        del os.environ["XDG_CACHE_HOME"]
        os.environ |= {} if before is None else {"XDG_CACHE_HOME": before}


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keeps all cores of this process but one busy inside the block; the processes that do so end with this one."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_keep_busy, daemon=True) for _ in range(num_cores() - 1)]
    with starting_workers():
        for process in processes:
            process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _keep_busy() -> None:
    """Computes, and moves memory, until its parent ends: a neighbour takes caches and bandwidth too."""
    begin_worker()
    numbers = np.ones(1 << 22)  # 32 MB, more than a core's own caches
    while True:
        np.multiply(numbers, 1.0, out=numbers)
