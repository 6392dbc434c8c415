"""Cost models of graphs: by formula, as the sum of measured kernels, or timed as a whole.

    costs = environment.costs.find("measured:cpu")     # a name, the path of a database of prices, or a cost model
    env = environment.make("squeezenet1.1", costs=costs)

`find` and `names` are those of `environment.costs.registry`; `environment.costs.interface` documents the protocols
`Costs` and `ModelCosts`, which a cost model of your own has to follow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from environment.costs.interface import Cost, Costs, MeasuredCost, ModelCosts, Priced
    from environment.costs.registry import find, names

__all__ = ["Cost", "Costs", "MeasuredCost", "ModelCosts", "Priced", "find", "names"]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: the registry loads every runtime."""
    if name not in __all__:
        raise AttributeError(f"module 'environment.costs' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = "registry" if name in ("find", "names") else "interface"
    return getattr(importlib.import_module(f"environment.costs.{module}"), name)
