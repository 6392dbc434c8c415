"""A table as markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.output_file import require_writable_directory
from taso_ext.files import write_text

Row = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Table:
    """Rows under columns that say what they mean.

    Attributes:
      name: of the files.
      title, notes: before and after the table.
      columns: what each means, by its key in the rows.
      formats: format specifications of numbers, by column.
      command: that makes the table again.
      pictures: by file name, what draws each into a PNG of a given path.
      summary: what matters most of a long table, shown before it, and alone where it is printed.
    """

    name: str
    title: str
    columns: Mapping[str, str]
    formats: Mapping[str, str]
    rows: Sequence[Row]
    command: str
    notes: str = ""
    pictures: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)
    summary: Table | None = None

    def markdown(self) -> str:
        """The table with what its columns mean below."""
        lines = [f"# {self.title}", "", f"`{self.command}`", ""]
        if self.summary:
            lines += [*self.summary._body(), "", "## All figures", ""]
        lines += self._body()
        lines += ["", *(f"![{name}]({name})" for name in self.pictures)] if self.pictures else []
        return "\n".join(lines) + "\n"

    def brief(self, directory: Path) -> str:
        """What is printed of it: all, or the summary and where the rest is.

        Args:
          directory: where the table has been written.
        """
        if not self.summary:
            return self.markdown()
        rest = f"All {len(self.rows):,} rows: {directory / self.name}.md"
        return "\n".join([f"# {self.title}", "", f"`{self.command}`", "", *self.summary._body(), "", rest]) + "\n"

    def csv(self) -> str:
        """The rows, unrounded."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.columns), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def write(self, directory: Path) -> None:
        """Writes `name.md`, `name.csv` and the pictures."""
        require_writable_directory(directory)
        for name, draw in self.pictures.items():
            draw(directory / name)
        write_text(directory / f"{self.name}.md", self.markdown())
        write_text(directory / f"{self.name}.csv", self.csv())

    def _body(self) -> list[str]:
        lines = ["| " + " | ".join(self.columns) + " |"]
        lines.append("|" + "|".join("---" if i == 0 else "---:" for i in range(len(self.columns))) + "|")
        lines += ["| " + " | ".join(self._cell(row, key) for key in self.columns) + " |" for row in self.rows]
        lines += ["", *(f"- `{key}`: {meaning}" for key, meaning in self.columns.items())]
        return lines + (["", self.notes] if self.notes else [])

    def _cell(self, row: Row, key: str) -> str:
        value = row.get(key, "")
        return format(value, self.formats[key]) if key in self.formats and not isinstance(value, str) else str(value)
