"""How long a kernel takes, by running copies of it."""

from __future__ import annotations

import math

from environment.costs.kernel import Kernel
from environment.costs.kernel_model import copies_model, weight_bytes
from environment.costs.price_database import Price
from environment.effort import Effort
from environment.runtimes import OnnxRuntime
from environment.timing import Timing, Variant, measure

FEWEST_COPIES, MOST_COPIES = 4, 64
"""Fewer would time the session's own work, more take longer to load than to run."""
LONGEST_MS = 20.0
"""Of one inference: a kernel that takes longer than a few copies may is not waiting for its weights."""
GLANCE = Effort(resolution=0.01, pairs=2, sessions=1, warmup=1, control=False)
EFFORT = Effort(resolution=0.01, pairs=15, seconds=0.3, sessions=1, warmup=1, control=False)


def time_kernel(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, effort: Effort = EFFORT) -> Price:
    """The price of one run.

    Args:
      weights_mb: of all copies together, as far as MOST_COPIES allow: what fits the caches, or does not.
      runtime: of one kernel; its level of optimisation does not matter.
    Raises:
      ModelError: the kernel cannot be run alone.
    """
    alone = OnnxRuntime(runtime.device, runtime.threads, "disabled")
    wanted = math.ceil(1e6 * weights_mb / max(weight_bytes(kernel), 1))
    wanted = min(max(wanted, FEWEST_COPIES), MOST_COPIES)
    few = _time(kernel, FEWEST_COPIES, alone, GLANCE)
    copies = min(wanted, max(FEWEST_COPIES, math.floor(LONGEST_MS * FEWEST_COPIES / few.reference.ms.value)))
    enough = copies == FEWEST_COPIES and few.ended == "resolution"
    found = few if enough else _time(kernel, copies, alone, effort)
    return Price(found.reference.ms.value / copies, found.reference.noise, found.pairs)


def _time(kernel: Kernel, copies: int, runtime: OnnxRuntime, effort: Effort) -> Timing:
    model, feeds = copies_model(kernel, copies)
    return measure(Variant(kernel.op_type, runtime, model), effort=effort, feeds=feeds)
