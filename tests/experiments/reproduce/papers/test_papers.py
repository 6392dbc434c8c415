"""Tables and figures of the papers: what is counted, and what is read from the runs of `controllers`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from environment import GraphSubstitutionEnv, zoo
from experiments import reproduce
from experiments.cli import main
from experiments.config.run import load_config
from experiments.reproduce.papers import curves, heatmap, opttime, table1, table3
from experiments.reproduce.papers.cleaning import with_basic
from experiments.reproduce.papers.printed import OPTIMISATION_SECONDS, PROPERTIES
from experiments.sweeps.point import FIGURES, Point
from taso_ext import OnnxModel
from tests.commands import failure, read_table

TINY = "squeezenet1.1-tiny"
FOLDED = "resnet18-tiny"
"""A graph of which the full clean-up folds something."""


def run(controller: str, seed: int, **more: Any) -> dict[str, Any]:
    usual = {"graph": "g", "controller": controller, "seed": seed, "world": "dream", "own": 10.0, "minutes": 2.0}
    return usual | {"stages": {"evaluate": 20.0}, "rules": {}, "curves": {}} | more


def test_a_graph_is_counted_after_both_clean_ups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "table1", TINY, "resnet18-tiny"]) == 0
    rows = {(row["graph"], row["clean"]): row for row in read_table("table1")}
    assert set(rows) == {(name, clean) for name in (TINY, "resnet18-tiny") for clean in ("full", "basic")}
    full, basic = (rows["resnet18-tiny", clean] for clean in ("full", "basic"))
    assert int(full["operators"]) < int(basic["operators"]), "batch norms are folded by the full clean-up alone"
    assert int(full["product"]) == int(full["rules"]) * int(full["matches"])
    assert 0 < int(full["graphs"]) <= int(full["matches"]) and 0 < int(full["unique_layers"]) < int(full["layers"])
    assert full["printed_layers"] == "–"


def test_layers_are_what_has_weights() -> None:
    found = table1.properties(OnnxModel.load(zoo.build(TINY), clean="full").graph)
    kinds = [node.op_type for node in zoo.build(TINY).graph.node]
    assert found["layers"] == kinds.count("Conv")


def test_printed_figures_stand_beside_cleaned_graphs_of_the_zoo_alone() -> None:
    assert set(PROPERTIES) == set(OPTIMISATION_SECONDS) and all(zoo.contains(name) for name in PROPERTIES)
    assert table1.printed({"graph": "bert-base", "clean": "full"})["printed_product"] == 80
    assert table1.printed({"graph": "bert-base", "clean": "basic"})["printed_product"] == "–"


def test_curves_are_means_at_the_last_known_step() -> None:
    figure = curves.Curves("t", ("ppo dream",), "controller", {"return": "return"}, "updates")
    some = {"step": [1, 11], "return": [0.0, 10.0]}, {"step": [1, 6, 11], "return": [2.0, 4.0, 20.0]}
    records = [run("ppo dream", seed, curves={"controller": each}) for seed, each in enumerate(some)]
    rows = {row["step"]: row for row in figure.rows_of([*records, run("ppo dream", 2)])}
    assert min(rows) == 1 and max(rows) == 11 and rows[1]["mean"] == 1.0 and rows[7]["mean"] == 2.0
    assert rows[11]["mean"] == rows[11]["IQM"] == 15.0 and rows[11]["low"] < 15.0 and rows[11]["seeds"] == 2
    assert figure.finding(list(rows.values())) == "g, `ppo dream`: return from 1 to 15."


def test_all_figures_of_a_stage_are_shown_if_none_is_named(tmp_path: Path) -> None:
    figure = curves.Curves("t", ("ppo dream",), "mdn-rnn", {}, "steps")
    stage = {"step": [1, 2], "latent": [3.0, 1.0], "mask": [2.0, 1.5]}
    rows = list(figure.rows_of([run("ppo dream", 0, curves={"mdn-rnn": stage})]))
    assert {row["curve"] for row in rows} == {"latent", "mask"}
    figure.draw("g", rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_rules_are_counted_by_graph_the_most_used_first(tmp_path: Path) -> None:
    records = [
        run("mcts", 0, rules={"a": 1, "b": 4}),
        run("mcts", 1, rules={"b": 2}),
        run("mcts", 0, graph="h", rules={"a": 1}),
    ]
    rows = heatmap.rows_of(records)
    assert [(row["rule"], row["graph"], row["applied"], row["runs"]) for row in rows] == [
        ("b", "g", 3.0, 100.0),
        ("a", "g", 0.5, 50.0),
        ("a", "h", 1.0, 100.0),
    ]
    assert heatmap.finding(rows) == "2 rules lead to the best graphs, 1 of them on more than one graph."
    heatmap.draw(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
    assert heatmap.finding([]) == "No run applies any rule."


def test_time_is_that_of_everything_and_of_the_episodes_at_the_end() -> None:
    records = [run("taso", 0, world="", minutes=0.5), run("ppo dream", 0), run("ppo dream", 1, minutes=4.0)]
    search, learned = opttime.rows_of(records)
    assert (search["seconds"], search["playing"]) == (30.0, "–")
    assert (learned["seconds"], learned["playing"]) == (180.0, 20.0)
    said = opttime.finding([search, learned, {**learned, "row": "ppo exact", "seconds": 20.0}])
    assert "`ppo exact` takes longer than TASO's search on 0 of 1 graphs." in said
    assert "`ppo dream` takes longer than TASO's search on 1 of 1 graphs." in said
    assert opttime.finding([learned]) == "No row that learns in a dream of ours stands beside TASO's search."


@pytest.mark.full
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    "name", ["fig-search", "fig-modelfree", "fig-wmloss", "fig-dreamreward", "fig-heatmap", "fig-opttime"]
)
def test_every_figure_is_made_from_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert name in reproduce.TABLES
    assert main(["reproduce", name, TINY, "--scale", "smoke", "--seeds", "0"]) == 0
    assert read_table(name)


def test_a_sweep_of_the_temperature_answers_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def record(point: Point, progress: Any) -> dict[str, Any]:
        score = point.config.seed + point.config.dream.temperature
        score += 10 * (point.model == TINY)
        return {"point": dict(point.values), "settings": {}, "figures": dict.fromkeys(FIGURES, score)}

    monkeypatch.setattr(Point, "record", record)
    command = ["reproduce", "table3", "--scale", "smoke", "--worlds", "best, on paper", "--temperatures", "0,1,1.5"]
    assert main(command) == 0
    assert {row["graph"] for row in read_table("table3")} == {"bert-base-tiny"}, "one graph is enough for a quick look"
    assert main([*command, "--scale", "full", "--seeds", "0,1", "bert-base-tiny", TINY]) == 0
    rows = {(row["graph"], row["dream.temperature"]): row for row in read_table("table3")}
    assert set(rows) == {(name, t) for name in ("bert-base-tiny", TINY) for t in ("0", "1", "1.5")}
    assert float(rows[TINY, "1.5"]["real"]) == 12.0 and float(rows["bert-base-tiny", "1.5"]["real"]) == 2.0
    assert rows[TINY, "1.5"]["printed real"] == "–"
    said = Path("runs/reproduce/table3/README.md").read_text()
    assert f"{TINY}, best, on paper: 2 seeds are too few to see whether `dream.temperature` makes a" in said
    assert "World `best, on paper`: preset `demo` with " in said and "paper-cut" not in said
    assert len(list(Path("runs/reproduce/table3").glob("figure-*.png"))) == 2
    for priced in table3.PRICES:
        assert f"The world '{priced}' replays prices, and cpu.sqlite has none of bert-base-tiny: name a" in failure(
            capsys, "reproduce", "table3", "--scale", "smoke", "--worlds", priced
        )
    exact = {name: load_config(each.preset, {}, each.settings) for name, each in table3.WORLDS.items()}
    assert [each.dream.legality for each in exact.values()] == ["predicted"] * 4 + ["exact"] * 2


def test_printed_temperatures_stand_beside_bert_alone() -> None:
    row = {table3.KEY: 1.5}
    assert table3._beside(row, "bert-base", "w", None)["printed real"] == 58.23
    assert table3._beside(row, "bert-base", "w", None)["printed dream"] == "10.20 / 8.37", "the papers differ"
    assert table3._beside({table3.KEY: 1}, "bert-base", "w", None)["printed dream"] == 8.85
    assert table3._beside(row, "squeezenet1.1", "w", None)["printed real"] == "–"


def test_the_basic_graph_stands_beside_where_costs_are_prices() -> None:
    options = argparse.Namespace(prices="prices.sqlite")
    prices = {world: table3.prices_of(world, options) for world in table3.WORLDS}
    assert list(prices.values()) == [
        *["roofline:rtx2070"] * 2,
        "prices.sqlite",
        None,
        "roofline:rtx2070",
        "prices.sqlite",
    ]
    row = {table3.KEY: 1.0, "real": 25.0}
    beside = table3._beside(row, FOLDED, "w", prices["best, on paper"])
    assert beside["real basic"] == with_basic([{"graph": FOLDED, "gain": 25.0}])[0]["basic"] > 25.0
    assert table3._beside(row, FOLDED, "w", None)["real basic"] == "–"


def test_an_improvement_is_larger_against_the_basic_graph() -> None:
    costs = {
        clean: GraphSubstitutionEnv(FOLDED, clean=clean, costs="roofline:rtx2070").initial_cost.ms
        for clean in ("full", "basic")
    }
    share = costs["full"] / costs["basic"]
    assert share < 1.0
    (row,) = with_basic([{"graph": FOLDED, "gain": 25.0}])
    assert row["basic"] == pytest.approx(100 * (1 - 0.75 * share)) and row["gain"] == 25.0
