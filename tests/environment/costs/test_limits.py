"""`Recent` keeps the values that were asked for last."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environment.costs.limits import Recent


@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.integers(1, 4))
def test_the_last_names_are_known(names: list[str], most: int) -> None:
    recent: Recent[str] = Recent(most)
    for position, name in enumerate(names):
        before = list(dict.fromkeys(reversed(names[:position])))[:most]
        made: list[str] = []

        def make(name: str = name, made: list[str] = made) -> str:
            made.append(name)
            return name.upper()

        assert recent.get(name, make) == name.upper()
        assert made == ([] if name in before else [name])
        assert len(recent) == len(set(before) | {name}) or len(recent) == most
    assert len(pickle.loads(pickle.dumps(recent))) == len(recent)


def test_what_fails_is_not_kept() -> None:
    recent: Recent[int] = Recent(2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            recent.get("a", lambda: 1 // 0)
    assert recent.get("a", lambda: 3) == 3


def test_what_is_forgotten_is_made_anew() -> None:
    recent: Recent[int] = Recent(2)
    recent.get("a", lambda: 1)
    for name in ("a", "b"):
        recent.forget(name)
    assert recent.get("a", lambda: 2) == 2
