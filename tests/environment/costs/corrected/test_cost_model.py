"""`endtoend:<device>:timings=N`: few graphs are timed, and all others have prices that agree with them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from environment import GraphSubstitutionEnv
from environment.costs import registry
from environment.costs.corrected.cost_model import Corrected
from environment.costs.end_to_end import EndToEndPrices
from environment.counting import counting
from environment.policies.random import RandomAgent
from taso_ext import Graph, OnnxModel, State
from taso_ext.errors import ModelError
from tests.environment.costs.fake_kernels import price_without_a_clock
from tests.environment.costs.timed_graphs import TimedGraphs, fake_costs, true_ms

MODEL = "bert-base-tiny"


def corrected(timings: int, runtime: TimedGraphs | None = None) -> Corrected:
    costs = Corrected("cpu", timings)
    costs.clock_of_graphs = fake_costs(runtime)
    return costs


@pytest.fixture(autouse=True)
def _made_up_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    price_without_a_clock(monkeypatch)


def met(costs: Corrected, episodes: int = 8) -> tuple[OnnxModel, list[Graph], GraphSubstitutionEnv]:
    """Returns a model, graphs of random walks from it, and the environment."""
    env = GraphSubstitutionEnv(MODEL, costs=costs, max_steps=6)
    graphs = {}
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        agent, ended = RandomAgent(seed, noop_probability=0.0), False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(agent(observation))
            ended = terminated or truncated
            graphs[env.state.hash] = env.state.graph
    return env.model, list(graphs.values()), env


def ratio(costs: Corrected, model: OnnxModel, graph: Graph, env: GraphSubstitutionEnv) -> tuple[float, float]:
    """Returns a graph's cost over the start graph's, and half the width of its interval."""
    prices = costs.of(model)
    start, found = (prices.price(State(each, env.rules, prices.native)) for each in (model.graph, graph))
    return found.cost.ms / start.cost.ms, found.ratio_noise(start)


def test_prices_agree_with_what_was_timed_and_others_come_nearer() -> None:
    costs = corrected(12)
    model, graphs, env = met(costs)
    start_ms = true_ms(model.export_checked(model.graph))
    truth = np.array([true_ms(model.export_checked(graph)) / start_ms for graph in graphs])
    before = np.array([ratio(costs, model, graph, env) for graph in graphs])
    assert costs.time(model, graphs[::4][:12]) == 12
    after = np.array([ratio(costs, model, graph, env) for graph in graphs])
    timed = {graph.hash for graph in graphs[::4][:12]}
    seen = np.array([graph.hash in timed for graph in graphs])
    assert after[seen, 0] == pytest.approx(truth[seen], rel=0.03)
    assert (after[:, 1] < before[:, 1]).all(), "surer"

    def error(found: np.ndarray) -> float:
        return float(np.abs(np.log(found[~seen, 0] / truth[~seen])).mean())

    assert error(after) < 0.5 * error(before)


def test_no_more_graphs_are_timed_than_were_asked_for_and_none_twice() -> None:
    runtime = TimedGraphs()
    costs = corrected(3, runtime)
    model, graphs, _ = met(costs, 2)
    with counting() as counts:
        assert costs.time(model, [graphs[0], graphs[0], model.graph, graphs[1]]) == 2
        assert costs.time(model, graphs) == 1 and costs.left(model) == 0
        assert costs.time(model, graphs) == 0
        assert costs.choose(model, graphs, 5, seed=0) == []
    assert counts.end_to_end_timings == 4, "the start graph and three others"


def test_a_graph_keeps_its_cost_in_what_has_priced_it() -> None:
    costs = corrected(4)
    model, graphs, env = met(costs, 2)
    held = costs.of(model)
    state = State(graphs[-1], env.rules, held.native)
    before = held.price(state).cost.ms
    assert costs.time(model, graphs[:4]) == 4
    assert held.price(State(graphs[-1], env.rules, held.native)).cost.ms == before
    assert costs.of(model) is not held and costs.of(model) is costs.of(model)


def test_the_engine_searches_by_the_same_prices() -> None:
    """Nodes still add up to the cost of the graph, as `sums_nodes` says."""
    costs = corrected(4)
    model, graphs, env = met(costs, 2)
    costs.time(model, graphs[:4])
    env.reset(options={"graph": model})
    assert env.initial_cost.ms == pytest.approx(model.graph.cost(costs.of(model).native).ms)
    bill = costs.of(model).fast_bill(graphs[-1])
    parts = sum(count * costs.of(model).kernels.of(kernel).ms for kernel, count in bill.items())
    assert graphs[-1].cost(costs.of(model).native).ms == pytest.approx(parts)


def test_what_was_timed_can_be_restored_and_sent_to_other_processes() -> None:
    costs = corrected(4)
    model, graphs, env = met(costs, 2)
    costs.time(model, graphs[:4])
    wanted = [ratio(costs, model, graph, env) for graph in graphs]
    for other in (pickle.loads(pickle.dumps(costs)), Corrected("cpu", 4)):
        other.restore(model, costs.timed(model))
        other.restore(model, costs.timed(model))
        assert other.timed(model) == costs.timed(model) and other.left(model) == 0
        assert [ratio(other, model, graph, env) for graph in graphs] == pytest.approx(wanted)


def test_a_graph_that_cannot_be_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = corrected(4)
    model, graphs, _ = met(costs, 2)
    right = EndToEndPrices.timed

    def timed(self: EndToEndPrices, graph: Graph) -> object:
        if graph.hash == graphs[0].hash:
            raise ModelError("no kernel")
        return right(self, graph)

    monkeypatch.setattr(EndToEndPrices, "timed", timed)
    assert costs.time(model, graphs[:2]) == 1
    assert [each.hash for each in costs.timed(model)] == [graphs[1].hash]
    monkeypatch.setattr(EndToEndPrices, "timed", right)
    assert costs.time(model, graphs[:2]) == 0, "it is not tried again"


def test_a_start_graph_that_cannot_be_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = corrected(4)
    model, graphs, _ = met(costs, 2)

    def start_ms(self: EndToEndPrices) -> float:
        raise ModelError("no kernel for the model itself")

    monkeypatch.setattr(EndToEndPrices, "start_ms", start_ms)
    with pytest.raises(ModelError, match="the model itself"):
        costs.time(model, graphs[:2])
    assert costs.left(model) == 4


def test_the_batch_is_of_new_graphs_that_may_be_faster() -> None:
    costs = corrected(64)
    model, graphs, env = met(costs)
    chosen = costs.choose(model, [*graphs, model.graph], 6, seed=0)
    assert chosen and len(set(chosen)) == len(chosen) and len(graphs) not in chosen
    cheapest = min(range(len(graphs)), key=lambda each: ratio(costs, model, graphs[each], env)[0])
    assert ratio(costs, model, graphs[chosen[0]], env)[0] <= 1.1 * ratio(costs, model, graphs[cheapest], env)[0]
    assert costs.choose(model, [*graphs, model.graph], 6, seed=0) == chosen
    costs.time(model, [graphs[each] for each in chosen])
    assert not set(costs.choose(model, graphs, 6, seed=0)) & set(chosen)


def test_its_name() -> None:
    costs = registry.find("endtoend:cpu:timings=16")
    assert isinstance(costs, Corrected) and costs.timings == 16 and costs.name == "endtoend:cpu:timings=16"
    few = registry.find("endtoend:cpu:pairs=4,timings=16")
    assert isinstance(few, Corrected) and few.name == "endtoend:cpu:timings=16,pairs=4"
    assert (few.clock_of_graphs.effort.pairs, few.clock_of_graphs.effort.resolution) == (4, None)
    for text in ("0", "-1", "x", "1.5", "٣"):
        with pytest.raises(ValueError, match=r"'timings' must be a whole number of graphs, at least 1, got"):
            registry.find(f"endtoend:cpu:timings={text}")
    with pytest.raises(ValueError, match="leave one of the two out"):
        registry.find("endtoend:cpu:timings=4,noise=resampled")
    with pytest.raises(ValueError, match="has no parameter 'timings': it takes noise"):
        registry.find("measured:cpu:timings=4")
