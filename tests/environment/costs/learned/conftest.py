"""Whole forests, for the tests of how good predicted prices are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from environment.costs.learned import adaptation
from environment.costs.learned.regressor import Trees

NUMBER = Trees.NUMBER  # read before a test begins, and so before `small_forests` changes it


def forget() -> None:
    """Forgets the model that is fitted once in a process."""
    adaptation._unadapted.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def whole_forests() -> Iterator[None]:
    """Fits as many trees as the program does."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Trees, "NUMBER", NUMBER)
        forget()
        yield
    forget()
