"""A Sphinx extension that reads docstrings as this project writes them: Google style, with a little Markdown.

Docstrings mark code with single backticks, and show examples and tables as Markdown does. This module turns these into
reStructuredText before Sphinx parses them. It also describes the native engine by its typed stub, `taso_ext/_core.pyi`,
because compiled functions have no docstrings and no readable signatures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CODE = re.compile(r"(?<!`)`(?P<code>[^`\n]+(?:\n *[^`\n]+)?)`(?!`)|\||(?<=\S)\*|\*(?=\S)")
"""Code in backticks, or a character that means something only in reStructuredText."""
NAME = re.compile(r"[A-Z]\w*|[a-z_]\w*(\.\w+)+")
"""A name that may be documented: of a class, or with a dot. Single lower-case words are mostly names of arguments."""
ENGINE = "taso_ext._core"


def setup(app: Any) -> dict[str, bool]:
    """Connects this extension with Sphinx."""
    app.connect("builder-inited", lambda app: show_stub())
    app.connect("autodoc-process-docstring", rewrite, priority=400)  # before napoleon, which reads sections at 500
    app.connect("doctree-read", stands_alone)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def rewrite(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Rewrites the lines of one docstring in place, as the event `autodoc-process-docstring` asks for."""
    lines[:] = restructured(lines)


def restructured(lines: list[str]) -> list[str]:
    """Returns the lines of a docstring with its Markdown as reStructuredText.

    A name in backticks becomes a link if something is documented under it, other code in backticks a literal. A block
    that is indented by four characters and stands after an empty line becomes a literal block, and a table stays one.
    """
    parts: list[str] = []
    prose: list[str] = []
    for kind, block in blocks(lines):
        if kind == "prose":
            prose += block
            continue
        is_announced = "".join(prose).rstrip().endswith("::")
        parts += _with_code_marked(prose)
        parts += _table(block) if kind == "table" else block if is_announced else _code(block)
        prose = []
    return parts + _with_code_marked(prose)


def blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the blocks of a docstring, in order: "prose", "code" or "table", with its lines."""
    number, indentation = 0, 0
    while number < len(lines):
        line, after_empty = lines[number], number == 0 or not lines[number - 1].strip()
        if after_empty and number and _indentation(line) >= indentation + 4:
            end = number
            while end < len(lines) and (not lines[end].strip() or _indentation(lines[end]) >= indentation + 4):
                end += 1
            yield "code", lines[number:end]
        elif line.lstrip().startswith("|"):
            end = number
            while end < len(lines) and lines[end].lstrip().startswith("|"):
                end += 1
            yield "table", lines[number:end]
        else:
            end = number + 1
            indentation = _indentation(line) if line.strip() else indentation
            yield "prose", [line]
        number = end


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 0


def _with_code_marked(lines: list[str]) -> list[str]:
    def marked(match: re.Match[str]) -> str:
        text = (match.group("code") or "").strip()
        if not text:
            return f"\\{match.group()}"
        end = "\\ " if match.string[match.end() : match.end() + 1].isalnum() else ""  # the s of a plural
        return (f":py:obj:`{text}`" if NAME.fullmatch(text) else f"``{text}``") + end

    return CODE.sub(marked, "\n".join(lines)).split("\n") if lines else []


def _code(lines: list[str]) -> list[str]:
    margin = " " * max(0, _indentation(lines[0]) - 4)
    return ["", f"{margin}::", "", *lines, ""]


def _table(lines: list[str]) -> list[str]:
    """Returns a Markdown table as a `list-table`; rows without a rule below the first have no heading."""
    margin = " " * _indentation(lines[0])
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    has_heading = len(rows) > 1 and all(set(cell) <= set("-: ") for cell in rows[1])
    made = ["", f"{margin}.. list-table::", *([f"{margin}   :header-rows: 1"] if has_heading else []), ""]
    for row in rows[:1] + rows[2:] if has_heading else rows:
        cells = _with_code_marked(row)
        made += [f"{margin}   {'*' if column == 0 else ' '} - {cell}" for column, cell in enumerate(cells)]
    return [*made, ""]


def show_stub() -> None:
    """Lets the public names of `taso_ext` be those of the engine's stub; this process only describes them."""
    import taso_ext

    source = Path(taso_ext.__file__ or "").with_name("_core.pyi")
    stub = {"__name__": "taso_ext"}  # the module that the names say they belong to
    code = compile(source.read_text(encoding="utf-8"), str(source), "exec", annotations.compiler_flag)
    exec(code, stub)
    for name in taso_ext.__all__:
        if name in stub and getattr(taso_ext, name).__module__ == ENGINE:
            setattr(taso_ext, name, stub[name])


def stands_alone(app: Any, doctree: Any) -> None:
    """Lets a page of a single table of results be reached by links alone: there are too many for the contents."""
    if app.env.docname.startswith(("experiments/results/", "tests/")):
        app.env.metadata[app.env.docname]["orphan"] = True
