"""`rlflow rules generate --family partial`: finds partially equal rules and prints the counts of every stage."""

from __future__ import annotations

import argparse
import csv
import io

from experiments.errors import UserError
from experiments.rules.command import CHECKPOINTS, PARTIAL
from experiments.rules.show import shipped_text
from experiments.runs.progress import make_progress
from taso_ext.files import write_text
from taso_ext.generator.partial.generate import STAGES, Partial, Settings, generate_partial
from taso_ext.generator.partial.sources import SOURCES

COMMAND = "rlflow rules generate --family partial"
_OF_EQUAL = {"operators": 3, "seed": 0, "threads": 1}
"""Options of the other family, with their defaults."""


def run_partial(options: argparse.Namespace) -> int:
    """Writes the rule file and prints the counts; returns 0.

    Raises:
      UserError: an option belongs to the other family.
    """
    for name, default in _OF_EQUAL.items():
        if getattr(options, name) != default:
            raise UserError(f"--{name} is about the family equal: leave it out with --family partial.")
    found = generate_partial(Settings(shipped=shipped_text(without=[PARTIAL])), CHECKPOINTS, make_progress())
    write_text(options.output, rule_file(found))
    print(markdown(found), end="")
    if options.table is not None:
        write_text(options.table, markdown(found))
        write_text(options.table.with_suffix(".csv"), _csv(found))
    print(f"Wrote {len(found.rules)} rules to {options.output}.")
    return 0


def rule_file(found: Partial) -> str:
    """Returns the text of the rule file, with its header."""
    header = (
        f"# Written by `{COMMAND}`; do not edit.\n"
        f"# {len(found.rules)} rules whose targets were first equal to their sources in most places only, or would be\n"
        "# so without the padding that they add. The language: README.md; how they were found: ../generator/README.md\n"
    )
    return "\n".join([header, *found.rules])


def markdown(found: Partial) -> str:
    """Returns the counts of every stage as a page, with the reasons why candidates were kept or not."""
    lines = ["# Partially equal rules", "", f"`{COMMAND}`", "", "| stage | number | meaning |", "|---|---:|---|"]
    lines += [f"| {stage} | {found.stages[stage]:,} | {meaning} |" for stage, meaning in STAGES.items()]
    lines += ["", f"Sources: {', '.join(source.name for source in SOURCES)}. What was said of the candidates:", ""]
    lines += [
        "| verdict | candidates |",
        "|---|---:|",
        *(f"| {why} | {n:,} |" for why, n in found.worths.most_common()),
    ]
    lines += [f"\nThe verifier refuses `{name}`: {why.splitlines()[0]}" for name, why in found.refused.items()]
    return "\n".join(lines) + "\n"


def _csv(found: Partial) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["stage", "number"])
    writer.writerows((stage, found.stages[stage]) for stage in STAGES)
    return text.getvalue()
