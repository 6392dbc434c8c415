"""Searches for fusion plans, all by one interface: they ask an `Objective`, pay for every query and stop at a budget.

    result = search("random", graph, SearchConfig(budget=1000), seed=0)
    result.queries_to(result.start_ms * 0.99)     # None if it did not get there

| name | what it does |
|---|---|
| `random` | draws a decision from all, mutates its neighbourhood, keeps what is cheaper (the paper's random search) |
| `sweeps` | the same, but draws no decision again until all were drawn |
| `guided` | draws from the top α % by predicted advantage of the decisions that were not drawn yet |
| `annealing` | the same proposals as `random`, and takes what is dearer with probability exp(-increase / T) |
| `genetic` | a population with tournaments, crossover of whole regions, and the same mutations |
| `probing` | asks for all exact advantages first, tries the best of them in turn, and asks again when none helps |
| `ppo` | learns which decisions to flip by proximal policy optimisation, from its own queries alone |

Every row moves in the same space, and all but `ppo` by the same mutation. The paper's guided search has no memory of
what it drew. But a flip and its inverse have the same absolute advantage: once the largest are decided they would be
drawn for ever, and with `memory=False` the search stops early. `sweeps` shows what the memory brings without any
prediction. This module imports no TensorFlow before `ppo` is asked for: the predictor comes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from environment.fusion import DEFAULT, FusionGraph, Objective

Predictor = Callable[[FusionGraph, np.ndarray], np.ndarray]
"""Returns a number for each configurable tensor [n] of a configuration uint8 [N]; large ones are tried first."""


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


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found and when.

    Attributes:
      method: its name.
      start_ms: cost of the start.
      curve: (queries, lowest cost in ms so far), at the start and after every improvement; strictly falling.
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
        """Returns the lowest cost in ms that was known after so many queries."""
        return next(cost for asked, cost in reversed(self.curve) if asked <= max(queries, self.curve[0][0]))

    def queries_to(self, cost_ms: float) -> int | None:
        """Returns the queries after which a cost at most this high was known; None if it never was."""
        return next((asked for asked, cost in self.curve if cost <= cost_ms), None)


@dataclass
class Run:
    """A search that goes on: the objective, what is left of the budget, the best plan and the curve."""

    objective: Objective
    config: SearchConfig
    rng: np.random.Generator
    predictor: Predictor | None = None
    curve: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.best_configuration = self.objective.configuration
        self.note(self.objective)

    @property
    def graph(self) -> FusionGraph:
        return self.objective.graph

    @property
    def left(self) -> int:
        return self.config.budget - self.objective.queries

    def note(self, objective: Objective) -> None:
        """Extends the curve if the best plan of an objective on the same problem is the cheapest so far."""
        if not self.curve or objective.best_ms < self.curve[-1][1]:
            self.curve.append((self.objective.queries, objective.best_ms))
            self.best_configuration = objective.best_configuration

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


def _climb(run: Run, draw: Callable[[], int]) -> None:
    """Mutates around drawn decisions and keeps what is cheaper."""
    while run.left > 0:
        before = run.objective.cost_ms
        if run.flipped(run.mutation(draw())) >= before:
            run.objective.undo()


def random_search(run: Run) -> None:
    """Draws from all decisions alike."""
    _climb(run, lambda: int(run.rng.choice(run.graph.configurable)))


def sweeps(run: Run) -> None:
    """Draws all decisions in a random order, and then all again in another one."""
    waiting: list[int] = []

    def draw() -> int:
        if not waiting:
            waiting.extend(run.rng.permutation(run.graph.configurable).tolist())
        return waiting.pop()

    _climb(run, draw)


def guided_search(run: Run) -> None:
    """Draws from the top α % by predicted advantage, which is predicted again whenever the plan has changed.

    Raises:
      ValueError: there is no predictor.
    """
    predictor = run.predictor
    if predictor is None:
        raise ValueError("guided search needs a predictor of advantages, for example AdvantageModel.scores")
    decisions = run.graph.configurable
    count = max(1, round(len(decisions) * run.config.alpha / 100))
    waiting = np.ones(len(decisions), bool)
    scores, predicted_at = np.zeros(len(decisions)), -1.0

    def draw() -> int:
        nonlocal scores, predicted_at
        if predicted_at != run.objective.cost_ms:  # a plan that is kept is cheaper than the last one
            scores, predicted_at = predictor(run.graph, run.objective.configuration), run.objective.cost_ms
        if not waiting.any():
            waiting[:] = True
        left = np.flatnonzero(waiting)
        chosen = int(run.rng.choice(left[np.argsort(-scores[left], kind="stable")[:count]]))
        waiting[chosen] = not run.config.memory
        return int(decisions[chosen])

    _climb(run, draw)


def annealing(run: Run) -> None:
    """Simulated annealing (Kirkpatrick et al. 1983) with a geometric schedule over the budget."""
    launch_ms = run.graph.problem.constants["launch_ms"]
    config, whole = run.config, max(1, run.left)
    while run.left > 0:
        share = 1 - run.left / whole
        temperature_ms = launch_ms * config.first_temperature ** (1 - share) * config.last_temperature**share
        before = run.objective.cost_ms
        increase = run.flipped(run.mutation(int(run.rng.choice(run.graph.configurable)))) - before
        if increase > 0 and run.rng.random() >= math.exp(-increase / temperature_ms):
            run.objective.undo()


def genetic(run: Run) -> None:
    """A steady-state genetic algorithm.

    Tournaments choose two parents, and the child replaces the worst plan if it is cheaper. Crossover takes a stretch of
    the topological order from the second parent, so that neighbours stay together.
    """
    start = run.objective.configuration
    population = [(run.objective.cost_ms, start)]
    while len(population) < run.config.population and run.left > 0:
        population.append(_born(run, start))
    while run.left > 0:
        first, second = (min((population[i] for i in _tournament(run, population)), key=_cost)[1] for _ in range(2))
        low, high = np.sort(run.rng.integers(0, len(run.graph.problem) + 1, 2))
        child = first.copy()
        child[low:high] = second[low:high]
        born = _born(run, child)
        worst = max(range(len(population)), key=lambda i: population[i][0])
        if born[0] < population[worst][0]:
            population[worst] = born


def _tournament(run: Run, population: list[tuple[float, np.ndarray]]) -> np.ndarray:
    return run.rng.integers(len(population), size=run.config.tournament)


def _cost(plan: tuple[float, np.ndarray]) -> float:
    return plan[0]


def _born(run: Run, parent: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns a mutated plan with its cost; one query."""
    child = parent.copy()
    child[run.mutation(int(run.rng.choice(run.graph.configurable)))] ^= 1
    cost = run.objective.moved_to(child)
    run.note(run.objective)
    return cost, child


