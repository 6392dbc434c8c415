"""Tests of `rlflow reproduce fig-pairwise`: quantities of graphs on random walks and in searches, and their figure."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from environment.costs.measured import kernel_prices
from environment.costs.prices.price_list import Price
from experiments.cli import main
from experiments.executors.units import Record
from experiments.reports.plots import plot_pairs
from experiments.reproduce.cost_model import fig_pairwise
from experiments.reproduce.table import UNDEFINED
from tests.commands import read_table

MODEL = "squeezenet1.1-tiny"
OUTPUT = Path("runs/reproduce/fig-pairwise")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel_prices, "time_kernel", lambda *_: Price(1.0, 0.01))
    monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: 1.0)


def reproduce(*more: str, costs: str = "roofline:xeon") -> int:
    return main(["reproduce", "fig-pairwise", "--scale", "smoke", MODEL, "--costs", costs, *more])


def read_rows() -> dict[str, dict[str, str]]:
    return {row["pair"]: row for row in read_table("fig-pairwise")}


def test_every_pair_has_its_correlations_and_the_picture_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reproduce() == 0
    table = capsys.readouterr().out
    names = fig_pairwise.QUANTITIES.values()
    assert set(read_rows()) == {f"{first}, {second}" for first, second in itertools.combinations(names, 2)}
    assert all(int(row["random"]) > 10 and int(row["search"]) > 1 for row in read_rows().values())
    assert "![figure](figure.svg)" in table
    picture = imread(OUTPUT / "figure.png")
    assert min(picture.shape[:2]) > 500 and np.ptp(picture) > 0.5
    monkeypatch.setattr(fig_pairwise, "search_taso", lambda *_: pytest.fail("searched again"))
    assert reproduce() == 0
    assert capsys.readouterr().out == table


def test_a_run_time_that_is_one_of_the_counts_correlates_with_it_alone() -> None:
    """Every kernel takes one millisecond here, so the run time is the number of kernel launches."""
    assert reproduce(costs="measured:cpu") == 0
    found = read_rows()
    own, other = (found[f"run time, {name}"] for name in ("kernel launches", "memory accesses"))
    assert float(own["random_pearson"]) == pytest.approx(1.0)
    assert float(own["random_spearman"]) == pytest.approx(1.0)
    assert float(other["random_pearson"]) < 0.99


def test_graphs_are_met_once_and_measured_against_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[dict[str, list[Record]]] = []
    original = fig_pairwise.rows
    monkeypatch.setattr(fig_pairwise, "rows", lambda name, points: kept.append(points) or original(name, points))
    assert reproduce() == 0
    for points in kept[0].values():
        assert points[0] == dict.fromkeys(fig_pairwise.QUANTITIES, 100.0)
        assert all(set(point) == set(fig_pairwise.QUANTITIES) and min(point.values()) > 0 for point in points)
    assert min(point["ms"] for point in kept[0]["search"]) < 100


def test_what_has_no_correlation_is_a_dash(tmp_path: Path) -> None:
    two = [dict.fromkeys(fig_pairwise.QUANTITIES, value) for value in (100.0, 90.0)]
    three = [*two, dict.fromkeys(fig_pairwise.QUANTITIES, 95.0) | {"flops": 91.0}]
    for row in fig_pairwise.rows("graph", {"random": two, "search": three}):
        assert row["random_pearson"] == UNDEFINED
        assert 0.5 < row["search_pearson"] <= 1 and 0.4 < row["search_spearman"] <= 1
    groups = {"constant": {"a": [100.0, 100.0], "b": [100.0, 101.0]}}
    plot_pairs(tmp_path / "pairs.png", "title", groups, lambda first, second: float("nan"))
    assert imread(tmp_path / "pairs.png").ndim == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--costs", "measured:gpu"], "cpu here"),
        (["--costs", "measurd:cpu"], "measured:cpu"),
        (["--costs", "none.sqlite"], "none.sqlite"),
        (["--seed", "-1"], "at least 0"),
        (["bert-tiny"], "bert-base-tiny"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "fig-pairwise", *arguments]) == 2
    message = capsys.readouterr().err
    assert said in message and "Traceback" not in message
    assert not list(tmp_path.iterdir())


def test_pictures_of_the_user_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "figure.png"
    mine.write_text("mine", encoding="utf-8")
    assert reproduce("-o", str(tmp_path)) == 2
    assert "--force" in capsys.readouterr().err
    assert mine.read_text(encoding="utf-8") == "mine"
    assert reproduce("-o", str(tmp_path), "--force") == 0
    assert imread(mine).ndim == 3


def test_a_walk_ends_before_a_graph_without_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under measured costs, graphs of several times the work have no price; here, those with a tenth more have none."""
    monkeypatch.setattr("environment.costs.limits.MOST_WORK", 1.1)
    assert reproduce(costs="measured:cpu") == 0
    found = read_rows()
    assert all(int(row["random"]) > 1 for row in found.values())
