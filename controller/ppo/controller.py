"""`ppo`: proximal policy optimisation behind the controller interface, for the dream and for the real environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from controller.interface import Controller, ProgressCallback
from controller.policies.graph import GraphPolicy
from controller.policies.latent import LatentPolicy
from controller.ppo.config import FORMAT_VERSION, PolicyConfig, PpoConfig
from controller.ppo.learner import PpoLearner, any_rows, gains_of_the_best
from controller.stored import read
from taso_ext.files import write_arrays
from worldmodel.config import EncoderConfig
from worldmodel.data.trajectory import Trajectory
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.training import require_finite
from worldmodel.world_model import WorldModel

LOWEST_TEMPERATURE = 0.2
"""Lowest sampling temperature. Far below it, the exponentials of location logits, which lie within ± 10 / temperature,
would leave the range of float32; use `deterministic` instead."""


class PpoController(Controller):
    """A policy, the learner that improves it, and how it sees the real environment.

    Build it with `for_dream` or `for_real`; then::

        controller.train(dream)                                  # dream: DreamEnv; or RealWorld, for `for_real`
        evaluation = evaluate(env, controller, num_sampled=16, seed=0)

    Training that was stopped is continued by `train` after `load`, bit for bit as if it had not been stopped.

    Attributes:
      policy: the policy that acts.
      num_updates: number of updates done so far.
    """

    name: ClassVar[str] = "ppo"
    worlds: ClassVar[tuple[str, ...]] = ("dream", "real", "mixed")
    stochastic: ClassVar[bool] = True

    def __init__(
        self,
        policy: Any,
        config: PpoConfig,
        *,
        view: Callable[[Any], Any],
        seed: int = 0,
        sampling_temperature: float = 1.0,
    ) -> None:
        """
        Args:
          policy: a `controller.ppo.learner.TrainablePolicy` that is also callable as a
            `worldmodel.data.trajectory.Policy`.
          config: the settings of the learner.
          view: a function that wraps the real environment so that the policy can take its observations.
          seed: the seed of every random draw in training.
          sampling_temperature: temperature of the policy in sampled episodes; 1 is the policy as it was trained.
        Raises:
          ValueError: the sampling temperature is below `LOWEST_TEMPERATURE`.
        """
        if sampling_temperature < LOWEST_TEMPERATURE:
            raise ValueError(
                f"ppo: the sampling temperature is {sampling_temperature}, below {LOWEST_TEMPERATURE}; "
                "to play without chance, play deterministically."
            )
        self._policy = policy
        self._config, self._view, self._seed = config, view, seed
        self._learner = PpoLearner(policy, config, seed=seed)
        self._temperature = sampling_temperature
        self._episode_seed, self._step = 0, 0
        self._programs: dict[bool, Callable[..., tf.Tensor]] = {}

    @classmethod
    def for_dream(
        cls,
        world_model: WorldModel,
        config: PpoConfig | None = None,
        policy: PolicyConfig | None = None,
        *,
        seed: int = 0,
        sampling_temperature: float = 1.0,
    ) -> PpoController:
        """Builds a controller that trains in a `DreamEnv` of `world_model`; it acts through a `LatentEnv`."""
        network = LatentPolicy.for_world_model(world_model, config=policy or PolicyConfig(), seed=seed)
        return cls(
            network,
            config or PpoConfig(),
            view=lambda env: LatentEnv(env, world_model),
            seed=seed,
            sampling_temperature=sampling_temperature,
        )

    @classmethod
    def for_real(
        cls,
        env: Any,
        config: PpoConfig | None = None,
        policy: PolicyConfig | None = None,
        encoder: EncoderConfig | None = None,
        *,
        seed: int = 0,
        sampling_temperature: float = 1.0,
    ) -> PpoController:
        """Builds a controller that trains model-free in a `RealWorld` of environments like `env`."""
        network = GraphPolicy(env, encoder or EncoderConfig(), policy or PolicyConfig(), seed=seed)
        return cls(
            network,
            config or PpoConfig(),
            view=network.view,
            seed=seed,
            sampling_temperature=sampling_temperature,
        )

    @classmethod
    def build(
        cls,
        *,
        env: Any = None,
        world_model: WorldModel | None = None,
        config: PpoConfig | None = None,
        policy: PolicyConfig | None = None,
        encoder: EncoderConfig | None = None,
        seed: int = 0,
        sampling_temperature: float = 1.0,
    ) -> PpoController:
        """Builds a controller for the dreams of a world model if one is given, or else for `env`."""
        if world_model is not None:
            return cls.for_dream(world_model, config, policy, seed=seed, sampling_temperature=sampling_temperature)
        return cls.for_real(env, config, policy, encoder, seed=seed, sampling_temperature=sampling_temperature)

    @property
    def policy(self) -> Any:
        return self._policy

    @property
    def total(self) -> int:
        return self._config.updates

    @property
    def num_updates(self) -> int:
        return self._learner.num_updates

    def train(self, world: Any, *, seed: int | None = None, on_progress: ProgressCallback | None = None) -> None:
        """Runs the updates of the configuration that have not been done yet.

        Args:
          world: anything with `rollout(policy, *, batch, horizon, seed)` that returns a `Trajectory`, and the number of
            steps `longest` of its longest episodes: a `DreamEnv`, or a `controller.worlds.real.RealWorld`.
          seed: replaces the seed given to the constructor.
          on_progress: called after every update with the learner's metrics, `return` and `best_return` (mean and
            maximum of what the rows of the rollout are worth by the configured goal, undiscounted, in the environment's
            units) and `length` (mean number of steps).
        Raises:
          NonFiniteLoss: one of these metrics is NaN or infinite; the message names it and the update. Files that were
            saved before are intact.
        """
        seed = self._seed if seed is None else seed
        for update in range(self.num_updates, self._config.updates):
            played = self._play(world, _fold(seed, update))
            metrics = self._learner.update(played) | self.metrics_of(played)
            require_finite(metrics, update + 1, "the rollout of ppo's update {}".format)
            if on_progress is not None:
                on_progress(update + 1, self._config.updates, metrics)

    def metrics_of(self, played: Trajectory) -> dict[str, float]:
        """Returns the figures of a rollout, see `train`."""
        earned = gains_of_the_best(played.reward) if self._config.goal == "best" else played.reward
        returns, lengths = earned.numpy().sum(axis=0), played.lengths()
        return {"return": float(returns.mean()), "best_return": float(returns.max()), "length": float(lengths.mean())}

    def _play(self, world: Any, seed: int) -> Trajectory:
        batch, horizon = self._config.batch, self._config.horizon or world.longest
        played: Trajectory = world.rollout(self.policy, batch=batch, horizon=horizon, seed=seed)
        return played

    def view(self, env: Any) -> Any:
        return self._view(env)

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self._episode_seed, self._step = seed, 0

    def act(self, observation: Any, *, deterministic: bool) -> int:
        self._step += 1
        seed = tf.constant([self._episode_seed, self._step], tf.int32)
        return int(self._program(observation, deterministic)(observation, seed)[0])

    def _program(self, observation: Any, deterministic: bool) -> Callable[..., tf.Tensor]:
        if deterministic not in self._programs:
            specs = [any_rows(observation), tf.TensorSpec([2], tf.int32)]
            choose = self._most_likely if deterministic else self._sampled
            self._programs[deterministic] = tf.function(choose, input_signature=specs, autograph=False)
        return self._programs[deterministic]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights, the optimiser's state and the counters atomically to an npz file of exactly this name."""
        write_arrays(path, {"format_version": np.array(FORMAT_VERSION), **self._learner.state()})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restores what `save` wrote.

        Raises:
          StoredControllerError: the controller was trained for another graph, rule set or configuration, or the file
            has another format or cannot be read.
        """
        self._learner.restore(read(path, FORMAT_VERSION))

    def _most_likely(self, observation: Any, seed: tf.Tensor) -> tf.Tensor:
        return self.policy.distribution_and_value(observation)[0].mode()

    def _sampled(self, observation: Any, seed: tf.Tensor) -> tf.Tensor:
        distribution = self.policy.distribution_and_value(observation)[0]
        return distribution.at_temperature(self._temperature).sample(seed)


def _fold(seed: int, update: int) -> int:
    """Returns a seed of its own for every update: a non-negative int32."""
    return int(np.random.SeedSequence([seed, update]).generate_state(1)[0] >> 1)
