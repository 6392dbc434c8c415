"""The interface of everything that picks rewrites."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

ProgressCallback = Callable[[int, int, Mapping[str, float]], None]
"""Called as `on_progress(done, total, metrics)` during `Controller.train`; may raise to stop the training."""


class StoredControllerError(ValueError):
    """A stored controller that cannot be used here; the message says why and what to do."""


class Controller(Protocol):
    """The interface of a controller, which picks rewrites.

    A subclass that needs neither training nor a view of its own defines only `act`. A controller that learns in a dream
    acts on `worldmodel.data.trajectory.LatentObservation`s: its view is a `worldmodel.dream.latent_env.LatentEnv`. This
    is the loop that calls a controller; `controller.evaluation.play_episode` is the same loop with a log::

        controller.train(world, seed=seed)                    # the real environment, or a dream of it
        view = controller.view(env)                           # e.g. a LatentEnv around the real environment
        observation, info = view.reset(seed=seed)  # with options={"max_steps": controller.max_steps}, unless it is None
        controller.begin_episode(view, seed=seed)
        terminated = truncated = False
        while not (terminated or truncated):
            action = controller.act(observation, deterministic=deterministic)
            observation, reward, terminated, truncated, info = view.step(action)

    Worlds, the engine and timing count what they do (`environment.counting`). A controller counts only what it asks of
    cost models by itself.

    Attributes:
      name: name in the registry.
      worlds: the worlds that `train` can learn in, the one by default first: "dream" (`train` is given a `DreamEnv`),
        "real" (a `RealWorld`) or "mixed" (a `MixedWorld`). Empty: it learns nothing; `train` is given the environment.
      stochastic: whether episodes with different seeds can differ; if not, no sampled episodes are played.
      clocked: whether the clock has chosen the graph at which its episode ends, whatever that costs by a cost model.
    """

    name: ClassVar[str]
    worlds: ClassVar[tuple[str, ...]] = ()
    stochastic: ClassVar[bool] = False
    clocked: ClassVar[bool] = False

    @property
    def max_steps(self) -> int | None:
        """The largest number of steps in an episode; None, the default, leaves the limit to the environment."""
        return None

    @property
    def total(self) -> int:
        """The number of units of work of `train`, for the progress bar; 1 by default."""
        return 1

    @property
    def num_updates(self) -> int:
        """The number of units of work that `train` has done, with those before an interruption; 0 by default.

        The world "mixed" goes on from there: it must then be the number of rollouts.
        """
        return 0

    @property
    def limit_s(self) -> float:
        """The time that `train` takes at most [s], for the progress bar; infinite by default."""
        return math.inf

    @property
    def policy(self) -> Any:
        """A `worldmodel.data.trajectory.Policy` that acts as this controller does, so that many of its dreams can be
        played at once; None, the default, if there is none."""
        return None

    @property
    def trains(self) -> bool:
        """Whether `train` does anything."""
        return type(self).train is not Controller.train

    @property
    def saves(self) -> bool:
        """Whether `save` keeps the result of `train`; if not, a resumed run trains again."""
        return type(self).save is not Controller.save

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        """Learns or searches in `world`; does nothing by default.

        Args:
          world: the world to train in; each controller documents which worlds it takes.
          seed: the seed of every random draw.
          on_progress: called after every unit of work.
        """
        return

    def view(self, env: Any) -> Any:
        """Returns the real environment as this controller sees it, with Gymnasium's `reset` and `step`.

        The default is `env` itself. `info` is that of `env`, and a step takes one step there. A view whose actions are
        not pairs [rule, location] reports the pair as `info["action"]` in its `step`.
        """
        return env

    def begin_episode(self, view: Any, *, seed: int) -> None:
        """Prepares an episode, after `view.reset` and before the first `act`; does nothing by default."""
        return

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        """Returns a legal action of the view with which the episode began.

        Args:
          observation: the view's last observation.
          deterministic: whether to take the most likely action instead of a sampled one.
        """
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the result of `train` atomically; does nothing by default."""
        return

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restores what `save` wrote; does nothing by default."""
        return
