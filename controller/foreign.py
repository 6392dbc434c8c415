"""`Foreign`: a controller of another package, whose faults become one clear sentence each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from controller.interface import Controller, ProgressCallback
from taso_ext.errors import one_paragraph

Returned = TypeVar("Returned")


class BrokenControllerError(RuntimeError):
    """The package that registers a controller is at fault; the message names it and says what to do."""


class Guard:
    """The border between the program and a package that registers a controller: every call across it goes through here.

    Whatever the package raises, SystemExit too, becomes a `BrokenControllerError`. An interruption passes unchanged. So
    does what `ours` raises, and what the environment reports of its reward, its clock and its prices.
    """

    def __init__(self, broken: Callable[[str], BrokenControllerError]) -> None:
        """
        Args:
          broken: makes the error, from what is at fault: words that follow "its entry point".
        """
        self.broken = broken
        self._ours: list[Exception] = []

    def theirs(self, call: Callable[[], Returned], where: str) -> Returned:
        """Runs code of the package and returns what it returns.

        Args:
          call: runs the code, and may check what comes of it: raise `broken` for what is not as it should be.
          where: which code it is, to follow "raises ValueError": " in train()".
        Raises:
          BrokenControllerError: the code raises an error.
        """
        try:
            return call()
        except (Exception, SystemExit) as error:  # code of another package may raise anything
            for cause in _causes(error):
                if self._passes(cause):
                    raise cause  # noqa: B904  # it keeps the cause that it has
            text = _text(str, error).removesuffix(".") or "without a message"
            raise self.broken(f"raises {type(error).__name__}{where}: {text}") from error

    def ours(self, call: Callable[[], Returned]) -> Returned:
        """Runs code of the program that the package calls; what it raises is no fault of the package."""
        try:
            return call()
        except Exception as error:
            self._ours.append(error)
            raise

    def require(self, found: Any, of: Callable[[Any], Returned], fault: Callable[[], str], expected: str) -> Returned:
        """Returns what the package gave, in the type that it should have.

        Args:
          found: what it gave.
          of: converts it, and raises an error if that cannot be done.
          fault: tells what the package does, to follow "its entry point"; only called if something is wrong.
          expected: what it should have given: "a whole number".
        Raises:
          BrokenControllerError: it gave something else.
        """
        try:
            return of(found)
        except (Exception, SystemExit) as error:  # methods of an object of another package may raise anything
            raise self.broken(f"{fault()}, but {expected} was expected") from error

    def _passes(self, error: BaseException) -> bool:
        """Returns whether an error is no fault of the package, or has been reported as one."""
        return (
            isinstance(error, BrokenControllerError)
            or any(error is each for each in self._ours)
            or _of_environment(error)
        )


def shown(value: Any) -> str:
    """Returns how Python writes an object of another package, in one short line."""
    return _text(repr, value, 100) or f"an object of {type(value).__name__}"


def _text(read: Callable[[Any], str], value: Any, limit: int = 500) -> str:
    """Returns what `read` tells of an object in one line; an empty text if the object cannot tell it."""
    try:
        return one_paragraph(read(value), limit)
    except Exception:  # its method is code of another package
        return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and those that led to it."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        yield at
        seen.add(id(at))
        at = at.__cause__ or at.__context__


def _of_environment(error: BaseException) -> bool:
    """Returns whether the environment reports that its reward, its clock or its prices fail, whoever takes the step."""
    from environment.costs.prices.sqlite_file import DatabaseError
    from environment.measurement.effort import ClockError
    from environment.rewards import RewardError
    from environment.runtimes import UnavailableError
    from taso_ext.errors import CrashError

    return isinstance(error, DatabaseError | ClockError | RewardError | UnavailableError | CrashError)


def _whole(least: float = -math.inf) -> Callable[[Any], int]:
    """Returns a function that converts whole numbers of any type, and raises an error for anything else."""

    def convert(value: Any) -> int:
        number = int(value)
        if not bool(number == value) or number < least:
            raise ValueError
        return number

    return convert


def _finite(value: Any) -> float:
    if not math.isfinite(number := _number(value)):
        raise ValueError
    return number


def _number(value: Any) -> float:
    """Returns a number, which may be NaN or infinite; raises an error for anything else."""
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)


def _seconds(value: Any) -> float:
    if not (number := _number(value)) >= 0:
        raise ValueError
    return number


def _text_only(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


class Foreign(Controller):
    """A controller of another package. Whatever is wrong with it is reported as a fault of that package."""

    name: ClassVar[str] = ""

    def __init__(self, made: Any, broken: Callable[[str], BrokenControllerError]) -> None:
        """
        Args:
          made: the controller; it has the methods of `Controller`.
          broken: see `Guard`.
        Raises:
          BrokenControllerError: its name, or what it says of itself, is of another kind than `Controller` says.
        """
        self._made, self._guard, self._dreams = made, Guard(broken), False
        # They describe the class elsewhere, and here the one object that is behind this class.
        for attribute, of, expected in (
            ("name", _text_only, "a text"),
            ("worlds", tuple, "a tuple of names"),
            ("stochastic", bool, "True or False"),
            ("clocked", bool, "True or False"),
        ):
            setattr(self, attribute, self._read(attribute, of, expected))

    @property
    def max_steps(self) -> int | None:
        def limit(value: Any) -> int | None:
            return None if value is None else _whole(1)(value)

        return self._read("max_steps", limit, "None or a whole number of at least 1")

    @property
    def total(self) -> int:
        return self._read("total", _whole(0), "a whole number of at least 0")

    @property
    def num_updates(self) -> int:
        return self._read("num_updates", _whole(0), "a whole number of at least 0")

    @property
    def limit_s(self) -> float:
        return self._read("limit_s", _seconds, "a number of at least 0")

    @property
    def policy(self) -> Any:
        def of(value: Any) -> _Policy | None:
            if not (value is None or callable(value)):
                raise TypeError
            return None if value is None else _Policy(value, self._guard)

        return self._read("policy", of, "None or a function")

    @property
    def trains(self) -> bool:
        return self._read("trains", bool, "True or False")

    @property
    def saves(self) -> bool:
        return self._read("saves", bool, "True or False")

    def train(self, world: Any, *, seed: int = 0, on_progress: ProgressCallback | None = None) -> None:
        def report(*arguments: Any, **named: Any) -> None:
            done, total, metrics = self._progress(arguments, named)
            if on_progress is not None:
                self._guard.ours(lambda: on_progress(done, total, metrics))

        self._called("train", lambda: self._made.train(world, seed=seed, on_progress=report))

    def view(self, env: Any) -> Any:
        found = self._called("view", lambda: self._made.view(env))
        return self._guard.require(
            found,
            lambda view: _View(view, view.reset, view.step, env, self._guard),
            lambda: f"returns {shown(found)} in view()",
            "an environment with Gymnasium's reset and step",
        )

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

    def _called(self, method: str, call: Callable[[], Returned]) -> Returned:
        return self._guard.theirs(call, f" in {method}()")

    def _read(self, attribute: str, of: Callable[[Any], Returned], expected: str) -> Returned:
        found = self._guard.theirs(lambda: getattr(self._made, attribute), f" in {attribute}")
        return self._guard.require(found, of, lambda: f"has the {attribute} {shown(found)}", expected)

    def _legal(self, action: Any, observation: Any) -> int:
        """Returns an action on a `LatentObservation` of one row; raises BrokenControllerError if it is none there."""
        legal = observation.action_mask.numpy()[0]
        number = self._guard.require(action, _whole(), lambda: f"takes the action {shown(action)}", "a whole number")
        if not 0 <= number < len(legal) or not legal[number]:
            raise self._guard.broken(f"takes the action {number}, which is not legal there")
        return number

    def _progress(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[int, int, dict[str, Any]]:
        """Returns the arguments of a report of progress; raises BrokenControllerError if they are none."""

        def of(given: tuple[Any, ...]) -> tuple[int, int, dict[str, Any]]:
            done, total, metrics = given
            if named:
                raise TypeError
            figures = dict(metrics.items())
            for name, value in figures.items():
                _text_only(name)
                _number(value)
            return _whole(0)(done), _whole(0)(total), figures

        def fault() -> str:
            said = [*map(shown, arguments), *(f"{name}={shown(value)}" for name, value in named.items())]
            return f"calls on_progress({', '.join(said)}) in train()"

        expected = "on_progress(done, total, metrics) with two whole numbers and a mapping of names to numbers"
        return self._guard.require(arguments, of, fault, expected)


class _Policy:
    """The policy of such a controller, which whoever plays dreams calls. It is equal to another one as theirs are."""

    def __init__(self, policy: Any, guard: Guard) -> None:
        self.behind, self._guard = policy, guard

    def __call__(self, observation: Any, seed: Any) -> tuple[Any, Any, Any]:
        chosen = self._guard.theirs(lambda: self.behind(observation, seed), " in policy()")

        def of(parts: Any) -> tuple[Any, Any, Any]:
            import tensorflow as tf  # whoever makes the observation has imported it

            action, log_prob, value = (tf.convert_to_tensor(part) for part in parts)
            kinds = tf.int32, tf.float32, tf.float32
            for part, kind in zip((action, log_prob, value), kinds, strict=True):
                if part.dtype != kind or not part.shape.is_compatible_with(observation.action_mask.shape[:1]):
                    raise TypeError
            return action, log_prob, value

        expected = "(action int32 [B], log_prob float32 [B], value float32 [B]) for the B rows of the observation"
        return self._guard.require(chosen, of, lambda: f"returns {shown(chosen)} in policy()", expected)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Policy) and self._guard.theirs(
            lambda: bool(self.behind == other.behind), " in policy"
        )

    def __hash__(self) -> int:
        return self._guard.theirs(lambda: hash(self.behind), " in policy")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


class _View:
    """The view of such a controller. What it says of the real environment, from which records are made, is checked."""

    def __init__(self, view: Any, reset: Any, step: Any, env: Any, guard: Guard) -> None:
        """
        Args:
          view: the view.
          reset, step: its methods.
          env: the real environment.
        Raises:
          TypeError: they are none.
        """
        if not (callable(reset) and callable(step)):
            raise TypeError
        self.behind, self._guard = view, guard
        self._env: Any = None if view is env else env.unwrapped  # which says of itself what is true

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        at, given = " in reset() of its view", {} if options is None else {"options": options}
        found = self._guard.theirs(lambda: self.behind.reset(seed=seed, **given), at)
        observation, info = self._parts(found, ("observation", "info"), at)
        info = self._info(info, at)
        if self._env is not None:
            self._compare(info, at)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        at = f" in step() of its view at the action {shown(action)}"
        begun = 0 if self._env is None else self._env.steps
        found = self._guard.theirs(lambda: self.behind.step(action), at)
        names = "observation", "reward", "terminated", "truncated", "info"
        observation, reward, terminated, truncated, info = self._parts(found, names, at)
        reward = self._part("reward", reward, _finite, at, "a finite number")
        terminated = self._part("terminated", terminated, _truth, at, "True or False")
        truncated = self._part("truncated", truncated, _truth, at, "True or False")
        info = self._info(info, at)
        rule_name = self._part(
            "info['rule_name']", info.get("rule_name"), _text_only, at, "that of the real environment"
        )
        if rule_name == "invalid":
            raise self._guard.broken(f"takes the action {shown(action)}, which is not legal there")
        taken = info.get("action", action)
        pair = self._part("info['action']", taken, _pair, at, "a pair [rule, location]")
        if not _fits(pair, rewrites := [_pair(each) for each in info.get("rewrites", ())]):
            fault = f"returns the info['action'] {shown(taken)}{at}, but the rewrites of that step are {rewrites}"
            raise self._guard.broken(fault)
        if self._env is not None:
            changes = rule_name != "unpriced" and pair[0] != self._env.num_rules
            self._require_taken((rewrites or [pair]) if changes else (), begun, at)
            self._compare(info, at)
        return observation, reward, terminated, truncated, info

    def _require_taken(self, rewrites: Sequence[tuple[int, int]], begun: int, at: str) -> None:
        """Raises BrokenControllerError unless the environment has taken one step since, of just these rewrites."""
        if self._env.steps != begun + 1 or tuple(rewrites) != tuple(self._env.rewrites):
            raise self._guard.broken(
                f"returns an info{at} by which {list(rewrites)} was taken, but the real environment has taken "
                "something else: report the pair [rule, location] as info['action']"
            )

    def _compare(self, info: Mapping[str, Any], at: str) -> None:
        """Raises BrokenControllerError unless `info` shows the graph and the cost that the environment has."""
        if info.get("graph_hash") != self._env.state.hash or not math.isclose(info["cost_ms"], self._env.cost.ms):
            raise self._guard.broken(
                f"returns the info['cost_ms'] {shown(info['cost_ms'])} and the info['graph_hash'] "
                f"{shown(info.get('graph_hash'))}{at}, but the real environment has {self._env.cost.ms} and "
                f"{self._env.state.hash!r}"
            )

    def _parts(self, found: Any, names: tuple[str, ...], at: str) -> Sequence[Any]:
        """Returns the parts of what a method has returned; raises BrokenControllerError unless they are as many."""

        def of(parts: Any) -> Sequence[Any]:
            if len(parts) != len(names) or isinstance(parts, str | Mapping):
                raise ValueError
            return tuple(parts)

        def fault() -> str:
            is_tuple = isinstance(found, tuple | list)
            return f"returns {f'{len(found)} values' if is_tuple else shown(found)}{at}"

        return self._guard.require(found, of, fault, f"({', '.join(names)})")

    def _part(self, name: str, value: Any, of: Callable[[Any], Returned], at: str, expected: str) -> Returned:
        return self._guard.require(value, of, lambda: f"returns the {name} {shown(value)}{at}", expected)

    def _info(self, info: Any, at: str) -> dict[str, Any]:
        """Returns the `info` of a reset or a step; raises BrokenControllerError if no record could hold it."""
        found = self._part(
            "info", info, lambda given: dict(given.items()), at, "a mapping, as of the real environment,"
        )
        for name in ("cost_ms", *(name for name in _NOISE if name in found)):
            self._part(f"info['{name}']", found.get(name), _finite, at, "a number, as of the real environment,")
        rewrites = found.get("rewrites", ())
        self._part("info['rewrites']", rewrites, lambda given: list(map(_pair, given)), at, "pairs (rule, location)")
        return found


_NOISE = "cost_noise", "ratio_noise", "reward_noise"
"""What a record of the episode holds of `info` beside the cost, if it is there."""


def _truth(value: Any) -> bool:
    if not bool(value == (found := bool(value))):
        raise ValueError
    return found


def _pair(value: Any) -> tuple[int, int]:
    rule, location = (_whole()(part) for part in value)
    return rule, location


def _fits(action: tuple[int, int], rewrites: list[tuple[int, int]]) -> bool:
    """Returns whether an action has carried out these rewrites: itself, or those of its rule everywhere."""
    rule, location = action
    return rewrites in ([], [action]) or all(each == rule and place != location for each, place in rewrites)


def _behind(view: Any) -> Any:
    return view.behind if isinstance(view, _View) else view
