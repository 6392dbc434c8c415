"""The commands on the page that teaches writing a rule run in their order and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import taso_ext

PAGE = Path(taso_ext.__file__).parent / "rules" / "WRITING.md"
BLOCK = re.compile(r"^```(sh rejected|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REJECTED = 2


def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert [kind for kind, _ in blocks].count("sh rejected") == 2, "a wrong rule, and one without proof"
    environment = command_on_path(tmp_path / "bin")
    folder = tmp_path / "empty"
    folder.mkdir()
    said = ""
    for kind, text in blocks:
        if kind == "text":
            assert re.search(pattern(text), said), f"expected\n{text}\ngot\n{said}"
            continue
        done = subprocess.run(
            ["bash", "-e", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        said = done.stdout + done.stderr
        assert done.returncode == (REJECTED if kind == "sh rejected" else 0), said
    assert (folder / "faster.onnx").exists()


def command_on_path(folder: Path) -> dict[str, str]:
    """Returns environment variables with which `rlflow` and `python` are those of this checkout."""
    folder.mkdir()
    command = f'#!/bin/sh\nexec "{sys.executable}" -m experiments.cli "$@"\n'
    for name, text in (("rlflow", command), ("python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    root = str(PAGE.parents[2])
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": root, "COLUMNS": "120"}


def pattern(text: str) -> str:
    """Returns a regular expression for a block, in which `...` matches anything and a number any other number."""
    return re.sub(r"\\\.\\\.\\\.", r"[\\s\\S]*", re.sub(r"\d+", r"\\d+", re.escape(text.strip())))
