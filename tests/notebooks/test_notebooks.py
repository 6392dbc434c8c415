"""The committed notebooks run, and are committed with the outputs of one run, which anyone can read."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib.image import imread
from nbformat import NotebookNode

from tests.notebooks.execute import NOTEBOOKS, ROOT, executed, read
from tests.notebooks.small_run import MADE

LARGEST_FOLDER_BYTES = 2 << 20
LARGEST_NOTEBOOK_BYTES = 1 << 20
MOST_LINES = 15
"""The largest number of lines of a cell; longer code belongs in a module, where it can be tested."""
SHORTER = {
    "03_temperature": {"DREAMS = 100": "DREAMS = 5", "[:6]": "[:2]"},
    "04_controllers": {
        "SEEDS = 5": "SEEDS = 1",
        "updates=30, batch=8": "updates=2, batch=2",
        **dict.fromkeys(("plans=1000", "plans=256"), "plans=16"),  # XLA compiles a dream for each number of rows
        **dict.fromkeys(("(256, ", "(1, "), "(16, "),
    },
}
"""What makes a notebook shorter for the default tests: texts of its cells, and what stands there instead."""
OF_THIS_MACHINE = re.compile(r"(/tmp|/home|/root|/work|/usr|/var|/Users)/|site-packages")
EVERY = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def pictures(notebook: NotebookNode) -> list[bytes]:
    """Returns the PNGs among the outputs."""
    return [
        base64.b64decode(each.data["image/png"]) for each in outputs(notebook) if "image/png" in each.get("data", {})
    ]


def texts(notebook: NotebookNode) -> list[str]:
    """Returns what the outputs say, without pictures."""
    shown = [value for each in outputs(notebook) for kind, value in each.get("data", {}).items() if "image" not in kind]
    return [str(text) for text in (*shown, *(each.get("text", "") for each in outputs(notebook)))]


def require_clean(notebook: NotebookNode) -> None:
    """Requires that no output is an error or a warning, and that every picture shows something."""
    assert not [each for each in outputs(notebook) if each.output_type == "error" or each.get("name") == "stderr"]
    for picture in pictures(notebook):
        pixels = imread(io.BytesIO(picture))
        assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 50


def require_same_kind_of_outputs(path: Path, change: Callable[[str], str] = lambda source: source) -> None:
    """Executes a notebook and requires that the same cells show something as in the committed one."""
    committed, now = read(path), executed(path, change)
    require_clean(now)
    shown = [[bool(cell.outputs) for cell in each.cells if cell.cell_type == "code"] for each in (committed, now)]
    assert shown[0] == shown[1]
    assert len(pictures(now)) == len(pictures(committed))


@EVERY
def test_it_runs(path: Path) -> None:
    """Long ones run with fewer repetitions."""
    shorter = SHORTER.get(path.stem, {})
    whole = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    assert all(long in whole for long in shorter)

    def change(source: str) -> str:
        for long, short in shorter.items():
            source = source.replace(long, short)
        return source

    require_same_kind_of_outputs(path, change)


@pytest.mark.full
@pytest.mark.parametrize("name", SHORTER)
def test_it_runs_as_committed(name: str) -> None:
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    require_same_kind_of_outputs(path)


@EVERY
def test_it_is_committed_with_the_outputs_of_one_run(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert pictures(notebook) and texts(notebook)
    require_clean(notebook)
    assert not [text for text in texts(notebook) if OF_THIS_MACHINE.search(text)]
    assert not [cell.id for cell in notebook.cells if "execution" in cell.metadata]  # no times of day
    assert path.stat().st_size <= LARGEST_NOTEBOOK_BYTES


@EVERY
def test_its_cells_are_short_and_explained(path: Path) -> None:
    notebook = read(path)
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or len(cell.source.splitlines()) <= MOST_LINES


@EVERY
def test_files_that_it_links_to_exist(path: Path) -> None:
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert not [link for link in links if not (path.parent / link).exists()]


def test_all_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "01_quickstart",
        "02_world_model_accuracy",
        "03_temperature",
        "04_controllers",
        "05_rules",
        "06_costs",
        "07_fusion",
        "08_placement",
    ]


@pytest.mark.parametrize("name", MADE)
def test_what_comes_with_them_is_small(name: str) -> None:
    files = [path for path in (ROOT / "notebooks" / name).rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) <= LARGEST_FOLDER_BYTES
