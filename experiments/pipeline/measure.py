"""Measures the model and the result end to end, interleaved."""

from __future__ import annotations

import dataclasses

from environment.inputs import Feeds, check_given, input_specs
from environment.measurement import timing
from environment.measurement.effort import Effort
from environment.runtimes import OnnxRuntime
from experiments.config.run import RunConfig
from experiments.pipeline.load import Loaded
from experiments.runs.result import MeasuredRatio
from experiments.runs.run import Run, seed_for
from taso_ext.onnx_io.checked_model import CheckedModel

STAGE = "measure"


def measure(run: Run, loaded: Loaded, result: CheckedModel) -> MeasuredRatio:
    """Returns the result's time over the model's on the run's device, and keeps it as `checkpoints/measured.json`."""
    name = "checkpoints/measured.json"
    if run.directory.finished(STAGE):
        return run.directory.stored(name, lambda fields: MeasuredRatio(**fields))
    settings = run.config.measure
    runtime, effort = runtime_of(run.config), effort_of(run.config, STAGE, control=settings.control)
    with run.stage(STAGE, "measure end to end", settings.pairs) as bar:
        found = timing.measure(
            timing.Variant("model", runtime, loaded.model.source),
            [timing.Variant("result", runtime, result)],
            effort,
            feeds=feeds_of(loaded),
            on_pair=lambda done, total: bar.update(done),
        )
        measured = _measured_ratio(found, run.config.device)
        run.directory.write_json(name, dataclasses.asdict(measured))
    return measured


def runtime_of(config: RunConfig) -> OnnxRuntime:
    """Returns the runtime in which whole models are measured."""
    return OnnxRuntime(config.device, config.measure.threads, config.measure.level)


def feeds_of(loaded: Loaded) -> Feeds | None:
    """Returns the first input set that the user gave; None if there is none, so that timing makes one up."""
    if loaded.inputs is None:
        return None
    return check_given(input_specs(loaded.model.source), loaded.inputs)[0]


def effort_of(config: RunConfig, stage: str, *, control: bool) -> Effort:
    """Returns the effort of measuring whole models in a stage."""
    settings = config.measure
    return Effort(
        resolution=settings.resolution,
        pairs=settings.pairs,
        seconds=settings.seconds,
        sessions=settings.sessions,
        control=control,
        seed=seed_for(config.seed, stage),
    )


def _measured_ratio(found: timing.Timing, device: str) -> MeasuredRatio:
    (result,) = found.candidates
    control = found.control and found.control.ratio
    itself = (
        {"control_ratio": control.value, "control_low": control.low, "control_high": control.high} if control else {}
    )
    return MeasuredRatio(
        ratio=result.ratio.value,
        low=result.ratio.low,
        high=result.ratio.high,
        before_ms=found.reference.ms.value,
        after_ms=result.ms.value,
        noise=found.reference.noise,
        device=device,
        runtime=result.runtime,
        clock=found.clock,
        pairs=found.pairs,
        sessions=found.sessions,
        ending=found.ending,
        **itself,
    )
