"""Division of a model among devices that are here: files, verification and timing."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.placement.interface import place
from environment.costs import registry as cost_models
from environment.inputs import Feeds, edge_feeds, input_specs, random_feeds, timing_feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, measure
from environment.placement.problem import PlacementProblem
from environment.placement.real import (
    SCRIPT,
    TOLERANCE,
    ParallelExecutor,
    PlacedRuntime,
    divided_files,
    parse_devices,
    real_machine,
    without_communication,
    write_divided,
)
from environment.placement.runner import PlacedModel
from environment.placement.stages import divide
from environment.runtimes import OnnxRuntime
from environment.verification.differences import Scale, difference, spread_of
from experiments.errors import UserError
from experiments.output_file import require_not_read, require_writable, require_writable_directory
from experiments.pipeline.loading.load import find_model
from experiments.placement.loading import Operators, load_operators, placed_by
from experiments.runs.progress import ProgressDisplay
from taso_ext import State
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import data_file
from taso_ext.onnx_io.reading import external_files
from taso_ext.onnx_io.session import create_session
from taso_ext.rule_sets import load_rule_set

DEFAULT_PLACER, DEFAULT_COSTS = "annealing", "measured:cpu"
_RANDOM_SETS = 3
_MOST_STAGES = 1000
"""More stages than a division has; an existing folder is looked through for so many."""


@dataclass(frozen=True)
class Divided:
    """A divided model.

    Attributes:
      model, folder, devices, placer, costs: what was asked for.
      operators, groups, stages: how many there are.
      handed_over, copied_bytes: tensors that go from one device to another in a step, and their size.
      predicted_ms: of a step, simulated.
      one_device_ms: the sum of all operators' times.
      bound: the largest speed-up that list scheduling finds if handing over were free.
      largest_difference: of the outputs, in their spread; infinite if they differ in more than rounding.
      input_sets: number of input sets on which outputs were compared.
      timing: the measurement; None if it was not asked for or the outputs differ.
    """

    model: str
    folder: Path
    devices: tuple[str, ...]
    placer: str
    costs: str
    operators: int
    groups: int
    stages: int
    handed_over: int
    copied_bytes: float
    predicted_ms: float
    one_device_ms: float
    bound: float
    largest_difference: float
    input_sets: int
    timing: Timing | None

    @property
    def is_equal(self) -> bool:
        """Whether the outputs are those of the whole model."""
        return self.largest_difference <= TOLERANCE

    def lines(self) -> list[str]:
        """Returns the sentences that the user reads."""
        verdict = "Equal" if self.is_equal else "DIFFERENT"
        lines = [
            f"{self.model}: {self.operators} operators in {self.groups} groups, placed by {self.placer} under "
            f"{self.costs}.",
            f"{self.stages} stages on {', '.join(self.devices)}; {self.handed_over} tensors of "
            f"{self.copied_bytes / 1e6:.3g} MB in all are handed over.",
            f"Predicted: {self.one_device_ms / self.predicted_ms:.3f} times as fast as one device. List scheduling "
            f"would come to {self.bound:.3f} if handing over were free.",
            f"{verdict}: on {self.input_sets} input sets, outputs differ by at most {self.largest_difference:.2e} of "
            f"their spread (tolerance {TOLERANCE:.0e}).",
        ]
        if self.timing is not None:
            lines += ["", "| variant | time [ms] | ratio to one core | times as fast |", "|---|---:|---:|---:|"]
            for each in (self.timing.reference, *self.timing.candidates):
                ratio = each.ratio
                lines.append(
                    f"| {each.name} | {each.ms.value:.4g} | {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] | "
                    f"{1 / ratio.value:.2f} |"
                )
            lines += ["", f"{self.timing.ending} Timed by the {self.timing.clock}."]
        lines.append(f"Wrote {self.folder}. Run it, and compare it again: python {self.folder / SCRIPT}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "timing"}
        timing = None if self.timing is None else dataclasses.asdict(self.timing)
        return values | {"folder": str(self.folder), "equal": self.is_equal, "timing": timing}


def divide_model(options: argparse.Namespace, progress: ProgressDisplay) -> Divided:
    """Carries out an `rlflow place --devices` command.

    Raises:
      UserError, PlacementError, ModelError, UnavailableError: the input is bad.
    """
    devices = parse_devices(options.devices)
    placer = options.placers or DEFAULT_PLACER
    if "," in placer:
        raise UserError(f"--devices takes one placer, got {placer}. Compare several with --machine first.")
    _require_folder(options)
    loaded = load_operators(options, progress)
    costs = options.costs or DEFAULT_COSTS
    work = operator_times(loaded, costs, progress)
    machine = real_machine(devices)
    problem = PlacementProblem.of(loaded.graph, machine, loaded.grouped(options, work), operator_ms=work)
    placed = placed_by(placer, problem, options, progress)
    progress.note("Dividing the model")
    exported, stages = divide(loaded.model, problem, placed.assignment)
    write_divided(options.output, exported, stages, machine)
    worst, input_sets = compared(exported, options.output, options.seed, progress)
    timed = worst <= TOLERANCE and not options.untimed
    return Divided(
        model=loaded.name,
        folder=options.output,
        devices=tuple(device.name for device in machine.devices),
        placer=placer,
        costs=costs,
        operators=len(loaded.graph),
        groups=problem.num_groups,
        stages=len(stages),
        handed_over=placed.outcome.copies,
        copied_bytes=placed.outcome.copied_bytes,
        predicted_ms=placed.outcome.ms,
        one_device_ms=float(work.sum()),
        bound=free_bound(problem, work),
        largest_difference=worst,
        input_sets=input_sets,
        timing=_timed(exported, options, progress) if timed else None,
    )


def _require_folder(options: argparse.Namespace) -> None:
    """Checks that the folder can be written, and that it does not hold the model itself.

    Raises:
      UserError: it cannot be written, holds a divided model or other files of these names, or the model.
    """
    folder: Path = options.output
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is no directory: name a folder to write into with -o.")
    require_writable_directory(folder)
    files = [file for file in divided_files(folder, _MOST_STAGES) if file.exists()]
    for file in files:
        require_writable(file, force=options.force)
    path = find_model(options.model).path
    if path is not None:
        require_not_read([*files, *map(data_file, files)], [path, *external_files(path)], options.model)


def operator_times(loaded: Operators, costs: str, progress: ProgressDisplay) -> npt.NDArray[np.float64]:
    """Returns the time of each operator under a cost model, [N] in ms; kernels are timed if it measures.

    Raises:
      ValueError, UnavailableError: the cost model is unknown or cannot be used here.
    """
    try:
        prices = cost_models.find(costs).of(loaded.model)
    except ValueError as error:
        raise UserError(f"--costs {costs}: {error}") from error
    progress.note(f"Pricing {len(loaded.graph)} operators by {costs}")
    state = State(loaded.model.graph, load_rule_set(None), prices.native)
    prices.price(state)
    return loaded.graph.operator_ms(prices.native)


def free_bound(problem: PlacementProblem, work: npt.NDArray[np.float64]) -> float:
    """Returns how much faster than one device list scheduling of single operators is if copies are free."""
    free = without_communication(problem.machine)
    alone = PlacementProblem.of(problem.graph, free, np.arange(len(problem.graph)), operator_ms=work)
    return float(work.sum()) / place("heft", alone).outcome.ms


def compared(exported: CheckedModel, folder: Path, seed: int, progress: ProgressDisplay) -> tuple[float, int]:
    """Returns the largest difference of outputs on random and edge-case inputs, and the number of these.

    Inputs on which the whole model itself fails are left out.

    Raises:
      ModelError: the whole model runs on none of them.
    """
    rng, specs = np.random.default_rng(seed), input_specs(exported)
    sets: list[Feeds] = [random_feeds(specs, rng) for _ in range(_RANDOM_SETS)] + edge_feeds(specs, rng)
    whole, divided = create_session(exported, "all"), PlacedModel(folder)
    names = [value.name for value in exported.skeleton.graph.output]
    pairs: list[tuple[Sequence[Any], Sequence[Any]]] = []
    with progress.stage("compare outputs", total=len(sets)) as bar:
        for done, feeds in enumerate(sets, 1):
            try:
                expected = whole.run(names, feeds)
            except Exception:  # ONNX Runtime's exceptions share no public base class
                continue
            pairs.append((expected, divided.run(feeds)))
            bar.update(done)
    divided.close()
    if not pairs:
        raise ModelError("the model runs on none of the inputs that were made up for it, so nothing can be compared.")
    by_output = zip(*(zip(*pair, strict=True) for pair in pairs), strict=True)
    return max(map(_largest_difference, by_output)), len(pairs)


def _largest_difference(results: Sequence[tuple[Any, Any]]) -> float:
    """Returns the largest difference of one output, in its spread over all input sets.

    Args:
      results: of each input set, what the whole model and the divided one return.
    """
    scale = Scale(spread_of([expected for expected, _ in results]), TOLERANCE)
    return max(difference(expected, found, scale) for expected, found in results)


def _timed(exported: CheckedModel, options: argparse.Namespace, progress: ProgressDisplay) -> Timing:
    """Times the divided model against the usual ways to use this machine, all in one interleaved run."""
    count = len(parse_devices(options.devices))
    candidates = [
        Variant("divided", PlacedRuntime(options.output), exported),
        Variant(f"ONNX Runtime's parallel executor, {count} threads", ParallelExecutor(workers=count), exported),
        Variant(f"{count} intra-op threads", OnnxRuntime(threads=count), exported),
    ]
    effort = Effort(pairs=options.pairs, sessions=min(3, options.pairs), seed=options.seed, control=False)
    with progress.stage("time", total=effort.pairs) as bar:
        return measure(
            Variant("one core", OnnxRuntime(), exported),
            candidates,
            effort,
            feeds=timing_feeds(input_specs(exported), np.random.default_rng(options.seed)),
            on_pair=lambda done, total: bar.update(done),
        )
