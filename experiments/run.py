"""`Run`: what every stage of a run works with."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from experiments.config import RunConfig
from experiments.interruption import raise_if_received
from experiments.metrics_log import MetricsLog
from experiments.progress import Bar, ProgressDisplay
from experiments.run_directory import RunDirectory
from experiments.seeds import seed_for


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: its settings, its files and where it reports to."""

    config: RunConfig
    directory: RunDirectory
    progress: ProgressDisplay

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
        with self.directory.stage(name), self.progress.stage(title, total) as bar:
            yield _InterruptibleBar(bar)


class _InterruptibleBar:
    """Reports progress, and is where a signal that Python swallowed takes effect."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar

    def update(self, done: int, **figures: float) -> None:
        self._bar.update(done, **figures)
        raise_if_received()
