"""The Markov decision process of graph substitution, and what surrounds it: zoo, costs, rewards, verification, timing.

    import environment
    env = environment.make("squeezenet1.1", costs="roofline:rtx2070", reward="log_ratio", max_steps=50)
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step([rule, location])

| name | what it is |
|---|---|
| `make` | builds an environment from names or files |
| `GraphSubstitutionEnv` | the environment; its docstring describes observations, actions and `info` |
| `Padded` | wrapper: observations of a fixed size |
| `Candidates` | wrapper: one action for each legal rewrite, with a mask |
| `costs` | cost models: `costs.find("endtoend:cpu")`, `costs.names()` |
| `rewards` | reward functions: `rewards.find("percent")`, `rewards.names()`, `rewards.register` |

`environment.fusion` is a second decision process on the same graphs: which operators share a kernel.

Importing this package registers `rlflow/GraphSubstitution-v0` and `rlflow/Fusion-v0` with Gymnasium and loads neither
TensorFlow nor ONNX Runtime: each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from environment import costs, rewards
    from environment.costs.interface import Costs
    from environment.substitution.env import GraphSource, GraphSubstitutionEnv
    from environment.substitution.wrappers import Candidates, Padded
    from taso_ext import CostModel, RuleSet

__all__ = ["Candidates", "GraphSubstitutionEnv", "Padded", "costs", "make", "rewards"]

_MODULE_OF = {
    "Candidates": "environment.substitution.wrappers",
    "GraphSubstitutionEnv": "environment.substitution.env",
    "Padded": "environment.substitution.wrappers",
}

gymnasium.register("rlflow/GraphSubstitution-v0", entry_point="environment.substitution.env:GraphSubstitutionEnv")
gymnasium.register("rlflow/Fusion-v0", entry_point="environment.fusion.env:FusionEnv")


def make(
    graph: GraphSource,
    *,
    costs: str | Costs | CostModel = "roofline:rtx2070",
    reward: str | rewards.Reward | rewards.RewardFunction = "log_ratio",
    rules: RuleSet | str | os.PathLike[str] | None = None,
    max_steps: int | None = None,
    **settings: Any,
) -> GraphSubstitutionEnv:
    """Builds an environment from names.

        env = environment.make("bert-base", costs="endtoend:cpu", reward="combined:alpha=0.7,beta=0.3")
        env = environment.make("model.onnx", dims={"batch": 1}, max_steps=100)

    Args:
      graph: a name of the zoo (`environment.zoo`), the path of an ONNX file, or a loaded model.
      costs: a name of `environment.costs.names()`, the path of a database of prices, or a cost model.
      reward: a name of `environment.rewards.names()` with parameters, "module:function", or a function.
      rules: a rule set or the path of a rule file; None takes the shipped rules.
      max_steps: steps after which an episode is truncated; None: `environment.substitution.length.usual_steps`.
      settings: further arguments of `GraphSubstitutionEnv`, such as `max_locations`, `dims` or `strict`.
    Raises:
      The errors of `GraphSubstitutionEnv`; each names what was expected and lists the known names.
    """
    from environment.substitution.env import GraphSubstitutionEnv

    return GraphSubstitutionEnv(graph, costs=costs, reward=reward, rules=rules, max_steps=max_steps, **settings)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name in ("costs", "rewards"):
        return importlib.import_module(f"environment.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'environment' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
