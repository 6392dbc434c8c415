"""The parts of the documentation site, docstrings in Markdown and the check of links; and the whole site."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.commands import ROOT


def load(name: str) -> ModuleType:
    """Returns a module of the folder `docs`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Returns `State`, not `a b`.", "Returns :py:obj:`State`, not ``a b``."),
        ("The mean of |x| and `*w`.", "The mean of \\|x\\| and ``*w``."),
        ("Two `State`s.", "Two :py:obj:`State`\\ s."),
        ("* a list\n* of two", "* a list\n* of two"),
        ("Like this:\n\n    x = `y`\n\nAnd on.", "Like this:\n\n\n::\n\n    x = `y`\n\n\nAnd on."),
        ("Like this::\n\n    x = 1", "Like this::\n\n    x = 1"),
        ("Args:\n  x: a number\n    of two lines.", "Args:\n  x: a number\n    of two lines."),
    ],
)
def test_markdown_in_docstrings_becomes_restructured_text(docstring: str, expected: str) -> None:
    assert "\n".join(load("api_docstrings").restructured(docstring.split("\n"))) == expected


def test_a_table_stays_a_table() -> None:
    made = load("api_docstrings").restructured(["| name | what |", "|---|---|", "| `a` | one |", "| `b` | two |"])
    text = "\n".join(made)
    assert ".. list-table::\n   :header-rows: 1\n\n   * - name\n     - what\n   * - ``a``\n     - one" in text


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    check_links = load("check_links")
    with pytest.raises(FileNotFoundError, match="make docs"):
        check_links.broken_links(tmp_path)
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#here">b</a><a href="https://x.org/y">x</a>')
    (tmp_path / "b.html").write_text('<p id="here"><a href="a.html#top">a</a><a href="#here">here</a></p>')
    assert check_links.main([str(tmp_path)]) == 0
    (tmp_path / "b.html").write_text('<p><a href="a.html#nowhere">a</a><img src="c.png"><a href="a.html">a</a></p>')
    found = check_links.broken_links(tmp_path.resolve())
    assert found == ["a.html: b.html#here", "b.html: a.html#nowhere", "b.html: c.png"]
    assert check_links.main([str(tmp_path)]) == 1


@pytest.mark.full
def test_the_site_is_built_without_warnings_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the extra `docs` is not installed: make docs")
    pytest.importorskip("myst_nb", reason="the extra `docs` is not installed: make docs")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", "docs"]
    built = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees"), ".", str(tmp_path / "html")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert load("check_links").broken_links((tmp_path / "html").resolve()) == []
    reference = (tmp_path / "html/docs/api/taso_ext.html").read_text(encoding="utf-8")
    assert 'id="taso_ext.State.step"' in reference and "Applies a rewrite" in reference, "from the stub of the engine"
