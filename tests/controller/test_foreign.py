"""What the program asks of a controller of another package reaches that controller, and its faults are named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controller.foreign import BrokenControllerError, Foreign
from controller.interface import Controller


class Theirs(Controller):
    name, worlds = "theirs", ("dream",)
    max_steps, total, num_updates, limit_s, trains, saves = 9, 8, 7, 6.5, True, True

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        return observation.wanted

    @property
    def policy(self) -> Any:
        return self.choose  # a bound method: an equal object each time, and never the same

    def choose(self, observation: Any, seed: Any) -> Any:
        return observation


@pytest.fixture
def foreign() -> Foreign:
    return Foreign(Theirs(), BrokenControllerError)


def of_a_dream(wanted: Any) -> Any:
    """An observation in which the actions 0 and 2 of 3 are legal."""
    mask = np.array([[True, False, True]])
    return SimpleNamespace(action_mask=SimpleNamespace(numpy=lambda: mask), wanted=wanted)


def test_all_figures_of_the_interface_are_its_own(foreign: Foreign) -> None:
    figures = {name for name, part in vars(Controller).items() if isinstance(part, property)} - {"policy"}
    assert {"num_updates", "limit_s"} <= figures
    assert all(getattr(foreign, name) == getattr(Theirs, name) for name in figures)


@pytest.mark.parametrize("wanted", [2, np.int64(2), np.array(2), 2.0])
def test_a_legal_action_of_a_dream_is_its_number(wanted: Any, foreign: Foreign) -> None:
    foreign.begin_episode(object(), seed=0)
    assert foreign.act(of_a_dream(wanted), deterministic=True) == 2


@pytest.mark.parametrize("wanted", [1, 3, -1, 10**6, None, "NO-OP", np.array([0, 2]), float("inf")])
def test_any_other_action_of_a_dream_is_its_fault(wanted: Any, foreign: Foreign) -> None:
    foreign.begin_episode(object(), seed=0)
    with pytest.raises(BrokenControllerError, match="takes the action"):
        foreign.act(of_a_dream(wanted), deterministic=True)


def test_its_policy_is_the_same_from_call_to_call_so_that_rollouts_are_traced_once(foreign: Foreign) -> None:
    assert foreign.policy == foreign.policy and hash(foreign.policy) == hash(foreign.policy)
    assert foreign.policy != Foreign(Theirs(), BrokenControllerError).policy


def test_a_policy_that_returns_too_little_is_its_fault(foreign: Foreign) -> None:
    assert foreign.policy((1, 2, 3), seed=0) == (1, 2, 3)
    with pytest.raises(BrokenControllerError, match=r"raises ValueError in policy\(\)"):
        foreign.policy((1, 2), seed=0)
