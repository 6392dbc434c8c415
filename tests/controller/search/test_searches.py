from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taso_ext
from controller.evaluation import play_episode, replay, replay_record
from controller.records import EpisodeRecord, best_improvement, is_improvement
from controller.search.best_of_n import BestOfNController
from controller.search.native import ALPHA, BeamController, RestartsController, TasoController
from controller.search.one_step import GreedyController, RandomController
from controller.search.passes import PassesController, exhaust
from controller.search.replayed import SHORTEST_S, Search, SearchLimits, StopCause, StopReason, shares
from environment import GraphSubstitutionEnv
from taso_ext import RuleSet
from tests.controller.shared_product import READERS, shared_product

NAMES = ["squeezenet1.1-tiny", "bert-base-tiny"]
SEARCHES: list[type[Search]] = [TasoController, BeamController, RestartsController, PassesController, BestOfNController]


@pytest.fixture(scope="module", params=NAMES)
def env(request: pytest.FixtureRequest) -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(request.param, strict=True)  # strict: an illegal action raises


def searched(env: GraphSubstitutionEnv, controller: Search, seed: int = 0) -> Search:
    env.reset()
    controller.train(env, seed=seed)
    return controller


def played(env: GraphSubstitutionEnv, controller: Search | GreedyController) -> EpisodeRecord:
    return play_episode(env, controller, seed=0, deterministic=True)


def test_greedy_only_ever_improves_and_leaves_nothing_that_does(env: GraphSubstitutionEnv) -> None:
    record = played(env, GreedyController())
    assert all(is_improvement(after, before) for before, after in pairwise(record.costs_ms[:-1]))
    costs_ms = env.candidates()[2]  # the environment is still in the state in which the episode ended
    assert record.actions[-1][0] == env.num_rules
    assert not any(is_improvement(cost_ms, record.costs_ms[-1]) for cost_ms in costs_ms)


def test_greedy_goes_on_while_there_is_something_to_gain_whatever_the_limit_of_steps_is() -> None:
    short, usual = (GraphSubstitutionEnv("bert-base-tiny", max_steps=limit) for limit in (2, None))
    assert len(played(short, GreedyController()).actions) > 3
    assert played(short, GreedyController()) == played(usual, GreedyController())


def test_greedy_ends_where_measured_costs_never_keep_what_predictions_promise() -> None:
    """The seventh graph is the best; each later candidate promises a tenth, and its measured cost is higher."""
    costs_ms = [10.0 - step if step < 7 else 10.0 + step for step in range(100)]
    env = SimpleNamespace(num_rules=1, max_steps=5, state=SimpleNamespace(cost=SimpleNamespace(ms=costs_ms[0])))
    env.unwrapped = env
    env.candidates = lambda: (np.array([0]), np.array([0]), np.array([0.9 * env.state.cost.ms]))
    greedy, steps = GreedyController(), 0
    greedy.begin_episode(env, seed=0)
    while greedy.act(None, deterministic=True)[0] != env.num_rules:
        steps += 1
        env.state.cost.ms = costs_ms[steps]
    assert steps == 6 + env.max_steps


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_replays_to_the_cost_that_it_found(env: GraphSubstitutionEnv, search: type[Search]) -> None:
    reported = []
    env.reset()
    controller = search(limits=SearchLimits(budget=50))
    controller.train(env, on_progress=lambda done, total, metrics: reported.append((done, total, metrics)))
    record = played(env, controller)
    assert record.best_actions == tuple(controller.actions or ())
    assert record.actions in (record.best_actions, (*record.best_actions, (env.num_rules, 0)))  # then NO-OP
    assert replay(env, record.actions, record.costs_ms) == list(record.costs_ms)
    assert reported[-1][0] <= reported[-1][1] == 50
    assert reported[-1][2]["best_cost_ms"] == pytest.approx(record.best_cost_ms)
    assert reported[0][2]["best_cost_ms"] >= reported[-1][2]["best_cost_ms"]


