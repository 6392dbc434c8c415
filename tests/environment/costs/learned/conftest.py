"""Whole forests and all reference kernels, for the tests of how good predicted prices are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from environment.costs.learned import adaptation
from environment.costs.learned.regressor import Trees

NUMBER, REFERENCES = (
    Trees.NUMBER,
    adaptation.references,
)  # read before a test begins, and `quick_predictions` changes them


def forget() -> None:
    """Forgets the model that is fitted once in a process."""
    adaptation._unadapted.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def whole_forests() -> Iterator[None]:
    """Fits as many trees, and times as many kernels, as the program does."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Trees, "NUMBER", NUMBER)
        patches.setattr(adaptation, "references", REFERENCES)
        forget()
        yield
    forget()
