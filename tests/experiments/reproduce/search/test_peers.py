"""`rlflow reproduce peers`: limits of time, what learning had reached by then, and the table as a whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from experiments.reproduce.search.peers import ROWS, finding, firsts, plays_of, reached
from tests.commands import failure, read_table


def record(world: str = "dream", **changes: Any) -> dict[str, Any]:
    """Returns the record of a run of two rounds, which takes 40 s in all."""
    return {
        "world": world,
        "own": 30.0,
        "stages": {"collect": 5.0, "controller": 5.0, "recollect-1": 5.0, "controller-1": 10.0, "evaluate": 15.0},
        "rounds": [{"real_steps": 9, "dream": 20.0, "real": 12.0}, {"real_steps": 9, "dream": 20.0, "real": 21.0}],
        "curves": {name: {"step": [1.0], "return": [0.0]} for name in ("controller", "controller-1")},
        **changes,
    }


def reaching(row: str, gain: float, bound: float | str = "–") -> dict[str, Any]:
    """Returns a row of the table that has ended within 9 s."""
    return {"graph": "g", "row": row, "9 s": gain, "end": gain, "bound": bound}


@pytest.mark.parametrize(("limit", "gain"), [(9, 0.0), (10, 12.0), (24, 12.0), (25, 21.0), (39, 21.0), (40, 30.0)])
def test_a_limit_shows_what_a_dreamer_had_reached_in_reality_by_then(limit: int, gain: float) -> None:
    assert reached(record(), limit) == gain


def test_before_anything_is_gained_there_is_the_graph_as_it_was() -> None:
    worse = {"real_steps": 9, "dream": 20.0, "real": -400.0}
    assert reached(record(rounds=[worse, worse]), 30) == 0.0


def test_a_search_has_what_it_found() -> None:
    assert reached(record(world=""), 1) == 30.0


@pytest.mark.parametrize(("limit", "gain"), [(14, 0.0), (15, 10.0), (24, 10.0), (25, 20.0), (39, 20.0), (40, 30.0)])
def test_a_limit_shows_the_best_episode_that_was_played_for_real_by_then(limit: int, gain: float) -> None:
    stages = {"load": 5.0, "controller": 20.0, "evaluate": 15.0}
    returns = [-100 * math.log(1 - gain) for gain in (0.1, 0.2)]
    curves = {"controller": {"step": [1.0, 2.0], "return": [0.0, 0.0], "best_return": returns}}
    assert reached(record(world="real", stages=stages, curves=curves), limit) == pytest.approx(gain)


def test_what_trains_on_nothing_has_gained_nothing_before_its_end() -> None:
    assert reached(record(world="real", curves={}), 39) == 0.0


def test_searches_have_a_run_for_each_limit_and_learners_one_for_all() -> None:
    searches = plays_of("resnet18", "taso", ROWS["taso"], "full", [10, 60], 0)
    assert [play.config.search.seconds for play in searches.values()] == [10, 60]
    learners = plays_of("resnet18", "ppo dream", ROWS["ppo dream"], "full", [10, 60], 0)
    assert learners[10] is learners[60]
    saturations = plays_of("resnet18", "saturation k2", ROWS["saturation k2"], "full", [10, 60], 0)
    assert {play.config.saturation.k_multi for play in saturations.values()} == {2}


def test_rows_within_a_hundredth_of_the_best_share_it() -> None:
    rows = [reaching("a", 20.0), reaching("b", 19.9), reaching("c", 19.0)]
    assert finding(rows, [9]) == "g: 20.0 % after 9 s by a, b."
    assert finding([reaching("a", 0.4, bound=0.4)], [9]) == "g: nobody gains 1% after 9 s."


def test_the_cheapest_graph_of_an_e_graph_says_how_far_the_others_are_from_it() -> None:
    rows = [reaching("a", 19.1, bound=42.0), reaching("b", 19.0, bound=19.0), reaching("c", 18.0, bound=18.0)]
    said = finding([*rows, reaching("d", 18.99)], [9])
    assert "cheapest" not in finding([*rows, reaching("e", 20.0)], [9]), "e has a graph that is not in the e-graph"
    assert "b ends with the cheapest graph of its e-graph" in said
    assert said.endswith("others end so many points short of it: 1.0 (c), 0.0 (d), -0.1 (a).")


def test_the_table_has_each_row_on_each_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "peers", "--scale", "smoke", "--rows", "greedy,taso,taso partial,saturation k1"]
    assert main([*command, "--limits", "20,30"]) == 0
    found = {row["row"]: row for row in read_table("peers")}
    assert list(found) == ["greedy", "taso", "taso partial", "saturation k1"]
    assert float(found["greedy"]["30 s"]) < 1
    assert float(found["saturation k1"]["bound"]) >= float(found["saturation k1"]["end"]) - 0.01
    assert found["taso"]["bound"] == "–"
    for row in ("taso", "taso partial", "saturation k1"):
        assert float(found[row]["20 s"]) == pytest.approx(30.727, abs=0.01)
    assert Path("runs/reproduce/peers/figure-after-20-s.png").is_file()


def test_rows_with_the_same_graph_are_timed_once() -> None:
    records = {row: record(result=graph) for row, graph in (("a", "x"), ("b", "y"), ("c", "x"))}
    assert firsts({**records, "d": record(), "e": record()}) == {"a": "a", "b": "b", "c": "a", "d": "d", "e": "e"}


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--rows", "tasso"), "taso"), (("--limits", "0"), "--limits"), (("--clock", "--processes", "2"), "--processes")],
)
def test_bad_options_are_refused(
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in failure(capsys, "reproduce", "peers", *options)


@pytest.mark.full
def test_the_best_graphs_are_timed_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "peers", "--scale", "smoke", "--rows", "greedy,taso", "--clock"]) == 0
    rows = read_table("peers")
    assert [row["row"] for row in rows] == ["greedy", "taso", "rlflow optimise"]
    assert all(float(row["low"]) <= float(row["ratio"]) <= float(row["high"]) for row in rows)
