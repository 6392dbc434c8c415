"""Tests of `rlflow reproduce truth`: its units, its rows and what it says of the alarm."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.cli import main
from experiments.config.run import RunConfig
from experiments.executors.units import Record
from experiments.reproduce.search.plays import Play
from experiments.reproduce.world_model import truth
from tests.commands import failure, read_table
from worldmodel.accuracy.exploit import ComparedPlan

GRAPH = "squeezenet1.1-tiny"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def figures(gap: float, checked: float | None, recall: float | None = 0.5) -> Record:
    return {
        "gap": gap,
        "illegal_share": 0.25,
        "dreamed_percent": 8.0,
        "real_percent": 8.0 - gap,
        "paying_recall": recall,
        "checked": checked,
    }


def test_players_have_rows_and_the_alarm_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[tuple[str, int, int]] = []

    def judge(learning: Any, others: Any, play: Play) -> dict[str, Record]:
        config = learning.run.config
        judged.append((learning.loaded.name, config.seed, config.recollect.rounds))
        far = not config.recollect.rounds
        return {
            "ppo": figures(4.0 + config.seed if far else 1.0, 3.5 if far else 2.0),
            "mpc": figures(3.5, 3.1 if config.seed else 2.9, None),
            truth.BEAM: figures(9.0, None),
        }

    monkeypatch.setattr(truth, "judge", judge)
    assert main(["reproduce", "truth", GRAPH, "--scale", "smoke"]) == 0
    assert judged == [(GRAPH, seed, rounds) for seed in (0, 1) for rounds in (2, 0)]
    rows = {(row["schedule"], row["player"]): row for row in read_table("truth")}
    starved = rows["starved", "ppo"]
    assert (starved["seeds"], starved["alarms"], starved["large"]) == ("2", "2", "2")
    assert [float(starved[key]) for key in ("gap", "largest", "illegal", "recall")] == [4.5, 5.0, 25.0, 50.0]
    assert rows["usual", "mpc"]["recall"] == "–" and rows["usual", "mpc"]["alarms"] == "1"
    assert (rows["usual", truth.BEAM]["alarms"], rows["usual", truth.BEAM]["large"]) == ("–", "2")
    said = Path("runs/reproduce/truth/README.md").read_text()
    assert "The alarm sounds in 4 of 6 runs whose gap is over 3 points, and in 0 of 2 others." in said
    monkeypatch.setattr(truth, "judge", lambda *_: pytest.fail("judged again"))
    assert main(["reproduce", "truth", GRAPH, "--scale", "smoke", "--force"]) == 0


def test_the_alarm_sounds_by_other_plans_than_those_that_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(gap: float) -> ComparedPlan:
        return ComparedPlan(((0, 0),), (0.0, 9.0 + gap), (0.0, 9.0), 9.0, illegal=0)

    monkeypatch.setattr(truth, "_played", lambda *_: [plan(5.0), plan(5.0), plan(1.0), plan(2.0)])
    monkeypatch.setattr(truth, "beam_plan", lambda *_: plan(4.0))
    monkeypatch.setattr(truth, "cross_entropy_plan", lambda *_: plan(-4.0))
    play = truth.play_of(GRAPH, "starved", "smoke", 0)
    learning: Any = SimpleNamespace(run=SimpleNamespace(config=play.config), best_round=lambda: 0)
    found = truth.judge(learning, learning.run, play)
    assert (found["ppo"]["gap"], found["ppo"]["checked"]) == (1.5, 5.0)
    for name in (truth.BEAM, truth.CROSS_ENTROPY):
        assert (found[name]["gap"], found[name]["checked"]) == (4.0, None)


@pytest.mark.parametrize("schedule", truth.SCHEDULES)
def test_other_players_of_a_quick_look_are_small_too(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: dict[str, RunConfig] = {}
    plan = ComparedPlan(((0, 0),), (0.0, 9.0), (0.0, 9.0), 9.0, illegal=0)

    def played(learning: Any, others: Any, number: int, config: RunConfig, episodes: int) -> list[ComparedPlan]:
        configs[config.controller] = config
        return [plan, plan]

    monkeypatch.setattr(truth, "_played", played)
    for search in ("beam_plan", "cross_entropy_plan"):
        monkeypatch.setattr(truth, search, lambda *_: plan)
    play = truth.play_of(GRAPH, schedule, "smoke", 0)
    learning: Any = SimpleNamespace(run=SimpleNamespace(config=play.config), best_round=lambda: 0)
    truth.judge(learning, learning.run, play)
    assert configs["ppo"] == play.config
    assert (configs["cmaes"].cmaes.generations, configs["mpc"].mpc.plans) == (1, 8)
    assert {config.learns_in for config in configs.values()} == {"dream"}


def test_an_unknown_schedule_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No schedule is called 'starving'" in failure(capsys, "reproduce", "truth", GRAPH, "--schedules", "starving")
