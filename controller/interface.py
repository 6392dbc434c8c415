"""The interface of everything that picks rewrites, and the registry of controllers by name."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Protocol

from taso_ext.errors import one_paragraph

ENTRY_POINT_GROUP = "rlflow.controllers"
"""Other packages add controllers under this entry-point group: `name = "package.module:ControllerClass"`."""

_BUILT_IN: Mapping[str, str] = {  # as text, so that naming a controller imports nothing
    "random": "controller.search.one_step:RandomController",
    "greedy": "controller.search.one_step:GreedyController",
    "taso": "controller.search.native:TasoController",
    "beam": "controller.search.native:BeamController",
    "restarts": "controller.search.native:RestartsController",
    "passes": "controller.search.passes:PassesController",
    "climb": "controller.search.climb:ClimbController",
    "ppo": "controller.ppo.controller:PpoController",
}

ProgressCallback = Callable[[int, int, Mapping[str, float]], None]
"""Called as `on_progress(done, total, metrics)` during `Controller.train`; may raise to stop the training."""


class UnknownControllerError(ValueError):
    """No controller is registered under that name."""


class BrokenControllerError(RuntimeError):
    """The package that registers a controller is at fault; the message names it and says what to do."""


class StoredControllerError(ValueError):
    """A stored controller that cannot be used here; the message says why and what to do."""


class Controller(Protocol):
    """The interface of a controller, which picks rewrites.

    A subclass that needs neither training nor a view of its own defines only `act`. This is the loop that calls a
    controller; `controller.evaluation.play_episode` is the same loop with a log::

        controller.train(world, seed=seed)                    # the real environment, or a dream of it
        view = controller.view(env)                           # e.g. a LatentEnv around the real environment
        observation, info = view.reset(seed=seed)  # with options={"max_steps": controller.max_steps}, unless it is None
        controller.begin_episode(view, seed=seed)
        terminated = truncated = False
        while not (terminated or truncated):
            action = controller.act(observation, deterministic=deterministic)
            observation, reward, terminated, truncated, info = view.step(action)

    Attributes:
      name: name in the registry.
      stochastic: whether episodes with different seeds can differ; if not, no sampled episodes are played.
      clocked: whether the clock has chosen the graph at which its episode ends, whatever that costs by a cost model.
    """

    name: ClassVar[str]
    stochastic: ClassVar[bool] = False
    clocked: ClassVar[bool] = False

    @property
    def max_steps(self) -> int | None:
        """The largest number of steps in an episode; None, the default, leaves the limit to the environment."""
        return None

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

        The default is `env` itself. A view whose actions are not pairs [rule, location] reports the pair as
        `info["action"]` in its `step`.
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


def names() -> list[str]:
    """Returns the sorted names of all controllers, built in and from entry points."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def require_name(name: str) -> str:
    """Checks that a controller is registered under `name`, without importing it, and returns `name`.

    Raises:
      UnknownControllerError: there is none; the message suggests the nearest name.
    """
    known = names()
    if name in known:
        return name
    nearest = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise UnknownControllerError(f"There is no controller {name!r}.{hint} Controllers: {', '.join(known)}.")


def factory(name: str) -> Callable[..., Controller]:
    """Imports and returns the class or function that builds the controller `name`.

    Raises:
      UnknownControllerError: if no controller is registered under that name.
      BrokenControllerError: if the package that registers it cannot be imported, or registers nothing to call.
    """
    if require_name(name) in _BUILT_IN:  # a built-in name means the same thing whatever else is installed
        module, _, attribute = _BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    (point, *_) = entry_points(group=ENTRY_POINT_GROUP, name=name)
    try:
        found = point.load()
    except Exception as error:  # an import runs the package's code, which may raise anything
        raise _broken(point, f"raises {type(error).__name__}: {one_paragraph(error)}") from error
    if not callable(found):
        raise _broken(point, f"is {found!r}, but a class or a function was expected")
    return found


def _foreign(name: str, build: Callable[..., Controller], settings: Mapping[str, Any]) -> Controller:
    """Returns a new controller of another package, which has the methods of `Controller`."""
    (point, *_) = entry_points(group=ENTRY_POINT_GROUP, name=name)
    try:
        made = build(**settings)
    except Exception as error:  # code of another package may raise anything
        raise _broken(point, f"raises {type(error).__name__} when it is called: {one_paragraph(error)}") from error
    methods = [method for method in vars(Controller) if not method.startswith("_")]
    lacking = [method for method in methods if not hasattr(made, method)]
    if lacking:
        raise _broken(point, f"returns {made!r}, which lacks {', '.join(lacking)} of controller.Controller")
    return made


def _broken(point: EntryPoint, fault: str) -> BrokenControllerError:
    package = f"the package {point.dist.name} {point.dist.version}" if point.dist else "an installed package"
    return BrokenControllerError(
        f"The controller {point.name!r} of {package} cannot be used: its entry point {point.value!r} {fault}. Mend or "
        f"uninstall that package, or choose one of the built-in controllers: {', '.join(sorted(_BUILT_IN))}."
    )


def make(name: str, **settings: Any) -> Controller:
    """Builds a controller by its name.

        controller.make("taso", alpha=1.05)
        controller.make("ppo", world_model=model, config=PpoConfig(updates=40), seed=0)

    Args:
      name: see `names`.
      settings: arguments of the controller's class. For "ppo" they are the arguments of `PpoController.for_dream`, or
        those of `PpoController.for_real` if `env` is among them.
    Raises:
      UnknownControllerError: if no controller is registered under that name.
      BrokenControllerError: if another package registers it, and is at fault.
    """
    build = factory(name)
    if name not in _BUILT_IN:
        return _foreign(name, build, settings)
    if name != "ppo":
        return build(**settings)
    kind: Any = build
    return kind.for_real(**settings) if "env" in settings else kind.for_dream(**settings)
