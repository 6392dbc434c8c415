"""Tests of `rlflow reproduce mechanisms`: what it leaves out, which models it shares, and when a figure moves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.cli import main
from experiments.config.run import load_config
from experiments.config.tree import parse_overrides, replaced
from experiments.pipeline.learning import rounds
from experiments.reproduce.table import UNDEFINED
from experiments.reproduce.world_model import mechanisms
from experiments.reproduce.world_model.mechanisms import (
    ALL,
    BETTER,
    MEASURES,
    MECHANISMS,
    NOTHING,
    WORSE,
    compared,
    compared_over_graphs,
)
from experiments.runs.run import Run
from experiments.studies.mechanisms import PREDICTION
from tests import tracing
from tests.commands import read_table

pytestmark = pytest.mark.xdist_group("mechanisms")  # one worker, which makes the shared table once

COMMAND = ["reproduce", "mechanisms", "--scale", "smoke", "--seeds", "0", "--without", "strict threshold,known ranges"]
for smaller in ("world_model.encoder_training.steps=1", "world_model.mdn_rnn_training.steps=2", "ppo.updates=1"):
    COMMAND += ["--set", smaller]


def read_rows() -> dict[tuple[str, str], dict[str, str]]:
    return {(row["mechanism"], row["figure"]): row for row in read_table("mechanisms")}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mechanisms")


@pytest.fixture(scope="module")
def trained(workplace: Path) -> list[Path]:
    """Returns the run directories of the models that the whole table trains, once for all tests."""
    made: list[Path] = []
    with pytest.MonkeyPatch.context() as patch, tracing.untraced():
        train = rounds.train_world_model

        def watched(run: Run, *arguments: object) -> object:
            if not run.directory.finished("encoder"):
                made.append(run.directory.path)
            return train(run, *arguments)  # type: ignore[arg-type]

        patch.setattr(rounds, "train_world_model", watched)
        patch.chdir(workplace)
        assert main(COMMAND) == 0
    return made


@pytest.fixture(autouse=True)
def there(workplace: Path, monkeypatch: pytest.MonkeyPatch, untraced: None) -> None:
    monkeypatch.chdir(workplace)


@pytest.mark.full
def test_a_mechanism_that_acts_in_dreams_alone_trains_no_model(trained: list[Path]) -> None:
    assert len(trained) == 1


@pytest.mark.full
def test_a_mechanism_that_acts_in_dreams_alone_changes_no_prediction(trained: list[Path]) -> None:
    rows = read_rows()
    assert {figure for label, figure in rows if label == "strict threshold"} >= {"reward", "policy_gap", "beam_gap"}
    for name, measure in MEASURES.items():
        if (row := rows.get(("strict threshold", name))) and measure.part == PREDICTION:
            assert float(row["difference"]) == 0.0, name


@pytest.mark.full
def test_dreams_that_are_not_held_predict_otherwise(trained: list[Path]) -> None:
    rows = read_rows()
    assert float(rows["known ranges", "latents"]["difference"]) != 0.0


@pytest.mark.full
def test_finished_units_are_read_and_unfinished_ones_left_out(
    trained: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_rows()
    monkeypatch.setattr(mechanisms.Case, "examine", lambda *_: pytest.fail("done again"))
    assert main(COMMAND) == 0
    assert read_rows() == before
    everything = [*COMMAND[:4], "--finished", "--seeds", "0,1", *COMMAND[8:]]
    assert main(everything) == 0
    assert read_rows() == before
    assert "moves" in capsys.readouterr().out


def test_every_mechanism_leaves_something_out() -> None:
    config = load_config("demo", {})
    for label, mechanism in MECHANISMS.items():
        assert replaced(config, parse_overrides(mechanism.assignments), label) != config
    without_all = replaced(config, parse_overrides(MECHANISMS[ALL].assignments), ALL)
    assert not without_all.world_model.encoder.total_time and not without_all.world_model.mdn_rnn.neighbours
    assert {mechanism.parts >= {PREDICTION} for mechanism in MECHANISMS.values()} == {True, False}


@pytest.mark.parametrize(
    ("full", "without", "more_is_better", "verdict"),
    [
        ([0.90, 0.91, 0.92], [0.70, 0.71, 0.73], True, WORSE),
        ([0.90, 0.91, 0.92], [0.70, 0.71, 0.73], False, BETTER),
        ([1.0, 1.1, 1.2], [3.0, 3.1, 3.3], False, WORSE),
        ([1.0, 2.0, 3.0], [1.1, 2.1, 3.1], False, NOTHING),  # smaller than the seeds' spread, although constant
        ([1.0, 1.1, 1.2], [3.0, 1.0, 1.3], False, NOTHING),  # a difference in one seed only
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], False, NOTHING),
        ([0.0, 0.0], [0.2, 0.2], False, WORSE),  # the seeds do not differ
    ],
)
def test_a_figure_moves_beyond_chance_and_beyond_the_seeds(
    full: list[float], without: list[float], more_is_better: bool, verdict: str
) -> None:
    row = compared(np.array([full, without]).T, more_is_better=more_is_better)
    assert row["verdict"] == verdict and row["seeds"] == len(full)
    assert row["difference"] == pytest.approx(np.mean(without) - np.mean(full))


def test_the_difference_is_in_units_of_the_seeds() -> None:
    row = compared(np.array([[1.0, 4.0], [3.0, 8.0]]), more_is_better=True)
    assert row["spread"] == pytest.approx(np.sqrt((2.0 + 8.0) / 2))
    assert row["in_spreads"] == pytest.approx(4.0 / np.sqrt(5.0))


def test_graphs_count_in_units_of_their_seeds() -> None:
    """A graph on which the figure is a hundred times larger has no more weight than another."""
    small = np.array([[1.0, 1.3], [1.1, 1.5], [1.2, 1.5]])
    row = compared_over_graphs([small, 100.0 * small], more_is_better=False)
    alone = compared(small, more_is_better=False)
    assert row["in_spreads"] == pytest.approx(alone["in_spreads"]) and row["seeds"] == 6
    assert row["p_value"] < alone["p_value"] and row["verdict"] == WORSE
    both_ways = compared_over_graphs([small, small[:, ::-1]], more_is_better=False)
    assert both_ways["in_spreads"] == pytest.approx(0.0) and both_ways["verdict"] == NOTHING
    without_spread = np.array([[0.0, 0.2], [0.0, 0.2]])
    assert compared_over_graphs([small, without_spread], more_is_better=False)["seeds"] == 3
    assert compared_over_graphs([np.zeros((3, 2))] * 2, more_is_better=True)["verdict"] == NOTHING


def test_one_seed_says_nothing() -> None:
    row = compared(np.array([[1.0, 5.0]]), more_is_better=True)
    assert row["verdict"] == row["spread"] == UNDEFINED and row["difference"] == 4.0


def test_an_unknown_mechanism_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "mechanisms", "--without", "neighbourhood"]) == 2
    assert "'neighbourhoods'" in capsys.readouterr().err
