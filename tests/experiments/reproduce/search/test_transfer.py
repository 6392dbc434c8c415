"""The table of transfers: what is trained where and played where, and the shares of its last sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from environment import zoo
from experiments.cli import main
from experiments.errors import UserError
from experiments.executors.units import COMMITTED, UNITS, reading_only
from experiments.reproduce.search import plays, transfer
from experiments.reproduce.search.plays import SECONDS, Play
from experiments.reproduce.search.transfer import (
    ELSEWHERE,
    GRAPHS,
    ITS_COSTS,
    LEARNERS,
    Move,
    chosen_learners,
    finding,
    rows_of,
    same_move,
    units_of,
)
from experiments.runs.progress import make_progress


def record(trained_on: str, controller: str, own: float) -> dict[str, Any]:
    return {
        "trained_on": trained_on,
        "graph": "b",
        "costs": "c",
        "controller": controller,
        "own": own,
        **({} if trained_on else {"beside": "a"}),
        **dict.fromkeys(("random", "real_steps", "minutes"), 1.0),
    }


def test_every_place_is_a_graph_of_the_zoo() -> None:
    assert {name for names in GRAPHS.values() for name in names} == set(ELSEWHERE)
    assert all(zoo.contains(graph) for name, places in ELSEWHERE.items() for graph in (name, *dict(places)))


def test_moves_of_one_training_wait_for_each_other() -> None:
    units = list(units_of("resnet18", ELSEWHERE["resnet18"], LEARNERS, [0, 1], "smoke"))
    lanes = [unit.lane for unit in units if unit.lane]
    assert len(set(lanes)) == 2 * len(LEARNERS) and len(lanes) == 2 * len(set(lanes)) and len(units) > len(lanes)


def test_a_finished_move_is_found_again_after_settings_were_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units that come with the source are older than some settings, and perhaps than some rules."""
    file = next(
        (COMMITTED / transfer.NAME / UNITS).glob("bert-base-ppo-pointer-full-0-on-bert-base:sequence=64-*.json")
    )
    stored = json.loads(file.read_text(encoding="utf-8"))["settings"]
    assert "everywhere" not in stored["trained"]["config"]["policy"]
    of_then = {"bert-base": stored["trained"]["fingerprint"], "bert-base:sequence=64": stored["graph"]}
    for module in (plays, transfer):
        monkeypatch.setattr(module, "fingerprint", of_then.__getitem__)
    monkeypatch.chdir(tmp_path)
    trained = Play("bert-base", "ppo pointer", LEARNERS["ppo pointer"], "full", SECONDS["full"], 0)
    move = Move(trained, "bert-base:sequence=64", ITS_COSTS)
    with reading_only():
        assert move.record(make_progress())["own"] > 18.0
    for other in ({"costs": "roofline:v100"}, {"trained": {**move.settings["trained"], "formats": 0}}):
        assert not same_move(stored, {**move.settings, **other})


def test_shares_are_of_the_largest_gain_at_the_same_place() -> None:
    rows = list(rows_of([record("a", "learner", 4.0), record("a", "learner", 14.0), record("", "search", 12.0)]))
    assert [(row["trained_on"], row["controller"], row["share"]) for row in rows] == [
        ("a", "learner", 75.0),
        ("", "search", 100.0),
    ]
    assert finding(rows) == "Mean share of the largest gain of all rows: learner 75 %, search 100 %."


@pytest.mark.full
def test_a_trained_controller_plays_elsewhere_and_its_training_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("experiments.reproduce.search.transfer.SEARCHES", {})
    command = ["reproduce", "transfer", "squeezenet1.1-tiny", "--seeds", "0", "--controllers", "ppo pointer"]
    assert main([*command, "--scale", "smoke"]) == 0
    rows = [json.loads(path.read_text()) for path in Path("runs/reproduce/transfer/units").glob("*.json")]
    assert {row["graph"] for row in rows} == {graph for graph, _ in ELSEWHERE["squeezenet1.1-tiny"]}
    assert all(row["trained_on"] == "squeezenet1.1-tiny" and row["own"] > 0 for row in rows)
    (trained,) = Path("runs/reproduce/controllers/units").iterdir()
    assert json.loads((trained / "stages.json").read_text())["controller"]["finished"]


def test_unknown_names_are_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "transfer", "vgg"]) == 2
    assert "No other graph is like 'vgg'. Choose among bert-base" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"No row is called 'mcts'\. Did you mean"):
        chosen_learners("mcts")
