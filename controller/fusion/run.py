"""What all searches for fusion plans share: their settings, their results, and a run that can be interrupted.

A run keeps its state in a file, if it has one, every `KEEP_SECONDS`: the plan, the best plan, the curve, the state of
the random generator, and what its method remembers. A run that begins with such a file goes on from there, and comes to
the same result as one that was never interrupted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from controller.interface import StoredControllerError
from environment.fusion import DEFAULT, FusionGraph, Objective
from taso_ext.files import UNREADABLE_ARRAYS, write_arrays

Predictor = Callable[[FusionGraph, np.ndarray], np.ndarray]
"""Returns a number for each configurable tensor [n] of a configuration uint8 [N]; large ones are tried first."""
Progress = Callable[[int, int, dict[str, float]], None]
"""Called with the queries so far, the budget, and figures to show."""
Curve = Sequence[tuple[int, float]]
"""(queries, lowest cost in ms so far), at the start and after every improvement; strictly falling."""
STATE_VERSION = 1
KEEP_SECONDS = 2.0
REPORT_EVERY = 20
"""Queries between two reports of progress."""


class SearchStateError(StoredControllerError):
    """The file of an interrupted search is damaged or belongs to another search."""


@dataclass(frozen=True)
class SearchConfig:
    """What a search may do, and the constants of the methods.

    They were chosen on inference graphs, which no table judges (`experiments.reproduce.fusion.units.Plan`).

    Attributes:
      budget: queries, the one of the start included.
      start: `default` (the compiler's plan) or `random`.
      distance: k; a mutation touches decisions at most so many edges away.
      rate: probability with which a mutation flips each decision of the neighbourhood; the drawn one is always flipped.
      alpha: share of the decisions that `guided` draws from, in percent.
      memory: whether `guided` draws no decision again until all were drawn.
      first_temperature, last_temperature: of `annealing`, as multiples of a launch; geometric in between.
      population, tournament: of `genetic`.
    """

    budget: int = 1000
    start: str = DEFAULT
    distance: int = 1
    rate: float = 0.1
    alpha: float = 5.0
    memory: bool = True
    first_temperature: float = 1.0
    last_temperature: float = 0.01
    population: int = 20
    tournament: int = 3

    def __post_init__(self) -> None:
        for name, least in (("budget", 1), ("distance", 0), ("population", 2), ("tournament", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"fusion: {name} is {getattr(self, name)}; it must be at least {least}.")
        if not 0 <= self.rate <= 1 or not 0 < self.alpha <= 100:
            raise ValueError(
                f"fusion: rate must lie in [0, 1] and alpha in (0, 100], got {self.rate} and {self.alpha}."
            )
        if not 0 < self.last_temperature <= self.first_temperature:
            raise ValueError(
                "fusion: temperatures must be positive and not rise, got "
                f"{self.first_temperature} and {self.last_temperature}."
            )


def best_after(curve: Curve, queries: int) -> float:
    """Returns the lowest cost in ms that was known after so many queries."""
    return next(cost for asked, cost in reversed(curve) if asked <= max(queries, curve[0][0]))


def queries_to(curve: Curve, cost_ms: float) -> int | None:
    """Returns the queries after which a cost at most this high was known; None if it never was."""
    return next((asked for asked, cost in curve if cost <= cost_ms), None)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found and when.

    Attributes:
      method: its name.
      start_ms: cost of the start.
      curve: see `Curve`.
      queries: all queries of the search.
      configuration: uint8 [N], of the lowest cost.
    """

    method: str
    start_ms: float
    curve: list[tuple[int, float]]
    queries: int
    configuration: np.ndarray

    @property
    def best_ms(self) -> float:
        return self.curve[-1][1]

    @property
    def improvement(self) -> float:
        """By how many percent of the start's cost the best plan is cheaper."""
        return 100 * (1 - self.best_ms / self.start_ms)

    def best_after(self, queries: int) -> float:
        """See the function."""
        return best_after(self.curve, queries)

    def queries_to(self, cost_ms: float) -> int | None:
        """See the function."""
        return queries_to(self.curve, cost_ms)


@dataclass
class Run:
    """A search that goes on: the objective, what is left of the budget, the best plan and the curve.

    Attributes:
      objective, config, rng: where it searches, its settings and its random numbers.
      predictor: what `guided` follows.
      on_progress: is told of the queries.
      state: where the state is kept; None keeps none.
      curve: see `SearchResult`.
      kept: what the method remembered when the state was kept; empty for a run that begins.
    """

    objective: Objective
    config: SearchConfig
    rng: np.random.Generator
    predictor: Predictor | None = None
    on_progress: Progress | None = None
    state: Path | None = None
    curve: list[tuple[int, float]] = field(default_factory=list)
    kept: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start_ms, self._earlier, self._kept_at = self.objective.start_ms, 0, time.monotonic()
        self.best_configuration = self.objective.configuration
        self.note(self.objective)

    @classmethod
    def begun(
        cls,
        graph: FusionGraph,
        config: SearchConfig,
        seed: int,
        predictor: Predictor | None = None,
        on_progress: Progress | None = None,
        state: str | os.PathLike[str] | None = None,
    ) -> Run:
        """Begins a run, or goes on with the one whose state is kept.

        Raises:
          SearchStateError: the state is damaged, or that of another graph.
        """
        path, rng = None if state is None else Path(state), np.random.default_rng([seed, 342])
        kept = {} if path is None or not path.is_file() else _read(path, graph)
        plan = kept.pop("configuration") if kept else graph.start(config.start, seed)
        run = cls(Objective(graph, plan), config, rng, predictor, on_progress, path)
        if kept:
            run._go_on_from(kept)
        return run

    def _go_on_from(self, kept: dict[str, np.ndarray]) -> None:
        """Takes a kept state over, but for its plan, at which the objective is already."""
        self._earlier = int(kept.pop("queries")) - self.objective.queries  # the plan is priced again, once
        self.start_ms, self.best_configuration = float(kept.pop("start_ms")), kept.pop("best_configuration")
        self.curve[:] = [(int(asked), float(cost)) for asked, cost in kept.pop("curve")]
        self.rng.bit_generator.state = json.loads(str(kept.pop("rng")))
        self.kept = kept

    def keep(self, **memory: np.ndarray) -> None:
        """Keeps the state from time to time, with what the method remembers; called between two moves."""
        if self.state is None or time.monotonic() - self._kept_at < KEEP_SECONDS:
            return
        arrays = {
            "version": np.array(STATE_VERSION),
            "configuration": self.objective.configuration,
            "best_configuration": self.best_configuration,
            "start_ms": np.array(self.start_ms),
            "queries": np.array(self.queries),
            "curve": np.array(self.curve, np.float64),
            "rng": np.array(json.dumps(self.rng.bit_generator.state)),
        }
        write_arrays(self.state, {**arrays, **memory})
        self._kept_at = time.monotonic()

    @property
    def graph(self) -> FusionGraph:
        return self.objective.graph

    @property
    def queries(self) -> int:
        """Queries since the start, the one of the start and those before an interruption included."""
        return self._earlier + self.objective.queries

    @property
    def left(self) -> int:
        return self.config.budget - self.queries

    def note(self, objective: Objective) -> None:
        """Extends the curve if the best plan of an objective on the same problem is the cheapest so far."""
        if not self.curve or objective.best_ms < self.curve[-1][1]:
            self.curve.append((self.queries, objective.best_ms))
            self.best_configuration = objective.best_configuration
        if self.on_progress is not None and self.queries % REPORT_EVERY == 0:
            saved = 100 * (1 - self.curve[-1][1] / self.start_ms)
            self.on_progress(self.queries, self.config.budget, {"saved_percent": saved})

    def mutation(self, tensor: int) -> np.ndarray:
        """Returns the decisions that a mutation around a configurable tensor flips, itself first."""
        near = self.graph.problem.neighbourhood(tensor, self.config.distance)
        flips = self.rng.random(len(near)) < self.config.rate
        flips[0] = True
        return near[flips]

    def flipped(self, tensors: np.ndarray) -> float:
        cost = self.objective.flipped(tensors)
        self.note(self.objective)
        return cost


def _read(path: Path, graph: FusionGraph) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as stored:
            arrays = {name: stored[name] for name in stored.files}
        version, size = int(arrays.pop("version")), len(arrays["configuration"])
    except UNREADABLE_ARRAYS as error:
        raise SearchStateError(
            f"{path} holds no search ({type(error).__name__}: {error}). Delete it, and the search begins anew."
        ) from error
    if (version, size) != (STATE_VERSION, len(graph.problem)):
        raise SearchStateError(
            f"{path} holds a search of format {version} in a graph of {size} tensors; expected format {STATE_VERSION} "
            f"and {len(graph.problem)}. Delete it, and the search begins anew."
        )
    return arrays