def probing(run: Run) -> None:
    """Pays for all exact advantages, as far as the budget goes, and then tries those that save, the best first."""
    while run.left > 0:
        asked = run.rng.permutation(run.graph.configurable)[: run.left]
        advantages = run.objective.advantages(asked)
        gain = False
        for tensor in asked[np.argsort(advantages, kind="stable")][: np.count_nonzero(advantages < 0)]:
            if run.left <= 0:
                return
            before = run.objective.cost_ms
            if run.flipped(np.array([tensor])) >= before:
                run.objective.undo()
            else:
                gain = True
        if not gain:  # a plan that no single flip makes cheaper: go on as random search does
            random_search(run)


def ppo(run: Run) -> None:
    """Proximal policy optimisation; see `controller.fusion.ppo`."""
    from controller.fusion.ppo import ppo_search

    ppo_search(run)


METHODS: dict[str, Callable[[Run], None]] = {
    "random": random_search,
    "sweeps": sweeps,
    "guided": guided_search,
    "annealing": annealing,
    "genetic": genetic,
    "probing": probing,
    "ppo": ppo,
}


def search(
    method: str, graph: FusionGraph, config: SearchConfig, *, seed: int = 0, predictor: Predictor | None = None
) -> SearchResult:
    """Searches for a cheap plan.

    Args:
      method: one of `METHODS`.
      seed: of the start, if it is random, and of the search; the same seed gives the same result.
      predictor: what `guided` needs.
    Raises:
      ValueError: there is no such method, or `guided` has no predictor.
    """
    if method not in METHODS:
        raise ValueError(f"no fusion search is called {method!r}; choose one of {', '.join(METHODS)}")
    objective = Objective(graph, graph.start(config.start, seed))
    rng = np.random.default_rng([seed, 342])
    run = Run(objective, config, rng, predictor)
    METHODS[method](run)
    return SearchResult(method, objective.start_ms, run.curve, objective.queries, run.best_configuration)
