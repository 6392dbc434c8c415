"""`sb3` learns and goes on where it stopped. What is marked needs the extra `sb3`."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.evaluation import play_episode, replay_record
from controller.interface import StoredControllerError
from controller.sb3.config import FORMAT_VERSION, Sb3Config
from controller.sb3.controller import Sb3Controller
from controller.worlds.real import RealWorld
from environment import GraphSubstitutionEnv
from environment.runtimes import UnavailableError
from taso_ext.files import write_arrays
from tests.controller.exhaustive import best_improvement
from tests.controller.search.test_searches import shared_transpose
from tests.controller.shared_product import shared_product

needs_sb3 = [
    pytest.mark.sb3,
    pytest.mark.skipif(importlib.util.find_spec("sb3_contrib") is None, reason="`make test-sb3` installs sb3-contrib"),
]
QUICK = Sb3Config(updates=3, steps=32, batch=16, epochs=2)


def learns(test: Any) -> Any:
    for mark in needs_sb3:
        test = mark(test)
    return test


def make_env() -> GraphSubstitutionEnv:
    return shared_product(everywhere=False, max_steps=6)


def stored(player: Sb3Controller, path: Path) -> dict[str, np.ndarray]:
    player.save(path)
    with np.load(path) as arrays:
        return dict(arrays)


@learns
def test_it_learns_the_optimum_of_what_can_be_enumerated() -> None:
    """In 3 of 3 seeds. No single rewrite helps, but both together do.

    Where four have to be taken together (`shared_product`), 1500 steps were too few in the one seed that was tried.
    """
    env, config = shared_transpose(), Sb3Config(updates=8, steps=128, batch=64)
    optimum = best_improvement(env)
    env.reset()
    assert optimum > 0 and env.state.cost.ms <= env.candidates()[2].min()
    for seed in range(3):
        player, world = Sb3Controller(shared_transpose(), config, seed=seed), RealWorld(shared_transpose)
        player.train(world)
        record = play_episode(env, player, seed=seed, deterministic=True)
        assert record.improvement == pytest.approx(optimum)
        assert world.best is not None and world.best.improvement == pytest.approx(optimum)
        replay_record(shared_transpose(), world.best)


@learns
def test_training_goes_on_bit_for_bit_from_a_checkpoint_made_on_the_way(tmp_path: Path) -> None:
    whole, resumed, seen = Sb3Controller(make_env(), QUICK, seed=1), Sb3Controller(make_env(), QUICK, seed=2), []

    def note(done: int, total: int, metrics: Mapping[str, float]) -> None:
        seen.append((done, total, sorted(metrics)))
        if done == 2:
            whole.save(tmp_path / "controller")

    whole.train(RealWorld(make_env), seed=7, on_progress=note)
    assert seen == [(done, 3, ["best_return", "length", "return"]) for done in (1, 2, 3)]
    resumed.load(tmp_path / "controller")
    assert resumed.num_updates == 2
    resumed.train(RealWorld(make_env), seed=7)
    expected, found = stored(whole, tmp_path / "whole"), stored(resumed, tmp_path / "resumed")
    assert expected.keys() == found.keys() and any(name.startswith("adam") for name in expected)
    for name in expected:
        np.testing.assert_array_equal(expected[name], found[name])
    episodes = [[play_episode(make_env(), each, seed=seed) for seed in range(3)] for each in (whole, resumed)]
    assert episodes[0] == episodes[1] and len({record.actions for record in episodes[0]}) > 1


@learns
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    player, path = Sb3Controller(make_env(), QUICK), tmp_path / "controller"
    arrays = stored(player, path)
    with pytest.raises(StoredControllerError, match="another graph, rule set or configuration"):
        Sb3Controller(GraphSubstitutionEnv("squeezenet1.1-tiny"), QUICK).load(path)
    write_arrays(path, arrays | {"format_version": np.array(FORMAT_VERSION + 1)})
    with pytest.raises(StoredControllerError, match=f"format {FORMAT_VERSION + 1}"):
        player.load(path)
    path.write_bytes(b"PK")
    with pytest.raises(StoredControllerError, match="missing or damaged"):
        player.load(path)


def test_without_the_package_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.sb3.controller.importlib.import_module", _missing)
    with pytest.raises(UnavailableError, match=r"pip install 'rlflow\[sb3\]'"):
        Sb3Controller(make_env())


def _missing(name: str) -> Any:
    raise ModuleNotFoundError(f"No module named {name!r}")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"updates": 0}, "updates is 0"),
        ({"steps": 100}, "100 steps are no multiple of 128"),
        ({"batch": 1}, "batch is 1"),
        ({"discount": 1.5}, "discount is 1.5, outside"),
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(Sb3Config(), **wrong)
