"""Waypoints: graphs found elsewhere to which a step goes at once, and graphs as plain values."""

from __future__ import annotations

import json

import onnx.parser
import pytest

from environment import zoo
from environment.substitution.omission import leave_out
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State, Waypoints
from taso_ext.graph_json import graph_from_json, graph_to_json

RULES = RuleSet.parse(
    "rule drop-double-negation\n  var    x: float\n  source t = Neg(x); y = Neg(t)\n  target y = x\n"
    "rule drop-abs-of-relu\n  var    x: float\n  source t = Relu(x); y = Abs(t)\n  target y = Relu(x)\n"
)
COSTS = CostModel.roofline("xeon")
LONG = "a = Neg(x) b = Neg(a) c = Relu(b) d = Abs(c) e = Neg(d) y = Neg(e)"
SHORT = "c = Relu(x) d = Abs(c) e = Neg(d) y = Neg(e)"
"""The same without the first two operators."""


def graph(operators: str, extent: int = 3) -> Graph:
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[{extent}] x) => (float[{extent}] y) {{ {operators} }}'
    return OnnxModel.load(onnx.parser.parse_model(text), clean="none").graph


def start(waypoints: Waypoints | None = None) -> State:
    return State(graph(LONG), RULES, COSTS, 10, waypoints)


def test_a_step_to_a_waypoint_leads_to_its_state_and_can_be_taken_back() -> None:
    state, there = start(), State(graph(SHORT), RULES, COSTS, 10)
    number = state.waypoints.add(graph(SHORT))
    before = state.hash
    assert state.is_legal(state.waypoint_rule, number)
    state.step(state.waypoint_rule, number)
    assert (state.hash, state.cost.ms) == (there.hash, there.cost.ms)
    assert state.legal_actions().tolist() == there.legal_actions().tolist()
    assert state.num_locations == 10
    state.undo()
    assert state.hash == before


def test_equal_waypoints_have_one_number_and_copies_share_them() -> None:
    waypoints = Waypoints()
    one, other = start(waypoints), start(waypoints)
    assert [one.waypoints.add(graph(SHORT)), other.waypoints.add(graph(SHORT)), waypoints.add(graph(LONG))] == [0, 0, 1]
    assert len(one.copy().waypoints) == len(waypoints) == 2
    assert len(start().waypoints) == 0


def test_no_mask_shows_waypoints() -> None:
    state = start()
    before = state.legal_actions().tolist()
    state.waypoints.add(graph(SHORT))
    assert state.legal_actions().tolist() == before
    assert len(state.rule_mask()) == len(RULES) < state.waypoint_rule


def test_what_is_no_waypoint_is_refused_with_its_reason() -> None:
    state = start()
    assert not state.is_legal(state.waypoint_rule, 0)
    with pytest.raises(ValueError, match="there is no waypoint 0: this start graph has 0"):
        state.step(state.waypoint_rule, 0)
    with pytest.raises(IndexError, match="no waypoint 3 among 0"):
        state.waypoints[3]
    number = state.waypoints.add(graph(SHORT, extent=4))
    with pytest.raises(ValueError, match="input 0 has another type"):
        state.step(state.waypoint_rule, number)
    assert state.hash == start().hash


def test_rewrites_behind_a_waypoint_stay_if_others_of_them_are_left_out() -> None:
    state = start()
    number = state.waypoints.add(graph(SHORT))
    begin, plan = state.copy(), [(state.waypoint_rule, number)]
    state.step(*plan[0])
    for rule in (1, 0):
        plan.append((rule, int(next(place for at, place in state.legal_actions() if at == rule))))
        state.step(*plan[-1])
    assert leave_out(begin, plan, {1}) == [plan[0], plan[2]]
    assert leave_out(begin, plan, {2}) == plan[:2]


def test_without_the_waypoint_no_rewrite_of_its_operators_is_taken_for_one_of_others() -> None:
    state = start()
    number = state.waypoints.add(graph(SHORT))
    begin = state.copy()
    state.step(state.waypoint_rule, number)
    plan = [(state.waypoint_rule, number), *map(tuple, state.legal_actions().tolist())]
    assert leave_out(begin, plan[:2], {0}) == []


@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny", "nasrnn-tiny", "nasnet-a-tiny"])
def test_a_graph_comes_back_from_json_as_it_was(name: str) -> None:
    model = OnnxModel.load(zoo.build(name))
    stored = json.loads(json.dumps(graph_to_json(model.graph)))
    found = graph_from_json(stored)
    assert found.hash == model.graph.hash
    assert found.cost(COSTS).ms == model.graph.cost(COSTS).ms
    assert graph_to_json(found)["nodes"] == graph_to_json(graph_from_json(stored))["nodes"]
    assert model.export(found).SerializeToString() == model.export(model.graph).SerializeToString()


def test_operators_with_a_state_of_their_own_keep_their_places_from_the_second_time_on() -> None:
    given = graph("a = RandomNormalLike(x) b = RandomNormalLike(x) c = Add(a, x) y = Sub(c, b)")
    first = graph_from_json(graph_to_json(given))
    assert len({node.origin for node in first.nodes() if node.stateful}) == 2
    assert graph_from_json(graph_to_json(first)).hash == first.hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hash": "0" * 32}, "has become another one"),
        ({"outputs": [99]}, "cannot be read"),
        ({"nodes": None}, "cannot be read"),
    ],
)
def test_what_is_no_stored_graph_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph_from_json(graph_to_json(graph(SHORT)) | change)
