"""Tests of how predicted and measured run times are compared, and of the graphs that they are compared on."""

from __future__ import annotations

import numpy as np
import pytest

from environment import zoo
from environment.costs.limits import affordable
from experiments.reproduce.cost_model.discrepancy import attainable, left_out_scales, signs_right
from experiments.reproduce.cost_model.discrepancy_study import EARLY, at_random, early, everywhere
from taso_ext import CostModel, OnnxModel, RuleSet, State

RNG = np.random.default_rng(0)


def test_signs_count_where_the_difference_is_large_enough() -> None:
    measured = [1.05, 0.9, 1.01, 1.3]
    assert signs_right([1.01, 1.2, 0.5, 1.1], measured, 0.02) == (2, 3)
    assert signs_right(measured, measured, 0.02) == (3, 3)
    assert signs_right([1.0, 1.0, 1.0, 1.0], measured, 0.02) == (0, 3), "no change is no sign"
    assert signs_right(measured, [1.0, 1.01, 0.99, 1.0], 0.02) == (0, 0)


@pytest.mark.parametrize("noise", [0.001, 0.03, 0.06])
def test_noise_limits_what_perfect_predictions_attain(noise: float) -> None:
    truth = 1 + RNG.normal(0, 0.05, 20000)
    measured = truth + RNG.normal(0, noise, 20000) * truth
    found = attainable(measured, np.full(20000, 1.96 * noise))
    assert found == pytest.approx(np.corrcoef(truth, measured)[0, 1], abs=0.01)


def test_mere_noise_leaves_nothing_to_attain() -> None:
    assert attainable([1.0, 1.01, 0.99], [0.1, 0.1, 0.1]) == attainable([1.0, 1.0], [0.0, 0.0]) == 0


def test_a_factor_knows_nothing_of_what_it_is_judged_on() -> None:
    predicted, measured = RNG.uniform(1, 2, (2, 6))
    scales = left_out_scales(predicted, measured)
    for index in range(6):
        changed = measured.copy()
        changed[index] *= 100
        assert left_out_scales(predicted, changed)[index] == pytest.approx(scales[index])
    assert left_out_scales(predicted, 1.07 * predicted) == pytest.approx(np.full(6, 1.07))
    assert left_out_scales([2.0], [3.0]) == pytest.approx([1.0])


@pytest.fixture(scope="module")
def start() -> State:
    model = OnnxModel.load(zoo.build("bert-base-tiny"))
    return State(model.graph, RuleSet.default(), CostModel.roofline("xeon"), 4096)


def test_random_graphs_are_distinct_and_can_be_had_again(start: State) -> None:
    first, again, others = ([each.state.hash for each in at_random(start, 10, seed)] for seed in (1, 1, 2))
    assert len(set(first)) == len(first) == 10
    assert first == again != others
    assert start.hash not in first


def test_a_rule_everywhere_applies_nowhere_any_more(start: State) -> None:
    rules = RuleSet.default()
    found = list(everywhere(start, rules.names, most_steps=60))
    assert len(found) > 5
    for each in found:
        assert each.steps == 60 or not each.state.location_mask()[rules.names.index(each.how)].any()
        assert affordable(start.cost, each.state.cost)


def test_early_rewrites_leave_the_rest_of_the_graph_as_it_is(start: State) -> None:
    rules = RuleSet.default()
    end = int(EARLY * len(start.graph.nodes()))
    found = list(early(start, rules.names, most_steps=60))
    assert len(found) > 2
    for each in found:
        rule = rules.names.index(each.how.removesuffix(", early"))
        later = np.flatnonzero(start.location_mask()[rule][end:])
        assert len(later) and np.isin(later, np.flatnonzero(each.state.location_mask()[rule][end:])).all()
        assert each.steps == 60 or not each.state.location_mask()[rule][:end].any()
