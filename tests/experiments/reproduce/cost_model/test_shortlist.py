"""Ways to choose the graphs that are timed, on graphs whose costs are made up."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.cli import main
from experiments.reproduce.cost_model.learned import Predicted
from experiments.reproduce.cost_model.recorded import RecordedGraphs
from experiments.reproduce.cost_model.shortlist import Offered, apart, by_expectation, cheapest, in_batches, row_of

COST = np.array([0.9, 0.8, 0.8001, 0.95, 0.7])


def offered(possible: np.ndarray) -> Offered:
    return Offered(COST, possible)


def test_the_cheapest_come_first_and_those_too_near_are_left_out() -> None:
    sure = offered(np.repeat(COST[:, None], 4, axis=1))
    assert cheapest(sure, 3) == [4, 1, 2]
    assert apart(sure, 3) == [4, 1, 0]
    assert by_expectation(sure, 3) == [4], "where nothing is unsure, no other graph can be better"


def test_a_batch_by_expected_improvement_holds_what_may_be_better_where_the_others_are_not() -> None:
    possible = np.repeat(COST[:, None], 2, axis=1)
    possible[1:3, 1] = 0.6  # 1 and 2 are better in the same draw, and 3 in the other one, but less
    possible[3, 0] = 0.65
    assert by_expectation(offered(possible), 3) == [4, 1, 3]


def test_what_is_lost_is_counted_against_the_fastest_graph_that_was_offered() -> None:
    runs = np.array([[10.0, 0.0], [8.0, 0.0], [0.0, 5.0]])
    network = RecordedGraphs("n", ("a", "b"), runs, np.array([0.8, 0.6]), np.array([0.01, 0.01]))
    prices = Predicted(np.array([1.0, 1.9]), np.array([0.0, 0.0]), np.array([np.nan, np.nan]))
    row = row_of(network, prices, 1)  # the second graph is predicted to cost 0.95
    assert row["cheapest"] == row["apart"] == row["expected_best"] == pytest.approx(100 * (0.8 / 0.6 - 1))
    assert row["offered"] == 2 and row["noise"] == pytest.approx(1.0) and row["difference"] == 0
    assert 0 < row["random"] < row["cheapest"]


def test_a_batch_corrects_the_prices_by_which_the_next_one_is_chosen() -> None:
    """Kernel b takes half of what is predicted, so that the graphs which run it are better than they seem."""
    runs = np.array([[10.0, 0.0], [6.0, 4.5], [5.0, 5.5], [4.0, 6.0], [9.0, 0.0], [8.8, 0.0]])
    measured = runs[1:] @ np.array([1.0, 0.5]) / 10
    network = RecordedGraphs("n", ("a", "b"), runs, measured, np.full(5, 0.001))
    prices = Predicted(np.array([1.0, 1.0]), np.array([0.01, 1.0]), np.array([np.nan, np.nan]))
    chosen, corrected = in_batches(network, prices, np.arange(5), 3, np.random.default_rng(0))
    assert chosen[0] in (1, 2) and measured[chosen].min() == measured.min()
    assert corrected == pytest.approx(measured, rel=0.05)


def test_at_least_one_graph_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "shortlist", "--graphs-timed", "0"]) == 2
    assert "graphs-timed" in capsys.readouterr().err.replace("_", "-")
