"""How long a kernel takes, by running copies of it."""

from __future__ import annotations

import math

from environment.costs.kernel import Kernel
from environment.costs.kernel_model import copies_model, weight_bytes
from environment.costs.price_database import Price
from environment.effort import Effort
from environment.runtimes import OnnxRuntime
from environment.timing import Variant, measure

FEWEST_COPIES, MOST_COPIES = 4, 64
"""Fewer would time the session's own work, more take longer to load than to run."""
EFFORT = Effort(resolution=0.01, pairs=15, seconds=0.3, sessions=1, warmup=1, control=False)


def time_kernel(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, effort: Effort = EFFORT) -> Price:
    """The price of one run.

    Args:
      weights_mb: of all copies together, as far as MOST_COPIES allow: what fits the caches, or does not.
      runtime: of one kernel; its level of optimisation does not matter.
    Raises:
      ModelError: the kernel cannot be run alone.
    """
    copies = math.ceil(1e6 * weights_mb / max(weight_bytes(kernel), 1))
    copies = min(max(copies, FEWEST_COPIES), MOST_COPIES)
    model, feeds = copies_model(kernel, copies)
    alone = OnnxRuntime(runtime.device, runtime.threads, "disabled")
    found = measure(Variant(kernel.op_type, alone, model), effort=effort, feeds=feeds)
    return Price(found.reference.ms.value / copies, found.reference.noise, found.pairs)
