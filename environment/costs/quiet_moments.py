"""Moments in which a machine's other users leave it alone, told by how long a yardstick takes.

What runs on the other half of a core, or shares its caches, may be another machine's: nothing but a clock shows it. It
slows kernels down by different factors, so that ratios to the yardstick are wrong too: on one rented machine by 4 to
15 % (standard deviation), but by 1 to 2 % while the yardstick was as fast as it had lately been at best (11 % for
kernels that stream more than the nearer caches hold).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

QUIET = 0.05
"""Part by which the yardstick may be slower than it has lately been at best."""
_LATELY = 64
"""Times that are compared: a processor's own speed changes too, with its temperature."""
_PAUSE_S = 0.2


class QuietMoments:
    """Remembers how long a yardstick has taken.

    Args:
      pause: waits for some seconds.
    """

    def __init__(self, pause: Callable[[float], object] = time.sleep) -> None:
        self._recent: deque[float] = deque(maxlen=_LATELY)
        self._pause = pause

    @property
    def is_new(self) -> bool:
        """Whether nothing is known yet."""
        return not self._recent

    def slowdown(self, ms: float) -> float:
        """How much slower a time of the yardstick is than the fastest one lately, as a part of that; remembers it."""
        self._recent.append(ms)
        return ms / min(self._recent) - 1

    def pause(self) -> None:
        """Lets a moment pass that is not quiet."""
        self._pause(_PAUSE_S)
