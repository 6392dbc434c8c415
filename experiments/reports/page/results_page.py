"""One page of all tables in a folder, such as experiments/results or runs/reproduce."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from PIL import Image

from experiments.errors import UserError
from experiments.reports.page import charts
from experiments.reports.page.document import MOST_ROWS, Cell, Markup, Picture, document, image, prose, table, tag
from taso_ext.files import write_text

TABLE, FURTHER, ABOUT = "table.csv", "table-*.csv", "README.md"
NEUTRAL = {"ratio": 1.0, "gain": 0.0}
"""Columns that are drawn with their intervals, the columns `low` and `high`; and their values where nothing changes."""
WHOLE_FROM, WHOLE_TO = 1e4, 1e12
"""Numbers of such sizes are shown without a fraction, since four digits of them would need an exponent."""
COLOURS = 64
"""Colours of a picture in the page: enough for lines with smooth edges and for the shades of a heat map."""
MOST_DRAWN = 60
"""Rows of a table above which a chart of all of them would be too long to read."""


@dataclasses.dataclass(frozen=True)
class Kept:
    """A table that `rlflow reproduce` or a program of tests has written.

    Attributes:
      folder, file: where it is, relative to the folder of the page, and its name there.
      title, command, finding: the heading, the command and the first paragraph of README.md, or of the table's own page
        if it is a further table of its folder; empty if there is none.
      columns: the meaning of each column; empty where the table's page says none.
      rows: texts by column, unrounded.
      figures: the pictures by the names of their SVG files, see `picture_of`; a further table has none.
    """

    folder: str
    file: str
    title: str
    command: str
    finding: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, str]]
    figures: Mapping[str, Picture]

    @classmethod
    def read(cls, path: Path, root: Path) -> Kept:
        """Reads a table and the pages beside it.

        Raises:
          UserError: it is no table.
        """
        folder, name, page = path.parent, path.parent.relative_to(root).as_posix(), path.with_suffix(".md")
        is_first = path.name == TABLE
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file, strict=True)
                rows, headings = list(reader), list(reader.fieldnames or ())
            about, said = _text(folder / ABOUT if is_first else page), _text(page)
        except (OSError, csv.Error, UnicodeDecodeError) as error:
            raise UserError(f"{path} is no table that can be read: {error}. Make it again, or move it away.") from error
        if not headings or any(None in row or None in row.values() for row in rows):
            raise UserError(
                f"{path} is no table that can be read: its rows have not as many cells as its first line. Make it "
                "again, or move it away."
            )
        meanings = dict(re.findall(r"^- `([^`]+)`: (.+)$", said, re.MULTILINE))
        command = re.search(r"^`(.+)`$", about, re.MULTILINE)
        return cls(
            folder=name,
            file=path.name,
            title=_first(r"^# (.+)$", about) or name,
            command=command[1] if command else "",
            finding=_finding(about) if is_first else "",
            columns={heading: meanings.get(heading, "") for heading in headings},
            rows=rows,
            figures={each.name: picture_of(each) for each in sorted(folder.glob("figure*.svg"))} if is_first else {},
        )

    @property
    def is_further(self) -> bool:
        """Whether it is not the first table of its folder."""
        return self.file != TABLE


def picture_of(svg: Path) -> Picture:
    """Returns a figure as the smaller of its SVG and the PNG beside it, if there is one.

    The SVG of a long curve or of a scatter plot has several times the size of its PNG. This becomes a lossless WebP of
    `COLOURS` colours, which is a quarter smaller than a PNG of as many.

    Raises:
      UserError: the PNG cannot be read.
    """
    drawn, png = Picture("image/svg+xml", svg.read_bytes()), svg.with_suffix(".png")
    if not png.is_file():
        return drawn
    file = io.BytesIO()
    try:
        with Image.open(png) as pixels:
            few = pixels.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.convert("RGB").save(file, "WEBP", lossless=True)
    except OSError as error:
        raise UserError(
            f"{png} is no picture that can be read: {error}. Make its table again, or move it away."
        ) from error
    return min(drawn, Picture("image/webp", file.getvalue()), key=lambda each: len(each.data))


def write_results_page(folder: Path, path: Path) -> None:
    """Writes the page of all tables in a folder and below it.

    Raises:
      UserError: there are none, one cannot be read, or the page would be larger than 5 MB.
    """
    firsts = sorted(folder.rglob(TABLE))
    found = [Kept.read(each, folder) for first in firsts for each in (first, *sorted(first.parent.glob(FURTHER)))]
    if not found:
        raise UserError(f"{folder} has no tables: expected folders with a {TABLE}, as `rlflow reproduce` writes them.")
    chapters = _chapters(found, _text(folder / ABOUT))
    found = [kept for tables in chapters.values() for kept in tables]
    numbers = {kept.folder: number for number, kept in enumerate(found) if not kept.is_further}
    specs = {kept.folder: spec for kept in found if (spec := _interval_spec(kept)) is not None}
    title = f"Tables in {folder.resolve().name}"
    body = [
        tag("h1", title),
        tag("p", f"{len(found)} tables. Columns sort, and headings say what they mean.", class_="soft"),
        *_left_out(folder),
        *(_contents(heading, tables, numbers) for heading, tables in chapters.items()),
        *(_section(number, kept, not kept.is_further and kept.folder in specs) for number, kept in enumerate(found)),
    ]
    data, programs = ({"charts": specs}, [charts.programs()]) if specs else ({}, [])
    advice = "Name a folder with fewer or shorter tables."
    write_text(path, document(title, body, data, programs, advice=advice))


def _left_out(folder: Path) -> list[Markup]:
    """Returns a paragraph on the tables that are pages alone, without a file of their figures, if there are any."""
    pages = (page.parent for page in sorted(folder.rglob("table.md")))
    names = [page.relative_to(folder).as_posix() for page in pages if not (page / TABLE).is_file()]
    return [tag("p", f"Not shown, since they have no {TABLE}: {', '.join(names)}.", class_="soft")] if names else []


def _chapters(found: Sequence[Kept], about: str) -> dict[str, list[Kept]]:
    """Returns the tables by the headings of the folder's README.md under which it links to them, in its order.

    Tables to which no heading leads come last, under an empty heading.
    """
    left: dict[str, list[Kept]] = {}
    for kept in found:
        left.setdefault(kept.folder, []).append(kept)
    chapters: dict[str, list[Kept]] = {}
    for part in about.split("\n## ")[1:]:
        linked = re.findall(rf"^\| \[[^\]]+\]\((.+)/{re.escape(ABOUT)}\)", part, re.MULTILINE)
        if tables := [kept for folder in linked for kept in left.pop(folder, ())]:
            chapters[part.partition("\n")[0]] = tables
    return chapters | ({"": [kept for tables in left.values() for kept in tables]} if left else {})


def _contents(heading: str, tables: Sequence[Kept], numbers: Mapping[str, int]) -> Markup:
    """Returns the links to the tables of one chapter below its heading, if it has one."""
    firsts = [kept for kept in tables if not kept.is_further]
    links = tag("nav", *(tag("a", kept.title, href=f"#{_identifier(numbers[kept.folder])}") for kept in firsts))
    return Markup(tag("h3", heading) + links) if heading else links


def _section(number: int, kept: Kept, has_chart: bool) -> Markup:
    """Returns the title, the finding, the chart, the pictures and the rows of one table."""
    name, headings = _identifier(number), list(kept.columns)
    rows = [[_cell(row[heading]) for heading in headings] for row in kept.rows[:MOST_ROWS]]
    parts = [tag("h3" if kept.is_further else "h2", kept.title, id=name)]
    parts += [tag("p", tag("code", kept.command or f"{kept.folder}/{kept.file}"), class_="soft")]
    parts += [tag("p", prose(kept.finding))] if kept.finding else []
    parts += [tag("figure", tag("div", data_chart=kept.folder))] if has_chart else []
    parts += [image(file, picture) for file, picture in kept.figures.items()]
    made = table(headings, rows, name=f"{name}-table", meanings=kept.columns)
    number_of_rows = f"{len(rows):,} rows"
    if len(rows) < len(kept.rows):
        number_of_rows = f"The first {len(rows):,} of {len(kept.rows):,} rows; {kept.folder}/{kept.file} has them all"
    return Markup("".join([*parts, tag("details", tag("summary", number_of_rows), made, **_open(len(rows)))]))


def _open(rows: int) -> dict[str, str]:
    return {"open": ""} if rows <= MOST_DRAWN else {}


def _interval_spec(kept: Kept) -> charts.Spec | None:
    """Returns a chart of the figure that has an interval in each row of a first table; None if it has none, or many."""
    figure = next((each for each in NEUTRAL if {each, "low", "high"} <= set(kept.columns)), None)
    if kept.is_further or figure is None or len(kept.rows) > MOST_DRAWN:
        return None
    rows = list(_intervals(kept, figure))
    return charts.interval_chart(rows, figure, neutral=NEUTRAL[figure]) if rows else None


def _intervals(kept: Kept, figure: str) -> Iterator[dict[str, str | float]]:
    """Yields the rows that have the figure, named by the texts, and by the seed, that stand before it."""
    names = list(kept.columns)[: list(kept.columns).index(figure)]
    for row in kept.rows:
        value, low, high = (_number(row[each]) for each in (figure, "low", "high"))
        if value is not None:
            words = [f"seed {row[each]}" if each == "seed" else row[each] for each in names]
            label = ", ".join(word for word in words if word and word != "–" and _number(word) is None)
            ends = {} if low is None or high is None else {"low": low, "high": high}
            yield {"label": label, "value": value, **ends}


def _cell(text: str) -> Cell:
    """Returns a cell with four digits of a number. It sorts by them: all digits beside would be a tenth of the page."""
    number = _number(text)
    if number is None or re.fullmatch(r"[+-]?\d+", text):
        return Cell(text, number)
    written = f"{number:,.0f}" if WHOLE_FROM <= abs(number) < WHOLE_TO else f"{number:.4g}"
    return Cell(written, float(written.replace(",", "")))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _finding(about: str) -> str:
    """Returns the first paragraph of plain text in a README.md."""
    paragraphs = about.split("\n## ")[0].split("\n\n")
    plain = (each.strip() for each in paragraphs if each.strip() and each.strip()[0] not in "#`|!-<[")
    return next(plain, "")


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _identifier(number: int) -> str:
    return f"table-{number}"
