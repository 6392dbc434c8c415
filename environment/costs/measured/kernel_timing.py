"""How long a kernel takes, by running copies of it beside the yardstick.

Where others share a processor, they slow different kernels down by different factors for seconds or minutes. No single
timing can tell, however long: timing a kernel again later, and taking the mean, can (`PriceList.put`). To wait for
moments in which the yardstick is fast was tried, and is worse than useless: graphs do not run at such moments only.
"""

from __future__ import annotations

import math

from environment.costs.measured.benchmark_model import copies_model, input_bytes, is_view, views_model, weight_bytes
from environment.costs.measured.cache_sweep import sweep
from environment.costs.measured.kernel import Kernel
from environment.costs.measured.reference_kernel import measure_beside, plain, usual_ms
from environment.costs.prices.price_list import Price
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime

FEWEST_COPIES, MOST_COPIES = 4, 64
"""Of a small kernel: fewer would time the session's own work, more take longer to load than to run."""
LONG_MS, LONGEST_MS = 20.0, 40.0
"""Of one inference, of more than the fewest copies and of these: slow kernels are not those that wait for weights."""
RECENT_MB = 4.0
"""Of inputs that copies read in turn: what a kernel reads has been written just before, but not by a moment."""
MOST_MB = 128.0
"""Of weights of all copies, unless one has more: they have to be written first, and kept."""
COPIED_MB, COPIED_OF_SWEPT_MB = 64.0, 16.0
"""Of a graph's weights, that copies stand for: more take too long to write. Where what they leave is swept over, fewer
do, but not so few that a session's own work would count."""
LEAST_SWEPT_MB = 4.0
"""Less than this of others' weights changes nothing that copies would not."""
GLANCE = Effort(resolution=None, pairs=2, sessions=1, warmup=1, settling=1, control=False)
EFFORT = Effort(resolution=0.005, pairs=25, seconds=0.25, sessions=1, warmup=1, settling=1, control=False)
SESSIONS_DIFFER = 0.006
"""Half the width of the 95 % interval of what a session has of its own, as a part of a kernel's time: sessions of
identical bytes differ by some 0.3 %, for good. With one session of each, no interval of its samples could tell."""
OTHERS_SHARE = 0.4
"""Part of the logarithm of what others change a yardstick's time by that may be in a kernel's ratio to it."""


def time_kernel(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime, yardstick_ms: float) -> Price:
    """The price of one run.

    Args:
      weights_mb: that its graph reads between two runs, which decides what weights and results find in the caches: so
        much all copies read together, as far as COPIED_MB, MOST_COPIES and time allow. What is left of it is swept
        over before they run, where they read more of weights than of anything else.
      runtime: of one kernel; its level of optimisation does not matter.
      yardstick_ms: what the yardstick costs.
    Raises:
      ModelError: the kernel cannot be run alone.
    """
    alone = plain(runtime)
    if is_view(kernel):
        copies, (model, feeds) = MOST_COPIES, views_model(MOST_COPIES)
    else:
        copies = _affordable_copies(kernel, weights_mb, runtime)
        model, feeds = copies_model(kernel, copies, _input_sets(kernel, copies))
    before_each = sweep(mb) if (mb := _left_mb(kernel, copies, weights_mb, runtime)) else None
    timing, usual = measure_beside(model, alone, EFFORT, feeds, before_each), usual_ms(yardstick_ms)
    others = OTHERS_SHARE * abs(math.log(timing.reference.ms.value / usual))
    spread = math.hypot(timing.ratio.half_width, SESSIONS_DIFFER, others)
    return Price(timing.ratio.value * usual / copies, spread)


def _affordable_copies(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime) -> int:
    """As many copies as are wanted, or as many as run in the time that there is."""
    fewest, wanted = _copies(kernel, weights_mb, runtime)
    if wanted == 1:
        return 1
    model, feeds = copies_model(kernel, 1)
    one_ms = measure(Variant(kernel.op_type, plain(runtime), model), effort=GLANCE, feeds=feeds).reference.ms.value
    return max(min(wanted, math.floor(LONG_MS / one_ms)), min(fewest, math.floor(LONGEST_MS / one_ms)), 1)


def _copies(kernel: Kernel, weights_mb: float, runtime: OnnxRuntime) -> tuple[int, int]:
    """The fewest copies, and how many are wanted, of a kernel among others that read so much of weights."""
    own_mb = (weight_bytes(kernel) + input_bytes(kernel)) / 1e6
    if not own_mb:
        return FEWEST_COPIES, FEWEST_COPIES
    fewest = max(min(FEWEST_COPIES, math.floor(MOST_MB / own_mb)), 1)
    copied_mb = COPIED_OF_SWEPT_MB if _left_mb(kernel, fewest, weights_mb, runtime) else COPIED_MB
    return fewest, max(fewest, min(MOST_COPIES, math.ceil(min(weights_mb, copied_mb) / own_mb)))


def _left_mb(kernel: Kernel, copies: int, weights_mb: float, runtime: OnnxRuntime) -> float:
    """Of its graph's weights, what copies leave; a GPU's caches are small, and not to be reached from here."""
    if runtime.device != "cpu" or weight_bytes(kernel) <= input_bytes(kernel):
        return 0.0
    left = weights_mb - copies * weight_bytes(kernel) / 1e6
    return left if left >= LEAST_SWEPT_MB else 0.0


def _input_sets(kernel: Kernel, copies: int) -> int:
    return min(copies, math.ceil(RECENT_MB * 1e6 / max(input_bytes(kernel), 1)))
