"""Pages open from the disk in Chromium: no errors, nothing loaded, tables sort, the slider moves, charts answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from experiments.cli import main
from experiments.reports.page.document import LARGEST_PAGE, MOST_ROWS
from experiments.runs.directory import MetricsLog
from tests.commands import failure
from tests.experiments.reports.chromium import Chromium

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
HOSTILE = "</script><img src=x onerror=alert(1)>"
OPTIONS = ("--costs", "roofline:rtx2070", "--set", "measure.pairs=2")
ROWS = "[...document.querySelector('#{table}').tBodies[0].rows].filter(row => !row.hidden)"
WIDTHS = (420, 1280)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a run directory that a search has left, with its page."""
    folder = tmp_path_factory.mktemp("run")
    command = ["optimise", "squeezenet1.1-tiny", "-o", str(folder / "out.onnx"), "--run-dir", str(folder / "run")]
    assert main([*command, "--controller", "taso", "--budget", "200", *OPTIONS]) == 0
    return folder / "run"


def opened(browser: Chromium, page: Path, **options: Any) -> Chromium:
    """Opens a page and checks that it is small, that nothing goes wrong, and that it loads nothing else."""
    assert page.stat().st_size < LARGEST_PAGE
    browser.problems.clear()
    browser.requests.clear()
    browser.open(page, **options)
    assert browser.problems == [] and browser.requests == [page.absolute().as_uri()]
    return browser


def column(browser: Chromium, table: str, at: int) -> list[str]:
    """Returns the texts of a column, from top to bottom."""
    texts: list[str] = browser.value(f"{ROWS.format(table=table)}.map(row => row.cells[{at}].textContent)")
    return texts


def move(browser: Chromium, rewrite: int) -> None:
    """Moves the slider as a user would, and waits until the rewrite is shown."""
    browser.value(
        f"new Promise(done => {{ document.addEventListener('rewrite-shown', done, {{ once: true }});"
        "const slider = document.querySelector('.rewrites input[type=range]');"
        f"slider.value = {rewrite}; slider.dispatchEvent(new Event('input')); }}).then(() => 0)"
    )


def marked(browser: Chromium) -> dict[str, list[str]]:
    """Returns the types of the operators that are shown as replaced and as made."""
    found = "[...document.querySelectorAll('.operator.{kind} text:not(.under)')].map(each => each.textContent).sort()"
    return {kind: browser.value(found.format(kind=kind)) for kind in ("gone", "made")}


def test_the_page_of_a_run_opens_from_the_disk_at_every_width_and_in_both_modes(browser: Chromium, run: Path) -> None:
    colours = set()
    for width in WIDTHS:
        for dark in (False, True):
            opened(browser, run / "report.html", width=width, dark=dark)
            assert browser.value("document.documentElement.scrollWidth <= innerWidth")
            colours.add(browser.value("getComputedStyle(document.body).backgroundColor"))
            labels = "getComputedStyle(document.querySelector('[data-chart] svg text')).fill"
            assert browser.value(labels) == browser.value("getComputedStyle(document.body).color")
    assert len(colours) == 2


def test_a_click_on_a_heading_sorts_up_and_then_down(browser: Chromium, run: Path) -> None:
    opened(browser, run / "report.html")
    changes = [each for each in column(browser, "rewrites-table", 7) if each != "–"]
    for descending in (False, True):
        browser.value("document.querySelectorAll('#rewrites-table th button')[7].click()")
        assert column(browser, "rewrites-table", 7) == sorted(changes, key=float, reverse=descending)
        state = browser.value("document.querySelectorAll('#rewrites-table th')[7].getAttribute('aria-sort')")
        assert state == ("descending" if descending else "ascending")
    browser.value("document.querySelectorAll('#rewrites-table th button')[1].click()")
    rules = column(browser, "rewrites-table", 1)
    assert rules == sorted(rules) and len(set(rules)) > 1


def test_the_slider_shows_what_each_rewrite_replaces_and_makes(browser: Chromium, run: Path) -> None:
    log = json.loads((run / "actions.json").read_text(encoding="utf-8"))
    opened(browser, run / "report.html")
    counts = list(zip(*(map(int, column(browser, "rewrites-table", at)) for at in (4, 5)), strict=True))
    assert len(counts) == len(log["actions"]) >= 3
    operators = (
        "[...document.querySelectorAll('.pane')].map(each => each.querySelectorAll('.operator:not(.end)').length)"
    )
    before, after = browser.value(operators)
    figures = json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert (before, after) == (figures["before"]["operators"], figures["after"]["operators"])
    number_of_operators = before
    for rewrite, (action, (gone, made)) in enumerate(zip(log["actions"], counts, strict=True), 1):
        move(browser, rewrite)
        said = browser.value("document.querySelector('.rewrites output').textContent")
        assert said.startswith(f"Rewrite {rewrite} of {len(counts)}, {action['rule_name']} at location")
        shown = marked(browser)
        assert (len(shown["gone"]), len(shown["made"])) == (gone, made)
        named = said.split("): ")[1].split("; ")[0].split(" → ")
        assert [sorted(each.split(", ")) for each in named] == [shown["gone"], shown["made"]]
        assert browser.value(operators) == [number_of_operators, number_of_operators - gone + made]
        number_of_operators += made - gone
    assert number_of_operators == after and browser.problems == []


