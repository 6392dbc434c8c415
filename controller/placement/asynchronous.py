"""The published agent trained by several controllers that share their weights and do not wait for one another.

A controller samples placements by the weights that it has last seen, and its workers simulate them. Then its gradient
goes into the shared weights, which others have changed meanwhile, and it begins again with the new ones. Each
controller has a baseline of its own.

    place("reinforce-async", problem, budget=4000)     # in this process: controllers take turns
    place("reinforce-ray", problem, budget=4000)       # through Ray (the extra `ray`), in the order in which they end

Both run the same loop, `train`; they differ in who carries out a round (`Pool`). With one controller they compute the
same.

Source: Mirhoseini et al. 2017, section 3.4 (distributed training).
"""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import sonnet as snt
import tensorflow as tf

from controller.placement.interface import Objective, Report
from controller.placement.sequence import ReinforceLearner, SequenceConfig, fitting_from
from environment.placement.env import failing_ms
from environment.placement.errors import PlacementError
from environment.placement.problem import Assignment, PlacementProblem
from taso_ext.errors import one_paragraph

Weights = list[npt.NDArray[np.float32]]
Seen = Callable[[Assignment, npt.NDArray[np.float64]], object]
"""Called with the placements of a round and their times."""


@dataclasses.dataclass(frozen=True)
class AsynchronousConfig:
    """The settings of the training.

    Attributes:
      controllers: how many there are. In turns, a gradient is of weights that are `controllers` - 1 updates old.
      workers: processes that simulate for each controller, where Ray runs them.
      sequence: the settings of the agent and of each controller.
    """

    controllers: int = 4
    workers: int = 2
    sequence: SequenceConfig = dataclasses.field(default_factory=SequenceConfig)


class Round(NamedTuple):
    """What a controller returns: its gradient, its placements [samples, G], and their simulated times in ms.

    The gradient is None if no placement of the round was learned from.
    """

    gradient: Weights | None
    placements: Assignment
    ms: npt.NDArray[np.float64]


class Controller:
    """One controller: it samples, judges and differentiates, and leaves the update to others."""

    def __init__(self, problem: PlacementProblem, config: SequenceConfig, seed: int) -> None:
        self.problem, self._failing = problem, failing_ms(problem)
        self._learner = ReinforceLearner(problem, config, seed)
        self._learner.sample(0)  # a network has its weights when it was called

    def weights(self) -> Weights:
        """Returns the weights that it has."""
        return [each.numpy() for each in self._learner.policy.trainable_variables]

    def sample(self, weights: Weights, update: int) -> Assignment:
        """Takes weights over and returns placements [samples, G]."""
        for variable, value in zip(self._learner.policy.trainable_variables, weights, strict=True):
            variable.assign(value)
        return self._learner.sample(update)

    def differentiate(self, placements: Assignment, ms: npt.NDArray[np.float64], fitting_only: bool) -> Round:
        """Returns the round of placements that took so long."""
        counted = ms < self._failing if fitting_only else np.ones(len(ms), np.bool_)
        rewards = -np.sqrt(np.minimum(ms, self._failing) * 1e-3)
        return Round(self._learner.gradient(placements, rewards, counted), placements, ms)


class SharedWeights:
    """The weights of all controllers, and the optimiser that changes them."""

    def __init__(self, weights: Weights, learning_rate: float) -> None:
        self._variables = [tf.Variable(each) for each in weights]
        self._optimizer = snt.optimizers.Adam(learning_rate)

    def apply(self, gradient: Weights) -> None:
        """Makes one update."""
        self._optimizer.apply([tf.constant(each) for each in gradient], self._variables)

    def values(self) -> Weights:
        """Returns the weights as they are now."""
        return [each.numpy() for each in self._variables]


class Pool(Protocol):
    """Controllers, wherever they run. A loop begins a round of each, and begins one again when it has ended."""

    def weights(self) -> Weights:
        """Returns the first weights of the first controller."""
        ...

    def begin(self, controller: int, weights: Weights, update: int, fitting_only: bool) -> None:
        """Begins a round of a controller that has none."""
        ...

    def ended(self) -> tuple[int, Round]:
        """Waits for a round, and returns its controller and what it has found."""
        ...


class TurnPool:
    """Controllers of this process, which take turns."""

    def __init__(self, problem: PlacementProblem, config: AsynchronousConfig, seed: int) -> None:
        self._controllers = [Controller(problem, config.sequence, seed + each) for each in range(config.controllers)]
        self._begun: deque[tuple[int, Weights, int, bool]] = deque()

    def weights(self) -> Weights:
        """See `Pool`."""
        return self._controllers[0].weights()

    def begin(self, controller: int, weights: Weights, update: int, fitting_only: bool) -> None:
        """See `Pool`."""
        self._begun.append((controller, weights, update, fitting_only))

    def ended(self) -> tuple[int, Round]:
        """See `Pool`."""
        number, weights, update, fitting_only = self._begun.popleft()
        controller = self._controllers[number]
        placements = controller.sample(weights, update)
        return number, controller.differentiate(placements, counted_ms(controller.problem, placements), fitting_only)


