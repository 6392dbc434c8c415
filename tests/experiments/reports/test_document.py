"""Pages hold text as text, tables know the numbers of their cells, and nothing points to a server."""

from __future__ import annotations

import html.parser
import json
import re

import pytest

from experiments.errors import UserError
from experiments.reports.page import document
from experiments.reports.page.document import Cell, Markup, as_json, leading_number, prose, table, tag

HOSTILE = "</script><script>alert(1)</script><!--\" onclick='x' & <b>"


class Reader(html.parser.HTMLParser):
    """Collects the elements of a page with their attributes, and the texts between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page(*body: Markup, data: object = None) -> str:
    return document.document(HOSTILE, list(body), {} if data is None else {"data": data}, advice="Shorten it.")


def test_hostile_text_stays_text_everywhere() -> None:
    columns = table([HOSTILE, "n"], [[HOSTILE, "1"]], name="t", meanings={HOSTILE: HOSTILE})
    made = page(tag("h1", HOSTILE, title=HOSTILE), columns, data={HOSTILE: [HOSTILE]})
    read = Reader(made)
    names = [name for name, _ in read.elements]
    assert names.count("script") == 2, "the data and the programs of the page"
    assert "b" not in names and not any("onclick" in attributes for _, attributes in read.elements)
    assert [text for text in read.texts if text == HOSTILE] == [HOSTILE] * 4, "title, heading, column and cell"
    stored = re.search(r'<script type="application/json" id="data">(.*?)</script>', made, re.DOTALL)
    assert stored is not None and json.loads(stored[1]) == {HOSTILE: [HOSTILE]}


def test_json_in_a_page_is_json_without_infinities() -> None:
    assert json.loads(as_json({"a": [float("inf"), float("nan"), 1.5, "<"]})) == {"a": [None, None, 1.5, "<"]}
    assert "<" not in as_json(HOSTILE)


def test_a_page_names_no_server_and_allows_none() -> None:
    read = Reader(page(tag("p", "text")))
    policy = next(each["content"] for name, each in read.elements if name == "meta" and "http-equiv" in each)
    assert policy is not None and policy.startswith("default-src 'none';") and "http" not in policy
    assert not [each for _, each in read.elements if {"src", "href"} & each.keys()]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,324", 1324),
        ("-25.0 ± 3.75 %", -25),
        ("−5.6 %", -5.6),
        ("ratio 0.900 [0.880, 0.920]", 0.9),
        ("19.19 %  (1 episode)", 19.19),
        ("1e-04", 1e-4),
        ("3x3 of 64", None),
        ("64->64 3x3", None),
        ("2 min 05 s", None),
        ("1.2.3", None),
        ("–", None),
        ("", None),
    ],
)
def test_the_number_of_a_cell(text: str, number: float | None) -> None:
    assert leading_number(text) == number


def test_cells_carry_their_numbers_and_columns_of_text_are_marked() -> None:
    made = table(["name", "ms", "what"], [["a", Cell("2 min", 120.0), "x" * 60], ["b", "3", "y"]], name="t")
    cells = [each for name, each in Reader(made).elements if name == "td"]
    assert [each.get("data-value") for each in cells] == [None, "120", None, None, None, None]
    assert [each.get("class") for each in cells] == ["text", None, "text long", "text", None, "text"]


def test_a_cell_repeats_no_number_that_its_text_is() -> None:
    cells = [
        Cell("12", 12.0),
        Cell("-0.5", -0.5),
        Cell("1,324", 1324.0),
        Cell("0.1594", 0.15936123),
        Cell("1e-04", 1e-4),
    ]
    made = table(["n"], [[cell] for cell in cells], name="t")
    values = [each.get("data-value") for name, each in Reader(made).elements if name == "td"]
    assert values == [None, None, "1324", "0.15936123", "0.0001"]


def test_only_long_tables_have_a_filter() -> None:
    for count in (document.FILTERED_FROM - 1, document.FILTERED_FROM):
        made = table(["a"], [["x"]] * count, name="t")
        assert ("input" in [name for name, _ in Reader(made).elements]) == (count == document.FILTERED_FROM)


def test_markdown_becomes_code_bold_and_text_of_links() -> None:
    assert prose("see [the *page*](a.md): `x < 1`, **2**") == "see the *page*: <code>x &lt; 1</code>, <b>2</b>"


def test_a_page_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(page(tag("p", "text")).encode())
    monkeypatch.setattr(document, "LARGEST_PAGE", size - 1)
    with pytest.raises(UserError, match=r"would have 0\.0 MB, more than 0 MB\. Shorten it\."):
        page(tag("p", "text"))
    monkeypatch.setattr(document, "LARGEST_PAGE", size)
    assert page(tag("p", "text"))
