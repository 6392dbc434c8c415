"""Everything that picks rewrites, behind one interface.

    import controller
    player = controller.make("ppo", world_model=model)        # `controller.registry.names()` lists the others
    player.train(dream)
    result = controller.evaluate(env, player, num_sampled=16, seed=0)

| name | what it is |
|---|---|
| `make` | builds a controller by name |
| `Controller` | the interface; its docstring shows the loop that calls it |
| `evaluate` | plays a controller, and random play for comparison, in the real environment |
| `PpoConfig`, `PolicyConfig` | the settings of `ppo` |

`worldmodel.data.trajectory` describes the data that controllers learn from. Importing this package loads no TensorFlow:
each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.evaluation import evaluate
    from controller.interface import Controller
    from controller.ppo.config import PolicyConfig, PpoConfig
    from controller.registry import make

__all__ = ["Controller", "PolicyConfig", "PpoConfig", "evaluate", "make"]

_MODULE_OF = {
    "Controller": "controller.interface",
    "PolicyConfig": "controller.ppo.config",
    "PpoConfig": "controller.ppo.config",
    "evaluate": "controller.evaluation",
    "make": "controller.registry",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'controller' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
