"""Dreams that begin where the real environment's episodes begin."""

from __future__ import annotations

import tensorflow as tf

from worldmodel.data.episodes import RewriteEnv
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.rollout import StartStates
from worldmodel.world_model import WorldModel


def root_dream(
    world_model: WorldModel,
    env: RewriteEnv,
    *,
    temperature: float = 1.0,
    pessimism: float = 0.0,
    legal_from: float = 0.5,
) -> DreamEnv:
    """The dream of the one state that the real environment's episodes begin in.

    Args:
      temperature, pessimism, legal_from: see `DreamEnv`.
    """
    start, _ = LatentEnv(env, world_model).reset()
    root = StartStates(start.z, start.h, start.h, start.action_mask, tf.zeros([1], tf.int32))
    return DreamEnv(
        world_model, root, temperature=temperature, root_fraction=1.0, pessimism=pessimism, legal_from=legal_from
    )
