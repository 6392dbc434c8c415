"""Operators with smaller neighbourhoods, whose kernels need not be found out for each of the many larger ones.

Rewriting makes thousands of neighbourhoods of the same few operators. Most operators run the same kernels in all of
them. If the kernels of an operator were the same in neighbourhoods that agree up to a smaller distance, they are
expected to be the same in a new one. Where fusions or layouts made them differ, a larger distance decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from environment.costs.prices.price_list import OperatorCost
from taso_ext import Graph


@dataclass(frozen=True)
class Rule:
    """When the cost of operators that are alike up to some distance is expected of a new one.

    Attributes:
      members: number of operators, in different neighbourhoods, that were lowered.
      share: least fraction of them that had the most frequent cost.
    """

    members: int
    share: float


RULES: Mapping[int, Rule] = {2: Rule(1, 0.5), 1: Rule(1, 0.5), 0: Rule(3, 0.8)}
"""The rules by distance, the largest first."""


@dataclass
class _Class:
    """Operators that are alike up to some distance: their costs, and how many have each of them."""

    costs: list[OperatorCost] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def add(self, cost: OperatorCost) -> None:
        if cost not in self.costs:
            self.costs.append(cost)
            self.counts.append(0)
        self.counts[self.costs.index(cost)] += 1

    def expected(self, rule: Rule) -> OperatorCost | None:
        members, most = sum(self.counts), max(self.counts)
        if members < rule.members or most < rule.share * members:
            return None
        return self.costs[self.counts.index(most)]


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
        return {each: graph.neighbourhood_signatures(self._opset, each).tolist() for each in RULES}

    def expected(self, names: Mapping[int, list[int]], position: int) -> OperatorCost | None:
        """Returns the expected cost of the operator at a position, or None.

        Args:
          names: the result of `names` for the operator's graph.
        """
        for distance, rule in RULES.items():
            found = self._classes.get(names[distance][position])
            if found is not None and (cost := found.expected(rule)) is not None:
                return cost
        return None

    def add(self, names: Mapping[int, list[int]], position: int, cost: OperatorCost) -> None:
        """Adds what lowering has found out of the operator at a position, whose neighbourhood is new."""
        for distance in RULES:
            self._classes.setdefault(names[distance][position], _Class()).add(cost)
