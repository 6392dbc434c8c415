"""Operators with smaller neighbourhoods, whose kernels need not be found out for each of the many larger ones.

Rewriting makes thousands of neighbourhoods of the same few operators. Most operators run the same kernels in all of
them. If the kernels of an operator were the same in all neighbourhoods that agree up to a smaller distance, they are
expected to be the same in a new one. Where fusions or layouts made them differ, a larger distance decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from environment.costs.prices.price_list import OperatorCost
from taso_ext import Graph

MEMBERS: Mapping[int, int] = {2: 1, 1: 2, 0: 4}
"""By distance, the largest first: how many operators in different neighbourhoods have to agree, and none to differ."""


@dataclass
class _Class:
    """Operators that are alike up to some distance.

    Attributes:
      cost: that of all of them; None once two differ.
      members: how many were lowered.
    """

    cost: OperatorCost | None
    members: int = 0

    def add(self, cost: OperatorCost) -> None:
        self.members += 1
        if cost != self.cost:
            self.cost = None


class OperatorClasses:
    """What is known of operators by smaller neighbourhoods than those of `OperatorCosts`.

    Args:
      opset: of the model.
    """

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._classes: dict[int, _Class] = {}

    def names(self, graph: Graph) -> dict[int, list[int]]:
        """Returns the signature of each run-time operator, in order, by distance."""
        return {each: graph.neighbourhood_signatures(self._opset, each).tolist() for each in MEMBERS}

    def expected(self, names: Mapping[int, list[int]], position: int) -> OperatorCost | None:
        """Returns the expected cost of the operator at a position, or None.

        Args:
          names: the result of `names` for the operator's graph.
        """
        for distance, members in MEMBERS.items():
            found = self._classes.get(names[distance][position])
            if found is not None and found.members >= members and found.cost is not None:
                return found.cost
        return None

    def add(self, names: Mapping[int, list[int]], position: int, cost: OperatorCost) -> None:
        """Adds what lowering has found out of the operator at a position, whose neighbourhood is new."""
        for distance in MEMBERS:
            self._classes.setdefault(names[distance][position], _Class(cost)).add(cost)
