"""`Run`: what every stage of a run works with."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from experiments.config.run import RunConfig
from experiments.runs.directory import RunDirectory
from experiments.runs.interruption import raise_if_received
from experiments.runs.metrics import MetricsLog
from experiments.runs.progress import Bar, ProgressDisplay
from experiments.runs.seeds import seed_for


def of_round(name: str, number: int) -> str:
    """Name of a stage, a checkpoint or a seed in a round of recollection; what is before the first has no number."""
    return f"{name}-{number}" if number else name


def in_round(title: str, number: int) -> str:
    """Title of a stage in a round."""
    return f"{title}, round {number}" if number else title


@dataclasses.dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
      config: its settings.
      directory: its files.
      progress: where it reports to.
      label: before the title of every stage, where several runs report to one place ("bert-base seed 0: ").
    """

    config: RunConfig
    directory: RunDirectory
    progress: ProgressDisplay
    label: str = ""

    @property
    def metrics(self) -> MetricsLog:
        return MetricsLog(self.directory.path / "metrics.jsonl")

    def seed(self, purpose: str) -> int:
        """Seed of one purpose; see `seed_for`."""
        return seed_for(self.config.seed, purpose)

    @contextlib.contextmanager
    def stage(self, name: str, title: str, total: int) -> Iterator[Bar]:
        """Times a stage and shows its progress; it is finished when the block ends without an exception."""
        raise_if_received()
        with self.directory.stage(name), self.progress.stage(f"{self.label}{title}", total) as bar:
            yield _InterruptibleBar(bar)

    @contextlib.contextmanager
    def bar(self, title: str, total: int) -> Iterator[Bar]:
        """Shows the progress of work that is no stage: nothing of it is kept."""
        raise_if_received()
        with self.progress.stage(f"{self.label}{title}", total) as bar:
            yield _InterruptibleBar(bar)


class _InterruptibleBar:
    """Reports progress, and is where a signal that Python swallowed takes effect."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar

    def update(self, done: int, **figures: float) -> None:
        self._bar.update(done, **figures)
        raise_if_received()
