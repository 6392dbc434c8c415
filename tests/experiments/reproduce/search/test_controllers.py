"""The table of all controllers: units on a tiny graph, what is credited to whom, and what its last sentences say."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import shutil
from pathlib import Path

import pytest

from controller.records import EpisodeRecord
from controller.registry import UnknownControllerError
from environment.substitution.env import WAYPOINT
from experiments.cli import main
from experiments.config.effect import effective
from experiments.config.run import load_config
from experiments.reproduce.search import controllers
from experiments.reproduce.search.controllers import (
    COLUMNS,
    PLAYERS,
    chosen_players,
    finding,
    rows_of,
    seconds_of_searches,
)
from experiments.reproduce.search.plays import MOST_STEPS, ON_PAPER, Play, actions_of, curves_of, rules_of
from experiments.runs.progress import SilentProgress
from taso_ext import CostModel, OnnxModel

TIMINGS = ("kernel_timings", "end_to_end_timings")


def record(graph: str, controller: str, own: float, *, seed: int = 0, world: str = "", **more: object) -> dict:
    counts = dict.fromkeys(("real_steps", "dreamed_steps", "cost_evaluations", *TIMINGS, "minutes"), 1)
    absent = dict.fromkeys(("random", "learned_from", "gap", "illegal"))
    names = {"graph": graph, "controller": controller, "seed": seed, "world": world, "own": own}
    return {**names, **counts, **absent, "stages": {}, **more}


def test_searches_are_played_once_and_what_random_play_finds_is_not_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "controllers", "squeezenet1.1-tiny", "--scale", "smoke", "--seeds", "0,1", "--seconds", "1"]
    assert main([*command, "--controllers", "greedy,random"]) == 0
    printed = capsys.readouterr().out
    assert "greedy" in printed and "learned_from" in printed
    units = {path: path.stat().st_mtime_ns for path in Path("runs/reproduce/controllers/units").glob("*.json")}
    assert len(units) == 3, "greedy draws nothing"
    assert main([*command, "--controllers", "greedy,random", "--force"]) == 0
    assert units == {path: path.stat().st_mtime_ns for path in Path("runs/reproduce/controllers/units").glob("*.json")}
    records = [json.loads(path.read_text()) for path in sorted(units)]
    greedy = [each for each in records if each["controller"] == "greedy"]
    assert greedy[0]["own"] > 0 and greedy[0]["real_steps"] > 0 and len(greedy) == 1
    assert all(each["world"] == "" and each["gap"] is None for each in records)


def test_curves_are_thinned_and_end_at_the_last_step() -> None:
    rows = [{"stage": "controller", "step": step, "return": step / 2, "who": "a"} for step in range(1, 131)]
    rows += [{"stage": "evaluate", "step": 1, "return": 0.0}, {"stage": "encoder", "step": 7, "loss": 0.5}]
    found = curves_of(rows)
    assert found["encoder"] == {"step": [7], "loss": [0.5]} and set(found) == {"controller", "encoder"}
    steps = found["controller"]["step"]
    assert set(found["controller"]) == {"step", "return"} and len(steps) <= MOST_STEPS and steps[-1] == 130
    assert [2 * value for value in found["controller"]["return"]] == steps


def test_curves_keep_where_the_cost_of_a_search_begins_and_falls() -> None:
    costs = {1: 9.0, 2: 9.0, 40: 8.0, 77: 7.0}
    rows = [{"stage": "controller", "step": step, "best_cost_ms": costs.get(step, 0.0)} for step in range(1, 130)]
    for before, row in itertools.pairwise(rows):
        row["best_cost_ms"] = row["best_cost_ms"] or before["best_cost_ms"]
    found = curves_of(rows)["controller"]
    assert {1, 40, 77, 129} <= set(found["step"]), "thinning alone would keep the last one only"
    assert len(found["step"]) <= MOST_STEPS + 3
    assert [found["best_cost_ms"][found["step"].index(step)] for step in (1, 40, 77)] == [9.0, 8.0, 7.0]


def test_rewrites_to_the_best_graph_are_counted_by_rule() -> None:
    actions, costs = ((0, 0), (1, 0), (0, 1)), (10.0, 9.0, 5.0, 6.0)
    record = EpisodeRecord("sampled", 0, actions, ("a", "b", "a"), (1.0, 2.0, -1.0), costs, False, True)
    assert rules_of(record) == {"a": 1, "b": 1}
    more = ((0, 0), *[(1, site) for site in range(4)], (0, 1))
    assert rules_of(dataclasses.replace(record, actions=more, everywhere=(0, 4, 0))) == {"a": 1, "b": 4}


@pytest.mark.parametrize("files", ["kept", "gone", "the log too", "another log"])
def test_the_best_graph_is_rebuilt_from_the_record_alone(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    played = Play("squeezenet1.1-tiny", "greedy", PLAYERS["greedy"], "smoke", 1, 0)
    own = played.record(SilentProgress())["own"]
    (unit,) = Path("runs/reproduce/controllers/units").glob("*.json")
    if files != "kept":
        shutil.rmtree(unit.with_suffix(""))
    kept = json.loads(unit.read_text())
    if files == "the log too":
        del kept["actions"]
    elif files == "another log":
        kept["actions"] = kept["actions"][:-1]
    unit.write_text(json.dumps(kept))
    start, best = (OnnxModel.load(model.to_proto()).graph for model in played.models(SilentProgress()))
    costs = CostModel.roofline("rtx2070")
    assert 100 * (1 - best.cost(costs).ms / start.cost(costs).ms) == pytest.approx(own, rel=1e-5) and own > 0
    assert unit.with_suffix("").exists() == (files != "gone"), "it is not played again"


def test_a_log_names_no_waypoint() -> None:
    found = EpisodeRecord("deterministic", 0, ((3, 1),), ("a",), (1.0,), (10.0, 9.0), True, False)
    assert actions_of(found) == [[3, 1]]
    assert actions_of(dataclasses.replace(found, rule_names=(WAYPOINT,))) is None


def test_rows_are_means_of_the_seeds() -> None:
    records = [record("a", "ppo dream", own, seed=seed, world="dream", gap=own) for seed, own in enumerate((1.0, 3.0))]
    (row,) = rows_of([*records])
    assert (
        row["seeds"] == 2
        and row["best"] == 3.0
        and row["gap"] == 2.0
        and row["gain"] == 2.0
        and row["low"] < 2.0 < row["high"]
    )
    assert row["random"] == "–"


def test_what_was_learned_is_played_in_a_part_of_the_time() -> None:
    learned = [
        record(
            "a",
            "ppo exact",
            1.0,
            world="dream",
            seed=seed,
            minutes=9.0,
            stages={"collect": 300.0, "evaluate": s},
        )
        for seed, s in enumerate((60.0, 180.0))
    ]
    rows = {row["controller"]: row for row in rows_of([*learned, record("a", "taso", 1.0)])}
    assert rows["ppo exact"]["playing"] == 2.0 and rows["ppo exact"]["minutes"] == 9.0
    assert rows["taso"]["playing"] == "–"


def test_timings_stand_in_the_table_unless_a_unit_has_not_counted_them() -> None:
    timed = record("a", "taso", 1.0, kernel_timings=4, end_to_end_timings=2)
    older = {key: value for key, value in record("b", "taso", 1.0).items() if key not in TIMINGS}
    rows = list(rows_of([timed, older]))
    assert [[row[key] for key in TIMINGS] for row in rows] == [[4, 2], ["–", "–"]]
    assert all(row.keys() == COLUMNS.keys() for row in rows)


def test_learning_wins_only_where_it_gains_more_than_every_search() -> None:
    records = [
        *(record("won", "greedy", 10.0), record("won", "taso", 20.0), record("won", "ppo dream", 21.5, world="dream")),
        *(record("even", "taso", 20.0), record("even", "ppo dream", 20.5, world="dream")),
        *(record("lost", "taso", 20.0), record("lost", "mcts", 19.0, world="real")),
        record("lost", "ppo real", 25.0, world="real"),  # is not judged
        *(record("flat", "taso", 0.1), record("flat", "mcts", 0.9, world="real")),
    ]
    said = finding(records, 400)
    assert "1 of 3 graphs: won (ppo dream 21.5 %, taso 20.0 %)" in said
    assert "1 of 3 graphs: lost (mcts 19.0 %, taso 20.0 %)" in said
    assert "`mcts` took longer than the 400 s of a search on 0 of 3 graphs." in said
    assert "the better one of `ppo dream` and `mcts` gains" in said
    slow = [each | {"minutes": 9.0} if each["graph"] == "won" else each for each in records]
    said = finding(slow, 400)
    assert "`ppo dream` took longer than the 400 s of a search on 1 of 3 graphs: up to 9.0 minutes." in said
    assert "`mcts` took longer than the 400 s of a search on 0 of 3 graphs." in said


def test_searches_have_as_much_time_as_learning_takes() -> None:
    records = [
        *(record("a", "ppo exact", 9.0, world="dream", minutes=7.0), record("a", "mcts", 9.0, minutes=10.5)),
        *(record("a", "ppo real", 9.0, world="real", minutes=60.0), record("b", "ppo exact", 9.0, minutes=2.0)),
    ]
    assert [seconds_of_searches(records, graph) for graph in ("a", "b", "c")] == [900, 400, 400]
    assert "A search was given at least the time that the slowest of these rows took" in finding(
        [*records, record("a", "taso", 1.0)], None
    )


def test_the_table_gives_each_graph_its_own_time_of_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, str, int, object]] = []

    def units_of(graphs, players, seeds, scale, seconds):  # type: ignore[no-untyped-def]
        limits = seconds if isinstance(seconds, dict) else dict.fromkeys(graphs, seconds)
        return [(graph, row, seed, limits[graph]) for seed in seeds for graph in graphs for row in players]

    def run_units(units, options, progress):  # type: ignore[no-untyped-def]
        given.extend(units)
        minutes = {"resnet18": 2.0, "generated-100": 12.0}
        worlds = {"ppo exact": "dream", "taso": ""}
        return [
            record(graph, row, 5.0, seed=seed, world=worlds[row], minutes=minutes[graph])
            for graph, row, seed, _ in units
        ]

    monkeypatch.setattr(controllers, "units_of", units_of)
    monkeypatch.setattr(controllers, "run_units", run_units)
    options = argparse.Namespace(graphs=["generated-100", "resnet18"], controllers="taso,ppo exact", seeds="0,1")
    options.__dict__.update(scale="full", seconds=None, command_line="rlflow reproduce controllers")
    table = controllers.reproduce(options, SilentProgress())
    assert "400 s (resnet18), 900 s (generated-100) for each search" in table.notes
    assert [(row["graph"], row["controller"]) for row in table.rows] == [
        (graph, row) for graph in ("resnet18", "generated-100") for row in ("taso", "ppo exact")
    ]
    searches = [(graph, seconds) for graph, row, _, seconds in given if row == "taso"]
    assert searches == [("resnet18", 400), ("resnet18", 400), ("generated-100", 900), ("generated-100", 900)]
    options.seconds = 60
    assert "60 s for each search" in controllers.reproduce(options, SilentProgress()).notes


def test_only_rows_that_the_table_has_are_judged() -> None:
    real, searched = record("a", "ppo real", 9.0, world="real"), record("a", "taso", 0.5)
    said = finding([searched, real, record("a", "mcts", 0.4, world="real")], 400)
    assert "By the mean of the seeds, `mcts` gains over 5% more" in said
    assert "1 of 1 graphs: a (mcts 0.4 %, taso 0.5 %)" in said, "the best known gain is that of ppo real"
    assert finding([searched, real], 400) == (
        "Nothing is judged: the table has neither `ppo exact` nor `ppo dream` nor `mcts`."
    )


def test_one_row_is_the_preset_as_it_is_and_the_other_predicts_masks() -> None:
    exact, predicted = (Play("resnet18", row, PLAYERS[row], "full", 1, 0).config for row in ("ppo exact", "ppo dream"))
    assert exact == effective(load_config("demo", {"controller": "ppo"}, ["world=dream", *ON_PAPER]))
    assert exact.dream.legality == "exact" and predicted.dream.legality == "predicted"
    assert predicted.recollect.rounds == 4 and predicted.recollect.searched > 0


def test_rows_are_chosen_by_the_name_of_their_controller() -> None:
    assert chosen_players(None) == PLAYERS
    assert list(chosen_players("ppo, greedy")) == ["ppo exact", "ppo dream", "ppo mixed", "ppo real", "greedy"]
    with pytest.raises(UnknownControllerError, match="Did you mean 'greedy'"):
        chosen_players("gredy")
