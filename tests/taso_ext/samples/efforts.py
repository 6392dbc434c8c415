"""The effort with which properties are tested: a sample in every run, far more under `-m full`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

T = TypeVar("T")


class Effort(NamedTuple):
    """The number of random graphs, the number of rewrites of each, and whether every run draws other graphs."""

    examples: int
    steps: int
    varied: bool

    @property
    def tries(self) -> int:
        """The number of repetitions if one is as expensive as several random graphs."""
        return max(1, self.examples // 50)


SAMPLE, FULL = Effort(60, 8, varied=False), Effort(400, 50, varied=True)

sampled_and_full = pytest.mark.parametrize(
    "effort", [pytest.param(SAMPLE, id="sampled"), pytest.param(FULL, id="full", marks=pytest.mark.full)]
)


def for_all(strategy: st.SearchStrategy[T], holds: Callable[[T], None], effort: Effort) -> None:
    """Lets hypothesis look for an example on which `holds` raises, and shrink it."""
    options = settings(
        max_examples=effort.examples,
        derandomize=not effort.varied,
        deadline=None,  # no test asserts on a clock
        phases=(Phase.reuse, Phase.generate, Phase.shrink) if effort.varied else (Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],  # graphs take many choices
    )

    @options
    @given(strategy)
    def on_one(example: T) -> None:
        holds(example)

    on_one()
