"""Fixtures: a toy problem's episodes and a small world model trained on them, once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worldmodel.toy_world import SIGNATURE, SMALL, ToyEnv, uniform_policy
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.fitting import fit
from worldmodel.world_model import WorldModel

HERE = Path(__file__).parent
TRAINED = {"world_model", "world_of_two"}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps all tests of the trained models on one worker, which then trains them once."""
    for item in items:
        if HERE in item.path.parents and TRAINED & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("toy world"))


@pytest.fixture(autouse=True, scope="package")
def uncompiled() -> Iterator[Any]:
    """Dreams without XLA, which takes seconds for each model and number of rows; yields what would compile a step."""
    compiling = WorldModel.compiled_dream_step
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(WorldModel, "compiled_dream_step", WorldModel.dream_step)
        yield compiling


@pytest.fixture
def compiled(uncompiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles dreamed steps by XLA, as outside tests; a model that has dreamed without it goes on without it."""
    monkeypatch.setattr(WorldModel, "compiled_dream_step", uncompiled)


@pytest.fixture(scope="session")
def episodes() -> EpisodeBuffer:
    """Returns episodes of random play on strings of 8 cells, in which NO-OP is rare."""
    return collect(ToyEnv(8, max_steps=12), uniform_policy(0.02), 150, seed=1)


@pytest.fixture(scope="session")
def split(episodes: EpisodeBuffer) -> tuple[EpisodeBuffer, EpisodeBuffer]:
    return episodes.split(0.2, seed=0)


@pytest.fixture(scope="session")
def world_model(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> WorldModel:
    return fit(split[0], SIGNATURE, SMALL, seed=0)


@pytest.fixture(scope="session")
def two_starts() -> EpisodeBuffer:
    """Returns episodes of random play from two strings, one longer than the other."""
    buffer = collect(ToyEnv(8, max_steps=12), uniform_policy(0.02), 100, seed=1)
    buffer.extend(collect(ToyEnv(start=(1, 0, 0, 1, 0, 1), max_steps=12), uniform_policy(0.02), 100, seed=2))
    return buffer


@pytest.fixture(scope="session")
def world_of_two(two_starts: EpisodeBuffer) -> WorldModel:
    return fit(two_starts, SIGNATURE, SMALL, seed=0)