class RayPool:
    """Controllers that are actors of Ray, each with workers that are actors too.

    Raises:
      PlacementError: Ray is not installed, or does not start.
    """

    def __init__(self, problem: PlacementProblem, config: AsynchronousConfig, seed: int) -> None:
        self._ray = _started()
        remote = self._ray.remote
        self._workers = [
            [remote(num_cpus=0)(Simulations).remote(problem) for _ in range(config.workers)]
            for _ in range(config.controllers)
        ]
        self._controllers = [
            remote(num_cpus=0)(Controller).remote(problem, config.sequence, seed + each)
            for each in range(config.controllers)
        ]
        self._running: dict[Any, int] = {}

    def weights(self) -> Weights:
        """See `Pool`."""
        found: Weights = self._ray.get(self._controllers[0].weights.remote())
        return found

    def begin(self, controller: int, weights: Weights, update: int, fitting_only: bool) -> None:
        """See `Pool`. What one actor returns goes to the next ones without a stop here."""
        actor, workers = self._controllers[controller], self._workers[controller]
        placements = actor.sample.remote(weights, update)
        parts = [worker.ms.remote(placements, at, len(workers)) for at, worker in enumerate(workers)]
        times = self._ray.remote(num_cpus=0)(interleaved).remote(*parts)
        self._running[actor.differentiate.remote(placements, times, fitting_only)] = controller

    def ended(self) -> tuple[int, Round]:
        """See `Pool`."""
        (reference, *_), _ = self._ray.wait(list(self._running))
        return self._running.pop(reference), self._ray.get(reference)

    def close(self) -> None:
        """Ends the actors."""
        for actor in [*self._controllers, *(each for workers in self._workers for each in workers)]:
            self._ray.kill(actor)


class Simulations:
    """A worker of a controller."""

    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem

    def ms(self, placements: Assignment, first: int, stride: int) -> npt.NDArray[np.float64]:
        """Returns the counted times of every `stride`-th placement, from number `first` on."""
        return counted_ms(self._problem, placements[first::stride])


def counted_ms(problem: PlacementProblem, placements: Assignment) -> npt.NDArray[np.float64]:
    """Returns the counted time of each placement [samples, G] in ms; see `Objective`."""
    objective = Objective(problem, lambda done, ms: None)
    return np.array([objective(each) for each in placements])


def interleaved(*parts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the times of all placements from those of each worker."""
    found = np.zeros(sum(map(len, parts)))
    for first, part in enumerate(parts):
        found[first :: len(parts)] = part
    return found


def _started() -> Any:
    """Returns the module `ray`, connected to a cluster that runs here, or to one that it starts."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise PlacementError(
            'reinforce-ray needs Ray, which is not installed: pip install -e ".[ray]", or use reinforce-async, which '
            "computes the same in one process."
        ) from error
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level="error", configure_logging=False, include_dashboard=False)
        except Exception as error:  # ConnectionError, RuntimeError, ValueError
            raise PlacementError(f"Ray does not start: {one_paragraph(error)}. Use reinforce-async.") from error
    return ray


def train(pool: Pool, config: AsynchronousConfig, updates: int, seen: Seen) -> None:
    """Trains controllers until so many rounds have ended.

    Args:
      seen: called with (placements, ms) of each round.
    """
    first = pool.weights()
    shared = SharedWeights(first, config.sequence.learning_rate)
    fitting = fitting_from(config.sequence, updates)
    begun = 0
    for controller in range(min(config.controllers, updates)):
        pool.begin(controller, first, begun, begun >= fitting)
        begun += 1
    for _ in range(updates):
        controller, found = pool.ended()
        seen(found.placements, found.ms)
        if found.gradient is not None:
            shared.apply(found.gradient)
        if begun < updates:
            pool.begin(controller, shared.values(), begun, begun >= fitting)
            begun += 1


def reinforce_async(
    problem: PlacementProblem,
    *,
    budget: int,
    seed: int,
    report: Report,
    config: AsynchronousConfig | None = None,
) -> Assignment:
    """Returns the best placement that controllers of this process have sampled; see `Placer`."""
    settings = config or AsynchronousConfig()
    return _best(problem, TurnPool(problem, settings, seed), settings, budget, report)


def reinforce_ray(
    problem: PlacementProblem,
    *,
    budget: int,
    seed: int,
    report: Report,
    config: AsynchronousConfig | None = None,
) -> Assignment:
    """Returns the best placement that controllers on Ray have sampled; see `Placer`.

    With several controllers, which round ends first is left to the machine, so that runs differ.

    Raises:
      PlacementError: Ray is not installed, or does not start.
    """
    settings = config or AsynchronousConfig()
    pool = RayPool(problem, settings, seed)
    try:
        return _best(problem, pool, settings, budget, report)
    finally:
        pool.close()


def _best(
    problem: PlacementProblem, pool: Pool, settings: AsynchronousConfig, budget: int, report: Report
) -> Assignment:
    best, best_ms, done = problem.single(0), np.inf, 0

    def seen(placements: Assignment, ms: npt.NDArray[np.float64]) -> None:
        nonlocal best, best_ms, done
        at, done = int(ms.argmin()), done + len(ms)
        if ms[at] < best_ms:
            best, best_ms = placements[at].copy(), float(ms[at])
        report(done, best_ms)

    train(pool, settings, max(1, budget // settings.sequence.samples), seen)
    return best
