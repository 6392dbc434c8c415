"""`sb3`: sb3-contrib's MaskablePPO, which knows nothing of this project, on the list of candidates."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from controller.interface import Controller, ProgressCallback, StoredControllerError
from controller.records import EpisodeLog, EpisodeRecord
from controller.sb3.config import FORMAT_VERSION, Sb3Config
from controller.stored import RETRAIN, read
from environment.runtimes import UnavailableError
from environment.substitution.wrappers import Candidates
from taso_ext.files import write_arrays


class Sb3Controller(Controller):
    """MaskablePPO (Huang and Ontañón 2022) with its "MultiInputPolicy" in the real environment, through `Candidates`.

    Each update begins with fresh episodes and a seed of its own, so that a training that was stopped is continued by
    `train` after `load` bit for bit. Files hold arrays only, not the pickled objects of Stable-Baselines3's format.
    """

    name: ClassVar[str] = "sb3"
    stochastic: ClassVar[bool] = True
    worlds: ClassVar[tuple[str, ...]] = ("real",)

    def __init__(self, env: Any, config: Sb3Config | None = None, *, seed: int = 0) -> None:
        """
        Args:
          env: a real environment; the controller plays in environments on the same graph.
          config: the settings of the training.
          seed: the seed of the initial weights, and of every random draw in training.
        Raises:
          UnavailableError: sb3-contrib or PyTorch is not installed.
        """
        self._torch, sb3_contrib = _needed("torch"), _needed("sb3_contrib")
        self._config, self._seed, self._updates = config or Sb3Config(), seed, 0
        slots = _Slots(env)
        self._max_candidates = slots.max_candidates
        self._view: _Slots | None = None
        config = self._config
        self._model = sb3_contrib.MaskablePPO(
            "MultiInputPolicy",
            slots,
            learning_rate=config.learning_rate,
            n_steps=config.steps,
            batch_size=config.batch,
            n_epochs=config.epochs,
            gamma=config.discount,
            gae_lambda=config.trace_decay,
            ent_coef=config.entropy,
            seed=seed,
            device="cpu",
        )

    @property
    def total(self) -> int:
        return self._config.updates

    @property
    def num_updates(self) -> int:
        """See `Controller.num_updates`."""
        return self._updates

    def train(self, world: Any, *, seed: int | None = None, on_progress: ProgressCallback | None = None) -> None:
        """Runs the updates of the configuration that have not been done yet.

        Args:
          world: a `controller.worlds.real.RealWorld`; its `best` becomes the best episode of the training.
          seed: replaces the seed given to the constructor.
          on_progress: called after every update with `return`, `best_return` and `length` of the episodes of its
            rollout (mean and maximum of the returns, mean number of steps).
        """
        seed = self._seed if seed is None else seed
        env = _Noted(_Slots(world.make_env(), self._max_candidates))
        vector = self._model._wrap_env(env)
        for update in range(self._updates, self._config.updates):
            self._model.set_env(vector, force_reset=True)
            self._model.set_random_seed(int(np.random.default_rng([seed, update]).integers(2**31)))
            self._model.learn(self._config.steps, reset_num_timesteps=False, log_interval=None)
            self._updates = update + 1
            played = env.taken()
            world.note(played)
            if on_progress is not None:
                on_progress(update + 1, self._config.updates, _metrics(played))

    def view(self, env: Any) -> Any:
        return _Slots(env, self._max_candidates)

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self._view = view
        self._torch.manual_seed(seed)

    def act(self, observation: Any, *, deterministic: bool) -> int:
        if self._view is None:
            raise ValueError("sb3 chooses among the candidates of a view: call begin_episode(view, seed=…) first.")
        masks = self._view.action_masks()
        return int(self._model.predict(observation, action_masks=masks, deterministic=deterministic)[0])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights, Adam's state and the number of updates atomically to an npz file of exactly this name."""
        weights = {f"weight {name}": value.numpy() for name, value in self._model.policy.state_dict().items()}
        moments = {
            f"adam {index} {name}": np.asarray(value)
            for index, state in self._model.policy.optimizer.state_dict()["state"].items()
            for name, value in state.items()
        }
        counters = {"format_version": np.array(FORMAT_VERSION), "updates": np.array(self._updates)}
        write_arrays(path, {**counters, **weights, **moments})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restores what `save` wrote.

        Raises:
          StoredControllerError: the controller was trained for another graph, rule set or configuration, or the file
            has another format or cannot be read.
        """
        arrays = read(path, FORMAT_VERSION)
        updates = int(arrays.pop("updates", 0))
        self._restore(os.fspath(path), arrays)
        self._updates = self._model._n_updates = updates
        self._model.num_timesteps = updates * self._config.steps

    def _restore(self, path: str, arrays: Mapping[str, np.ndarray]) -> None:
        policy, tensor = self._model.policy, self._torch.as_tensor
        weights: dict[str, Any] = {}
        moments: dict[int, dict[str, Any]] = {}
        for key, array in arrays.items():
            kind, _, name = key.partition(" ")
            if kind == "weight":
                weights[name] = tensor(array)
            else:
                index, _, field = name.partition(" ")
                moments.setdefault(int(index), {})[field] = tensor(array)
        shapes = {name: tuple(value.shape) for name, value in policy.state_dict().items()}
        found = {name: tuple(value.shape) for name, value in weights.items()}
        if shapes != found:
            name = min(set(shapes.items()) ^ set(found.items()))[0]
            raise StoredControllerError(
                f"{path} was trained for another graph, rule set or configuration: its '{name}' has the shape "
                f"{found.get(name)}, expected {shapes.get(name)}. {RETRAIN}"
            )
        policy.load_state_dict(weights)
        groups = policy.optimizer.state_dict()["param_groups"]
        policy.optimizer.load_state_dict({"state": moments, "param_groups": groups})


class _Slots(Candidates):
    """`Candidates` that reports what a slot stands for as `info["action"]`."""

    def __init__(self, env: Any, max_candidates: int | None = None) -> None:
        super().__init__(env, max_candidates=max_candidates, rule_encoding="id")

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        pair = self.rewrite(int(action))
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "action": pair}


class _Noted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps the records of its episodes, also of those that were not played to their end."""

    def __init__(self, env: _Slots) -> None:
        super().__init__(env)
        self._records: list[EpisodeRecord] = []
        self._log: EpisodeLog | None = None

    def action_masks(self) -> Any:
        return self.env.action_masks()  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._end()
        if seed is None:  # one that the record can name
            seed = int(self.env.unwrapped.np_random.integers(2**31))
        observation, info = self.env.reset(seed=seed, options=options)
        self._log = EpisodeLog("training", seed, info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self._log is not None
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._log.add(action, float(reward), terminated, truncated, info)
        return observation, reward, terminated, truncated, info

    def taken(self) -> list[EpisodeRecord]:
        """Returns the records since the last call."""
        self._end()
        records, self._records, self._log = self._records, [], None
        return records

    def _end(self) -> None:
        record = None if self._log is None else self._log.record()
        if record is not None and record.num_steps:
            self._records.append(record)


def _metrics(played: list[EpisodeRecord]) -> dict[str, float]:
    returns, lengths = [sum(record.rewards) for record in played], [record.num_steps for record in played]
    return {"return": float(np.mean(returns)), "best_return": max(returns), "length": float(np.mean(lengths))}


def _needed(module: str) -> Any:
    """Imports a module of the extra.

    Raises:
      UnavailableError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnavailableError(
            f"The controller sb3 needs sb3-contrib and PyTorch, which are not here ({error}): install them with "
            "pip install 'rlflow[sb3]', or choose another controller, for example ppo."
        ) from error
