"""Measures a model and another one that computes the same end to end, interleaved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from environment.inputs import Feeds, check_given, input_specs, timing_feeds
from environment.measurement import timing
from environment.measurement.effort import Effort
from environment.runtimes import OnnxRuntime
from environment.runtimes.interface import threads_text
from environment.statistics.intervals import Estimate
from experiments.config.run import RunConfig
from experiments.config.sections import num_cores
from experiments.pipeline.loading.load import Loaded
from experiments.pipeline.result.export import Exported
from experiments.runs.result import NOISE, MeasuredRatio
from experiments.runs.run import Run, seed_for
from taso_ext.onnx_io.checked_model import CheckedModel

STAGE, WITH_OTHER_THREADS = "measure", "measure-with-other-threads"


def measure(run: Run, loaded: Loaded, exported: Exported) -> MeasuredRatio:
    """Returns the result's time over the model's on the run's device, and keeps it as `checkpoints/measured.json`."""
    return _kept(run, loaded, exported, run.config, STAGE, "measure end to end", "checkpoints/measured.json")


def measure_with_other_threads(run: Run, loaded: Loaded, exported: Exported) -> MeasuredRatio | None:
    """Returns the same with all cores, or with one thread if the first measurement had all.

    Returns None if that is not asked for, or if there is but one core.
    """
    settings = run.config.measure
    threads = 1 if settings.num_threads == num_cores() else num_cores()
    if not settings.all_cores or run.config.device != "cpu" or threads == settings.num_threads:
        return None
    config = dataclasses.replace(run.config, measure=dataclasses.replace(settings, threads=threads))
    title = f"measure with {threads_text(threads)}"
    return _kept(
        run, loaded, exported, config, WITH_OTHER_THREADS, title, "checkpoints/measured-with-other-threads.json"
    )


def _kept(
    run: Run, loaded: Loaded, exported: Exported, config: RunConfig, stage: str, title: str, name: str
) -> MeasuredRatio:
    """Measures in a stage and keeps the ratio as a file; a finished stage is only read."""
    if run.directory.finished(stage):
        return run.directory.stored(name, lambda fields: MeasuredRatio(**fields))
    with run.stage(stage, title, config.measure.pairs) as bar:
        source = loaded.model.source
        feeds = feeds_of(loaded) or _feeds_at(source, config)
        measured = measure_pair(config, exported.reference or source, exported.model, feeds, bar.update)
        run.directory.write_json(name, dataclasses.asdict(measured))
    return measured


def measure_pair(
    config: RunConfig, model: CheckedModel, result: CheckedModel, feeds: Feeds | None, update: Callable[[int], None]
) -> MeasuredRatio:
    """Returns the time of `result` over that of `model` on the device of the settings.

    Args:
      feeds: arrays by input name; None for random ones.
      update: called with the number of finished pairs of measurements.
    """
    runtime = runtime_of(config)
    found = timing.measure(
        timing.Variant("model", runtime, model),
        [timing.Variant("result", runtime, result)],
        effort_of(config, STAGE, control=config.measure.control),
        feeds=feeds,
        on_pair=lambda done, total: update(done),
    )
    return _measured_ratio(found, config)


def _feeds_at(source: CheckedModel, config: RunConfig) -> Feeds:
    """Returns random inputs of the sizes of `--dim`, which a model with symbolic dimensions does not say itself."""
    return timing_feeds(input_specs(source), np.random.default_rng(effort_of(config, STAGE, control=False).seed))


def runtime_of(config: RunConfig) -> OnnxRuntime:
    """Returns the runtime in which whole models are measured."""
    return OnnxRuntime(config.device, config.measure.num_threads, config.measure.level)


def feeds_of(loaded: Loaded) -> Feeds | None:
    """Returns the first input set that the user gave; None if there is none, so that timing makes one up."""
    return first_of(loaded.inputs, loaded.model.source)


def first_of(given: Feeds | None, model: CheckedModel) -> Feeds | None:
    """Returns the first of the input sets that the user gave for a model; None if there is none."""
    return None if given is None else check_given(input_specs(model), given)[0]


def effort_of(config: RunConfig, stage: str, *, control: bool) -> Effort:
    """Returns the effort of measuring whole models in a stage."""
    settings = config.measure
    return Effort(
        resolution=settings.resolution,
        pairs=settings.pairs,
        seconds=settings.seconds,
        sessions=settings.sessions,
        control=control,
        floor=NOISE,
        seed=seed_for(config.seed, stage),
    )


def floor_of(control: Estimate | None) -> float:
    """Returns how close to 1 a ratio is noise.

    It is `NOISE`, or the model's distance from itself if that is larger and the control's interval excludes 1.
    """
    if control is None or control.covers(1):
        return NOISE
    return max(NOISE, abs(1 - control.value))


def _measured_ratio(found: timing.Timing, config: RunConfig) -> MeasuredRatio:
    (result,) = found.candidates
    control = None if found.control is None else found.control.ratio
    verdict = result.verdict(floor_of(control))
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
        device=config.device,
        threads=config.measure.num_threads,
        runtime=result.runtime,
        clock=found.clock,
        pairs=found.pairs,
        sessions=found.sessions,
        ending=found.ending,
        verdict=verdict,
        **itself,
    )
