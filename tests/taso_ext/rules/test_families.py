"""Hand-written rules apply to models as exporters write them, and the rewritten models compute the same."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

import taso_ext
from environment import zoo
from environment.verification import verify
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State, search_greedy
from tests.taso_ext.samples.family_forms import FORMS, FamilyForm

RULE_FILES = Path(taso_ext.__file__).parent / "rules"
RULES = RuleSet.default()
COSTS = CostModel.roofline("rtx2070")


def start(graph: Graph, rules: RuleSet = RULES) -> State:
    return State(graph, rules, COSTS)


def operators(graph: Graph) -> list[str]:
    return sorted(node.op_type for node in graph.nodes() if not node.weight_only)


@pytest.mark.parametrize("form", FORMS, ids=[form.rule for form in FORMS])
def test_rule_fires_on_its_form(form: FamilyForm) -> None:
    model = OnnxModel.load(form.model(), clean="none")
    state = start(model.graph)
    rule = RULES.names.index(form.rule)
    locations = [location for legal, location in state.legal_actions() if legal == rule]
    assert locations, [RULES.names[legal] for legal, _ in state.legal_actions()]
    state.step(rule, int(locations[0]))
    assert operators(state.graph) == form.left.split()
    found = verify(model.source, model.export_checked(state.graph))
    assert found.equal, found.reason


def test_rows_are_not_added_across_a_broadcast_axis() -> None:
    """For [1] − [2, 3] beside [1] − [4, 3], the operands of extent 1 would have to be repeated."""
    form = FamilyForm(
        "",
        "(float[2, 3] x, float[4, 3] u) => (float[6, 3] y)",
        "c = Sub(p, x) d = Sub(q, u) y = Concat<axis = 0>(c, d)",
        {"p": (1,), "q": (1,)},
    )
    state = start(OnnxModel.load(form.model(), clean="none").graph)
    assert not [RULES.names[rule] for rule, _ in state.legal_actions() if "concat" in RULES.names[rule]]


@pytest.mark.parametrize(("name", "hoisted"), [("nasrnn-tiny", 2), ("nasrnn", 1)])
def test_products_with_shared_weights_are_hoisted_over_time_steps(name: str, hoisted: int) -> None:
    """Greedy descent joins 8 of the 16 products of each step, those of the input, into one for all steps.

    Two remain if products are so small that a launch is all they cost, because splitting one product takes a launch.
    """
    model = OnnxModel.load(zoo.build(name))
    state = start(model.graph)
    steps = Counter(operators(state.graph))["Gather"]
    for rule, location in search_greedy(state).actions:
        state.step(rule, location)
    assert Counter(operators(state.graph))["MatMul"] == hoisted + 8 * steps  # products of the state stay in their steps
    assert state.cost.ms < start(model.graph).cost.ms
    found = verify(model.source, model.export_checked(state.graph), num_inputs=1)
    assert found.equal, found.reason


def test_the_scale_of_attention_ends_up_in_the_query_weights() -> None:
    """1 / sqrt(d) moves from the scores through the layout operators of the heads into weights and bias."""
    form = FamilyForm(
        "",
        "(float[1, 5, 8] x, float[1, 2, 4, 5] k) => (float[1, 2, 5, 5] y)",
        "t = MatMul(x, w) u = Add(t, c) h = Reshape(u, heads) q = Transpose<perm = [0, 2, 1, 3]>(h) "
        "z = MatMul(q, k) y = Div(z, d)",
        {"w": (8, 8), "c": (8,), "heads": np.array([1, 5, 2, 4]), "d": 2.0},
    )
    model = OnnxModel.load(form.model())
    wanted = (
        "move-scale-into-matmul-operand",
        "move-scale-through-transpose",
        "move-scale-through-reshape",
        "fold-scale-into-linear",
    )
    state = start(model.graph)
    for name in wanted:
        rule = RULES.names.index(name)
        legal = [int(location) for found, location in state.legal_actions() if found == rule]
        assert legal, name
        state.step(rule, legal[0])
    assert operators(state.graph) == ["Add", "MatMul", "MatMul", "Reshape", "Transpose"]
    found = verify(model.source, model.export_checked(state.graph))
    assert found.equal, found.reason


def test_the_page_names_every_rule_written_by_hand_and_no_other() -> None:
    """In the page, `*` is the rest of a name and `-into-x` any name with that end; a biased twin needs no entry."""
    page = (RULE_FILES / "README.md").read_text(encoding="utf-8")
    table = page[page.index("## The shipped families") : page.index("## Generated rules")]
    patterns = ["*" * name.startswith("-") + name for name in re.findall(r"`([a-z0-9*-]+)`", table)]
    generated = set(RuleSet.load(str(RULE_FILES / "generated.rules")).names)
    twins = {name: name.replace("-biased", "") for name in RULES.names if name not in generated}
    unnamed = [n for n, twin in twins.items() if not any(fnmatch(n, p) or fnmatch(twin, p) for p in patterns)]
    unknown = [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in twins)]
    assert not unnamed and not unknown and "*" not in patterns
