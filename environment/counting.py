"""Counts of what a run does: steps, evaluations of the cost model, and timings.

    with counting() as counts:
        env.step(action)
    print(counts.real_steps)

Whatever does such work says so with `count`; every block of `counting` that is open in this process then counts it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping


@dataclasses.dataclass
class Counts:
    """Numbers of what was done.

    Attributes:
      real_steps: steps of the exact engine: of the real environment, and graphs that a search expands.
      dreamed_steps: steps in dreams of a world model, one for each row that takes it.
      cost_evaluations: graphs whose cost a cost model was asked for, also those of rewrites that were not taken.
      kernel_timings: kernels that were timed, each as often as it was.
      end_to_end_timings: whole graphs that were timed against another one.
    """

    real_steps: int = 0
    dreamed_steps: int = 0
    cost_evaluations: int = 0
    kernel_timings: int = 0
    end_to_end_timings: int = 0

    def add(self, other: Counts) -> None:
        """Adds the numbers of another one."""
        for name, number in other.to_json().items():
            setattr(self, name, getattr(self, name) + number)

    def take(self) -> Counts:
        """Returns the numbers and sets them to zero."""
        taken = dataclasses.replace(self)
        for name in self.to_json():
            setattr(self, name, 0)
        return taken

    def timings(self) -> Counts:
        """Returns the numbers of timings alone."""
        return Counts(kernel_timings=self.kernel_timings, end_to_end_timings=self.end_to_end_timings)

    def to_json(self) -> dict[str, int]:
        """Returns plain JSON values; `from_json` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, int]) -> Counts:
        return cls(**{name: int(number) for name, number in fields.items()})


_open: list[Counts] = []


@contextlib.contextmanager
def counting() -> Iterator[Counts]:
    """Counts what is done in this process while the block runs; blocks may lie within each other."""
    counts = Counts()
    _open.append(counts)
    try:
        yield counts
    finally:
        _open[:] = [each for each in _open if each is not counts]


def count(
    *,
    real_steps: int = 0,
    dreamed_steps: int = 0,
    cost_evaluations: int = 0,
    kernel_timings: int = 0,
    end_to_end_timings: int = 0,
) -> None:
    """Says what was done; see `Counts`."""
    for counts in _open:
        counts.real_steps += real_steps
        counts.dreamed_steps += dreamed_steps
        counts.cost_evaluations += cost_evaluations
        counts.kernel_timings += kernel_timings
        counts.end_to_end_timings += end_to_end_timings
