"""Searches for fusion plans: budgets, curves, and what they find where the costs of all plans are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from controller.fusion.ppo import ROWS
from controller.fusion.run import SearchConfig, SearchResult, SearchStateError
from controller.fusion.search import METHODS, search
from environment.fusion import RANDOM, FusionGraph, load
from taso_ext import FusionPlan, GraphBuilder


@pytest.fixture(scope="module")
def graph() -> FusionGraph:
    return load("nasrnn-tiny", "v100")


def small() -> FusionGraph:
    """A graph of ten decisions, some of which the compiler takes wrongly: all its plans can be priced."""
    builder = GraphBuilder()
    shape = [512, 512]

    def apply(op_type: str, *operands: int) -> int:
        return builder.node("", op_type, {}, operands, [("", 1, shape)])[0]

    x, y = builder.input("x", 1, shape), builder.input("y", 1, shape)
    shared = apply("Sigmoid", apply("Add", x, y))
    left, right = apply("Mul", shared, x), apply("Tanh", apply("Sub", shared, y))
    both = apply("Add", left, right)
    builder.output(apply("Softmax", apply("Mul", both, apply("Exp", apply("Neg", both)))))
    builder.output(apply("Relu", right))
    return FusionGraph.of(builder.build(), "v100", "small")


def exact(graph: FusionGraph, configuration: np.ndarray) -> np.ndarray:
    """Predicts exactly, from a copy of the problem that counts for itself."""
    return -FusionPlan(graph.problem, configuration).deltas_ms(graph.configurable)


def order(graph: FusionGraph, configuration: np.ndarray) -> np.ndarray:
    """Predicts nothing: the same numbers for every plan."""
    return np.arange(len(graph.configurable), dtype=float)


def found(method: str, graph: FusionGraph, seed: int = 0, **settings: object) -> SearchResult:
    config = SearchConfig(**{"budget": 120, **settings})  # type: ignore[arg-type]
    return search(method, graph, config, seed=seed, predictor=order)


@pytest.mark.parametrize("start", ["default", RANDOM])
@pytest.mark.parametrize("method", METHODS)
def test_results_are_what_was_paid_for(method: str, start: str, graph: FusionGraph) -> None:
    before = graph.problem.queries
    result = found(method, graph, seed=3, start=start)
    assert result.queries == graph.problem.queries - before
    assert 120 - ROWS <= result.queries <= 120 if method == "ppo" else result.queries == 120
    assert FusionPlan(graph.problem, graph.start(start, 3)).cost_ms() == result.start_ms == result.curve[0][1]
    assert FusionPlan(graph.problem, result.configuration).cost_ms() == result.best_ms < result.start_ms
    asked, costs = zip(*result.curve, strict=True)
    assert list(asked) == sorted(set(asked)) and list(costs) == sorted(set(costs), reverse=True)
    assert result.best_after(1) == result.start_ms and result.best_after(120) == result.best_ms
    assert result.queries_to(result.best_ms) == asked[-1] and result.queries_to(0.0) is None


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_result(method: str, graph: FusionGraph) -> None:
    first, again, other = (found(method, graph, seed=seed, start=RANDOM) for seed in (1, 1, 2))
    assert first.curve == again.curve and np.array_equal(first.configuration, again.configuration)
    assert first.curve != other.curve


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_of_one_query_is_the_start(method: str, graph: FusionGraph) -> None:
    result = found(method, graph, budget=1)
    assert result.curve == [(1, result.start_ms)] and result.improvement == 0
    assert np.array_equal(result.configuration, graph.start())


@pytest.mark.parametrize("method", METHODS)
def test_searches_find_the_best_of_all_plans(method: str) -> None:
    graph = small()
    count = len(graph.configurable)
    assert 8 <= count <= 12
    plan = np.zeros(len(graph.problem), np.uint8)
    best = np.inf
    for number in range(2**count):
        plan[graph.configurable] = number >> np.arange(count) & 1
        best = min(best, FusionPlan(graph.problem, plan).cost_ms())
    result = search(method, graph, SearchConfig(budget=1500, distance=2, rate=0.3), seed=0, predictor=exact)
    assert best < result.start_ms
    assert result.best_ms == best


class Stopped(BaseException):
    """Stands for the signal of Ctrl-C."""


@pytest.mark.parametrize(
    "method", [pytest.param(each, marks=pytest.mark.full) if each == "ppo" else each for each in METHODS]
)
def test_an_interrupted_search_goes_on_to_the_same_result(
    method: str, graph: FusionGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.fusion.run.KEEP_SECONDS", 0.0)
    state, config = tmp_path / "state.npz", SearchConfig(budget=200, start=RANDOM)
    whole = search(method, graph, config, seed=1, predictor=order)

    def stop(queries: int, budget: int, figures: dict[str, float]) -> None:
        if queries >= 100:
            raise Stopped

    with pytest.raises(Stopped):
        search(method, graph, config, seed=1, predictor=order, state=state, on_progress=stop)
    assert state.is_file() == (method not in ("ppo", "probing"))
    reports: list[int] = []
    again = search(
        method, graph, config, seed=1, predictor=order, state=state, on_progress=lambda *told: reports.append(told[0])
    )
    assert (min(reports) >= 100) == (method != "ppo")
    assert again.curve == whole.curve and again.queries == whole.queries and again.start_ms == whole.start_ms
    assert np.array_equal(again.configuration, whole.configuration)
    assert not state.exists()


def test_a_state_that_cannot_be_used_is_refused(graph: FusionGraph, tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    state.write_bytes(b"no archive")
    with pytest.raises(SearchStateError, match=r"holds no search .* Delete it"):
        search("random", graph, SearchConfig(), state=state)
    other = {"version": np.array(1), "configuration": np.zeros(3, np.uint8)}
    np.savez(state, **other)  # type: ignore[arg-type]  # the stub wants no **
    with pytest.raises(SearchStateError, match="in a graph of 3 tensors"):
        search("random", graph, SearchConfig(), state=state)


def test_guidance_by_exact_advantages_wastes_no_query(graph: FusionGraph) -> None:
    """With distance 0 and the smallest alpha, every query saves until no flip does."""
    twin = load("nasrnn-tiny", "v100")  # the predictor asks another problem

    def predictor(_: FusionGraph, configuration: np.ndarray) -> np.ndarray:
        return exact(twin, configuration)

    result = search("guided", graph, SearchConfig(budget=30, distance=0, alpha=0.01, start=RANDOM), predictor=predictor)
    assert [asked for asked, _ in result.curve[:10]] == list(range(1, 11))


def test_without_memory_a_useless_prediction_is_asked_for_ever(graph: FusionGraph) -> None:
    settings = {"distance": 0, "alpha": 0.01, "start": RANDOM}
    stuck, free = (found("guided", graph, memory=memory, **settings) for memory in (False, True))
    assert len(stuck.curve) <= 2 < len(free.curve)


def test_bad_settings_are_refused(graph: FusionGraph) -> None:
    for settings in ({"budget": 0}, {"distance": -1}, {"rate": 2.0}, {"alpha": 0.0}, {"population": 1}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            SearchConfig(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="temperatures must be positive"):
        SearchConfig(first_temperature=0.1, last_temperature=0.2)
    with pytest.raises(ValueError, match="no fusion search is called 'tabu'; choose one of random"):
        search("tabu", graph, SearchConfig())
    with pytest.raises(ValueError, match="needs a predictor"):
        search("guided", graph, SearchConfig())
