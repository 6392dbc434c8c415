"""Pictures of rewrites: they show what has changed and its neighbours, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import environment
from experiments.reports.rewrite_plots import rewrite_figure
from taso_ext import Graph


def rewritten(model: str, rule: str) -> tuple[Graph, Graph]:
    """Returns the start graph, and the graph after the first match of a rule."""
    env = environment.make(model, strict=True)
    env.reset(seed=0)
    number = env.rule_names.index(rule)
    location = int(np.flatnonzero(env.state.location_mask()[number])[0])
    before = env.state.graph
    env.step([number, location])
    return before, env.state.graph


def labels(before: Graph, after: Graph) -> list[list[str]]:
    """Returns the operators of each panel of a picture."""
    return [
        sorted(text.get_text().split("\n")[0] for text in axes.texts if text.get_text())
        for axes in rewrite_figure(before, after).axes
    ]


def test_it_shows_the_changed_operators_and_their_neighbours() -> None:
    before, after = labels(*rewritten("squeezenet1.1-tiny", "enlarge-biased-conv-to-sibling"))
    assert before == ["Conv", "Relu", "Relu"]
    assert after == ["Conv", "Pad", "Relu", "Relu"]


def test_the_way_back_exchanges_the_panels() -> None:
    graphs = rewritten("bert-base-tiny", "merge-attention-projections")
    assert labels(*graphs) == labels(*reversed(graphs))[::-1]


def test_edges_join_what_is_read_to_what_reads_it() -> None:
    _, after = rewrite_figure(*rewritten("bert-base-tiny", "recognise-gelu-divided-product-halved")).axes
    operators = {text.get_text().split("\n")[0]: text.get_position() for text in after.texts if text.get_text()}
    edges = {(text.xyann, text.xy) for text in after.texts if not text.get_text()}
    assert edges == {(operators["Add"], operators["Gelu"]), (operators["Gelu"], operators["MatMul"])}


def test_equal_graphs_and_large_changes_are_refused() -> None:
    before, _ = rewritten("squeezenet1.1-tiny", "enlarge-biased-conv-to-sibling")
    with pytest.raises(ValueError, match="expected graphs that differ"):
        rewrite_figure(before, before)
    with pytest.raises(ValueError, match="at most 40 operators"):
        rewrite_figure(before, environment.make("bert-base-tiny").state.graph)
