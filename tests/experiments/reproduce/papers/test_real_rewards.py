"""Rewards by the clock: what N runs stand for, what is promised and what is given."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from experiments.pipeline.loading.load import find_costs
from experiments.reproduce.papers import real_rewards
from experiments.reproduce.papers.players import REAL
from experiments.reproduce.papers.real_rewards import Paid
from experiments.reproduce.search.controllers import PLAYERS
from experiments.reproduce.search.plays import SECONDS, Play
from tests.commands import failure, read_table

TINY = "bert-base-tiny"


def record(runs: int | None, seed: int, promised: float, ratio: float) -> dict[str, Any]:
    counts = {"real_steps": 100, "end_to_end_timings": 40, "minutes": 1.0}
    stages = {"start TensorFlow": 9.0, "controller": 3.0 * (runs or 1), "evaluate": 1.0}
    names = {"graph": "g", "row": "ppo real", "runs": runs, "seed": seed, "own": promised, "stages": stages}
    return {**names, **counts, "last": {"ratio": ratio, "low": ratio, "high": ratio}}


def test_each_graph_is_timed_as_often_as_the_row_says_and_recorded_nowhere() -> None:
    options = argparse.Namespace(scale="smoke", device="cpu", long=False)
    paid = Paid.of(TINY, "ppo real", 4, 0, options)
    costs = find_costs(paid.play.config).costs
    assert (costs.effort.pairs, costs.effort.resolution, costs.effort.sessions) == (4, None, 1)  # type: ignore[attr-defined]
    assert costs.recorded is None  # type: ignore[attr-defined]
    assert "setting" in paid.play.settings, "its times are of this machine"


def test_on_paper_the_run_is_that_of_controllers() -> None:
    options = argparse.Namespace(scale="full", device="cuda", long=False)
    on_paper = Paid.of(TINY, "ppo real", None, 3, options)
    assert on_paper.play == Play(TINY, "ppo real", PLAYERS["ppo real"], "full", SECONDS["full"], 3)
    assert "setting" not in on_paper.play.settings


def test_what_is_given_stands_beside_what_was_promised(tmp_path: Path) -> None:
    records = [record(runs, seed, 30.0 / (runs or 10), 0.9 + 0.02 * seed) for runs in (None, 2, 8) for seed in (0, 1)]
    rows = list(real_rewards.rows_of(records))
    assert [row["runs"] for row in rows] == ["–", 2, 8]
    two = rows[1]
    assert two["promised"] == 15.0 and two["gain"] == pytest.approx(9.0) and two["low"] < 9.0 < two["high"]
    assert two["step_ms"] == pytest.approx(70.0), "7 s for 100 steps; the start of TensorFlow is none of them"
    said = real_rewards.finding(rows)
    assert said.startswith("g, ppo real: 2 runs promise 15.0 % and give 9.0 %, at 70.0 ms a step; 8 runs")
    real_rewards.draw("g", rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_one_timing_is_too_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--runs" in failure(capsys, "reproduce", "fig-real-rewards", TINY, "--runs", "1,2")
    assert "No row is called 'mcts'" in failure(capsys, "reproduce", "fig-real-rewards", TINY, "--rows", "mcts")


@pytest.mark.full
def test_the_figure_is_made_from_runs_and_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = ["reproduce", "fig-real-rewards", TINY, "--scale", "smoke", "--seeds", "0", "--runs", "2,4"]
    assert main(command) == 0
    rows = read_table("fig-real-rewards")
    assert [(row["row"], row["runs"]) for row in rows] == [(row, runs) for row in REAL for runs in ("–", "2", "4")]
    assert all((int(row["timings"].replace(",", "")) > 0) == (row["runs"] != "–") for row in rows)
    assert main([*command, "--rows", REAL[1], "--force"]) == 0
    assert {row["row"] for row in read_table("fig-real-rewards")} == {REAL[1]}
