"""Figures of learning: what is paid, and what it costs to learn without and with a world model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from environment import rewards as known_rewards
from experiments.cli import main
from experiments.errors import UserError
from experiments.reproduce.papers import convergence, rewards, table3
from experiments.reproduce.papers.players import (
    DREAMED,
    PLAYERS,
    REAL,
    chosen_players,
    cuts_of,
    presets_of,
)
from experiments.reproduce.papers.printed import REWARDS
from experiments.reproduce.search.controllers import PLAYERS as OURS
from experiments.reproduce.search.plays import ROUNDS, Play, Player
from tests.commands import failure, read_table

TINY = "squeezenet1.1-tiny"


def play(row: str, player: Player, scale: str = "full") -> Play:
    return Play(TINY, row, player, scale, 1, 0)


NET = "resnet18-tiny"


def record(controller: str, seed: int, world: str, **more: Any) -> dict[str, Any]:
    usual = {
        "graph": NET,
        "controller": controller,
        "seed": seed,
        "world": world,
        "own": 10.0,
        "curves": {},
    }
    return usual | {"rounds": [], "settings": {"config": {"ppo_real": {"batch": 4}}}} | more


def test_rows_of_the_papers_are_their_presets_and_ours_are_those_of_controllers() -> None:
    for row in (*REAL, *DREAMED):
        config = play(row, PLAYERS[row]).config
        assert config.learns_in == row.split()[1] and config.environment.everywhere == (row in OURS)
    published = play("paper dream", PLAYERS["paper dream"]).config
    assert published.policy.head == "four-networks" and not published.environment.everywhere
    assert published.recollect.rounds == 0 and published.collect.episodes == 2000
    for row in ("taso", "ppo real", "ppo dream"):
        assert PLAYERS[row] is OURS[row], "so that its units are the same"
    longer = chosen_players(PLAYERS, argparse.Namespace(long=True))
    assert [longer[row].preset for row in ("taso", "paper dream", "ppo dream")] == ["demo", "paper", "best"]
    assert play("paper dream", longer["paper dream"]).config.collect.episodes == 20_000


def test_notes_say_how_the_schedule_of_the_papers_is_cut() -> None:
    cut = (
        "`paper-cut` is the schedule of `paper` cut to 2,000 of 20,000 episodes of random play, 1,000 of 2,000 gradient"
    )
    assert cut in presets_of(PLAYERS)
    assert "`paper real` and `paper dream` have the preset `paper-cut`." in presets_of(PLAYERS)
    assert cut in "\n".join(table3.notes_of(table3.WORLDS))
    assert "100 of 1,000 epochs of the controller in the dream and 200 of 2,000 epochs" in cuts_of(["paper-cut"])[0]
    longer = presets_of(chosen_players(PLAYERS, argparse.Namespace(long=True)))
    rounds = f"At full scale, `ppo dream` has other rounds: {', '.join(ROUNDS)}."
    ours = "`ppo real` and `ppo dream` and `ppo exact` have the preset `best`"
    assert longer.endswith(f"{ours}. {rounds}"), "nothing is cut"
    ours = presets_of({"ppo dream": PLAYERS["ppo dream"]})
    assert ours.startswith(
        "`ppo dream` has the preset `demo`. At full scale, `ppo dream` has other rounds: recollect.rounds=4,"
    )
    assert "`demo` is the schedule of `best` cut to 200 of 600 epis" in ours
    assert "rounds" not in presets_of({"ppo real": PLAYERS["ppo real"]}), "what learns for real has none"
    assert "rounds" not in presets_of({"ppo exact": OURS["ppo exact"]}), "it is the preset as it is"


@pytest.mark.parametrize("row", DREAMED)
@pytest.mark.parametrize("reward", rewards._all())
def test_an_agent_can_be_paid_with_every_reward(row: str, reward: str) -> None:
    paid = rewards.paid_with(PLAYERS[row], reward)
    config = play(rewards.paid_name(row, reward), paid).config
    assert config.environment.reward == reward
    assert not config.dream.telescoping or known_rewards.find(reward).telescopes


def test_rewards_of_the_papers_are_what_they_define() -> None:
    assert list(rewards.WEIGHTS) == [step / 10 for step in range(11)] and len(rewards._all()) == 13
    for name, alpha in (("R1", 0.8), ("R3", 0.1), ("R4", 0.5), ("R5", 1.0)):
        assert rewards.WEIGHTS[alpha] == rewards.FUNCTIONS[name]
    for alpha, reward in rewards.WEIGHTS.items():
        if alpha < 1:
            values = dict(part.split("=") for part in reward.partition(":")[2].split(","))
            assert float(values["alpha"]) == alpha and float(values["alpha"]) + float(values["beta"]) == 1.0
    assert set(REWARDS) <= set(rewards.FUNCTIONS)
    names = [rewards.paid_name(row, reward) for row in DREAMED for reward in rewards._all()]
    assert len(set(names)) == 26 and set(DREAMED) < set(names), "units have distinct names, our reward the usual one"


def test_rows_of_rewards_are_means_beside_what_is_printed(tmp_path: Path) -> None:
    r1, r5 = rewards.FUNCTIONS["R1"], rewards.FUNCTIONS["R5"]
    curve = {"step": [1, 2], "return": [1.0, 3.0]}
    records = [
        record(rewards.paid_name("ppo dream", reward), seed, "dream", own=own + seed, curves={"controller": curve})
        for reward, own in ((r1, 10.0), (r5, 30.0))
        for seed in (0, 1)
    ]
    rows = list(rewards.rows_of(records, ["ppo dream"], [r1, r5]))
    first, last = rows
    assert (first["gain"], first["name"], first["printed"]) == (10.5, "R1", "48.7 ± 3.2")
    assert (last["gain"], last["alpha"], last["printed"], last["first"], last["last"]) == (30.5, 1.0, "–", 1.0, 3.0)
    assert first["end"] == "–", "older units do not know it"
    assert "incremental gains most (30.5 %)" in rewards.finding(rows) and "are apart" in rewards.finding(rows)
    rewards.draw_weights("g", rows, tmp_path / "weights.png")
    rewards.draw_training("g", records, ["ppo dream"], tmp_path / "training.png")
    assert all((tmp_path / name).stat().st_size > 5000 for name in ("weights.png", "training.png"))


def test_without_a_world_model_steps_and_seconds_grow_with_the_updates() -> None:
    curve = {"step": [1, 3], "length": [5.0, 10.0], "return": [0.0, 100.0]}
    run = record("ppo real", 0, "real", curves={"controller": curve}, stages={"controller": 9.0, "evaluate": 50.0})
    first, last = convergence.points_of(run)
    assert (first.real_steps, first.seconds, first.score) == (20.0, 3.0, 0.0)
    assert (last.real_steps, last.seconds) == (20.0 + 2 * 40.0, 9.0)
    assert last.score == pytest.approx(63.2, abs=0.1), "100 (1 - 1/e)"


def test_with_a_world_model_reality_is_known_at_the_end_of_each_round() -> None:
    stages = {"collect": 1.0, "encoder": 2.0, "mdn-rnn": 3.0, "accuracy": 100.0, "controller": 10.0, "exploit": 100.0}
    stages |= {"recollect-1": 4.0, "mdn-rnn-1": 5.0, "accuracy-1": 100.0, "controller-1": 20.0, "evaluate": 100.0}
    curve = {"step": [5, 10], "return": [0.0, 0.0]}
    rounds = [{"real_steps": 100, "dream": 9.0, "real": 1.0}, {"real_steps": 150, "dream": 9.0, "real": 2.0}]
    run = record(
        "ppo dream", 0, "dream", curves={"controller": curve, "controller-1": curve}, stages=stages, rounds=rounds
    )
    points = list(convergence.points_of(run))
    real = [point for point in points if point.curve == convergence.FOR_REAL]
    assert [(point.update, point.real_steps, point.seconds, point.score) for point in real] == [
        (10, 100, 116.0, 1.0),
        (20, 150, 145.0, 2.0),
    ]
    dreamed = [point for point in points if point.curve == convergence.DREAM]
    assert [(point.update, point.seconds) for point in dreamed] == [(5, 11.0), (10, 16.0), (15, 135.0), (20, 145.0)]


def test_a_unit_without_rounds_is_one_clear_error() -> None:
    older = record("ppo dream", 3, "dream")
    del older["rounds"]
    with pytest.raises(
        UserError, match=r"ppo dream on resnet18-tiny with seed 3 keeps no figures of its rounds.*Remove its file"
    ):
        list(convergence.points_of(older))


def test_convergence_is_averaged_by_update_and_drawn(tmp_path: Path) -> None:
    curve = {"step": [1, 2], "length": [5.0, 5.0], "return": [0.0, 10.0]}
    runs = [
        record("ppo real", seed, "real", curves={"controller": curve}, stages={"controller": 2.0 + seed})
        for seed in (0, 1)
    ]
    rows = list(convergence.rows_of(runs))
    assert [(row["update"], row["seeds"], row["real_steps"], row["seconds"]) for row in rows] == [
        (1, 2, 20.0, 1.25),
        (2, 2, 40.0, 2.5),
    ]
    assert "ppo real 9.5 % after 40 real steps" in convergence.finding(rows)
    convergence.draw(NET, "steps", rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_unknown_rewards_and_agents_are_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "No reward is called 'R9'" in failure(capsys, "reproduce", "fig-rewards", TINY, "--rewards", "R9")
    assert "No row is called 'mcts'" in failure(capsys, "reproduce", "fig-rewards", TINY, "--rows", "mcts")


@pytest.mark.full
@pytest.mark.parametrize("name", ["fig-rewards", "fig-convergence"])
def test_figures_are_made_from_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", name, TINY, "--scale", "smoke", "--seeds", "0"]) == 0
    assert {row["seeds"] for row in read_table(name)} == {"1"}
