"""The tables about fusion: what the columns say of known curves, and units that are not made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.fusion.run import SearchConfig
from experiments.cli import main
from experiments.errors import UserError
from experiments.executors.local import Record
from experiments.reproduce.fusion.tables import finding, require_search, rows_of
from experiments.reproduce.fusion.units import PLANS, PREDICTORS, Learning, devices_of, searched
from experiments.runs.progress import SilentProgress
from tests.commands import read_table


def record(variant: str, seed: int, curve: list[tuple[int, float]]) -> Record:
    where = {"device": "v100", "graph": "g", "start": "default", "configurable": 25, "budget": 100, "start_ms": 10.0}
    return {**where, "variant": variant, "method": variant, "seed": seed, "curve": curve}


RANDOM = [record("random", 0, [(1, 10.0), (50, 9.0), (80, 8.0)]), record("random", 1, [(1, 10.0), (40, 9.0)])]
GUIDED = [record("guided", 0, [(1, 10.0), (20, 8.0), (90, 7.0)]), record("guided", 1, [(1, 10.0), (30, 9.5)])]
QUALITY = zip(PREDICTORS, (0.5, 0.3, 0.4), strict=True)
JUDGED: list[Record] = [
    {"device": "v100", "graph": "g", **{name: {"spearman": value, "recall": value} for name, value in QUALITY}}
]


def test_columns_compare_each_seed_with_random_search_of_the_same_seed() -> None:
    random, guided = rows_of(RANDOM + GUIDED, JUDGED)
    assert random["improvement"] == pytest.approx(15) and random["share"] == 100 and random["reached"] == 100
    assert guided["improvement"] == pytest.approx(17.5)
    assert guided["reached"] == 50  # seed 1 never came to 9.0
    assert guided["queries"] == (20 + 100) / 2 and guided["share"] == pytest.approx(100 * 60 / 60)
    # 90 % of 2.0 ms is found after 80 and 20 queries, 90 % of 1.0 ms after 40 and never
    assert guided["early"] == pytest.approx(100 * (20 + 100) / (80 + 40)) and random["early"] == 100
    assert (guided["spearman"], guided["recall"], guided["trivial"]) == (0.5, 50, 40)
    assert random["spearman"] == "–"


def test_the_finding_says_where_guidance_does_not_pay() -> None:
    rows = rows_of(RANDOM + GUIDED, JUDGED)
    assert "on 0 of 1 unseen graphs; not on g (100 %, reached by 50 % of the seeds)" in finding(rows)
    quick = [record("guided", seed, [(1, 10.0), (10, 5.0)]) for seed in (0, 1)]
    assert "on 1 of 1 unseen graphs." in finding(rows_of(RANDOM + quick, []))


def test_no_unseen_graph_is_trained_on() -> None:
    for plan in PLANS.values():
        assert not {*plan.training} & {*plan.unseen, *plan.large}
        assert plan.small and {*plan.small} < {*plan.training}


def test_searches_are_compared_with_random_search() -> None:
    require_search("random", ["guided", "random"])
    with pytest.raises(UserError, match="--searches names guided without random"):
        require_search("random", ["guided"])


def test_rows_of_the_ablations_can_be_chosen_and_those_without_predictions_train_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "random,random at distance 0,sweeps at distance 0"
    smoke = ["reproduce", "fusion-ablations", "--scale", "smoke", "--seeds", "0"]
    assert main([*smoke, "--searches", rows]) == 0
    table = read_table("fusion-ablations")
    assert [row["search"] for row in table] == rows.split(",")
    assert all(float(row["improvement"]) > 0 for row in table) and len({row["queries"] for row in table}) > 1
    assert list(tmp_path.rglob("nasnet*.json")) and not list(tmp_path.rglob("model-*"))
    assert main([*smoke, "--searches", "random,distance 9", "-o", "other"]) == 2


def test_a_finished_search_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    learning = Learning("h100", 0, PLANS["smoke"])
    arguments = ("nasrnn-tiny", "random", SearchConfig(budget=1), learning, "random", SilentProgress())
    first = searched(*arguments)
    assert first["curve"][0] == [1, first["start_ms"]] or first["curve"][0] == (1, first["start_ms"])
    monkeypatch.setattr("experiments.reproduce.fusion.units.shown_search", None)  # a second search would fail
    assert searched(*arguments)["curve"] == [list(point) for point in first["curve"]]


def test_unknown_presets_are_refused() -> None:
    assert devices_of(None) == ["v100", "h100"]
    with pytest.raises(UserError, match="No fusion device is called 'h1000'"):
        devices_of("h1000")
