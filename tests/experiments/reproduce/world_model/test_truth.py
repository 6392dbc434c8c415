"""Tests of `rlflow reproduce truth`: its units, its rows and what it says of the alarm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.cli import main
from experiments.config.run import RunConfig
from experiments.executors.units import Record, UnfinishedError, reading_only
from experiments.reproduce.search import plays
from experiments.reproduce.world_model import truth
from experiments.runs.progress import make_progress
from tests.commands import failure, read_table
from worldmodel.accuracy.exploit import ComparedPlan
from worldmodel.accuracy.omissions import Offers

GRAPH = "squeezenet1.1-tiny"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def figures(
    gap: float, checked: float | None, recall: float | None = 0.5, checked_recall: float | None = None
) -> Record:
    """Returns the figures of a player; units from before it was kept have no `checked_recall`."""
    return {
        "gap": gap,
        "illegal_share": 0.25,
        "dreamed_percent": 8.0,
        "real_percent": 8.0 - gap,
        "paying_recall": recall,
        "checked": checked,
        **({} if checked_recall is None else {"checked_recall": checked_recall}),
    }


def plan(gap: float, offered: tuple[bool, ...] = ()) -> ComparedPlan:
    count = len(offered)
    offers = Offers(np.zeros(count, int), np.zeros(count, int), np.ones(count), np.array(offered, bool))
    return ComparedPlan(((0, 0),), (0.0, 9.0 + gap), (0.0, 9.0), 9.0, illegal=0, offers=offers)


def all_in_one_dream(schedule: str) -> tuple[dict[str, Any], Any, dict[str, RunConfig]]:
    """Returns the first arguments of `judge` for controllers that play in one dream of round 0."""
    configs = {name: truth.play_of(GRAPH, schedule, "smoke", 0, name).config for name in truth.PLAYED_BY}
    learning = SimpleNamespace(run=SimpleNamespace(config=configs["ppo"]), plans=lambda number: {})
    return dict.fromkeys(configs, learning), learning.run, configs


def test_players_have_rows_and_the_alarm_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[tuple[str, int, int]] = []

    def judge(
        learnings: Any, others: Any, configs: Mapping[str, RunConfig], schedule: str, scale: str
    ) -> dict[str, Record]:
        learning = learnings["ppo"]
        config = learning.run.config
        judged.append((learning.loaded.name, config.seed, config.recollect.rounds))
        assert {each.first.directory.path for each in learnings.values()} == {learning.run.directory.path}
        dreamers = {name: each.run.config.controller for name, each in learnings.items()}
        assert dreamers == {name: name if schedule == "own" else "ppo" for name in configs}
        far = not config.recollect.rounds
        return {
            "ppo": figures(4.0 + config.seed if far else 1.0, 3.5 if far else 2.0, 0.5 if far else 0.99, 0.5),
            "mpc": figures(3.5, 3.1 if config.seed else 2.9, None),
            truth.BEAM: figures(9.0, None),
        }

    monkeypatch.setattr(truth, "judge", judge)
    assert main(["reproduce", "truth", GRAPH, "--scale", "smoke"]) == 0
    assert judged == [(GRAPH, seed, rounds) for seed in (0, 1) for rounds in (2, 2, 2, 0)]
    rows = {(row["schedule"], row["player"]): row for row in read_table("truth")}
    starved = rows["starved", "ppo"]
    assert (starved["seeds"], starved["alarms"], starved["large"]) == ("2", "2", "2")
    assert [float(starved[key]) for key in ("gap", "largest", "illegal", "recall")] == [4.5, 5.0, 25.0, 50.0]
    assert rows["usual", "mpc"]["recall"] == "–" and rows["usual", "mpc"]["alarms"] == "1"
    assert (rows["usual", truth.BEAM]["alarms"], rows["usual", truth.BEAM]["large"]) == ("–", "2")
    said = Path("runs/reproduce/truth/README.md").read_text()
    assert "`own`, 2 rounds: of 6 runs of ppo, cmaes, mpc, beam search, 2 are at most 2 points" in said
    assert "reality (largest gap 9.0): missed; 0 have at most 2% illegal rewrites (most 25.0%): missed" in said
    assert "2 of 4 whose recall is known offer at least 98% of the rewrites that pay (least 50.0%): missed." in said
    assert "`usual`, 4 rounds, which are more than the 2 of the goal" in said and "`starved`" not in said
    assert "sounds in 6 of 10 runs whose gap is over 3 points (goal: at least 95%, missed)" in said
    assert (
        "in 0 of 6 others (goal: at most 5%, reached)" in said and "60 runs of each kind, and these are too few" in said
    )
    assert "omissions sounds in 2 of 2 runs whose recall is under 98%, and in 6 of 6 others; 8 runs" in said
    assert (rows["usual", "ppo"]["omission_alarms"], rows["usual", "ppo"]["omitting"]) == ("2", "0")
    assert (rows["usual", "mpc"]["omission_alarms"], rows["usual", "mpc"]["omitting"]) == ("–", "–")
    assert (rows["usual", truth.BEAM]["omission_alarms"], rows["usual", truth.BEAM]["omitting"]) == ("–", "2")
    monkeypatch.setattr(truth, "judge", lambda *_: pytest.fail("judged again"))
    assert main(["reproduce", "truth", GRAPH, "--scale", "smoke", "--force"]) == 0


def test_the_alarm_sounds_by_other_plans_than_those_that_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_played", lambda *_: [plan(5.0), plan(5.0, (True, False)), plan(1.0), plan(2.0)])
    monkeypatch.setattr(truth, "beam_plan", lambda *_: plan(4.0))
    monkeypatch.setattr(truth, "cross_entropy_plan", lambda *_: plan(-4.0))
    found = truth.judge(*all_in_one_dream("starved"), "starved", "smoke")
    assert (found["ppo"]["gap"], found["ppo"]["checked"]) == (1.5, 5.0)
    assert (found["ppo"]["paying_recall"], found["ppo"]["checked_recall"]) == (None, 0.5)
    for name in (truth.BEAM, truth.CROSS_ENTROPY):
        assert (found[name]["gap"], found[name]["checked"], found[name]["checked_recall"]) == (4.0, None, None)


@pytest.mark.parametrize("schedule", truth.SCHEDULES)
def test_everything_that_learns_is_small_in_a_quick_look(schedule: str) -> None:
    _, _, configs = all_in_one_dream(schedule)
    assert (configs["ppo"].ppo.updates, configs["cmaes"].cmaes.generations, configs["mpc"].mpc.plans) == (2, 1, 8)
    assert {config.learns_in for config in configs.values()} == {"dream"}
    assert len({config.recollect for config in configs.values()}) == 1, "one mechanism and one schedule for all"
    assert {config.dream.legality for config in configs.values()} == {"exact" if schedule == "exact" else "predicted"}


def test_of_the_rounds_that_a_schedule_has_the_one_plays_that_really_saves_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = {"ppo": (1.0, 9.0, 2.0, 10.0), "cmaes": (4.0, 4.0, 3.0, 10.0), "mpc": (1.0, 2.0, 3.0, 10.0)}
    played: dict[str, tuple[str, int]] = {}

    def dreams(learning: Any, others: Any, number: int, config: RunConfig, episodes: int) -> list[ComparedPlan]:
        played[config.controller] = learning.name, number
        return [plan(0.0), plan(0.0)]

    def learning_of(name: str) -> Any:
        run = SimpleNamespace(config=SimpleNamespace(recollect=SimpleNamespace(rounds=4)))
        return SimpleNamespace(
            name=name, run=run, plans=lambda number: {"skipping_percent": (*saved[name], 0.0)[number]}
        )

    monkeypatch.setattr(truth, "_played", dreams)
    searched: list[tuple[str, int]] = []
    for search in ("beam_plan", "cross_entropy_plan"):
        monkeypatch.setattr(truth, search, lambda found, number, _: searched.append((found.name, number)) or plan(0.0))
    _, others, configs = all_in_one_dream("own")
    truth.judge({name: learning_of(name) for name in saved}, others, configs, "own", "smoke")
    assert played == {"ppo": ("ppo", 1), "cmaes": ("cmaes", 1), "mpc": ("mpc", 2)}, "of equal ones, the latest"
    assert searched == [("ppo", 1)] * 2
    truth.judge({name: learning_of("ppo") for name in saved}, others, configs, "usual", "smoke")
    assert set(played.values()) == {("ppo", 3)}


def test_finished_units_are_found_and_depend_on_every_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "judge", lambda *_: {"ppo": figures(1.0, 1.0)})
    progress = make_progress()
    truth.judged(GRAPH, "own", "smoke", 0, truth.PRICES, progress)
    with reading_only():
        truth.judged(GRAPH, "own", "smoke", 0, truth.PRICES, progress)
        monkeypatch.setattr(plays, "SMALL", (*plays.SMALL, "mpc.plans=9"))
        with pytest.raises(UnfinishedError):
            truth.judged(GRAPH, "own", "smoke", 0, truth.PRICES, progress)


def test_measured_costs_are_another_unit_and_of_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    play = truth.play_of(GRAPH, "usual", "smoke", 0, costs="measured:cpu")
    assert play.measures_costs and "setting" in play.settings
    assert not truth.play_of(GRAPH, "usual", "smoke", 0).measures_costs
    kept: list[bool] = []
    monkeypatch.setattr(truth, "once", lambda *_, anywhere, agree: kept.append(anywhere) or {})
    for costs in (truth.PRICES, "measured:cpu"):
        truth.judged(GRAPH, "usual", "smoke", 0, costs, make_progress())
    assert kept == [True, False]


def test_measured_costs_are_of_their_device() -> None:
    of_costs = {
        costs: truth.play_of(GRAPH, "usual", "smoke", 0, costs=costs) for costs in ("measured:cuda", "a.sqlite")
    }
    assert [play.config.device for play in of_costs.values()] == ["cuda", "cpu"]


def test_units_with_measured_costs_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("reproduce", "truth", GRAPH, "--scale", "smoke", "--costs", "measured:cpu", "--processes", "2")
    assert "--processes is 2, but truth measures times" in failure(capsys, *command)


@pytest.mark.parametrize("costs", ["meassured:cpu", "measured:cpu:nois=resampled"])
def test_unknown_costs_are_refused(costs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "measured" in failure(capsys, "reproduce", "truth", GRAPH, "--costs", costs)


def test_an_unknown_schedule_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No schedule is called 'starving'" in failure(capsys, "reproduce", "truth", GRAPH, "--schedules", "starving")
