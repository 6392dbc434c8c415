"""Rule files as text in which only the proofs change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from taso_ext._core import RuleSet

_HEAD = "  proof  "


@dataclass(frozen=True)
class RuleEntry:
    """One rule of a file.

    Attributes:
      name, place: what it is called, and `file:line:column` of its name.
      text: the rule without its proof.
      proof: as it stands in the file; "" where there is none.
      is_current: whether this proof was made for this text.
      begin, end: of the proof in the file, from behind the line above it; equal where there is none.
    """

    name: str
    place: str
    text: str
    proof: str
    is_current: bool
    begin: int
    end: int


def read_rule_file(path: Path) -> list[RuleEntry]:
    """The rules of a file in their order.

    Raises:
      ValueError: if the file cannot be read or is not well-formed; `file:line:column`, what was expected and what came.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected a rule file in UTF-8, got the byte {error.object[error.start]:#x}"
        ) from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    rules = RuleSet.parse(text, str(path))
    return [_entry(text, rules, index) for index in range(len(rules))]


def with_proofs(path: Path, proofs: Mapping[str, str]) -> str:
    """The text of the file with the proofs of the named rules replaced or added."""
    text, pieces, at = path.read_text(encoding="utf-8"), [], 0
    for entry in read_rule_file(path):
        if entry.name in proofs:
            pieces += [text[at : entry.begin], f"{_HEAD}{proofs[entry.name]}\n"]
            at = entry.end
    return "".join([*pieces, text[at:]])


def _entry(text: str, rules: RuleSet, index: int) -> RuleEntry:
    file, line, column = rules.place(index)
    proof = rules.proof(index)
    whole = rules.text(index)
    if proof:
        begin = _line_begin(text, rules.proof_place(index)[1])
        found = text.index(proof, begin)
        end = text.find("\n", found + len(proof)) + 1 or len(text)
        bare = whole[: _line_begin(whole, rules.proof_place(index)[1] - line + 1)]
    else:
        bare = _trimmed(whole)
        begin = end = _line_begin(text, line + bare.count("\n"))
    return RuleEntry(rules.names[index], f"{file}:{line}:{column}", bare, proof, _is_current(rules, index), begin, end)


def _trimmed(rule: str) -> str:
    """Without the blank lines and comments at the end, which belong to what follows."""
    lines = rule.splitlines()
    while lines and (not lines[-1].strip() or lines[-1].strip().startswith("#")):
        lines.pop()
    return "\n".join([*lines, ""])


def _line_begin(text: str, line: int) -> int:
    """Where line number `line` (from 1) begins, or the end of the text."""
    lines: Sequence[str] = text.splitlines(keepends=True)
    return len("".join(lines[: line - 1]))


def _is_current(rules: RuleSet, index: int) -> bool:
    try:
        rules.require_proof(index)
    except ValueError:
        return False
    return True
