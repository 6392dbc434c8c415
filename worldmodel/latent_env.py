"""`LatentEnv`: the real environment seen through the encoder and the MDN-RNN, as a dream would show it."""

from __future__ import annotations

from typing import Any

import gymnasium

from worldmodel.rollout import LatentObservation
from worldmodel.world_model import WorldModel


class LatentEnv:
    """Wraps a `GraphSubstitutionEnv`; observations are exactly what `DreamEnv` yields, with batch 1.

        env = LatentEnv(GraphSubstitutionEnv("squeezenet1.1"), world_model)
        observation, info = env.reset(seed=0)
        observation, reward, terminated, truncated, info = env.step(action)     # action: index into the ActionTable

    The LSTM consumes every (z, action) really taken, so `h` is carried exactly; it is zero after `reset`. Legal real
    actions that the table does not hold cannot be taken: they are masked, and counted in `info["untabled_actions"]`.

    Attributes: latent_size, hidden_size, num_actions (A, NO-OP not counted), env (the real one).
    """

    latent_size: int
    hidden_size: int
    num_actions: int

    def __init__(self, env: gymnasium.Env, world_model: WorldModel) -> None:
        """
        Raises:
          IncompatibleWorldModel: if the model was trained with another rule set or feature version.
        """
        raise NotImplementedError

    def reset(self, *, seed: int | None = None) -> tuple[LatentObservation, dict[str, Any]]:
        """Starts an episode of the real environment."""
        raise NotImplementedError

    def step(self, action: int) -> tuple[LatentObservation, float, bool, bool, dict[str, Any]]:
        """Takes action `action` in [0, A] (A is NO-OP) in the real environment.

        Returns:
          (observation, reward, terminated, truncated, info), info being the real environment's with
          "untabled_actions" and "action" ([rule, location] as really taken) added.
        Raises:
          ValueError: if the action is outside the table or illegal in this state.
        """
        raise NotImplementedError
