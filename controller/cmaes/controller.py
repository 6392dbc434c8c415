"""`cmaes`: a linear controller that evolves in the dream, as Ha & Schmidhuber 2018 trained it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import cma
import numpy as np
import tensorflow as tf

from controller.cmaes.config import FORMAT_VERSION, CmaesConfig
from controller.cmaes.policy import LinearPolicy, LinearScores, principal_components
from controller.interface import Controller, ProgressCallback, StoredControllerError
from controller.stored import RETRAIN, read
from taso_ext.files import write_arrays
from worldmodel.data.trajectory import LatentObservation, Trajectory
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.training import require_finite
from worldmodel.world_model import WorldModel


class CmaesController(Controller):
    """A linear controller whose parameters CMA-ES evolves; the fitness is the mean return of some dreams.

    All controllers of a generation dream in one batch, from the initial graph. CMA-ES has a diagonal covariance: some
    thousand evaluations do not determine a full one of hundreds of parameters. The mean of its distribution plays
    deterministic episodes. In a sampled episode a controller plays that is drawn from the distribution.

    Training that was stopped is continued by `train` after `load`, bit for bit as if it had not been stopped: a file
    holds the fitness of every controller so far, and CMA-ES is told them again.

    Source: Ha & Schmidhuber 2018, "Recurrent World Models Facilitate Policy Evolution", section 2.4; Ros and Hansen
    2008 (diagonal CMA-ES).
    """

    name: ClassVar[str] = "cmaes"
    stochastic: ClassVar[bool] = True
    worlds: ClassVar[tuple[str, ...]] = ("dream",)

    def __init__(
        self,
        scores: LinearScores,
        config: CmaesConfig | None = None,
        *,
        view: Callable[[Any], Any],
        seed: int = 0,
        sampling_temperature: float = 1.0,
    ) -> None:
        """
        Args:
          scores: the scores of actions, whose parameters evolve.
          config: the settings of the training.
          view: a function that wraps the real environment as a `LatentEnv`.
          seed: the seed of every random draw in training.
          sampling_temperature: multiplies the standard deviations of the distribution in sampled episodes.
        """
        self._scores, self._config, self._view = scores, config or CmaesConfig(), view
        self._seed, self._temperature = seed, sampling_temperature
        self._mean, self._deviation = scores.initial, np.full(scores.num_parameters, self._config.sigma)
        self._policy = LinearPolicy(scores, 1)
        self._policy.parameters.assign(self._mean[np.newaxis])
        self._fitness: list[np.ndarray] = []  # of all generations so far, [population] each
        self._parameters = tf.zeros([1, scores.num_parameters])
        self._program: Callable[..., tf.Tensor] | None = None

    @classmethod
    def build(
        cls,
        world_model: WorldModel,
        config: CmaesConfig | None = None,
        *,
        seed: int = 0,
        sampling_temperature: float = 1.0,
    ) -> CmaesController:
        """Builds a controller that trains in a `DreamEnv` of `world_model`; it acts through a `LatentEnv`."""
        config = config or CmaesConfig()
        return cls(
            LinearScores.for_world_model(world_model, features=config.features, keys=config.keys),
            config,
            view=lambda env: LatentEnv(env, world_model),
            seed=seed,
            sampling_temperature=sampling_temperature,
        )

    @property
    def policy(self) -> LinearPolicy:
        """The controller that plays deterministic episodes."""
        return self._policy

    @property
    def total(self) -> int:
        return self._config.generations

    @property
    def num_generations(self) -> int:
        """The number of generations so far."""
        return len(self._fitness)

    def train(self, world: Any, *, seed: int | None = None, on_progress: ProgressCallback | None = None) -> None:
        """Runs the generations of the configuration that have not been done yet.

        Args:
          world: a `DreamEnv`.
          seed: replaces the seed given to the constructor. A training that goes on keeps the seed that it began with.
          on_progress: called after every generation with `return` and `best_return` (mean of all controllers and of the
            best one), `length` (mean number of steps) and `sigma` (mean standard deviation of the parameters).
        Raises:
          NonFiniteLoss: a return is NaN or infinite; the message names it and the generation.
          StoredControllerError: the generations before `load` cannot be repeated here.
        """
        config, dream = self._config, world.from_root()
        if not self.num_generations:
            self._seed = self._seed if seed is None else seed
            self._see(dream)
        population, search = LinearPolicy(self._scores, config.population), self._search_so_far()
        for generation in range(self.num_generations, config.generations):
            candidates = search.ask()
            played = self._play(dream, population, np.array(candidates), generation)
            fitness = played.reward.sum(axis=0).reshape(config.population, -1).mean(axis=1)
            found = {"return": float(fitness.mean()), "best_return": float(fitness.max())}
            require_finite(found, generation + 1, "the dreams of cmaes' generation {}".format)
            search.tell(candidates, (-fitness).tolist())
            self._fitness.append(fitness)
            self._take(search)
            if on_progress is not None:
                found |= {"length": float(played.lengths().mean()), "sigma": float(self._deviation.mean())}
                on_progress(generation + 1, config.generations, found)

    def _see(self, dream: Any) -> None:
        """Chooses the features: the principal components of what random controllers see that read no feature."""
        first = LinearPolicy(self._scores, self._config.population)
        drawn = np.random.default_rng([self._seed, 1]).standard_normal((self._config.population, len(self._mean)))
        played = self._play(dream, first, self._mean + self._config.sigma * drawn, -1)
        observed = np.concatenate([played.state[:-1], played.hidden[:-1]], axis=2)[played.alive]
        centre, projection = principal_components(observed, self._config.features)
        self._scores.centre.assign(centre)
        self._scores.projection.assign(projection)

    def _play(self, dream: Any, policy: LinearPolicy, candidates: np.ndarray, generation: int) -> Trajectory:
        """Plays rollouts of all candidates [population, n] and returns them as arrays, a candidate's rows together."""
        config = self._config
        policy.parameters.assign(candidates)
        seed = int(np.random.default_rng([self._seed, 2, generation + 1]).integers(2**31))
        rows = config.population * config.rollouts
        played = dream.rollout(policy, batch=rows, horizon=config.horizon or dream.longest, seed=seed)
        arrays: Trajectory = tf.nest.map_structure(np.asarray, played)
        return arrays

    def _search_so_far(self) -> cma.CMAEvolutionStrategy:
        """Returns CMA-ES after the generations so far."""
        draw = np.random.default_rng([self._seed, 0]).standard_normal
        options = {
            "CMA_diagonal": True,
            "popsize": self._config.population,
            "randn": lambda *shape: draw(shape),
            "seed": np.nan,  # the global generator of NumPy stays as it is
            "verbose": -9,
            "verb_log": 0,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice about settings, for people who run the library by hand
            search = cma.CMAEvolutionStrategy(self._scores.initial, self._config.sigma, options)
        for fitness in self._fitness:
            search.tell(search.ask(), (-fitness).tolist())
        if self._fitness and not np.array_equal(search.mean, self._mean):
            raise StoredControllerError(
                f"The stored controller cannot be trained further: repeating its {self.num_generations} generations "
                f"leads elsewhere, because another release of cma or NumPy made them (here are {cma.__version__} and "
                f"{np.__version__}). It still plays. {RETRAIN}"
            )
        return search

    def _take(self, search: cma.CMAEvolutionStrategy) -> None:
        """Takes over the distribution of CMA-ES."""
        self._mean, self._deviation = np.array(search.mean), np.array(search.stds)
        self._policy.parameters.assign(self._mean[np.newaxis])

    def view(self, env: Any) -> Any:
        return self._view(env)

    def begin_episode(self, view: Any, *, seed: int) -> None:
        drawn = np.random.default_rng(seed).standard_normal(len(self._mean))
        parameters = self._mean + self._temperature * self._deviation * drawn
        self._parameters = tf.constant(parameters[np.newaxis], tf.float32)

    def act(self, observation: LatentObservation, *, deterministic: bool) -> int:
        if self._program is None:
            self._program = tf.function(self._scores.best, autograph=False, reduce_retracing=True)
        parameters = self._policy.parameters.value() if deterministic else self._parameters
        return int(self._program(observation, parameters)[0])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the distribution, the features and all fitness atomically to an npz file of exactly this name."""
        shape = self.num_generations, self._config.population
        arrays = {
            "format_version": np.array(FORMAT_VERSION),
            "seed": np.array(self._seed),
            "mean": self._mean,
            "deviation": self._deviation,
            "centre": self._scores.centre.numpy(),
            "projection": self._scores.projection.numpy(),
            "fitness": np.reshape(self._fitness, shape),
        }
        write_arrays(path, arrays)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restores what `save` wrote.

        Raises:
          StoredControllerError: the controller was trained for another graph, rule set or configuration, or the file
            has another format or cannot be read.
        """
        self._restore(os.fspath(path), read(path, FORMAT_VERSION))

    def _restore(self, path: str, arrays: Mapping[str, np.ndarray]) -> None:
        expected = {
            "mean": self._mean.shape,
            "deviation": self._mean.shape,
            "centre": tuple(self._scores.centre.shape),
            "projection": tuple(self._scores.projection.shape),
            "fitness": (*arrays["fitness"].shape[:1], self._config.population),
        }
        for name, shape in expected.items():
            if arrays[name].shape != shape:
                raise StoredControllerError(
                    f"{path} was trained for another graph, rule set or configuration: its '{name}' has the shape "
                    f"{arrays[name].shape}, expected {shape}. {RETRAIN}"
                )
        self._seed, self._fitness = int(arrays["seed"]), list(arrays["fitness"])
        self._mean, self._deviation = arrays["mean"], arrays["deviation"]
        self._scores.centre.assign(arrays["centre"])
        self._scores.projection.assign(arrays["projection"])
        self._policy.parameters.assign(self._mean[np.newaxis])
