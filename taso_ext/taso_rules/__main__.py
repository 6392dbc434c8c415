"""The command that prints the verdict on each rule of a TASO rule file and writes the accepted rules.

python -m taso_ext.taso_rules graph_subst.pb -o taso.rules
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from taso_ext.files import write_text
from taso_ext.taso_rules import TasoFileError, TasoRules, load_taso_rules
from taso_ext.taso_rules.loading import DEFAULT_INSTANCES, Verdict

PROGRAM = "python -m taso_ext.taso_rules"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Bad input ends it with exit status 2 and leaves no file behind."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.output is not None:
        _require_writable(parser, options.output)
    try:
        rules = load_taso_rules(options.file, instances=options.instances, progress=_progress)
    except TasoFileError as error:
        parser.exit(2, f"{error}\n")
    if options.output is not None:
        _write(parser, options.output, rules)
    print(markdown(rules, f"{PROGRAM} {rules.file}"), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description="Translate and verify the rules of a TASO rule file.")
    parser.add_argument("file", type=Path, metavar="FILE", help="TASO's protobuf file, usually graph_subst.pb")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.rules", help="write the accepted rules to this file")
    parser.add_argument(
        "--instances",
        type=_positive,
        default=DEFAULT_INSTANCES,
        metavar="N",
        help=f"random graphs to test a rule on in each domain (default {DEFAULT_INSTANCES})",
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} graphs test nothing; give at least 1")
    return value


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\rverified {done} of {total} rules", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _require_writable(parser: argparse.ArgumentParser, output: Path) -> None:
    """Ends the program if the output cannot be written, before minutes of work rather than after them."""
    if output.exists():
        parser.exit(2, f"{output} exists. Remove it, or name another file with -o.\n")
    if not output.parent.is_dir() or not os.access(output.parent, os.W_OK):
        parser.exit(2, f"Cannot write {output}: {output.parent} is no directory in which files can be made.\n")


def _write(parser: argparse.ArgumentParser, output: Path, rules: TasoRules) -> None:
    """Writes the accepted rules, completely or not at all."""
    if all(outcome.verdict is not Verdict.ACCEPTED for outcome in rules.outcomes):
        parser.exit(2, f"{output} is not written: none of the {len(rules.outcomes)} rules was accepted.\n")
    write_text(output, rules.text)


def markdown(rules: TasoRules, command: str) -> str:
    """Returns a page with the counts of the verdicts and one table row for each rule of the file.

    Args:
      command: the command that prints this page.
    """
    counts = Counter(outcome.verdict for outcome in rules.outcomes)
    lines = [
        f"# Rules of TASO's {rules.file}",
        "",
        f"Printed by `{command}` from the file with SHA-256 `{rules.digest}`.",
        "Tensors `x1`, `x2`, … are TASO's inputs -1, -2, …; an integer behind `;` is an axis.",
        "Every accepted rule was evaluated in two prime fields and in ONNX Runtime on random graphs of its domain.",
        "",
        "| verdict | rules |",
        "|---|---|",
        *(f"| {verdict} | {counts[verdict]} |" for verdict in Verdict),
        f"| accepted, but not for wider domains | {sum(outcome.restricted for outcome in rules.outcomes)} |",
        f"| in the file | {len(rules.outcomes)} |",
        "",
        "| index | rule | verdict | domain or reason |",
        "|---|---|---|---|",
        *(f"| {o.index} | `{o.formula}` | {o.verdict} | {o.detail} |" for o in rules.outcomes),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
