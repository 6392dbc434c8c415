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

Every row moves in the same space, and all but `ppo` by the same mutation. All but `ppo`, and `probing` while it
probes, can be interrupted and go on (`controller.fusion.run`). The paper's guided search has no memory of what it drew.
But a flip and its inverse have the same absolute advantage: once the largest are decided they would be drawn for ever,
and with `memory=False` the search stops early. `sweeps` shows what the memory brings without any prediction. This
module imports no TensorFlow before `ppo` is asked for: the predictor comes in.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np

from controller.fusion.run import Predictor, Progress, Run, SearchConfig, SearchResult
from environment.fusion import FusionGraph

Draw = Callable[[np.ndarray], int]
"""Returns the number of the decision to try next, given which decisions wait for a try: bool [n]."""


def _climb(
    run: Run, draw: Draw, *, remembers: bool, accepts: Callable[[float], bool] = lambda increase: increase < 0
) -> None:
    """Mutates around drawn decisions and keeps what is accepted, cheaper plans by default.

    With memory no decision is drawn again until all were drawn.
    """
    decisions = run.graph.configurable
    waiting = run.kept.get("waiting", np.ones(len(decisions), bool)).copy()
    while run.left > 0:
        run.keep(waiting=waiting)
        if not waiting.any():
            waiting[:] = True
        chosen = draw(waiting)
        waiting[chosen] = not remembers
        before = run.objective.cost_ms
        if not accepts(run.flipped(run.mutation(int(decisions[chosen]))) - before):
            run.objective.undo()


def _uniform(run: Run) -> Draw:
    return lambda waiting: int(run.rng.choice(np.flatnonzero(waiting)))


def random_search(run: Run) -> None:
    """Draws from all decisions alike."""
    _climb(run, _uniform(run), remembers=False)


def sweeps(run: Run) -> None:
    """Draws all decisions in a random order, and then all again in another one."""
    _climb(run, _uniform(run), remembers=True)


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
    scores, predicted_at = np.zeros(len(decisions)), -1.0

    def draw(waiting: np.ndarray) -> int:
        nonlocal scores, predicted_at
        if predicted_at != run.objective.cost_ms:  # a plan that is kept is cheaper than the last one
            scores, predicted_at = predictor(run.graph, run.objective.configuration), run.objective.cost_ms
        left = np.flatnonzero(waiting)
        return int(run.rng.choice(left[np.argsort(-scores[left], kind="stable")[:count]]))

    _climb(run, draw, remembers=run.config.memory)


def annealing(run: Run) -> None:
    """Simulated annealing (Kirkpatrick et al. 1983) with a geometric schedule over the budget."""
    launch_ms = run.graph.problem.constants["launch_ms"]
    config, whole = run.config, max(1, run.config.budget - 1)

    def accepts(increase: float) -> bool:
        share = 1 - (run.left + 1) / whole
        temperature_ms = launch_ms * config.first_temperature ** (1 - share) * config.last_temperature**share
        return increase <= 0 or run.rng.random() < math.exp(-increase / temperature_ms)

    _climb(run, _uniform(run), remembers=False, accepts=accepts)


def genetic(run: Run) -> None:
    """A steady-state genetic algorithm.

    Tournaments choose two parents, and the child replaces the worst plan if it is cheaper. Crossover takes a stretch of
    the topological order from the second parent, so that neighbours stay together.
    """
    start = run.objective.configuration
    population = [(run.objective.cost_ms, start)]
    if run.kept:
        population = list(zip(run.kept["costs"].tolist(), run.kept["plans"], strict=True))
    while len(population) < run.config.population and run.left > 0:
        population.append(_born(run, start))
    while run.left > 0:
        run.keep(costs=np.array([cost for cost, _ in population]), plans=np.stack([plan for _, plan in population]))
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
    if run.kept:  # it was interrupted after the last probes
        random_search(run)
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
    method: str,
    graph: FusionGraph,
    config: SearchConfig,
    *,
    seed: int = 0,
    predictor: Predictor | None = None,
    on_progress: Progress | None = None,
    state: str | os.PathLike[str] | None = None,
) -> SearchResult:
    """Searches for a cheap plan.

    Args:
      method: one of `METHODS`.
      seed: of the start, if it is random, and of the search; the same seed gives the same result.
      predictor: what `guided` needs.
      on_progress: is told of the queries now and then.
      state: file of the state of this search, for a search that was interrupted and goes on; removed at the end. What
        is interrupted during `ppo`, or while `probing` probes, begins anew.
    Raises:
      ValueError: there is no such method, or `guided` has no predictor.
      SearchStateError: the file of the state is damaged or of another graph.
    """
    if method not in METHODS:
        raise ValueError(f"no fusion search is called {method!r}; choose one of {', '.join(METHODS)}")
    run = Run.begun(graph, config, seed, predictor, on_progress, state)
    METHODS[method](run)
    if run.state is not None:
        run.state.unlink(missing_ok=True)
    return SearchResult(method, run.start_ms, run.curve, run.queries, run.best_configuration)
