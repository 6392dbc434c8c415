"""What run times are stated in that are compared, though they are measured hours apart.

The speed of a machine drifts by more than what tells good graphs from bad ones. So they are measured as ratios to the
same small product of matrices, interleaved with it, and stated in the milliseconds that this took when the database was
begun.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from environment.costs.measured.benchmark_model import copies_model
from environment.costs.measured.kernel import Kernel, Operand
from environment.inputs.model_inputs import Feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, measure
from environment.runtimes import OnnxRuntime
from taso_ext.onnx_io.detached import DetachedModel

YARDSTICK = Kernel(
    "",
    "MatMul",
    13,
    "{}",
    (Operand(TensorProto.FLOAT, (64, 512), True), Operand(TensorProto.FLOAT, (512, 512), True)),
    (True,),
)
COPIES = 4
"""Of the yardstick, in what is timed."""
CAREFUL = Effort(resolution=0.002, pairs=200, seconds=0.5, sessions=3, warmup=3, control=False)
_TIMES_CAREFUL = 4


def time_yardstick(runtime: OnnxRuntime) -> float:
    """Milliseconds of one run of the yardstick, by the clock, as it mostly is."""
    alone, (model, feeds) = plain(runtime), copies_model(YARDSTICK, COPIES)
    timings = (measure(Variant("yardstick", alone, model), effort=CAREFUL, feeds=feeds) for _ in range(_TIMES_CAREFUL))
    return float(np.median([timing.reference.ms.value for timing in timings])) / COPIES


def measure_beside(
    model: DetachedModel,
    runtime: OnnxRuntime,
    effort: Effort,
    feeds: Feeds,
    before_each: Callable[[], object] | None = None,
) -> Timing:
    """A model as a ratio to the yardstick, whose usual time is `usual_ms`.

    Args:
      before_each: see `Variant`; of the model alone.
    """
    yardstick = Variant("yardstick", plain(runtime), _with_inputs_of(model))
    return measure(yardstick, [Variant("model", runtime, model, before_each)], effort, feeds=feeds)


def usual_ms(yardstick_ms: float) -> float:
    """What the reference of `measure_beside` takes where one yardstick takes so much."""
    return COPIES * yardstick_ms


def plain(runtime: OnnxRuntime) -> OnnxRuntime:
    """A kernel is what the optimiser has made; it is not optimised again."""
    return OnnxRuntime(runtime.device, runtime.threads, "disabled")


def _with_inputs_of(model: DetachedModel) -> DetachedModel:
    """The yardstick, fed what the model is fed: what is interleaved shares its inputs."""
    yardstick, _ = copies_model(YARDSTICK, COPIES)
    yardstick.skeleton.graph.input.extend(model.skeleton.graph.input)
    return yardstick
