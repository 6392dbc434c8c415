"""What was tried to make guided fusion search faster: `python -m tests.perf.fusion_trials [GRAPH…] [--seeds 0,1]`.

The first table says where the savings of the compiler's plan are: how many of the flips that save have one of the
largest tenth of absolute advantages, and how many of that tenth save. The second compares orders of search with random
search, by the queries until its result and until 90 % of its improvement. Prices of v100, four queries a decision.

It trains the model of `rlflow reproduce fusion-table1`, seed 0, and its signed counterpart, unless they are there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.fusion.run import Run, SearchConfig, SearchResult
from controller.fusion.search import search
from environment.fusion import FusionGraph, Objective, bytes_moved
from experiments.executors.local import Silent
from experiments.reproduce.fusion.units import PLANS, Learning, _loaded, graph_of
from taso_ext import FusionPlan

DEVICE = "v100"
TUNING = ("resnet50:training=adam", "generated-20:training=adam")
UNSEEN = tuple(name for name in PLANS["full"].unseen if not name.startswith("ssd"))
QUERIES = 4
Scores = Callable[[FusionGraph, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Order:
    """An order of search.

    Attributes:
      scores: what is tried first; None: chance decides.
      alpha: share of the waiting decisions that are drawn from [%].
      rate: probability with which neighbours are flipped along in the first pass; later it is 0.1.
      again: a kept flip lets decisions at most so many edges away be tried again (don't-look bits); None: none.
    """

    scores: Scores | None
    alpha: float = 5.0
    rate: float = 0.1
    again: int | None = None


def carried_out(run: Run, graph: FusionGraph, order: Order) -> None:
    """Searches until the budget is spent; no decision is drawn again until all were drawn."""
    decisions, waiting, first = graph.configurable, np.ones(len(graph.configurable), bool), True
    place = np.full(len(graph.problem), -1)
    place[decisions] = np.arange(len(decisions))
    most = max(1, round(len(decisions) * order.alpha / 100))
    scored_at, scores = -1.0, np.zeros(len(decisions))
    while run.left > 0:
        if not waiting.any():
            waiting[:], first = True, False
        left = np.flatnonzero(waiting)
        if order.scores is not None:
            if scored_at != run.objective.cost_ms:
                scores, scored_at = order.scores(graph, run.objective.configuration), run.objective.cost_ms
            left = left[np.argsort(-scores[left], kind="stable")[:most]]
        drawn = int(run.rng.choice(left))
        waiting[drawn] = False
        near = graph.problem.neighbourhood(int(decisions[drawn]), 1)
        flipped = run.rng.random(len(near)) < (order.rate if first else 0.1)
        flipped[0] = True
        before = run.objective.cost_ms
        if run.flipped(near[flipped]) >= before:
            run.objective.undo()
        elif order.again is not None:
            for tensor in near[flipped]:
                waiting[place[graph.problem.neighbourhood(int(tensor), order.again)]] = True
            waiting[drawn] = False


def shares(graph: FusionGraph, order: Order, seed: int, base: SearchResult) -> tuple[float, float]:
    """Returns the queries until random search's result, and until 90 % of its improvement, as shares of its own [%]."""
    budget = 1 + QUERIES * len(graph.configurable)
    run = Run(Objective(graph, graph.start()), SearchConfig(budget=budget), np.random.default_rng([seed, 342]))
    carried_out(run, graph, order)
    found = []
    for cost_ms in (base.best_ms, base.start_ms - 0.9 * (base.start_ms - base.best_ms)):
        asked = next((asked for asked, cost in run.curve if cost <= cost_ms), budget)
        found.append(100 * asked / (base.queries_to(cost_ms) or budget))
    return found[0], found[1]


def savings(graph: FusionGraph) -> tuple[float, float]:
    """Returns how many saving flips have a large advantage, and how many large advantages are savings [%]."""
    advantages = FusionPlan(graph.problem, graph.start()).deltas_ms(graph.configurable)
    top = np.zeros(len(advantages), bool)
    top[np.argsort(-np.abs(advantages))[: max(1, len(advantages) // 10)]] = True
    saves = advantages < 0
    return 100 * float(top[saves].mean()), 100 * float(saves[top].mean())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=TUNING)
    parser.add_argument("--seeds", default="0,1")
    options = parser.parse_args(arguments)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    print("| graph | saving flips in the largest tenth [%] | of that tenth, flips that save [%] |\n|---|---:|---:|")
    for name in UNSEEN:
        print("| {} | {:.0f} | {:.0f} |".format(name, *savings(graph_of(name, DEVICE))), flush=True)
    size, saving = (
        _loaded(Learning(DEVICE, 0, PLANS["full"], changes), Silent()).scores for changes in ((), (("signed", True),))
    )
    orders = {
        "sweeps": Order(None),
        "by size": Order(size),
        "don't-look bits": Order(None, rate=0.0, again=1),
        "don't-look bits, by size": Order(size, rate=0.0, again=1),
        "don't-look bits, by bytes": Order(lambda graph, _: bytes_moved(graph), rate=0.0, again=1),
        "by saving": Order(saving),
        "don't-look bits, by saving": Order(saving, rate=0.0, again=1),
    }
    print("\n| graph | order | until its result [%] | until 90 % of its improvement [%] |\n|---|---|---:|---:|")
    for name in options.graphs:
        graph = graph_of(name, DEVICE)
        limits = SearchConfig(budget=1 + QUERIES * len(graph.configurable))
        bases = [search("random", graph, limits, seed=seed) for seed in seeds]
        for label, order in orders.items():
            pairs = [shares(graph, order, seed, base) for seed, base in zip(seeds, bases, strict=True)]
            print("| {} | {} | {:.0f} | {:.0f} |".format(name, label, *np.mean(pairs, axis=0)), flush=True)


if __name__ == "__main__":
    main()