def test_a_search_reports_every_new_best_cost_however_short_it_is(env: GraphSubstitutionEnv) -> None:
    """With a smaller budget, TASO's search does the first part of the same work."""
    env.reset()
    budgets = range(1, 51)
    found = [
        taso_ext.search_taso(env.state.copy(), ALPHA, **SearchLimits(each).arguments()).cost_ms for each in budgets
    ]
    reported: list[float] = []

    def note(expanded: int, best_cost_ms: float) -> bool:
        reported.append(best_cost_ms)
        return True

    taso_ext.search_taso(env.state.copy(), ALPHA, **SearchLimits(budgets[-1]).arguments(), progress=note)
    assert len(set(found)) >= 3 and set(found) <= set(reported)


def test_taso_is_never_worse_with_more_budget_nor_than_greedy_or_random(env: GraphSubstitutionEnv) -> None:
    """All take single rewrites, because this search knows no others."""
    env = GraphSubstitutionEnv(env.model, strict=True, everywhere=False)
    searches = [TasoController(1.2, SearchLimits(budget)) for budget in (1, 20, 400)]
    improvements = [played(env, searched(env, search)).improvement for search in searches]
    assert improvements == sorted(improvements)
    greedy, random = played(env, GreedyController()), [play_episode(env, RandomController(), seed=s) for s in range(5)]
    assert improvements[-1] >= max(greedy.improvement, best_improvement(random)) - 1e-9


def test_taso_finds_what_greedy_misses() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", strict=True)  # here, merging first raises the cost
    taso = played(env, searched(env, TasoController(1.2, SearchLimits(400))))
    assert taso.improvement > played(env, GreedyController()).improvement


@pytest.mark.parametrize("search", SEARCHES)
def test_any_number_of_threads_finds_the_same(env: GraphSubstitutionEnv, search: type[Search]) -> None:
    one, three = (searched(env, search(limits=SearchLimits(100, threads=threads))) for threads in (1, 3))
    assert one.actions == three.actions


def test_restarts_beat_one_descent_and_follow_their_seed(env: GraphSubstitutionEnv) -> None:
    runs = [searched(env, RestartsController(limits=SearchLimits(2000)), seed) for seed in (0, 0, 1)]
    assert runs[0].actions == runs[1].actions != runs[2].actions
    assert all(played(env, run).improvement >= played(env, GreedyController()).improvement for run in runs)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_is_stored_and_read_back(env: GraphSubstitutionEnv, search: type[Search], tmp_path: Path) -> None:
    controller, restored = searched(env, search(limits=SearchLimits(50))), search(limits=SearchLimits())
    controller.save(tmp_path / "log.json")
    restored.load(tmp_path / "log.json")
    assert played(env, restored) == played(env, controller)


