"""Tests of the tables that compare settings or judge graphs not trained on, with hardly trained models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.config.run import load_config
from experiments.reproduce.table import UNDEFINED
from experiments.reproduce.world_model.accuracy import TARGETS
from experiments.reproduce.world_model.comparisons import DREAM_VARIANTS, PREDICTION_VARIANTS
from experiments.reproduce.world_model.experiment import Conditions
from tests.commands import read_table
from worldmodel.accuracy import figure_names as names

QUICK = ["--scale", "smoke", "--seeds", "0"]
QUICK += ["--set", "world_model.encoder_training.steps=1", "--set", "world_model.mdn_rnn_training.steps=2"]
QUICK += ["--set", "recollect.steps=2", "--set", "collect.episodes=12"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untraced: None) -> None:
    monkeypatch.chdir(tmp_path)


def made(table: str, *options: str) -> list[dict[str, str]]:
    assert main(["reproduce", table, *QUICK, *options]) == 0
    return read_table(table)


@pytest.mark.full
def test_every_kind_of_dynamics_and_of_actions_is_judged() -> None:
    variants = ["deterministic dynamics", "discrete dynamics", "actions by rank"]
    rows = made("accuracy-ablations", "--variants", ", ".join(variants))
    assert [row["variant"] for row in rows] == variants
    for row in rows:
        assert all(row[column] != UNDEFINED for column in ("reward", "total", "masks", "latents", "minutes")), row
    units = [json.loads(path.read_text()) for path in Path("runs/reproduce/accuracy/units").glob("*-round0-*.json")]
    with_intervals = [names.AT_FLOOR in {figure["figure"] for figure in unit["figures"]} for unit in units]
    assert sorted(with_intervals) == [False, False, True], "the first two have no mixtures"


def test_a_graph_that_was_not_trained_on_is_judged_like_one_that_was() -> None:
    rows = made("accuracy-transfer")
    assert {(row["trained_on"], row["graph"]) for row in rows} == {
        ("squeezenet1.1-tiny", "squeezenet1.1-tiny-image_size48")
    }
    figures = {(row["play"], row["figure"], row["step"]): row for row in rows}
    for play in ("random", "greedy"):
        assert float(figures[play, names.REWARD_ERROR, "1"]["model"]) > 0
        assert float(figures[play, names.COVERAGE[0.9], "1"]["model"]) >= 0
        assert 0 <= float(figures[play, "share of states that training did not meet", ""]["model"]) < 1
    assert float(figures["random", names.MASK_ERROR, "3"]["copy_last"]) == 1


@pytest.mark.full
def test_a_pessimistic_ensemble_is_put_to_the_exploit_test() -> None:
    label = "ensemble of 3 with pessimism 1"
    rows = made("exploit", "--variants", label, "--set", "ppo.updates=1", "--set", "recollect.rounds=0")
    assert [(row["variant"], row["round"]) for row in rows] == [(label, "0")]
    assert all(row["gap_in_the_dream"] != UNDEFINED for row in rows)


@pytest.mark.parametrize("variants", [PREDICTION_VARIANTS, DREAM_VARIANTS])
def test_each_variant_is_other_settings(variants: Conditions) -> None:
    """The settings must also be valid, because a typing error would otherwise show only after hours."""
    settings = [load_config("best", {}, list(assignments)) for assignments in variants.values()]
    assert len({str(each) for each in settings}) == len(variants)
    assert not any("," in label for label in variants), "commas stand between them on the command line"


def test_graphs_to_meet_are_other_graphs() -> None:
    for trained_on, targets in TARGETS.items():
        assert trained_on not in {target.label for target in targets}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["accuracy-ablations", "--variants", "as usual,no neighborhood"], "Did you mean 'no neighbourhood'"),
        (["exploit", "--variants", "strict"], "No variant is called 'strict'"),
        (["accuracy-transfer", "vit-base-tiny"], "Choose among"),
        (["exploit", "--set", "recollect.rounds=-1"], "between 0 and 99"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *arguments]) == 2
    message = capsys.readouterr().err
    assert said in message and "Traceback" not in message