def test_a_rewrite_within_a_step_says_when_its_cost_is_known(browser: Chromium, run: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(run, tmp_path / "changed")
    log = json.loads((changed / "actions.json").read_text(encoding="utf-8"))
    log["actions"][0]["cost_ms"] = None  # as if both were one step that carries a rule out everywhere
    log["actions"][1]["step"] = 0
    (changed / "actions.json").write_text(json.dumps(log))
    assert main(["report", str(changed)]) == 0
    opened(browser, changed / "report.html")
    for rewrite, said in ((1, "is known when its step ends."), (2, "estimated time over the whole step ")):
        move(browser, rewrite)
        assert said in browser.value("document.querySelector('.rewrites output').textContent")
    assert column(browser, "rewrites-table", 6)[0] == "–" and browser.problems == []


def test_what_a_rewrite_replaces_is_in_sight(browser: Chromium, run: Path) -> None:
    for width in WIDTHS:
        opened(browser, run / "report.html", width=width)
        last = int(browser.value("document.querySelector('.rewrites input[type=range]').max"))
        for rewrite in range(last + 1):
            move(browser, rewrite)
            in_sight = (
                "[...document.querySelectorAll('.pane')].every(pane => { const box = pane.getBoundingClientRect();"
                "return [...pane.querySelectorAll('.gone, .made')].some(each => { const own ="
                "each.getBoundingClientRect(); return own.top >= box.top && own.bottom <= box.bottom; }) })"
            )
            assert browser.value(in_sight), rewrite


def test_buttons_rows_and_points_of_the_chart_lead_to_a_rewrite(browser: Chromium, run: Path) -> None:
    opened(browser, run / "report.html")
    sentence = "document.querySelector('.rewrites output').textContent.startsWith('Rewrite {} of ')"
    browser.value("document.querySelector('#rewrites-table tbody tr:nth-child(2) button').click()")
    browser.wait_for(sentence.format(2))
    browser.value("document.querySelector('[data-go=\"1\"]').click()")
    browser.wait_for(sentence.format(3))
    place = browser.value(
        "(() => { const chart = document.querySelector('[data-chart]'); chart.scrollIntoView({ block: 'center' });"
        "const box = chart.querySelectorAll('.mark-symbol path')[1].getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        event = {"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        browser.call("Input.dispatchMouseEvent", event)
        if kind == "mouseMoved":
            browser.wait_for("document.querySelector('#vg-tooltip-element.visible')")
            assert "relu-" in browser.value("document.querySelector('#vg-tooltip-element').textContent")
    browser.wait_for(sentence.format(1))
    assert browser.problems == []


def test_a_click_on_an_operator_says_what_it_reads_and_zooming_changes_the_size(browser: Chromium, run: Path) -> None:
    opened(browser, run / "report.html")
    browser.value("document.querySelector('.operator.gone').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    details = browser.value("document.querySelector('.details').textContent").split("\n")
    assert details[1].startswith("reads ") and details[2].startswith("makes float ")
    width = "Number(document.querySelector('.pane svg').getAttribute('width'))"
    before = browser.value(width)
    browser.value("document.querySelector('[data-zoom=\"1.25\"]').click()")
    assert browser.value(width) == pytest.approx(1.25 * before)


def test_no_text_of_a_model_becomes_markup(browser: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"{HOSTILE}{number}" for number in range(3)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in (names[0], names[2])]
    nodes = [
        helper.make_node("Relu", [names[0]], [names[1]], name=HOSTILE),
        helper.make_node("Relu", [names[1]], [names[2]], name=f"{HOSTILE}2"),
    ]
    graph = helper.make_graph(nodes, "hostile", values[:1], values[1:])
    path = Path("<img src=x onerror=alert(2)>.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    command = ["optimise", str(path), "-o", "out.onnx", "--run-dir", "run", "--controller", "greedy", *OPTIONS]
    assert main(command) == 0
    opened(browser, Path("run/report.html"))
    assert browser.value("document.querySelector('h1').textContent").startswith(str(path))
    title = browser.value("document.querySelector('.operator.end title').textContent")
    assert title.startswith(f"graph input {names[0]}")
    assert browser.value("document.querySelectorAll('img').length") == 0


def test_a_run_without_rewrites_shows_its_graph(browser: Chromium, tmp_path: Path) -> None:
    command = ["optimise", "squeezenet1.1-tiny", "-o", str(tmp_path / "out.onnx"), "--run-dir", str(tmp_path / "run")]
    assert main([*command, "--controller", "greedy", "--only", "matmul-of-transposes", *OPTIONS]) == 0
    assert json.loads((tmp_path / "run/actions.json").read_text())["actions"] == []
    opened(browser, tmp_path / "run/report.html")
    assert browser.value("document.querySelector('.rewrites output').textContent").startswith(
        "No rewrite was applied to this graph"
    )
    assert browser.value("document.querySelectorAll('.pane svg').length") == 2
    assert marked(browser) == {"gone": [], "made": []}


def test_the_page_of_a_run_is_made_again_elsewhere(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "page.html"
    assert main(["report", str(run), "-o", str(copy)]) == 0
    assert copy.read_bytes() == (run / "report.html").read_bytes()
    assert "page.html (0.9 MB). Open it in a browser." in capsys.readouterr().out
    assert main(["report", str(run)]) == 0, "the page in a run directory is the run's own"


def test_training_is_drawn_and_a_click_on_the_legend_shows_one_line_alone(
    browser: Chromium, run: Path, tmp_path: Path
) -> None:
    trained = shutil.copytree(run, tmp_path / "trained")
    log = MetricsLog(trained / "metrics.jsonl")
    log.rewind("controller", 0)  # what a search has logged
    for step in range(1000):
        log.append("mdn-rnn", step, {"loss": 100.0 - step, "mask": 0.5})
    for step in range(3):
        log.append("controller", step, {"return": float(step), "best_return": 2.0 * step})
    assert main(["report", str(trained)]) == 0
    titles = ["Losses of the world model: MDN-RNN", "Return in training", "Return in real episodes after training"]
    opened(browser, trained / "report.html")
    drawn = browser.value("[...document.querySelectorAll('[data-chart]')].map(each => each.dataset.chart)")
    assert set(titles) <= set(drawn)
    chart = f"document.querySelector('[data-chart=\"{titles[0]}\"]')"
    points = f"{chart}.querySelectorAll('.mark-symbol.role-mark path').length"
    assert browser.value(points) == 2 * 400
    lines = f"[...{chart}.querySelectorAll('.mark-line path')].map(each => each.getAttribute('opacity') ?? '1').sort()"
    assert browser.value(lines) == ["1", "1"]
    browser.value(f"{chart}.scrollIntoView({{ block: 'center' }})")
    x, y = browser.value(
        f"(() => {{ const box = {chart}.querySelector('.role-legend-symbol path').getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})
    browser.wait_for(f"{lines}.join() === '0.12,1'")
    assert browser.problems == []


def test_the_page_of_all_kept_tables_sorts_filters_and_draws(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "results.html"
    assert main(["report", "results", "-o", str(page)]) == 0
    for dark, width in zip((False, True), WIDTHS, strict=True):
        opened(browser, page, width=width, dark=dark)
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    assert browser.value(
        "[...document.images].length > 3 && [...document.images].every(each => each.naturalWidth > 99)"
    )
    varied = "new Set([...each.rows].slice(1).map(row => row.cells[0].textContent)).size > 1"
    longest = "sort((a, b) => b.rows.length - a.rows.length)[0]"
    table = browser.value(f"[...document.querySelectorAll('table')].filter(each => {varied}).{longest}.id")
    before = column(browser, table, 0)
    browser.value(f"document.querySelector('#{table} th button').click()")
    graphs = column(browser, table, 0)
    assert graphs == sorted(before) != before and len(graphs) > MOST_ROWS // 2
    browser.value(
        f"(() => {{ const box = document.querySelector('[data-table={table}]'); box.value = '{graphs[-1].upper()}';"
        "box.dispatchEvent(new Event('input')); })()"
    )
    assert set(column(browser, table, 0)) == {graphs[-1]}
    meanings = browser.value("[...document.querySelectorAll('th')].filter(each => each.title !== 'sort').length")
    assert meanings > 100


def test_a_damaged_table_or_run_is_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tables" / "one"
    folder.mkdir(parents=True)
    (folder / "table.csv").write_text("a,b\n1,2,3\n")
    message = failure(capsys, "report", "tables")
    assert "one/table.csv is no table that can be read: its rows have not as many cells" in message
    (folder / "table.csv").write_bytes(b"\xff\xfe,\n1,2\n")
    assert "one/table.csv is no table that can be read" in failure(capsys, "report", "tables")
    kept = (run / "actions.json").read_text(encoding="utf-8")
    log = json.loads(kept)
    log["actions"][0]["location"] = 10**6
    try:
        (run / "actions.json").write_text(json.dumps(log))
        message = failure(capsys, "report", str(run))
        assert "actions.json is damaged: action 0 of the log is not legal" in message
        assert "has changed since the run" in failure(capsys, "report", str(run), "--model", "bert-base-tiny")
    finally:
        (run / "actions.json").write_text(kept)
