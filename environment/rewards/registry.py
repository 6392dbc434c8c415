"""Rewards by name, with parameters: `log_ratio`, `combined:alpha=0.7,beta=0.3`, or your own `module:function`."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from environment.parameters import parsed
from environment.rewards import formulas
from environment.rewards.interface import Reward, RewardFunction
from taso_ext.errors import did_you_mean, near, one_paragraph

Parameter = int | float

_BUILT_IN: Mapping[str, Callable[..., Reward]] = {
    make.__name__: make
    for make in (
        formulas.log_ratio,
        formulas.incremental,
        formulas.combined,
        formulas.new_runtime,
        formulas.final,
        formulas.percent,
    )
}
_REGISTERED: dict[str, Reward] = {}


def names() -> list[str]:
    """Returns the names of all built-in and registered rewards."""
    return [*_BUILT_IN, *_REGISTERED]


def register(reward: Reward) -> None:
    """Makes a reward available by its name.

    Raises:
      ValueError: the name is taken, or holds a colon.
    """
    if reward.name in names():
        raise ValueError(f"there already is a reward named {reward.name!r}; choose another name")
    if ":" in reward.name:
        raise ValueError(f"a reward cannot be named {reward.name!r}: parameters follow a colon; choose another name")
    _REGISTERED[reward.name] = reward


def find(reward: str | Reward | RewardFunction, **parameters: Parameter) -> Reward:
    """Returns the reward of a text, or makes one of a function.

        find("combined", alpha=0.7, beta=0.3)
        find("combined:alpha=0.7,beta=0.3")        # the same as text, for configurations and the command line
        find("my_rewards:launches_saved")          # a function of a module that Python can import
        find(lambda t: t.before.ms - t.after.ms)   # a function; the cost is measured at every step

    Raises:
      ValueError: a name, parameter or function is unknown, or a value is bad; the message lists the known ones.
    """
    if isinstance(reward, Reward):
        return _without(parameters, reward, reward.name)
    if not isinstance(reward, str):
        return _without(parameters, _of_function(reward), "a function")
    name, colon, text = reward.partition(":")
    if colon and not text:
        raise ValueError(f"nothing follows the colon of the reward {reward!r}: expected parameters, or a function")
    if name in _BUILT_IN:
        return _made(name, _merged(parsed(name, text, "reward"), parameters, reward))
    if name in _REGISTERED:
        return _without({**parsed(name, text, "reward"), **parameters}, _REGISTERED[name], name)
    if text and "=" not in text:
        return _without(parameters, _of_function(_imported(name, text), reward), reward)
    raise ValueError(_unknown(name))


def is_imported(reward: str) -> bool:
    """Returns whether the reward of a text is a function of a Python module, which `find` would import."""
    name, _, text = reward.partition(":")
    return bool(text) and "=" not in text and name not in _BUILT_IN and name not in _REGISTERED


def _without(parameters: Mapping[str, Any], reward: Reward, name: str) -> Reward:
    if parameters:
        raise ValueError(f"the reward {name!r} takes no parameters, got {', '.join(parameters)}")
    return reward


def _of_function(function: Any, name: str = "") -> Reward:
    if not callable(function):
        raise ValueError(
            f"expected a reward: a name, a Reward, or a function from a Transition to a number; got {function!r}"
        )
    return Reward(name or getattr(function, "__qualname__", type(function).__name__), function)


def _made(name: str, given: Mapping[str, Any]) -> Reward:
    """Returns a built-in reward with the given parameters, each converted to the type of its default."""
    make = _BUILT_IN[name]
    known = {key: each.default for key, each in inspect.signature(make).parameters.items()}
    for key in given:
        if key not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no parameters"
            raise ValueError(
                f"the reward {name!r} has no parameter {key!r}{did_you_mean(key, list(known))}: it {takes}"
            )
    values = {key: _number(f"{name}: {key}", value, type(known[key])) for key, value in given.items()}
    try:
        made = make(**values)
    except ValueError as error:
        raise ValueError(f"the reward {name!r}: {error}") from error
    return (
        replace(made, name=f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}") if values else made
    )


def _merged(first: Mapping[str, Any], second: Mapping[str, Any], reward: str) -> dict[str, Any]:
    twice = sorted(set(first) & set(second))
    if twice:
        raise ValueError(f"{', '.join(twice)} of the reward {reward!r} came twice: in its text and beside it")
    return {**first, **second}


def _number(what: str, value: Any, kind: type[Parameter]) -> Parameter:
    """Converts a value to a parameter's type; a whole number fits every type."""
    expected = "a whole number" if kind is int else "a finite number"
    try:
        number: Parameter = kind(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"{what} must be {expected}, got '{value}'") from error
    allowed = (int,) if kind is int else (int, float)
    if isinstance(number, bool) or not isinstance(number, allowed) or not math.isfinite(number):
        raise ValueError(f"{what} must be {expected}, got {value!r}")
    return number


def _imported(module: str, attribute: str) -> RewardFunction:
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):  # a module that it imports
            raise ValueError(f"the module {module!r} of a reward cannot be imported: {one_paragraph(error)}") from error
        raise ValueError(
            f"{_unknown(f'{module}:{attribute}')} Nor is there a Python module {module!r}; PYTHONPATH must hold the "
            "directory of a file of one's own."
        ) from error
    except Exception as error:  # a user's own module may raise anything
        what = f"{type(error).__name__}: {one_paragraph(error)}"
        raise ValueError(f"the module {module!r} of a reward cannot be imported: {what}") from error
    known = [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
    if attribute not in vars(found):
        has = one_paragraph(", ".join(known), 200) or "none"
        hint = did_you_mean(attribute, known)
        raise ValueError(f"the module {module!r} has no function {attribute!r}{hint}; its functions: {has}")
    function: RewardFunction = vars(found)[attribute]
    if not callable(function):
        raise ValueError(f"{attribute!r} of the module {module!r} is no function from a Transition to a number")
    return function


def _unknown(name: str) -> str:
    found = near(name.partition(":")[0], names())
    hint = f"; did you mean {found!r}?" if found else "."
    return (
        f"no reward is called {name!r}{hint} Choose one of {', '.join(names())}, or name a function of your own, "
        "module:function."
    )
