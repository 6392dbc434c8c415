"""Measures the model and the result end to end, interleaved."""

from __future__ import annotations

import dataclasses

import onnx

from environment.runtime import measure_pair
from experiments.result import MeasuredRatio
from experiments.run import Run

STAGE = "measure"


def measure(run: Run, model: onnx.ModelProto, result: onnx.ModelProto) -> MeasuredRatio:
    """Time of the result over time of the model on the run's device; kept as `checkpoints/measured.json`."""
    name = "checkpoints/measured.json"
    if run.directory.finished(STAGE):
        return MeasuredRatio(**run.directory.read_json(name))
    settings = run.config.measure
    with run.stage(STAGE, "measure end to end", settings.pairs) as bar:
        found = measure_pair(
            model,
            result,
            device=run.config.device,
            pairs=settings.pairs,
            sessions=settings.sessions,
            threads=settings.threads,
            seed=run.seed(STAGE),
            on_pair=lambda done, total: bar.update(done),
        )
        measured = MeasuredRatio(
            ratio=found.ratio,
            low=found.ci_low,
            high=found.ci_high,
            before_ms=found.reference_ms,
            after_ms=found.candidate_ms,
            device=run.config.device,
            pairs=found.pairs,
        )
        run.directory.write_json(name, dataclasses.asdict(measured))
    return measured
