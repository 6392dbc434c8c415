"""The table of transfers: what is trained where and played where, and the shares of its last sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from environment import zoo
from experiments.cli import main
from experiments.errors import UserError
from experiments.reproduce.search.transfer import (
    ELSEWHERE,
    GRAPHS,
    LEARNERS,
    chosen_learners,
    finding,
    rows_of,
    units_of,
)


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
