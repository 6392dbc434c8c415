"""`rlflow rules show`: prints one line for each rule. All subcommands find and read rule files with this module."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import taso_ext
from experiments.errors import UserError
from taso_ext import RuleSet
from taso_ext.verify.rule_file import RuleEntry, read_rule_file
from taso_ext.verify.rule_reader import Statement, read_rule

SHIPPED = Path(taso_ext.__file__).parent / "rules"


def run(options: argparse.Namespace) -> int:
    """Prints name, operators and proof of each rule; returns 0 even if proofs are missing."""
    for path in rule_files(options.files):
        entries = read_entries(path)
        width = max(len(entry.name) for entry in entries)
        print(f"{path}: {len(entries)} rules")
        for entry in entries:
            print(f"  {entry.name:{width}}  {_operators(entry)}  [{status(entry)}]")
    return 0


def status(entry: RuleEntry) -> str:
    """Returns `proven for all shapes`, `tested on 64 shapes`, `no proof` or `stale proof`.

    The first is followed by `, rounds` if results differed by rounding in ONNX Runtime.
    """
    if not entry.proof:
        return "no proof"
    if not entry.is_current:
        return "stale proof"
    clauses = RuleSet.parse(f"{entry.text}  proof  {entry.proof}\n").clauses(0)
    if "axioms" in clauses:
        return "proven for all shapes" + (", rounds" if "rounding" in clauses else "")
    return f"tested on {clauses['finite-field'].split('shapes=')[1].split(',')[0]} shapes"


def _operators(entry: RuleEntry) -> str:
    rule = read_rule(entry.text)
    return f"{_side(rule.source)} -> {_side(rule.target)}"


def _side(statements: tuple[Statement, ...]) -> str:
    counts = Counter(statement.op + ("*" if statement.mapped else "") for statement in statements if statement.op)
    return " ".join(name if count == 1 else f"{count}x{name}" for name, count in counts.items()) or "nothing"


def rule_files(named: Sequence[Path]) -> list[Path]:
    """Returns the named files, or the shipped ones in the engine's order if none is named."""
    return list(named) or sorted(SHIPPED.glob("*.rules"))


def shipped_text(*, without: Collection[str]) -> str:
    """Returns the text of the shipped rule files, in the engine's order, without the files of some names."""
    return "\n".join(path.read_text() for path in rule_files([]) if path.name not in without)


def read_entries(path: Path) -> list[RuleEntry]:
    """Returns the rules of a file.

    Raises:
      UserError: the file cannot be parsed; the message has `file:line:column`, what was expected and what came.
    """
    try:
        return read_rule_file(path)
    except ValueError as error:
        raise UserError(f"{error}.") from error
