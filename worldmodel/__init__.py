"""A world model of graph substitution: real episodes, graph encoder, MDN-RNN, and the dreams in it.

    import worldmodel
    episodes = worldmodel.collect(env, policy, num_episodes=200, seed=0)
    model = worldmodel.fit(episodes, env)
    dream = worldmodel.DreamEnv.of_episodes(model, episodes)

| name | what it is |
|---|---|
| `collect` | plays episodes in the real environment |
| `fit` | trains a world model on episodes |
| `WorldModel` | a trained world model; `WorldModel.load` reads a stored one |
| `DreamEnv` | rollouts inside a world model |
| `with_operators` | lets a model learn what operators save, for dreams that the engine follows |
| `LatentEnv` | the real environment as a dream would show it |
| `WorldModelConfig` and its parts, `DreamConfig` | settings |

`worldmodel.data.trajectory` describes the data that models and controllers exchange. Importing this package loads no
TensorFlow: each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worldmodel.config import (
        DreamConfig,
        EncoderConfig,
        EncoderTrainingConfig,
        MdnRnnConfig,
        MdnRnnTrainingConfig,
        WorldModelConfig,
    )
    from worldmodel.data.episodes import collect
    from worldmodel.dream.dream_env import DreamEnv
    from worldmodel.dream.latent_env import LatentEnv
    from worldmodel.dream.structure import with_operators
    from worldmodel.fitting import fit
    from worldmodel.world_model import WorldModel

__all__ = [
    "DreamConfig",
    "DreamEnv",
    "EncoderConfig",
    "EncoderTrainingConfig",
    "LatentEnv",
    "MdnRnnConfig",
    "MdnRnnTrainingConfig",
    "WorldModel",
    "WorldModelConfig",
    "collect",
    "fit",
    "with_operators",
]

_MODULE_OF = {
    "DreamEnv": "worldmodel.dream.dream_env",
    "LatentEnv": "worldmodel.dream.latent_env",
    "WorldModel": "worldmodel.world_model",
    "collect": "worldmodel.data.episodes",
    "fit": "worldmodel.fitting",
    "with_operators": "worldmodel.dream.structure",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'worldmodel' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULE_OF.get(name, "worldmodel.config")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
