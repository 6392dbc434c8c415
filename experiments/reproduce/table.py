"""A table of results and its folder: table.csv, table.md, figures as SVG and PNG, and a README.md that says what it is.

NAME/
  table.csv      the rows, unrounded
  table.md       the rows, rounded, with the meaning of every column
  figure.svg     the figure; if there are several, figure-GRAPH.svg for each
  figure.png     the same for viewers without SVG
  README.md      the command that makes the table, its settings, and what it says
  about.md       what a person has written about the table, if anything; README.md shows it
  units/         the finished units of work that the table is made of
  cuda/          the same table, measured on another device, see `other_devices`
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from environment.statistics.intervals import mean_of_seeds
from environment.statistics.runs import interquartile_mean
from experiments.output_file import require_writable, require_writable_directory
from experiments.runs.progress import ProgressDisplay
from taso_ext.files import write_text

Row = Mapping[str, str | int | float]
Figure = Callable[[Path], None]
"""Draws a figure into a file; the suffix of the file gives the format."""

SUFFIXES = ("svg", "png")
ABOUT = "about.md"
UNDEFINED = "–"
"""Stands for a value that does not exist, such as the correlation with something that never changes."""
OVER_SEEDS = {
    "low": "95 % interval of this mean, lower end",
    "high": "upper end",
    "IQM": "mean of the middle half of the seeds",
}
"""The columns, behind the mean of the seeds, that `of_seeds` fills."""


@dataclass(frozen=True)
class Table:
    """A table of results, with the meaning of its columns, its settings and its figures.

    Attributes:
      title: the heading of table.md and README.md.
      columns: the meaning of each column, by its key in the rows.
      formats: format specifications of numbers, by column.
      rows: values by column, unrounded; other keys are not shown, and a missing value is left empty.
      command: the command that makes the table again.
      notes: the settings, as text that follows the table.
      finding: what the table says, in a sentence or two.
      figures: the figures by graph.
      provenance: where, when and with which settings its units were made; empty if it has none.
      summary: the most important part of a long table; it stands before the table, and alone if the table is printed.
    """

    title: str
    columns: Mapping[str, str]
    formats: Mapping[str, str]
    rows: Sequence[Row]
    command: str
    notes: str = ""
    finding: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    summary: Table | None = None
    provenance: str = ""

    def markdown(self) -> str:
        """Returns the text of table.md: what the table says, the table, and the meaning of its columns below it."""
        lines = self._head()
        if self.summary:
            lines += [*self.summary._body(), "", "## All figures", ""]
        lines += self._body()
        lines += ["", *(f"![{name}]({name}.svg)" for name in self._figures())] if self.figures else []
        return "\n".join(lines) + "\n"

    def brief(self, directory: Path) -> str:
        """Returns the text to print: the whole table, or its summary and the path of the rest.

        Args:
          directory: where the table has been written.
        """
        if not self.summary:
            return self.markdown()
        rest = f"All {len(self.rows):,} rows: {directory / 'table.md'}"
        return "\n".join([*self._head(), *self.summary._body(), "", rest]) + "\n"

    def readme(self, about: str = "") -> str:
        """Returns the text of README.md: what the table says, its settings and its files.

        Args:
          about: what a person has written about the table.
        """
        lines = [*self._head(), *([about.strip(), ""] if about.strip() else [])]
        settings = [part for part in (self.notes, self.provenance) if part]
        lines += ["## Settings", *(text for part in settings for text in ("", part)), ""] if settings else []
        lines += [
            "[table.md](table.md) has all figures and says what they mean; [table.csv](table.csv) has them unrounded."
        ]
        lines += ["", *(f"![{name}]({name}.svg)" for name in self._figures())] if self.figures else []
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Returns the text of table.csv: the rows, unrounded."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.columns), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def write(self, directory: Path, edit: Callable[[str], str] = lambda page: page) -> None:
        """Writes all files of the folder except its units and `ABOUT`; figures of an earlier table go.

        Args:
          edit: returns the text of table.md as it is written, from that of `markdown`.
        """
        require_writable_directory(directory)
        files = {directory / f"{name}.{suffix}": draw for name, draw in self._figures().items() for suffix in SUFFIXES}
        for file, draw in files.items():
            draw(file)
        for stale in set(_figures_in(directory)) - files.keys():
            stale.unlink()
        write_text(directory / "table.md", edit(self.markdown()))
        write_text(directory / "table.csv", self.csv())
        about = directory / ABOUT
        write_text(directory / "README.md", self.readme(about.read_text(encoding="utf-8") if about.is_file() else ""))

    def _figures(self) -> dict[str, Figure]:
        """Returns the figures by the names of their files, without suffixes."""
        names = ["figure"] if len(self.figures) == 1 else [f"figure-{graph}" for graph in self.figures]
        return dict(zip(names, self.figures.values(), strict=True))

    def _head(self) -> list[str]:
        return [f"# {self.title}", "", f"`{self.command}`", "", *([self.finding, ""] if self.finding else [])]

    def _body(self) -> list[str]:
        lines = ["| " + " | ".join(self.columns) + " |"]
        lines.append("|" + "|".join("---" if i == 0 else "---:" for i in range(len(self.columns))) + "|")
        lines += ["| " + " | ".join(self._cell(row, key) for key in self.columns) + " |" for row in self.rows]
        lines += ["", *(f"- `{key}`: {meaning}" for key, meaning in self.columns.items())]
        return lines + [text for part in (self.notes, self.provenance) if part for text in ("", part)]

    def _cell(self, row: Row, key: str) -> str:
        value = row.get(key, "")
        return format(value, self.formats[key]) if key in self.formats and not isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Experiment:
    """A table that can be made again: `rlflow reproduce NAME`.

    Attributes:
      description: the help of its command.
      add_options: adds the options that only this table has.
      reproduce: makes the table; finished units of work are not done again.
    """

    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    reproduce: Callable[[argparse.Namespace, ProgressDisplay], Table]


def require_writable_folder(directory: Path, *, force: bool) -> None:
    """Checks that a table can be written into a folder.

    Raises:
      UserError: the folder has a file of a table and `force` is not set, or the folder cannot be written.
    """
    for file in _files_of_a_table(directory):
        require_writable(file, force=force)


def _files_of_a_table(directory: Path) -> Iterator[Path]:
    yield from (directory / name for name in ("table.csv", "table.md", "README.md"))
    yield from _figures_in(directory)


def _figures_in(directory: Path) -> Iterator[Path]:
    return (file for suffix in SUFFIXES for file in directory.glob(f"figure*.{suffix}"))


WHOLE = 100.0
"""Percent that nothing can save more than."""


def interval_of_seeds(
    own: Sequence[float], *, least: float = -math.inf, largest: float = math.inf
) -> tuple[float | str, ...]:
    """Returns the mean of the seeds and the ends of its interval, which one seed does not have.

    Args:
      own: the figures.
      least, largest: bounds of the figure, beyond which no interval reaches.
    """
    found = mean_of_seeds(own, least=least, largest=largest)
    return (found.value, found.low, found.high) if len(own) > 1 else (found.value, UNDEFINED, UNDEFINED)


def of_seeds(name: str, own: Sequence[float], *, least: float = -math.inf, largest: float = math.inf) -> dict[str, Any]:
    """Returns the columns of `OVER_SEEDS` beside the mean of the seeds, which is called `name`.

    Args:
      own, least, largest: as of `interval_of_seeds`.
    """
    ends = zip((name, "low", "high"), interval_of_seeds(own, least=least, largest=largest), strict=True)
    return {**dict(ends), "IQM": iqm_of_seeds(own)}


def iqm_of_seeds(own: Sequence[float]) -> float:
    """Returns the mean of the middle half of the seeds."""
    return interquartile_mean(np.array(own)[:, np.newaxis])


def spanned(values: Sequence[float], digits: int = 1) -> str:
    """Returns the range of some values as text, one number if they are equal when rounded: `14.9` or `2.1 to 14.9`."""
    low, high = (f"{round(end(values), digits) + 0.0:.{digits}f}" for end in (min, max))  # + 0.0: no negative zero
    return low if low == high else f"{low} to {high}"


def mean_of(records: Sequence[Mapping[str, Any]], key: str, factor: float = 1.0) -> float | str:
    """Returns the mean of a figure over the records that have it, times a factor."""
    known = [factor * float(record[key]) for record in records if record.get(key) is not None]
    return sum(known) / len(known) if known else UNDEFINED
