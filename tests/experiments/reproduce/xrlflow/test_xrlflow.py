"""The tables of X-RLflow: what they count and compare, and what the paper prints beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from controller.xrlflow.config import XrlflowConfig
from environment import zoo
from experiments.cli import main
from experiments.config.run import load_config
from experiments.reproduce.papers.inference import ONNX_RUNTIME, TENSORFLOW, Inferences
from experiments.reproduce.search.plays import Play
from experiments.reproduce.xrlflow import compare, costs, curve, printed, results, rewards, settings, steps
from experiments.reproduce.xrlflow.rows import GRAPHS, PLAYERS, THOUSAND
from tests.commands import failure, read_table


def test_the_graphs_are_those_of_the_paper() -> None:
    assert set(GRAPHS) == set(printed.CANDIDATES) and set(printed.DISCREPANCY) < set(GRAPHS)
    assert all(zoo.contains(name) for name in (*GRAPHS, *results.OF_TABLE2))
    assert all(zoo.contains(name) for shapes in results.SHAPES.values() for name in shapes)


def test_the_preset_has_the_papers_values_and_ours_differ() -> None:
    rows = {row["setting"]: row for row in settings.rows_of(load_config("xrlflow", {}), load_config("best", {}))}
    assert set(rows) == set(printed.SETTINGS)
    differing = {name for name, row in rows.items() if row["preset"] != row["printed"]}
    assert not differing and rows["xrlflow.torso"]["printed"] == "256, 64"
    assert (rows["xrlflow.head"]["preset"], rows["xrlflow.head"]["ours"]) == ("flat", "pointer")
    assert rows["environment.max_steps"]["preset"] == "100"
    assert settings.finding(list(rows.values())) == "The preset has the paper's values."
    other = [{"setting": "xrlflow.head", "printed": "flat", "preset": "pointer"}]
    assert settings.finding(other) == "The preset has the paper's values but for `xrlflow.head` (pointer)."


def test_candidates_are_counted_in_states_of_random_play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "xrlflow-table3", "bert-base-tiny", "--scale", "smoke"]) == 0
    (row,) = read_table("xrlflow-table3")
    assert (
        float(row["candidates"]) > 10
        and int(row["most"]) >= int(row["start"]) >= int(row["graphs"]) > 10
        and float(row["beyond"]) == 0.0
    )
    found = [{"graph": "vit-base", "candidates": 64.0, "printed": 32}, {"graph": "a", "candidates": 1.0, "printed": 2}]
    assert "Over 2 graphs, a state has 0.5 to 2.0 times as many candidates" in steps.finding(found)
    assert steps.finding([]) == "The paper prints none of these graphs."


def test_sums_of_kernels_are_compared_with_times() -> None:
    said = costs.finding([{"difference": -10.0}, {"difference": 4.0}])
    assert said == "Sums of kernels are 7.0 % from the times of whole graphs on average, 10.0 % at most."


def timed(taso: float, ours: float) -> dict[str, Any]:
    """Returns the record of a unit in which ONNX Runtime takes 0.5 on the model itself."""
    ratios = {"taso": 1.0, TENSORFLOW: 1 / taso, ONNX_RUNTIME: 0.5 / taso, "xrlflow": ours / taso}
    each = {name: {"value": ratio, "low": 0.99 * ratio, "high": 1.01 * ratio} for name, ratio in ratios.items()}
    return {"times": {"ms": {"value": 10.0, "low": 9.0, "high": 11.0}, "ratios": each, "refused": {}}, "memory": {}}


def played(row: str, minutes: float) -> dict[str, Any]:
    counts = {"kernel_timings": 7, "end_to_end_timings": 0}
    return {"graph": "bert-base", "controller": row, "minutes": minutes, **counts}


def test_graphs_are_compared_with_that_of_taso_and_with_the_model() -> None:
    records = {"bert-base": [timed(0.4, 0.3), timed(0.4, 0.32)], "vit-base": [timed(0.4, 0.4), timed(0.4, 0.41)]}
    plays = [played("taso", 1.0), played("xrlflow", 3.0), played("xrlflow", 5.0)]
    found = Inferences(records, plays, {}, "taso", "measured:cpu", [])
    rows = list(results.rows_of(found, ("taso", "xrlflow")))
    taso, ours, *others = rows
    assert (taso["faster"], taso["of_model"]) == (pytest.approx(0.0), pytest.approx(20.0))
    assert ours["faster"] == pytest.approx(22.5) and ours["low"] < 22.5 < ours["high"] and ours["seeds"] == 2
    assert [taso["minutes"], ours["minutes"], ours["kernels"], ours["graphs"]] == [1.0, 4.0, 7.0, 0.0]
    assert ours["of_model"] == pytest.approx(38.0) and {row["graph"] for row in others} == {"vit-base"}
    one = next(results.rows_of(found._replace(records={"a": [timed(0.4, 0.3)]}), ("xrlflow",)))
    assert one["low"] < one["faster"] < one["high"], "the interval of the measurement"
    sure = [{**row, "low": row["faster"] - 1, "high": row["faster"] + 1} for row in rows]
    assert "`xrlflow` is faster than TASO's graph on 1 (bert-base) and slower on 1 (vit-base)" in results.finding(
        [{**row, "high": -0.1} if (row["graph"], row["row"]) == ("vit-base", "xrlflow") else row for row in sure]
    )


def trained(row: str, seconds: float, best: list[float], world: str = "real") -> dict[str, Any]:
    curve = {"step": [1.0, 2.0, 4.0], "best_return": best}
    return {
        "graph": "a",
        "controller": row,
        "seed": 0,
        "world": world,
        "own": 30.0,
        "minutes": 1.0,
        "real_steps": 9,
        "made": {"processor": "one"},
        "stages": {"load": 1.0, "controller": seconds},
        "curves": {"controller": curve},
    }


def test_rows_are_compared_in_the_time_of_the_one_that_is_trained_first() -> None:
    slow = trained("xrlflow", 40.0, [5.0, 20.0, 60.0])
    quick = trained("ppo pointer", 20.0, [1.0, 2.0, 10.0])
    others = [trained("ppo dream", 1.0, [0.0] * 3, "dream"), trained("ppo real", 4.0, [1.0, 2.0, 3.0])]
    others[1]["made"] = {"processor": "another one"}
    rows = {row["row"]: row for row in compare.rows_of([slow, quick, *others])}
    assert rows["xrlflow"]["equal"] == pytest.approx(100 * (1 - 2.718281828**-0.2))
    assert rows["ppo pointer"]["equal"] == pytest.approx(100 * (1 - 2.718281828**-0.1))
    assert rows["ppo dream"]["equal"] == "–", "its returns are dreamed"
    assert rows["ppo real"]["equal"] == "–", "it ran on another processor"
    assert not compare.equal_times([slow]) and not compare.equal_times([slow, {**quick, **others[1], "seed": 1}])
    assert compare.gain_within(slow, 1.0) == 0.0, "nothing was done by then"
    assert "on 0 of 1 graphs at its end and on 1 of 1 graphs at equal time" in compare.finding(list(rows.values()))


def test_both_heads_are_rows() -> None:
    heads = {name: PLAYERS[name].changes("full") + PLAYERS[name].settings for name in ("xrlflow", "xrlflow flat")}
    assert "xrlflow.head=flat" in heads["xrlflow flat"] and "xrlflow.head=flat" not in heads["xrlflow"]


def test_a_thousand_episodes_are_a_thousand() -> None:
    for row in curve.LEARNING.rows:
        player = THOUSAND[row]
        config = load_config(player.preset, {"controller": player.controller}, player.settings).of_controller
        assert isinstance(config, XrlflowConfig) and config.updates * config.batch == 1000, row
    names = ("flat", "pointer")
    heads = {row: load_config(THOUSAND[row].preset, {"controller": "xrlflow"}) for row in curve.LEARNING.rows}
    assert tuple(config.xrlflow.head for config in heads.values()) == names, "as published, and ours"


def test_curves_show_improvements_whatever_rewards_are() -> None:
    stage = {"step": [1.0, 2.0], "return": [9.0, 9.0], "percent": [1.0, 4.0], "best_percent": [2.0, 5.0]}
    records = [{"graph": "a", "controller": row, "curves": {"controller": stage}} for row in curve.LEARNING.rows]
    points = list(curve.LEARNING.rows_of(records))
    assert {(point["step"], point["mean"]) for point in points} == {(1, 1.0), (2, 4.0), (1, 2.0), (2, 5.0)}
    assert curve.of_graph(points, "a") == points and not curve.of_graph(points, "b")


def test_rewards_by_the_clock_and_by_prices_differ_in_nothing_else() -> None:
    plays = [
        Play("bert-base", row, player, "full", 400, 0, "measured:cpu")
        for row, player in rewards.players_of("cpu").items()
        if player.learns
    ]
    prices, clock = (play.config for play in plays)
    assert (prices.costs, clock.costs) == ("measured:cpu", "endtoend:cpu:pairs=4")
    assert dataclasses.replace(clock, costs=prices.costs) == prices


def test_a_graph_without_known_shapes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = failure(capsys, "reproduce", "xrlflow-fig7", "resnet18")
    assert "No other graph is like 'resnet18'. Choose among dalle-mini, inception-v3" in said
