"""`Foreign`: a controller of another package, whose faults become one clear sentence each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from controller.interface import Controller, ProgressCallback
from taso_ext.errors import one_paragraph


class BrokenControllerError(RuntimeError):
    """The package that registers a controller is at fault; the message names it and says what to do."""


class Foreign(Controller):
    """A controller of another package. Whatever its methods raise is reported as a fault of that package."""

    name: ClassVar[str] = ""

    def __init__(self, made: Any, broken: Callable[[str], BrokenControllerError]) -> None:
        """
        Args:
          made: the controller; it has the methods of `Controller`.
          broken: makes the error, from what is at fault.
        """
        self._made, self._broken, self._dreams = made, broken, False
        # They describe the class elsewhere, and here the one object that is behind this class.
        for attribute in ("name", "worlds", "stochastic", "clocked"):
            setattr(self, attribute, getattr(made, attribute))

    @property
    def max_steps(self) -> int | None:
        return self._called("max_steps", lambda: self._made.max_steps)

    @property
    def total(self) -> int:
        return int(self._called("total", lambda: self._made.total))

    @property
    def num_updates(self) -> int:
        return int(self._called("num_updates", lambda: self._made.num_updates))

    @property
    def limit_s(self) -> float:
        return float(self._called("limit_s", lambda: self._made.limit_s))

    @property
    def policy(self) -> Any:
        found = self._called("policy", lambda: self._made.policy)
        return None if found is None else _Policy(found, self._called)

    @property
    def trains(self) -> bool:
        return self._called("trains", lambda: bool(self._made.trains))

    @property
    def saves(self) -> bool:
        return self._called("saves", lambda: bool(self._made.saves))

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        ours: list[Exception] = []

        def report(*arguments: Any) -> None:
            try:
                if on_progress is not None:
                    on_progress(*arguments)
            except Exception as error:
                ours.append(error)
                raise

        try:
            self._called("train", lambda: self._made.train(world, seed=seed, on_progress=report))
        except BrokenControllerError:
            if ours:  # what reporting raises is not their fault
                raise ours[0] from None
            raise

    def view(self, env: Any) -> Any:
        return _View(self._called("view", lambda: self._made.view(env)), self._broken)

    def begin_episode(self, view: Any, *, seed: int) -> None:
        self._dreams = not isinstance(view, _View)  # a player of the world model begins it, with a view of its own
        self._called("begin_episode", lambda: self._made.begin_episode(_behind(view), seed=seed))

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        action = self._called("act", lambda: self._made.act(observation, deterministic=deterministic))
        return self._legal(action, observation) if self._dreams else action

    def save(self, path: str | os.PathLike[str]) -> None:
        self._called("save", lambda: self._made.save(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        self._called("load", lambda: self._made.load(path))

    def _legal(self, action: Any, observation: Any) -> int:
        """Returns an action on a `LatentObservation` of one row; raises BrokenControllerError if it is none there."""
        try:
            number = int(action)
        except Exception as error:  # the action is an object of another package
            raise self._broken(f"takes the action {action!r}, which is no number") from error
        legal = observation.action_mask.numpy()[0]
        if not 0 <= number < len(legal) or not legal[number]:
            raise self._broken(f"takes the action {action!r}, which is not legal there")
        return number

    def _called(self, method: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # code of another package may raise anything
            fault = f"raises {type(error).__name__} in {method}(): {one_paragraph(error) or 'without a message'}"
            raise self._broken(fault) from error


class _Policy:
    """The policy of such a controller, which whoever plays dreams calls. It is equal to another one as theirs are."""

    def __init__(self, policy: Any, called: Callable[[str, Callable[[], Any]], Any]) -> None:
        self.behind, self._called = policy, called

    def __call__(self, observation: Any, seed: Any) -> tuple[Any, Any, Any]:
        def choose() -> tuple[Any, Any, Any]:
            action, log_prob, value = self.behind(observation, seed)
            return action, log_prob, value

        chosen: tuple[Any, Any, Any] = self._called("policy", choose)
        return chosen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Policy) and bool(self.behind == other.behind)

    def __hash__(self) -> int:
        return int(self._called("policy", lambda: hash(self.behind)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


class _View:
    """The view of such a controller. What it says of an action that does not exist there is its own fault too."""

    def __init__(self, view: Any, broken: Callable[[str], BrokenControllerError]) -> None:
        self.behind, self._broken = view, broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    def step(self, action: Any) -> Any:
        try:
            outcome = self.behind.step(action)
        except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            raise self._broken(f"takes the action {action!r}: {one_paragraph(error)}") from error
        if outcome[-1].get("rule_name") == "invalid":
            raise self._broken(f"takes the action {action!r}, which is not legal there")
        return outcome


def _behind(view: Any) -> Any:
    return view.behind if isinstance(view, _View) else view
