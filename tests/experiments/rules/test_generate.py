"""Tests of `rlflow rules generate`: bad input, interruption, and the header and the proofs of the shipped file."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.rules.generate import rule_file
from experiments.rules.generation_table import GenerationTable, grid_text
from taso_ext._core import RuleSet
from taso_ext.generator.domains import DOMAINS
from taso_ext.generator.generate import Bar, Generated, Settings, generate

pytestmark = pytest.mark.xdist_group("generate")  # one worker: the tiny file is generated once

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "taso_ext" / "rules" / "generated.rules"
REDUCED = ROOT / "tests" / "taso_ext" / "data" / "generated-reduced.rules"
TINY = Settings(operators=1, domains=("matrices", "elementwise"))
SMALL = Settings(operators=2, domains=("layouts",))


class Display:
    """A display that shows nothing; update number `updates` raises KeyboardInterrupt, like a signal."""

    def __init__(self, updates: int = -1) -> None:
        self.left = updates

    @contextlib.contextmanager
    def stage(self, title: str, total: int, limit_s: float = math.inf) -> Iterator[Bar]:
        yield self

    def update(self, done: int, **figures: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "arguments",
    [
        ["--operators", "0"],
        ["--operators", "40"],
        ["--threads", "0"],
        ["--seed", "-1"],
        ["-o", "taken.rules"],
        ["-o", "folder"],
        ["-o", "free.rules", "--table", "taken.rules"],
        ["-o", "taken.rules/below.rules"],
    ],
    ids=" ".join,
)
def test_bad_input_is_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.rules").write_text("mine")
    Path("folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert main(["rules", "generate", *arguments]) == 2
    message = capsys.readouterr().err
    assert message.startswith("rlflow: ")
    assert message.count("\n") == 1, message
    assert sorted(tmp_path.rglob("*")) == before
    assert Path("taken.rules").read_text() == "mine"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def tiny(checkpoints: Path) -> Generated:
    return generate(TINY, checkpoints, Display())


def test_what_is_found_is_a_file_of_proven_rules(tiny: Generated, tmp_path: Path) -> None:
    path = tmp_path / "generated.rules"
    path.write_text(rule_file(tiny, TINY))
    rules = RuleSet.load(str(path), proven=True)
    assert len(rules) == len(tiny.rules) > 0
    assert "mul-to-nothing" in rules.names, "a product with one"


@pytest.mark.full
def test_interruptions_do_not_change_the_result(tiny: Generated, tmp_path: Path) -> None:
    for updates in (1, 4, 8):
        with contextlib.suppress(KeyboardInterrupt):
            generate(TINY, tmp_path, Display(updates))
    assert generate(TINY, tmp_path, Display(), threads=2).rules == tiny.rules


def test_half_a_line_of_a_killed_run_is_not_read(tiny: Generated, checkpoints: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoints, tmp_path, dirs_exist_ok=True)
    (judged,) = tmp_path.glob("*/judged.jsonl")
    judged.write_text(judged.read_text()[:-5])
    assert generate(TINY, tmp_path, Display()).rules == tiny.rules


def test_rules_that_are_there_already_are_not_found_again(tiny: Generated, tmp_path: Path) -> None:
    settings = Settings(operators=1, domains=TINY.domains, beside="\n".join(tiny.rules))
    assert not generate(settings, tmp_path, Display()).rules


def test_table_counts_every_stage(tiny: Generated, tmp_path: Path) -> None:
    GenerationTable(tiny, "rlflow rules generate", 1.0).write(tmp_path / "table.md")
    text, rows = (tmp_path / "table.md").read_text(), (tmp_path / "table.csv").read_text().splitlines()
    assert f"rules,{len(tiny.rules)},619" in rows
    assert all(f"| {row.split(',')[0]} |" in text for row in rows)


def test_grid_names_every_operator() -> None:
    text = grid_text()
    assert all(operator.kind in text for domain in DOMAINS for operator in domain.operators)


def test_shipped_file_says_what_wrote_it_and_is_proven() -> None:
    first, second = SHIPPED.read_text().split("\n")[:2]
    assert first == "# Written by `rlflow rules generate --operators 3 --seed 0`; do not edit."
    rules = RuleSet.load(str(SHIPPED), proven=True)
    assert second.startswith(f"# {len(rules)} rules ")


@pytest.mark.full
def test_reduced_generation_is_reproduced(tmp_path: Path) -> None:
    """`python -m tests.experiments.rules.test_generate` writes the expected file; `verify` compares the proofs."""
    found = generate(SMALL, tmp_path, Display(), threads=2)
    assert _bare(found) == REDUCED.read_text()


def _bare(generated: Generated) -> str:
    return "\n".join(rule.split("  proof ")[0] for rule in generated.rules)


if __name__ == "__main__":
    REDUCED.write_text(_bare(generate(SMALL, Path("runs/rules-generate"), Display())))
