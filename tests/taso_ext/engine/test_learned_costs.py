"""Costs learned from graphs: neighbourhood signatures, and states and searches that learn costs on their way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from taso_ext import (
    CostModel,
    Graph,
    RuleSet,
    State,
    UnpricedError,
    search_beam,
    search_greedy,
    search_restarts,
    search_taso,
)
from tests.taso_ext.samples.random_walks import TINY, start, walk, zoo_model

NONE = np.zeros(0, np.uint64), np.zeros((0, 3))
OPSET = 17
SEARCHES = [search_taso, search_greedy, search_beam, search_restarts]
over_searches = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.__name__)


def row(name: int) -> list[float]:
    """Returns the row of costs of a neighbourhood signature."""
    return [1e-3 * (1 + name % 997), float(name % 31), 1.0]


PriceOperators = Callable[[Graph, list[int]], npt.NDArray[np.float64]]


class Pricer:
    """A price function that depends on neighbourhood signatures alone, and notes which it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, graph: Graph, positions: list[int]) -> npt.NDArray[np.float64]:
        names = graph.neighbourhood_signatures(OPSET)[positions].tolist()
        self.asked += names
        return np.array([row(name) for name in names])


def learned(pricer: PriceOperators, known: tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]] = NONE) -> CostModel:
    return CostModel.learned("learned", "xeon", pricer, *known, OPSET)


def expected_ms(graph: Graph) -> float:
    return sum(row(name)[0] for name in graph.neighbourhood_signatures(OPSET).tolist())


def learning_state(name: str, pricer: PriceOperators) -> State:
    return State(zoo_model(name).graph, RuleSet.default(), learned(pricer), 0)


@pytest.mark.parametrize("name", TINY)
def test_a_state_costs_what_its_operators_cost_where_they_stand(name: str) -> None:
    pricer = Pricer()
    state = learning_state(name, pricer)
    for _ in walk(state, 8, seed=1):
        assert state.cost.ms == pytest.approx(expected_ms(state.graph), rel=1e-12)
        assert state.cost.kernel_launches == state.graph.num_runtime_nodes
    assert len(pricer.asked) == len(set(pricer.asked))  # no signature is asked for twice


@over_searches
def test_searches_end_with_what_they_say(search: object) -> None:
    """The predicted cost of a rewrite may be wrong, but the reported cost of the result is exact."""
    state = learning_state("bert-base-tiny", Pricer())
    found = search(state, budget=60, threads=2)  # type: ignore[operator]
    again = state.copy()
    for rule, location in found.actions:
        again.step(rule, location)
    assert again.cost.ms == pytest.approx(found.cost_ms, rel=1e-12)
    assert found.cost_ms <= state.cost.ms
    fresh = search(learning_state("bert-base-tiny", Pricer()), budget=60)  # type: ignore[operator]
    assert (fresh.actions, fresh.cost_ms) == (found.actions, found.cost_ms)


def test_what_is_known_is_not_asked_for() -> None:
    graph = zoo_model("squeezenet1.1-tiny").graph
    names = np.unique(graph.neighbourhood_signatures(OPSET))
    pricer = Pricer()
    costs = learned(pricer, (names, np.array([row(name) for name in names.tolist()])))
    assert graph.cost(costs).ms == pytest.approx(expected_ms(graph))
    assert not pricer.asked


def test_signatures_do_not_depend_on_the_way_to_a_graph() -> None:
    """Pairs of rewrites that do not touch each other are taken in both orders."""
    first = start(zoo_model("bert-base-tiny").graph)
    actions = first.legal_actions().tolist()
    pairs = 0
    for a, b in zip(actions, actions[7:], strict=False):
        ways = []
        for order in ((a, b), (b, a)):
            state = first.copy()
            try:
                for action in order:
                    state.step(*action)
            except ValueError:
                break
            ways.append(state)
        if len(ways) == 2 and ways[0].hash == ways[1].hash:
            pairs += 1
            names = [sorted(way.graph.neighbourhood_signatures(OPSET).tolist()) for way in ways]
            assert names[0] == names[1]
    assert pairs > 10


def test_equal_layers_have_equal_names() -> None:
    names = zoo_model("bert-base").graph.neighbourhood_signatures(OPSET)
    assert len(names) > 400
    assert len(set(names.tolist())) < 80


@pytest.mark.parametrize(
    "answer", [np.zeros((1, 3)), np.zeros(3), np.zeros((5, 2))], ids=["too few", "no table", "too narrow"]
)
def test_an_answer_of_another_shape_is_refused(answer: npt.NDArray[np.float64]) -> None:
    costs = CostModel.learned("learned", "xeon", lambda graph, positions: answer, *NONE, OPSET)
    with pytest.raises(ValueError, match="expected"):
        State(zoo_model("squeezenet1.1-tiny").graph, RuleSet.default(), costs, 0)


