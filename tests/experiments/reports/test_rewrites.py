"""The differences that a page draws lead from each graph to the next one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from environment import zoo
from experiments.reports.page import rewrite_section
from experiments.reports.page.rewrite_section import RewriteSection
from experiments.reports.page.rewrites import LONGEST_TEXT, drawn
from taso_ext import CostModel, Graph, GraphBuilder, OnnxModel, RuleSet, State


def random_walk(model: str, seed: int, steps: int) -> list[Graph]:
    """Returns the graphs along random rewrites of a model of the zoo; fewer where no rewrite is left."""
    rng = np.random.default_rng(seed)
    state = State(OnnxModel.load(zoo.build(model)).graph, RuleSet.default(), CostModel.roofline("xeon"))
    graphs = [state.graph]
    for _ in range(steps):
        if not len(actions := state.legal_actions()):
            break
        rule, location = rng.choice(actions)
        state.step(int(rule), int(location))
        graphs.append(state.graph)
    return graphs


def states_of(drawing: dict[str, Any]) -> Iterator[tuple[dict[int, list[Any]], list[Any]]]:
    """Yields the wiring and the outputs after each change, as the page works them out."""
    wiring, outputs = dict(map(tuple, drawing["start"])), drawing["outputs"]
    yield dict(wiring), outputs
    for change in drawing["changes"]:
        for operator in change["gone"]:
            del wiring[operator]  # raises if it was not there
        made, rewired = (dict(map(tuple, change[key])) for key in ("made", "rewired"))
        assert not made.keys() & wiring.keys() and rewired.keys() <= wiring.keys()
        wiring |= made | rewired
        outputs = change.get("outputs", outputs)
        yield dict(wiring), outputs


def described(drawing: dict[str, Any], wiring: dict[int, list[Any]], outputs: list[Any]) -> list[Any]:
    """Returns a graph in words that do not depend on the numbers of its operators."""
    words: dict[int, str] = {}

    def word(operand: int | str) -> str:
        if isinstance(operand, str):
            return operand
        if operand < 0:
            return f"input {drawing['inputs'][-1 - operand]}"
        if operand not in words:
            _, kind, facts = drawing["operators"][operand]
            words[operand] = f"{hash((kind, facts, tuple(map(word, wiring[operand])))):x}"
        return words[operand]

    return [sorted(map(word, wiring)), [(name, kind, word(operand)) for name, kind, operand in outputs]]


@pytest.mark.parametrize("model", ["squeezenet1.1-tiny", "bert-base-tiny"])
def test_changes_lead_to_every_graph_of_a_random_walk(model: str) -> None:
    graphs = random_walk(model, seed=0, steps=25)
    drawing = drawn(graphs)
    assert len(graphs) > 5
    assert any(change["rewired"] for change in drawing["changes"]), "else this is not tested"
    for graph, (wiring, outputs) in zip(graphs, states_of(drawing), strict=True):
        alone = drawn([graph])
        assert described(drawing, wiring, outputs) == described(
            alone, dict(map(tuple, alone["start"])), alone["outputs"]
        )
        assert len(wiring) == graph.num_runtime_nodes
    assert json.loads(json.dumps(drawing)) == drawing


def test_a_rewrite_takes_and_makes_operators_and_leaves_the_others_their_numbers() -> None:
    graphs = random_walk("squeezenet1.1-tiny", seed=1, steps=10)
    for before, after, change in zip(graphs, graphs[1:], drawn(graphs)["changes"], strict=False):
        origins = [{node.origin for node in graph.nodes() if not node.weight_only} for graph in (before, after)]
        counts = len(origins[0] - origins[1]), len(origins[1] - origins[0])
        assert (len(change["gone"]), len(change["made"])) == counts and any(counts)


def test_operators_inputs_and_weights_in_words() -> None:
    builder = GraphBuilder()
    x = builder.input("x", 1, [2, 3])
    weight = builder.weight("w", "digest", 1, [3, 4])
    (product,) = builder.node("", "MatMul", {}, [x, weight], [("y", 1, [2, 4])], "product")
    attributes = {"axes": list(range(200)), "mode": "fast"}
    (result,) = builder.node("com.other", "Odd", attributes, [product, -1, x], [("z", 1, None)])
    builder.output(result)
    drawing = drawn([builder.build()])
    assert drawing["inputs"] == [["x", "float 2×3"]]
    assert drawing["start"] == [[0, [-1, "weight float 3×4"]], [1, [0, -1]]]
    assert drawing["outputs"] == [["z", "float, unknown shape", 1]]
    assert drawing["operators"][0] == ["product", "MatMul", "float 2×4"]
    name, kind, facts = drawing["operators"][1]
    shape, axes, mode = facts.split("\n")
    assert (name, kind, shape, mode) == ("", "com.other.Odd", "float, unknown shape", "mode = fast")
    assert axes.startswith("axes = [0, 1, 2") and axes.endswith("…") and len(axes) == LONGEST_TEXT + len("axes = ")


def test_a_graph_whose_output_is_its_input() -> None:
    builder = GraphBuilder()
    x = builder.input("x", 1, [2])
    (y,) = builder.node("", "Relu", {}, [x], [("y", 1, [2])])
    builder.output(y)
    builder.output(x)
    assert [operand for *_, operand in drawn([builder.build()])["outputs"]] == [0, -1]


def section_of(costs_ms: list[float | None], steps: list[int]) -> RewriteSection:
    """Returns the section of a random walk with these costs after its rewrites, which begins at 4 ms."""
    graphs = random_walk("squeezenet1.1-tiny", seed=1, steps=len(costs_ms))
    actions = [
        {"rule": 0, "location": 7, "rule_name": f"rule-{step % 2}", "step": step, "cost_ms": cost_ms}
        for cost_ms, step in zip(costs_ms, steps, strict=True)
    ]
    log = {"initial_cost_ms": 4.0, "actions": actions, "subgraphs": []}
    return RewriteSection.of_log(log, drawn(graphs), (graphs[0].num_runtime_nodes, graphs[-1].num_runtime_nodes))


def test_costs_are_those_of_steps_and_add_up_by_rule() -> None:
    section = section_of([None, 3.0, 5.0, 2.0], [0, 0, 1, 2])
    assert [rewrite.change_ms for rewrite in section.rewrites] == [None, -1.0, 2.0, -3.0]
    assert [(each["rewrite"], each["cost_ms"]) for each in section.cost_log()] == [
        (0, 4.0),
        (2, 3.0),
        (3, 5.0),
        (4, 2.0),
    ]
    said = section.data["sentences"]
    assert "estimated time 4.0000 → 2.0000 ms (-50.00 %)" in said[0]
    assert said[1].endswith("the estimated time is known when its step ends.")
    assert "estimated time over the whole step 4.0000 → 3.0000 ms (-25.00 %)" in said[2]
    assert "estimated time 3.0000 → 5.0000 ms (+66.67 %)" in said[3]
    rules = "".join(section.parts()).split('id="rules"')[1]
    assert rules.index("rule-0") < rules.index("rule-1"), "the rule that saves most stands first"
    assert "-100.00 %" in rules and "+50.00 %" in rules
    with pytest.raises(ValueError, match="the last rewrite has no cost"):
        section_of([3.0, None], [0, 1])


def test_what_would_be_too_large_is_not_drawn_and_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[float | None] = [3.0, 2.0, 1.0]
    text = "".join(section_of(costs, [0, 1, 2]).parts())
    assert 'class="pane"' in text and "data-rewrite" in text and "not drawn" not in text and "The first" not in text
    monkeypatch.setattr(rewrite_section, "LARGEST_DRAWING", 100)
    monkeypatch.setattr(rewrite_section, "MOST_LISTED", 2)
    text = "".join(section_of(costs, [0, 1, 2]).parts())
    assert 'class="pane"' not in text and "data-rewrite" not in text and "The graphs are not drawn" in text
    assert "The first 2 of 3 rewrites; actions.json has all." in text
