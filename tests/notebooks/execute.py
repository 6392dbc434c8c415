"""Executes the notebooks and writes them with their outputs: `python -m tests.notebooks.execute [NAME …]` (2 minutes).

Do this after every change of a notebook, or of what one shows. A name is that of a notebook without its suffix.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from taso_ext.files import write_text

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ONE_THREAD = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
MOST_SECONDS = 300
"""Longest time of a cell."""


def read(path: Path) -> NotebookNode:
    """Returns a notebook as it is in its file."""
    return nbformat.read(path, as_version=4)


def executed(path: Path, change: Callable[[str], str] = lambda source: source) -> NotebookNode:
    """Returns a notebook with the outputs of a new kernel, which imports these packages wherever others are installed.

    Args:
      change: what is made of the source of every code cell before it is executed.
    Raises:
      CellExecutionError: a cell has failed.
    """
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = change(cell.source)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=MOST_SECONDS, resources=resources, record_timing=False).execute()
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of the interpreter at hand
    return notebook


def main(names: Sequence[str]) -> None:
    """Executes the named notebooks, or all if none is named, and writes each with its outputs."""
    unknown = sorted({*names} - {path.stem for path in NOTEBOOKS})
    if unknown:
        known = ", ".join(path.stem for path in NOTEBOOKS)
        raise SystemExit(f"There is no notebook {', '.join(unknown)}; there are {known}.")
    for path in NOTEBOOKS:
        if not names or path.stem in names:
            write_text(path, nbformat.writes(executed(path)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
