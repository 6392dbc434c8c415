"""`rlflow rules generate`: finds rules, writes them, and prints the counts of every stage."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from environment.measurement.memory import peak_bytes
from experiments.errors import UserError, nearest_match
from experiments.output_file import require_writable
from experiments.rules.command import CHECKPOINTS, FAMILIES, GENERATED, PARTIAL
from experiments.rules.generation_table import GenerationTable, grid_text
from experiments.rules.partial import run_partial
from experiments.rules.show import shipped_text
from experiments.runs.progress import make_progress
from taso_ext.files import write_text
from taso_ext.generator.generate import Generated, Settings, generate

MOST_OPERATORS, MOST_THREADS = 3, 256


def run(options: argparse.Namespace) -> int:
    """Writes the rule file and prints the counts; returns 0.

    Raises:
      UserError: an option is out of range, or an output cannot be written.
    """
    _require(options)
    if options.family == "partial":
        return run_partial(options)
    print(grid_text())
    settings = Settings(
        operators=options.operators, seed=options.seed, beside=shipped_text(without=(GENERATED, PARTIAL))
    )
    generated = generate(settings, CHECKPOINTS, make_progress(), threads=options.threads)
    write_text(options.output, rule_file(generated, settings))
    table = GenerationTable(generated, command(settings), peak_bytes() / 2**20)
    print(table.markdown(), end="")
    if options.table is not None:
        table.write(options.table)
    print(f"Wrote {len(generated.rules)} rules to {options.output}.")
    return 0


def _require(options: argparse.Namespace) -> None:
    for name, most in (("operators", MOST_OPERATORS), ("threads", MOST_THREADS)):
        value = getattr(options, name)
        if not 1 <= value <= most:
            raise UserError(f"--{name} {value} is out of range: give 1 to {most}.")
    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed {options.seed} is out of range: give 0 to 2^63 - 1.")
    if options.family not in FAMILIES:
        raise UserError(f"No family of rules is called '{options.family}'. {nearest_match(options.family, FAMILIES)}")
    if options.output is None:
        options.output = Path(PARTIAL if options.family == "partial" else GENERATED)
    outputs = [options.output]
    if options.table is not None:
        outputs += [options.table, options.table.with_suffix(".csv")]
    for output in outputs:
        require_writable(output, force=options.force)


def command(settings: Settings) -> str:
    """Returns the command that finds the rules of these settings."""
    return f"rlflow rules generate --operators {settings.operators} --seed {settings.seed}"


def rule_file(generated: Generated, settings: Settings) -> str:
    """Returns the text of the rule file, with its header."""
    digest = hashlib.sha256(settings.beside.encode()).hexdigest()[:16]
    header = (
        f"# Written by `{command(settings)}`; do not edit.\n"
        f"# {len(generated.rules)} rules that the hand-written ones (SHA-256 {digest}...) do not imply.\n"
    )
    return "\n".join([header, *generated.rules])
