"""The page of tables: that of all kept tables is small enough, and each figure has the smaller one of its forms."""

from __future__ import annotations

import importlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from experiments.errors import UserError
from experiments.reports.command import KEPT
from experiments.reports.page import extra
from experiments.reports.page.document import LARGEST_PAGE, MOST_ROWS

PROGRAMS_BYTES = 900_000
"""The size of the programs that draw the charts: Vega, Vega-Lite and vega-embed."""
RESERVE = 300_000
"""Bytes that the page of all kept tables must leave for the next tables."""


@pytest.fixture
def results_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the module that makes pages of tables; without the extra `report`, its charts are as large as ever."""
    name = "experiments.reports.page.results_page"
    if extra.is_installed():
        return importlib.import_module(name)
    stub: Any = ModuleType("experiments.reports.page.charts")
    stub.Spec = dict
    stub.programs = lambda: "x" * PROGRAMS_BYTES
    stub.interval_chart = lambda rows, figure, neutral: {"values": rows, "rest": "x" * 2000}
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    monkeypatch.setattr("experiments.reports.page.charts", stub, raising=False)
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    del sys.modules[name]  # which has the stub
    return module


def noise(path: Path) -> Path:
    """Writes a PNG that few colours make smaller, and returns its path."""
    Image.effect_noise((120, 90), 80).convert("RGB").save(path)
    return path


def test_the_page_of_all_kept_tables_is_small_enough(results_page: Any, tmp_path: Path) -> None:
    page = tmp_path / "results.html"
    results_page.write_results_page(KEPT, page)
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST_PAGE - RESERVE
    assert text.count('<h2 id="table-') == len(list(KEPT.rglob("table.csv")))
    assert text.count('<img src="data:') == len(list(KEPT.rglob("figure*.svg")))


def test_a_long_table_says_where_its_other_rows_are(results_page: Any, tmp_path: Path) -> None:
    rows = MOST_ROWS + 1
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "table.csv").write_text("a\n" + "".join(f"{row}\n" for row in range(rows)))
    results_page.write_results_page(tmp_path, tmp_path / "results.html")
    text = (tmp_path / "results.html").read_text(encoding="utf-8")
    assert f"The first {rows - 1} of {rows} rows; long/table.csv has them all" in text
    assert f"<td>{rows - 2}</td>" in text and f"<td>{rows - 1}</td>" not in text


def test_cells_sort_by_the_digits_that_they_show(results_page: Any, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "table.csv").write_text("a\n12345.678\n0.123456\n-7\n", encoding="utf-8")
    results_page.write_results_page(tmp_path, tmp_path / "results.html")
    text = (tmp_path / "results.html").read_text(encoding="utf-8")
    assert '<td data-value="12346">12,346</td>' in text and "<td>0.1235</td>" in text and "<td>-7</td>" in text


def test_tables_without_a_file_of_their_figures_are_named(results_page: Any, tmp_path: Path) -> None:
    for name, file in {"a": "table.csv", "b": "table.md"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("count\n1\n")
    results_page.write_results_page(tmp_path, tmp_path / "results.html")
    assert "Not shown, since they have no table.csv: b." in (tmp_path / "results.html").read_text(encoding="utf-8")


def test_tables_are_in_the_order_and_under_the_headings_of_the_readme(results_page: Any, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.csv").write_text("count\n50032.6\n")
    rows = {name: f"| [{name}]({name}/README.md) | what | command |\n" for name in ("a", "b", "gone")}
    readme = f"# Results\n\n## First\n\n{rows['b']}{rows['gone']}\n## Empty\n\n## Second\n\n{rows['a']}"
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / "a" / "table-more.csv").write_text("name\nmore of a\n")
    (tmp_path / "a" / "table-more.md").write_text("# Further\n\n`rlflow reproduce a --more`\n\n- `name`: who\n")
    results_page.write_results_page(tmp_path, tmp_path / "results.html")
    text = (tmp_path / "results.html").read_text(encoding="utf-8")
    assert re.findall(r"<h3>(.*?)</h3>", text) == ["First", "Second"]
    _, of_a, _ = re.split(r"<h2[^>]*>[ac]</h2>", text)
    further = of_a.partition("Further</h3>")[2]
    assert "rlflow reproduce a --more" in further and "more of a" in further and 'title="who"' in further
    assert re.findall(r'<a href="#[^"]+">(.*?)</a>', text) == ["b", "a", "c"]
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", text) == ["b", "a", "c"]
    assert "50,033" in text


def test_a_figure_is_embedded_in_the_smaller_one_of_its_forms(results_page: Any, tmp_path: Path) -> None:
    svg, png = tmp_path / "figure.svg", tmp_path / "figure.png"
    svg.write_bytes(b"<svg/>")
    assert results_page.picture_of(svg).kind == "image/svg+xml", "there is no PNG"
    noise(png)
    assert results_page.picture_of(svg) == ("image/svg+xml", b"<svg/>")
    svg.write_bytes(b"<svg>" + b"<path/>" * 10_000 + b"</svg>")
    kind, data = results_page.picture_of(svg)
    assert kind == "image/webp" and len(data) < png.stat().st_size
    with Image.open(io.BytesIO(data)) as shown:
        assert shown.size == (120, 90) and len(shown.getcolors() or []) <= results_page.COLOURS


def test_a_damaged_picture_is_named(results_page: Any, tmp_path: Path) -> None:
    (tmp_path / "figure.svg").write_bytes(b"<svg/>")
    (tmp_path / "figure.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"figure\.png is no picture that can be read"):
        results_page.picture_of(tmp_path / "figure.svg")
