"""The committed notebooks run, and are committed without outputs."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib.image import imread
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST_RUN_BYTES = 2 << 20
MOST_LINES, MOST_LINES_OF_A_CLASS = 12, 24
"""The largest number of lines of a cell; longer code belongs in a module, where it can be tested. A cell that shows how
to write a class may be longer."""


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_draws(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure that the notebook asks for is drawn, and nothing is written to standard error."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # these packages, wherever others are installed
    notebook = read(path)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == sum("_figure(" in cell.source for cell in notebook.cells if cell.cell_type == "code")
    for picture in pictures:
        pixels = imread(io.BytesIO(base64.b64decode(picture)))
        assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 50


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_clean_and_short(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None
            most = MOST_LINES_OF_A_CLASS if cell.source.startswith("class ") else MOST_LINES
            assert len(cell.source.splitlines()) <= most


def test_the_run_that_comes_with_them_is_small() -> None:
    files = [path for path in (ROOT / "notebooks" / "small_run").rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) <= LARGEST_RUN_BYTES