def test_errors_of_the_pricer_arrive() -> None:
    def fails(graph: Graph, positions: list[int]) -> npt.NDArray[np.float64]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        State(zoo_model("squeezenet1.1-tiny").graph, RuleSet.default(), learned(fails), 0)


def test_models_of_other_opsets_share_no_names() -> None:
    """Runtimes fuse differently in each opset. An opset too old for the operators counts as the first that has them."""
    graph = zoo_model("bert-base-tiny").graph
    names = {opset: set(graph.neighbourhood_signatures(opset).tolist()) for opset in (1, 2, OPSET, OPSET + 1)}
    assert names[1] == names[2]
    assert not names[OPSET] & names[OPSET + 1]


class Missing(UnpricedError):
    """A stand-in for the error of a price database."""


class Partial(Pricer):
    """A `Pricer` without a price for some signatures that the start graph does not have."""

    def __init__(self, start: Graph) -> None:
        super().__init__()
        self._met = set(start.neighbourhood_signatures(OPSET).tolist())

    def __call__(self, graph: Graph, positions: list[int]) -> npt.NDArray[np.float64]:
        found = super().__call__(graph, positions)
        signatures = graph.neighbourhood_signatures(OPSET)[positions].tolist()
        if any(signature % 3 == 0 and signature not in self._met for signature in signatures):
            raise Missing("no price of that")
        return found


@over_searches
def test_searches_leave_alone_what_has_no_price(search: object) -> None:
    name = "bert-base-tiny"
    state = learning_state(name, Partial(zoo_model(name).graph))
    found = search(state, budget=60, threads=2)  # type: ignore[operator]
    assert found.unpriced > 0
    again = state.copy()
    for rule, location in found.actions:
        again.step(rule, location)  # raises without a price
    assert again.cost.ms == pytest.approx(found.cost_ms, rel=1e-12)
    whole = search(learning_state(name, Pricer()), budget=60)  # type: ignore[operator]
    assert whole.unpriced == 0


def test_who_asks_for_what_has_no_price_is_told_why() -> None:
    graph = zoo_model("bert-base-tiny").graph
    costs = learned(Partial(graph))
    state = State(graph, RuleSet.default(), costs, 0)
    refused = 0
    for rule, location in state.legal_actions().tolist():
        before = state.hash
        try:
            state.step(rule, location)
            state.undo()
        except Missing as error:  # the very class that the pricer raised
            assert str(error) == "no price of that"
            refused += 1
        assert state.hash == before
    assert refused > 0


def test_everywhere_is_predicted_without_asking_and_then_priced() -> None:
    """The prediction measures nothing and is near the real cost, of which most of the graph has no part."""
    pricer = Pricer()
    state = learning_state("bert-base-tiny", pricer)
    state.candidates()
    asked = list(pricer.asked)
    rules, _, costs = state.everywhere_candidates()
    assert pricer.asked == asked
    for rule, cost_ms in zip(rules.tolist(), costs.tolist(), strict=True):
        stepped = state.copy()
        stepped.step_everywhere(rule)
        assert stepped.cost.ms == pytest.approx(expected_ms(stepped.graph))
        assert 0 < cost_ms < 10 * stepped.cost.ms
    assert len(pricer.asked) > len(asked)


def test_a_graph_with_too_much_work_has_no_price_whatever_is_known() -> None:
    graph = zoo_model("bert-base-tiny").graph
    names = graph.neighbourhood_signatures(OPSET)
    known = names, np.array([row(name) for name in names.tolist()])
    work = graph.cost(CostModel.roofline("xeon"))

    def cost_ms(flops: float, nbytes: float) -> float:
        return graph.cost(CostModel.learned("learned", "xeon", Pricer(), *known, OPSET, (flops, nbytes))).ms

    assert cost_ms(work.flops, work.memory_bytes) == pytest.approx(expected_ms(graph))
    for most in ((0.99 * work.flops, work.memory_bytes), (work.flops, 0.99 * work.memory_bytes)):
        with pytest.raises(UnpricedError, match="too large to measure"):
            cost_ms(*most)


def test_everywhere_without_a_price_changes_nothing() -> None:
    def refuse(graph: Graph, positions: list[int]) -> npt.NDArray[np.float64]:
        raise UnpricedError("no price")

    graph = zoo_model("bert-base-tiny").graph
    names = graph.neighbourhood_signatures(OPSET)
    known = names, np.array([row(name) for name in names.tolist()])
    state = State(graph, RuleSet.default(), CostModel.learned("learned", "xeon", refuse, *known, OPSET), 0)
    rule, before = int(state.everywhere_candidates()[0][-1]), state.hash
    with pytest.raises(UnpricedError):
        state.step_everywhere(rule)
    assert state.hash == before