def test_a_log_is_not_played_on_another_graph(env: GraphSubstitutionEnv) -> None:
    controller = searched(env, TasoController(limits=SearchLimits(50)))
    env.reset()
    env.step(env.legal_actions()[0])
    with pytest.raises(ValueError, match="search again"):
        controller.begin_episode(env, seed=0)
    with pytest.raises(ValueError, match="no action log"):
        TasoController().begin_episode(env, seed=0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TasoController(alpha=0.9), "alpha is 0.9"),
        (lambda: BeamController(width=0), "width of 0"),
        (lambda: RestartsController(walk=0), "walk of 0"),
        (lambda: BestOfNController(everywhere_probability=1.5), "everywhere_probability is 1.5"),
        (lambda: SearchLimits(budget=0), "budget of 0"),
        (lambda: SearchLimits(seconds=-1), "-1 seconds"),
        (lambda: SearchLimits(memory_mb=1), "1 MB"),
        (lambda: SearchLimits(threads=0), "0 threads"),
    ],
)
def test_impossible_options_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_random_is_a_function_of_its_seed(env: GraphSubstitutionEnv) -> None:
    first, again, other = (play_episode(env, RandomController(), seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.actions != other.actions


def test_passes_end_where_no_rule_helps_wherever_it_is_applied(env: GraphSubstitutionEnv) -> None:
    record = played(env, searched(env, PassesController()))
    for rule in np.unique(env.state.legal_actions()[:, 0]).tolist():
        state = env.state.copy()
        assert exhaust(state, rule) and not is_improvement(state.cost.ms, record.best_cost_ms)


def shared_transpose() -> GraphSubstitutionEnv:
    """Returns an environment whose graph has a transpose that is gone only after two products have absorbed it."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        f (float[64, 32] x, float[64, 16] w1, float[64, 16] w2, float[16] c) => (float[32, 16] y1, float[32, 16] y2) {
            t = Transpose <perm = [1, 0]> (x)
            y1 = Gemm (t, w1, c)
            y2 = Gemm (t, w2, c)
        }"""
    )
    rules = RuleSet.parse(
        """rule fold-transpose
             var    x: float[k, m]; w: float[...]; c: float[...]
             source t = Transpose(x; perm=[1, 0]); y = Gemm(t, w, c; @r, transA=0)
             target t = Transpose(x; perm=[1, 0]); y = Gemm(x, w, c; @r, transA=1)"""
    )
    return GraphSubstitutionEnv(model, rules=rules, strict=True)


def test_passes_take_what_pays_only_together() -> None:
    env = shared_transpose()
    assert played(env, GreedyController()).improvement == 0
    passes = played(env, searched(env, PassesController()))
    assert passes.improvement > 0 and passes.best_step == 2


def test_taso_after_passes_is_never_worse_than_either(env: GraphSubstitutionEnv) -> None:
    limits = SearchLimits(50)
    both = played(env, searched(env, TasoController(limits=limits, passes=True)))
    for alone in (TasoController(limits=limits), PassesController(limits)):
        assert not is_improvement(played(env, searched(env, alone)).best_cost_ms, both.best_cost_ms)


class Clock:
    """A clock that advances by `tick` seconds whenever a search reads it."""

    def __init__(self, patches: pytest.MonkeyPatch, tick: float = 0.0) -> None:
        self.now, self.tick = 0.0, tick
        for module in ("replayed", "passes", "best_of_n"):
            patches.setattr(f"controller.search.{module}.time", SimpleNamespace(monotonic=self))

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@pytest.mark.parametrize(("seconds", "steps"), [(2.5, 0), (99.5, 2)])
def test_time_ends_within_a_pass(seconds: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search reads the clock at each rewrite, and the pass pays only as a whole."""
    Clock(monkeypatch, tick=1.0)
    controller = searched(shared_transpose(), PassesController(SearchLimits(seconds=seconds)))
    assert len(controller.actions or ()) == steps
    assert (controller.stop_reason == StopReason(StopCause.TIME)) == (steps == 0)


def test_a_pass_that_is_cut_short_is_a_beginning_of_the_whole(env: GraphSubstitutionEnv) -> None:
    env.reset()
    for rule in np.unique(env.legal_actions()[:, 0]).tolist():
        left = iter([False, False, True])
        assert exhaust(env.state.copy(), rule, stop=left.__next__) == exhaust(env.state.copy(), rule)[:2]


@given(st.floats(0.1, 100), st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_searches_share_a_limit_of_time(seconds: float, used: list[float]) -> None:
    """The time that one search leaves of its share goes to the searches after it."""
    with pytest.MonkeyPatch.context() as patches:
        clock = Clock(patches)
        for number, (share, limits) in enumerate(zip(used, shares(SearchLimits(7, seconds), 3), strict=True)):
            assert limits.budget == 7 and limits.seconds == pytest.approx((seconds - clock.now) / (3 - number))
            clock.now += share * limits.seconds
    assert clock.now <= seconds * (1 + 1e-9)


def test_a_search_that_has_no_time_left_is_not_one_without_a_limit(
    env: GraphSubstitutionEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [limits.seconds for limits in shares(SearchLimits(), 3)] == [0, 0, 0]
    granted: list[float] = []

    def search_taso(*arguments: Any, **limits: Any) -> taso_ext.SearchResult:
        granted.append(limits["seconds"])
        return search(*arguments, **limits)

    search = taso_ext.search_taso
    monkeypatch.setattr(taso_ext, "search_taso", search_taso)
    searched(env, TasoController(limits=SearchLimits(5, seconds=1e-9), passes=True))
    assert len(granted) == 2 and all(0 < seconds <= SHORTEST_S for seconds in granted)


def test_a_log_longer_than_an_episode_is_played_to_its_end() -> None:
    env = GraphSubstitutionEnv("bert-base-tiny", strict=True, max_steps=3)
    controller = searched(env, PassesController())
    assert len(controller.actions or ()) > 3
    assert played(env, controller).best_actions == tuple(controller.actions or ())
    assert play_episode(env, RandomController(), seed=0).truncated  # other controllers keep the environment's limit


def test_a_stop_reason_reads_as_a_sentence_and_is_stored() -> None:
    assert str(StopReason(StopCause.LOCAL_OPTIMUM)) == "no step from its best graph makes it cheaper"
    full = StopReason(StopCause.MEMORY, evicted=1200, unpriced_rewrites=3).following_passes()
    assert str(full) == (
        "its memory was full; 1,200 rewrites, the dearest, were given up for want of memory; 3 rewrites were left "
        "alone for want of a price, after passes that led to where it began"
    )
    assert (
        str(StopReason(StopCause.TIME, unpriced_passes=2))
        == "its time was over; 2 passes were left alone for want of a price"
    )


@pytest.mark.parametrize("old", [False, True])
def test_a_stored_log_keeps_why_its_search_stopped(old: bool, tmp_path: Path) -> None:
    """Logs of older versions hold a sentence, from which only the cause is read."""
    controller, path = TasoController(limits=SearchLimits(budget=3)), tmp_path / "log.json"
    controller.train(GraphSubstitutionEnv("squeezenet1.1-tiny"))
    controller.save(path)
    if old:
        fields = json.loads(path.read_text()) | {"stop_reason": "budget; 3 rewrites were left alone, after passes"}
        path.write_text(json.dumps(fields))
    loaded = TasoController(limits=SearchLimits(budget=3))
    loaded.load(path)
    assert loaded.stop_reason == (StopReason(StopCause.BUDGET) if old else controller.stop_reason)


def test_beam_and_greedy_find_what_pays_only_everywhere() -> None:
    """One rewrite alone costs more; carried out everywhere, the rule leaves a product without readers."""
    env, single = shared_product(), shared_product(everywhere=False)
    assert all(cost_ms > single.state.cost.ms for cost_ms in single.candidates()[2])
    for controller in (GreedyController(), searched(env, BeamController(1, SearchLimits(20)))):
        record = played(env, controller)
        assert record.improvement > 0 and len(record.best_actions) == READERS
        replay_record(single, record)
    assert played(single, GreedyController()).improvement == 0


@pytest.mark.parametrize("name", ["bert-base-tiny", "nasrnn-tiny"])
def test_a_beam_with_little_memory_makes_its_graphs_again(name: str) -> None:
    """Paths that hold everywhere-actions lead to the same graphs, and are logged as single rewrites."""
    env = GraphSubstitutionEnv(name, strict=True, everywhere=True)
    single = GraphSubstitutionEnv(name, strict=True, everywhere=False)
    found = [searched(env, BeamController(8, SearchLimits(200, memory_mb=memory))) for memory in (512, 16)]
    assert found[0].actions == found[1].actions
    for controller in found:
        assert played(single, controller).best_actions == tuple(controller.actions or ())
