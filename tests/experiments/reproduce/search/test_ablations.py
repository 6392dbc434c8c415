"""The table of ablations: what is compared with what, and what its last sentence says."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.errors import UserError
from experiments.reproduce.options import named
from experiments.reproduce.search.ablations import CHANGES, Change, finding, rows_of
from experiments.reproduce.search.controllers import PLAYERS
from experiments.reproduce.search.plays import Play, Player


def record(controller: str, own: float, seed: int) -> dict[str, Any]:
    absent = dict.fromkeys(("gap", "illegal", "recall"))
    return {"graph": "g", "controller": controller, "seed": seed, "own": own, "minutes": 1, **absent}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_change_changes_something_that_has_an_effect(change: Change) -> None:
    def settings(player: Player) -> dict[str, Any]:
        return Play("squeezenet1.1-tiny", "", player, "full", 1, 0).settings

    assert settings(change.player) != settings(PLAYERS[change.base])


def test_changes_of_dreams_can_be_made_where_the_engine_follows_them() -> None:
    change = CHANGES["one site at a time"].of("ppo exact")
    assert change.player.as_preset and change.player.settings == ("world=dream", "environment.everywhere=false")
    assert CHANGES["untrained networks"].of("ppo exact") == CHANGES["untrained networks"]  # it has no dream


def test_a_change_is_compared_seed_by_seed() -> None:
    changes = {"worse": Change("mcts", ()), "noisy": Change("mcts", ())}
    own = {"mcts": (10.0, 20.0, 30.0), "mcts, worse": (8.9, 19.0, 29.1), "mcts, noisy": (5.0, 30.0, 25.0)}
    records = [record(row, gain, seed) for row, gains in own.items() for seed, gain in enumerate(gains)]
    rows = list(rows_of(records, changes))
    assert [row["change"] for row in rows] == ["–", "worse", "noisy"]
    assert rows[0]["gain"] == 20.0 and "more" not in rows[0]
    assert rows[1]["more"] == pytest.approx(-1.0) and rows[1]["high"] < 0.0 and rows[2]["low"] < 0.0 < rows[2]["high"]
    assert finding(rows) == "Less beyond chance: worse on g (-1.0)."


def test_an_unknown_change_is_one_clear_error() -> None:
    with pytest.raises(UserError, match=r"No change is called 'no serch'\. Did you mean 'no search'"):
        named("no serch", CHANGES, "change")
