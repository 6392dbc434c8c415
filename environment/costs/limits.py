"""Limits of measuring: which graphs are run, how many prices are kept, and which warnings are given."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from environment.costs.interface import Cost

MOST_WORK = 4.0
"""Graphs with more than this multiple of the start graph's operations, or of its moved memory, are not run.

Rewriting can make ResNet-50 into a graph with 4.8 GB of weights, by merging the groups of its Winograd convolutions."""


def most_work(start: Cost) -> tuple[float, float]:
    """Returns the operations and the moved bytes of the largest graph that is run, by the cost of the start graph."""
    return MOST_WORK * start.flops, MOST_WORK * start.memory_bytes


def affordable(start: Cost, cost: Cost) -> bool:
    """Returns whether a graph is small enough to be run, by its cost and the cost of the start graph."""
    flops, nbytes = most_work(start)
    return cost.flops <= flops and cost.memory_bytes <= nbytes


Value = TypeVar("Value")


class Recent(Generic[Value]):
    """A cache by name that keeps the most recently used values.

    Args:
      most: largest number of values.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[str, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: str, make: Callable[[], Value]) -> Value:
        """Returns the value of a name; if there is none, `make` makes it. If `make` raises, nothing is kept."""
        if name not in self._kept:
            self._kept[name] = make()
        self._kept.move_to_end(name)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return self._kept[name]

    def forget(self, name: str) -> None:
        """Removes the value of a name, so that the next `get` makes it again."""
        self._kept.pop(name, None)


class NoisyClockWarning(UserWarning):
    """Prices are less precise than was asked; each price states its precision."""


class UnpricedWarning(UserWarning):
    """Rewrites to graphs without a price are not made."""


class NoisyClock:
    """A warning that the clock is noisy, which is given only once.

    Args:
      name: name of the cost model.
    """

    def __init__(self, name: str) -> None:
        self._name, self._warned = name, False

    def warn(self, finding: str) -> None:
        """Warns, unless it has warned before.

        Args:
          finding: a sentence that says how noisy the clock was.
        """
        if not self._warned:
            self._warned = True
            text = f"{self._name}: {finding} Others may be as noisy; this is said once."
            warnings.warn(text, NoisyClockWarning, stacklevel=2)
