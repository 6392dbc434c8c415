"""The round whose plans really save most is the one that plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.config.run import load_config
from experiments.runs.directory import RunDirectory
from experiments.runs.rounds import best_round, keep_played_round, last_round, plans_file, played_round


def plans(*saved: float | None) -> list[dict[str, Any]]:
    return [{} if each is None else {"skipping_percent": each, "dreamed_percent": 99.0} for each in saved]


@pytest.mark.parametrize(
    ("saved", "expected"),
    [((7.0,), 0), ((1.0, 9.0, 4.0), 1), ((9.0, 3.0, 9.0), 2), ((-2.0, -1.0), 1), ((9.0, None), 1), ((None, None), 1)],
)
def test_the_round_that_plays_really_saves_most(saved: tuple[float | None, ...], expected: int) -> None:
    """What dreams promise has no part in it; of equal rounds the latest plays, and the last one if nothing is known."""
    assert best_round(plans(*saved)) == expected


@pytest.mark.parametrize(
    ("dream", "last"),
    [
        ({"gap": 9.0}, 2),
        ({"gap": 0.1, "paying": 10, "offered": 0.5}, 2),
        ({"gap": 0.1, "paying": 10, "offered": 1.0}, 1),
    ],
)
def test_the_last_round_follows_from_the_files_of_the_run(dream: dict[str, Any], last: int, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    directory = RunDirectory(tmp_path, resumed=True)
    config = load_config("demo", {"controller": "ppo"}, ["recollect.rounds=1", "recollect.more=2"])
    assert last_round(directory, config) == 1, "nothing is known yet"
    directory.write_json(plans_file(1), dream)
    assert last_round(directory, config) == last
    assert last_round(directory, load_config("demo", {"controller": "ppo"}, ["world=real"])) == 0


def test_it_is_kept_in_the_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    directory = RunDirectory(tmp_path, resumed=True)
    in_dreams = load_config("demo", {"controller": "ppo"}, ["recollect.rounds=2"])
    assert played_round(directory, in_dreams) == 2, "in runs of older versions, the last one has played"
    keep_played_round(directory, 1)
    assert played_round(directory, in_dreams) == 1
    assert played_round(directory, load_config("demo", {"controller": "ppo"}, ["world=real"])) == 0
