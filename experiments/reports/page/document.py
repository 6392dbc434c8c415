"""The skeleton of a page: escaped text, tables that sort, and everything that the page needs inlined.

This module may read the files of `browser` and nothing else; it knows nothing of runs.
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
import string
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from experiments.errors import UserError
from experiments.runs.directory import without_nonfinite

SCRIPTS = ("layout.js", "graph.js", "page.js")
LARGEST_PAGE = 5_000_000
"""Bytes that a page may have, so that it can be sent and opened everywhere."""
MOST_ROWS = 400
"""Rows of a table of results that a page shows; those of the longest tables would be a third of it."""
FILTERED_FROM = 15
"""Rows from which a table has a box to filter them."""
LONG_TEXT = 45
"""Characters from which a text goes over several lines of its cell."""
_FIGURE = re.compile(
    r"(?:ratio )?([+\-−]?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)(?: ± [\d.]+)?(?: %)?(?:\s+[\[(].*)?", re.DOTALL
)

_DIGITS = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)


class Markup(str):
    """HTML whose texts are escaped."""

    __slots__ = ()


class Cell(NamedTuple):
    """A cell of a table: its text, and the number by which its column is sorted; None sorts by the text."""

    text: str
    value: float | None = None


class Picture(NamedTuple):
    """The content of a picture's file and its media type, such as `image/png`."""

    kind: str
    data: bytes


def escaped(text: str) -> Markup:
    """Returns text that is shown as it is; markup stays."""
    return text if isinstance(text, Markup) else Markup(html.escape(text))


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """Returns an element. Children are escaped unless they are markup; `class_` and `data_x` name class and data-x."""
    named = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{named}>{''.join(map(escaped, children))}</{name}>")


def prose(text: str) -> Markup:
    """Returns the HTML of a paragraph of Markdown: code, bold texts, and the texts of its links without the links."""
    found = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    found = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(found, quote=False))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", found))


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    *,
    name: str,
    meanings: Mapping[str, str] | None = None,
) -> Markup:
    """Returns a table whose columns sort.

    Args:
      headings: the names of the columns.
      rows: one cell for each column; a column without numbers is aligned to the left, like text.
      name: an identifier that no other table of the page has.
      meanings: what columns mean, by heading; shown when the pointer rests on them.
    """
    known = meanings or {}
    cells = [[each if isinstance(each, Cell) else Cell(each, leading_number(each)) for each in row] for row in rows]
    kinds = [{} if _has_number(cells, at) else {"class_": "text"} for at in range(len(headings))]
    heads = [
        tag("th", tag("button", each), scope="col", title=known.get(each) or "sort", **kind)
        for each, kind in zip(headings, kinds, strict=True)
    ]
    lines = [tag("tr", *(_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True))) for row in cells]
    made = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *lines), class_="sorts", id=name)
    found = tag("div", made, class_="wide", tabindex="0")
    if len(rows) < FILTERED_FROM:
        return found
    box = Markup(
        f'<input type="search" data-table="{html.escape(name)}" placeholder="filter {len(rows):,} rows" '
        'aria-label="filter rows">'
    )
    return Markup(tag("div", box, class_="controls") + found)


def _has_number(rows: Sequence[Sequence[Cell]], column: int) -> bool:
    return any(row[column].value is not None for row in rows)


def _cell(cell: Cell, kind: Mapping[str, str]) -> Markup:
    attributes = {**kind, "class_": "text long"} if len(cell.text) > LONG_TEXT and kind else dict(kind)
    if cell.value is not None and math.isfinite(cell.value) and not _says(cell.text, cell.value):
        attributes["data_value"] = f"{cell.value:.8g}"
    return tag("td", cell.text, **attributes)


def _says(text: str, value: float) -> bool:
    """Returns whether a text is the number itself in digits, which the page sorts by without being told."""
    return _DIGITS.fullmatch(text) is not None and float(text) == value


def leading_number(text: str) -> float | None:
    """Returns the number of a cell such as `1,324`, `-25.0 ± 3.75 %` or `ratio 0.90 [0.88, 0.92]`; None of another."""
    found = _FIGURE.fullmatch(text)
    return float(found[1].replace("−", "-").replace(",", "")) if found else None


def note(text: str) -> Markup:
    """Returns a paragraph that explains something beside it."""
    return tag("p", text, class_="soft")


def figure(chart: str) -> Markup:
    """Returns the place of a chart under its title, which is its name among the page's charts too."""
    return tag("figure", tag("h3", chart), tag("div", data_chart=chart))


def image(name: str, picture: Picture) -> Markup:
    """Returns a figure with a picture; the ids of an SVG cannot meet those of other pictures."""
    source = f"data:{picture.kind};base64,{base64.b64encode(picture.data).decode()}"
    return tag("figure", Markup(f'<img src="{source}" alt="{html.escape(name)}">'))


def document(
    title: str, body: Sequence[Markup], data: Mapping[str, Any], programs: Sequence[str] = (), *, advice: str
) -> str:
    """Returns a whole page, which asks nothing of any server.

    Args:
      title: the title of the window.
      body: the parts of the page.
      data: plain values by the identifiers under which the programs of the page find them.
      programs: JavaScript of others that the page needs.
      advice: what to do if the page is too large, as a sentence.
    Raises:
      UserError: the page is larger than 5 MB.
    """
    files = resources.files(__package__).joinpath("browser")
    texts = {name: files.joinpath(name).read_text(encoding="utf-8") for name in (*SCRIPTS, "page.css", "page.html")}
    own = "\n".join(texts[name] for name in SCRIPTS)
    page = string.Template(texts["page.html"]).substitute(
        title=html.escape(title),
        style=texts["page.css"],
        body="\n".join(body),
        data="\n".join(_data(name, value) for name, value in data.items()),
        scripts="\n".join(
            f"<script>\n{_as_script(program)}\n</script>" for program in (*programs, f"(() => {{\n{own}\n}})();")
        ),
    )
    if (size := len(page.encode())) > LARGEST_PAGE:
        raise UserError(f"The page would have {size / 1e6:.1f} MB, more than {LARGEST_PAGE / 1e6:.0f} MB. {advice}")
    return page


def as_json(value: Any) -> str:
    """Returns compact JSON that may stand in a script element: no text in it ends the element or begins a comment."""
    text = json.dumps(without_nonfinite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _data(name: str, value: Any) -> str:
    return f'<script type="application/json" id="{html.escape(name)}">{as_json(value)}</script>'


def _as_script(program: str) -> str:
    """Returns JavaScript without what would end the script element; such texts can only stand in its strings."""
    return program.replace("</script", "<\\/script").replace("<!--", "<\\!--")
