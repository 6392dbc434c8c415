"""How long a kernel takes, by running copies of it beside a yardstick.

The speed of a machine drifts by more than what tells good kernels from bad ones, and prices that are compared may be
measured hours apart. So each is measured as a ratio to the same small product of matrices, interleaved with it, and
stated in the milliseconds that this took when the database was begun.
"""

from __future__ import annotations

import math

from onnx import TensorProto

from environment.costs.kernel import Kernel, Operand
from environment.costs.kernel_model import copies_model, weight_bytes
from environment.costs.price_database import Price
from environment.effort import Effort
from environment.runtimes import OnnxRuntime
from environment.timing import Variant, measure
from taso_ext.detached import DetachedModel

YARDSTICK = Kernel(
    "",
    "MatMul",
    13,
    "{}",
    (Operand(TensorProto.FLOAT, (64, 512), True), Operand(TensorProto.FLOAT, (512, 512), True)),
    (True,),
)
FEWEST_COPIES, MOST_COPIES = 4, 64
"""Fewer would time the session's own work, more take longer to load than to run."""
LONGEST_MS = 20.0
"""Of one inference: a kernel that takes longer than a few copies may is not waiting for its weights."""
GLANCE = Effort(resolution=None, pairs=2, sessions=1, warmup=1, control=False)
EFFORT = Effort(resolution=0.005, pairs=25, seconds=0.3, sessions=1, warmup=1, control=False)
CAREFUL = Effort(resolution=0.002, pairs=200, seconds=2, sessions=3, warmup=3, control=False)


def time_yardstick(runtime: OnnxRuntime) -> float:
    """Milliseconds of one run of the yardstick, by the clock."""
    alone, (model, feeds) = _plain(runtime), copies_model(YARDSTICK, FEWEST_COPIES)
    return measure(Variant("yardstick", alone, model), effort=CAREFUL, feeds=feeds).reference.ms.value / FEWEST_COPIES


def time_kernel(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, yardstick_ms: float) -> Price:
    """The price of one run.

    Args:
      weights_mb: of all copies together, as far as MOST_COPIES allow: what fits the caches, or does not.
      runtime: of one kernel; its level of optimisation does not matter.
      yardstick_ms: what the yardstick costs.
    Raises:
      ModelError: the kernel cannot be run alone.
    """
    alone = _plain(runtime)
    wanted = math.ceil(1e6 * weights_mb / max(weight_bytes(kernel), 1))
    wanted = min(max(wanted, FEWEST_COPIES), MOST_COPIES)
    model, feeds = copies_model(kernel, FEWEST_COPIES)
    few_ms = measure(Variant(kernel.op_type, alone, model), effort=GLANCE, feeds=feeds).reference.ms.value
    copies = min(wanted, max(FEWEST_COPIES, math.floor(LONGEST_MS * FEWEST_COPIES / few_ms)))
    if copies != FEWEST_COPIES:
        model, feeds = copies_model(kernel, copies)
    yardstick = Variant("yardstick", alone, _yardstick_with_inputs_of(model))
    timing = measure(yardstick, [Variant(kernel.op_type, alone, model)], EFFORT, feeds=feeds)
    ms = timing.ratio.value * yardstick_ms * FEWEST_COPIES / copies
    return Price(ms, timing.ratio.half_width, timing.pairs)


def _plain(runtime: OnnxRuntime) -> OnnxRuntime:
    """A kernel is what the optimiser has made; it is not optimised again."""
    return OnnxRuntime(runtime.device, runtime.threads, "disabled")


def _yardstick_with_inputs_of(model: DetachedModel) -> DetachedModel:
    """The yardstick, fed what the model is fed: what is interleaved shares its inputs."""
    yardstick, _ = copies_model(YARDSTICK, FEWEST_COPIES)
    yardstick.skeleton.graph.input.extend(model.skeleton.graph.input)
    return yardstick
