"""Limits of measuring: which graphs are run, how many prices are kept, and what is warned of."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from environment.costs.interface import Cost

MOST_WORK = 4.0
"""Graphs with more than this multiple of the start's operations, or of the memory moved, are not run.

All groups of ResNet-50's convolutions by Winograd merged into one would have 4.8 GB of weights."""


def affordable(start: Cost, cost: Cost) -> bool:
    """Whether a graph is small enough to be run, by its cost and that of the graph that rewriting started from."""
    return cost.flops <= MOST_WORK * start.flops and cost.memory_bytes <= MOST_WORK * start.memory_bytes


Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by name, of which those asked for last are kept.

    Args:
      most: how many.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[str, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: str, make: Callable[[], Value]) -> Value:
        """The value of a name; `make` makes it where there is none, and if that raises there still is none."""
        if name not in self._kept:
            self._kept[name] = make()
        self._kept.move_to_end(name)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return self._kept[name]

    def forget(self, name: str) -> None:
        """The value of a name is made anew when it is asked for next."""
        self._kept.pop(name, None)


class NoisyClockWarning(UserWarning):
    """Prices are less precise than asked for; each says how precise it is."""


class UnpricedWarning(UserWarning):
    """Rewrites are left alone whose graphs have no price."""


class NoisyClock:
    """Warns of a noisy clock, unless it has.

    Args:
      name: of the cost model.
    """

    def __init__(self, name: str) -> None:
        self._name, self._warned = name, False

    def warn(self, finding: str) -> None:
        """
        Args:
          finding: a sentence on how noisy it was.
        """
        if not self._warned:
            self._warned = True
            text = f"{self._name}: {finding} Rewards carry this noise (info['reward_noise']); this is said once."
            warnings.warn(text, NoisyClockWarning, stacklevel=2)
