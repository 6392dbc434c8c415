"""The registry of controllers by name: built in, and of other packages by entry point.

A controller is built from what its constructor asks for. The caller offers what there is: the environment, the world
model, the seed and so on. Parameters of these names receive it. All others are options of the controller's own.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from controller.foreign import BrokenControllerError, Foreign, Guard, shown
from controller.interface import Controller
from taso_ext.errors import near

ENTRY_POINT_GROUP = "rlflow.controllers"
"""Other packages add controllers under this entry-point group: `name = "package.module:ControllerClass"`."""


class _BuiltIn(NamedTuple):
    """A controller of this package, as text, so that naming it imports nothing.

    Attributes:
      path: module and class.
      worlds: `Controller.worlds` of the class.
      tensorflow: whether it needs TensorFlow if it learns.
    """

    path: str
    worlds: tuple[str, ...] = ()
    tensorflow: bool = True


_BUILT_IN: Mapping[str, _BuiltIn] = {
    "random": _BuiltIn("controller.search.one_step:RandomController"),
    "greedy": _BuiltIn("controller.search.one_step:GreedyController"),
    "taso": _BuiltIn("controller.search.native:TasoController"),
    "beam": _BuiltIn("controller.search.native:BeamController"),
    "restarts": _BuiltIn("controller.search.native:RestartsController"),
    "passes": _BuiltIn("controller.search.passes:PassesController"),
    "best-of-n": _BuiltIn("controller.search.best_of_n:BestOfNController"),
    "climb": _BuiltIn("controller.search.climb:ClimbController"),
    "saturation": _BuiltIn("controller.saturation.controller:SaturationController"),
    "mcts": _BuiltIn("controller.mcts.controller:MctsController", ("real", "dream")),
    "ppo": _BuiltIn("controller.ppo.controller:PpoController", ("dream", "real", "mixed")),
    "cmaes": _BuiltIn("controller.cmaes.controller:CmaesController", ("dream",)),
    "mpc": _BuiltIn("controller.mpc.controller:MpcController", ("dream",)),
    "xrlflow": _BuiltIn("controller.xrlflow.controller:XrlflowController", ("real",)),
    "sb3": _BuiltIn("controller.sb3.controller:Sb3Controller", ("real",), tensorflow=False),
}

WORLDS = ("dream", "real", "mixed")
"""All worlds that a controller can learn in."""


OFFERED = (
    *("env", "world_model", "world", "dream", "config", "policy", "encoder"),
    *("seed", "sampling_temperature", "budget"),
)
"""What a run offers to the controller that it builds; see `experiments.pipeline.learning.rounds.learner`."""


class UnknownControllerError(ValueError):
    """No controller is registered under that name."""


class UnknownOptionError(ValueError):
    """A controller has no such option; the message lists those that it has."""


def names() -> list[str]:
    """Returns the sorted names of all controllers, built in and from entry points."""
    return sorted({*_BUILT_IN, *foreign_names()})


def foreign_names() -> set[str]:
    """Returns the names of the controllers of other packages. A built-in name means the same whatever is installed."""
    return {point.name for point in entry_points(group=ENTRY_POINT_GROUP)} - _BUILT_IN.keys()


def is_foreign(name: str) -> bool:
    """Returns whether another package has registered `name`, which must be the name of a controller.

    Unlike `foreign_names`, this does not look for other packages, which takes milliseconds.
    """
    return name not in _BUILT_IN


def require_name(name: str) -> str:
    """Checks that a controller is registered under `name`, without importing it, and returns `name`.

    Raises:
      UnknownControllerError: there is none; the message suggests the nearest name.
    """
    if not is_foreign(name):
        return name
    known = names()
    if name in known:
        return name
    found = near(name, known)
    hint = f" Did you mean {found!r}?" if found else ""
    raise UnknownControllerError(f"There is no controller {name!r}.{hint} Controllers: {', '.join(known)}.")


def factory(name: str) -> Callable[..., Controller]:
    """Imports and returns the class or function that builds the controller `name`.

    Raises:
      UnknownControllerError: if no controller is registered under that name.
      BrokenControllerError: if the package that registers it cannot be imported, or registers nothing to call.
    """
    if require_name(name) in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].path.partition(":")
        return getattr(importlib.import_module(module), attribute)
    guard = _guard(name)
    found = guard.theirs(_point(name).load, "")
    if not callable(found):
        raise guard.broken(f"is {shown(found)}, but a class or a function was expected")
    return found


def worlds_of(name: str) -> tuple[str, ...]:
    """Returns the worlds in which the controller `name` learns, see `Controller.worlds`.

    The modules of controllers of other packages are imported, those of built-in ones are not.

    Raises:
      UnknownControllerError, BrokenControllerError: see `factory`.
    """
    if require_name(name) in _BUILT_IN:
        return _BUILT_IN[name].worlds
    guard, found = _guard(name), factory(name)
    worlds = guard.theirs(lambda: getattr(found, "worlds", ()), " in worlds")
    expected = f"a tuple of {', '.join(WORLDS)}"
    return guard.require(worlds, _known_worlds, lambda: f"learns in {shown(worlds)}", expected)


def _known_worlds(worlds: Any) -> tuple[str, ...]:
    if isinstance(worlds, str) or not set(worlds) <= set(WORLDS):
        raise ValueError
    return tuple(worlds)


def needs_tensorflow(name: str) -> bool:
    """Returns whether the controller `name` is known to need TensorFlow for learning in reality.

    One of another package imports what it needs; if that is PyTorch, TensorFlow must not be loaded beside it.
    """
    return name in _BUILT_IN and _BUILT_IN[name].tensorflow


def make(name: str, **settings: Any) -> Controller:
    """Builds a controller by its name.

        controller.make("taso", alpha=1.05)
        controller.make("ppo", world_model=model, config=PpoConfig(updates=40), seed=0)     # learns in a dream
        controller.make("ppo", env=env, config=PpoConfig(updates=40), seed=0)               # learns in reality

    Args:
      name: see `names`.
      settings: arguments of the controller's class method `build` if it has one, or else of its class.
    Raises:
      UnknownControllerError: if no controller is registered under that name.
      UnknownOptionError: if the controller has no argument of that name.
      BrokenControllerError: if another package registers it, and is at fault.
    """
    return build(name, settings, {})


def build(name: str, options: Mapping[str, Any], offered: Mapping[str, Any]) -> Controller:
    """Builds a controller from its options and from those of the offered things that it has parameters for.

    Args:
      name: see `names`.
      options: arguments by name; the controller must have parameters for all.
      offered: further arguments by name.
    Raises:
      UnknownControllerError, UnknownOptionError, BrokenControllerError: see `make`.
    """
    require_options(name, options)
    found = factory(name)
    maker = getattr(found, "build", found)
    accepted = _parameters(maker)
    arguments = {**{key: value for key, value in offered.items() if accepted is None or key in accepted}, **options}
    if name in _BUILT_IN:
        return maker(**arguments)
    guard = _guard(name)
    made = guard.theirs(lambda: maker(**arguments), " when it is called")
    parts = ["name", *(part for part in vars(Controller) if not part.startswith("_"))]
    # The class is asked first, because to ask the object runs its properties.
    lacking = guard.theirs(
        lambda: [part for part in parts if not (hasattr(type(made), part) or hasattr(made, part))], ""
    )
    if lacking:
        raise guard.broken(f"returns {shown(made)}, which lacks {', '.join(lacking)} of controller.Controller")
    return Foreign(made, guard.broken)


def require_options(name: str, options: Mapping[str, Any]) -> None:
    """Checks that the controller `name` has all these options.

    Raises:
      UnknownOptionError: it has not; the message lists those that it has.
      UnknownControllerError, BrokenControllerError: see `make`.
    """
    found = factory(name) if options else None
    accepted = None if found is None else _parameters(getattr(found, "build", found))
    unknown = set() if accepted is None else options.keys() - accepted
    if unknown:
        raise _unknown_option(name, min(unknown), sorted((accepted or set()) - set(OFFERED)))


def takes(name: str, parameter: str) -> bool:
    """Returns whether what builds the controller `name` has a parameter of that name.

    Raises:
      UnknownControllerError, BrokenControllerError: see `make`.
    """
    found = factory(name)
    accepted = _parameters(getattr(found, "build", found))
    return accepted is None or parameter in accepted


def _parameters(maker: Callable[..., Any]) -> set[str] | None:
    """Returns the names of the keyword parameters; None if any name is accepted, or if nobody can tell."""
    if isinstance(maker, type) and maker.__init__ in (object.__init__, Controller.__init__):  # type: ignore[misc]
        return set()
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # some classes written in C have no signature
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name for parameter in parameters if parameter.kind in named}


def _unknown_option(name: str, option: str, known: list[str]) -> UnknownOptionError:
    found = near(option, known)
    hint = f" Did you mean '{found}'?" if found else ""
    has = f"it has {', '.join(known)}" if known else "it has none"
    return UnknownOptionError(f"The controller '{name}' has no option '{option}'.{hint} Options: {has}.")


def _point(name: str) -> EntryPoint:
    return next(iter(entry_points(group=ENTRY_POINT_GROUP, name=name)))


def _guard(name: str) -> Guard:
    point = _point(name)
    return Guard(lambda fault: _broken(point, fault))


def _broken(point: EntryPoint, fault: str) -> BrokenControllerError:
    package = f"the package {point.dist.name} {point.dist.version}" if point.dist else "an installed package"
    return BrokenControllerError(
        f"The controller {point.name!r} of {package} cannot be used: its entry point {point.value!r} {fault}. Mend or "
        f"uninstall that package, or choose one of the built-in controllers: {', '.join(sorted(_BUILT_IN))}."
    )
