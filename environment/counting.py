"""Counts of what a run does: steps, evaluations of the cost model, and timings.

    with counting() as counts:
        env.step(action)
    print(counts.real_steps)

The engine counts its own steps and predictions, whoever asks for them, and timing counts itself. Other work says so
with `count`. Every block of `counting` that is open in this process counts all of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping

from taso_ext import take_work


@dataclasses.dataclass
class Counts:
    """Numbers of what was done. They are complete when their block ends, and in what `take` returns.

    Attributes:
      real_steps: steps of the exact engine, each from one graph to another, also everywhere-actions and those that
        replay a plan or leave rewrites out of it, but not those that follow a dream; graphs that a search expands; and
        steps of the real environment that change no graph, which are NO-OPs and refused actions. Each is one step.
      dreamed_steps: steps in dreams of a world model, one for each row that takes it.
      cost_evaluations: graphs whose run time a cost model was asked for: those of the environment's steps, as far as
        their reward or observation needs it; those that a search judges; and those of rewrites that nobody has taken
        yet, which a look-ahead, a search or the observation of candidates shows. A known price that is asked for again
        counts again; to read the cost of a graph that was priced does not.
      kernel_timings: measurements of a single kernel, each as often as it was timed, with those that find out how many
        copies of it to time.
      end_to_end_timings: whole graphs that were timed by themselves or against another one; in a race each that was
        timed at all. The sessions and samples of one measurement are one timing, which counts however it ends.
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
        _add_work_of_engine()
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
    _add_work_of_engine()
    _open.append(counts)
    try:
        yield counts
    finally:
        _add_work_of_engine()
        _open[:] = [each for each in _open if each is not counts]


def count(
    *,
    real_steps: int = 0,
    dreamed_steps: int = 0,
    cost_evaluations: int = 0,
    kernel_timings: int = 0,
    end_to_end_timings: int = 0,
) -> None:
    """Says what was done beside the work that the engine counts; see `Counts`."""
    for counts in _open:
        counts.real_steps += real_steps
        counts.dreamed_steps += dreamed_steps
        counts.cost_evaluations += cost_evaluations
        counts.kernel_timings += kernel_timings
        counts.end_to_end_timings += end_to_end_timings


def _add_work_of_engine() -> None:
    """Counts what the engine has done since the last call, in all blocks that are open."""
    steps, predictions = take_work()
    count(real_steps=steps, cost_evaluations=predictions)
