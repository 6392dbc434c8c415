"""`rlflow rules generate --family partial`, and `--rules default+partial`: counts, errors and the shipped file."""

from __future__ import annotations

from pathlib import Path

import pytest

import environment
from environment import zoo
from environment.verification import verify
from experiments.cli import main
from experiments.rules import partial
from taso_ext import CostModel, OnnxModel, RuleSet, State
from taso_ext.generator.partial.generate import STAGES, Settings
from taso_ext.rule_sets import load_rule_set

SHIPPED = Path(__file__).parents[3] / "taso_ext" / "rules" / "partial.rules"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "partail"], "No family of rules is called 'partail'. Did you mean 'partial'?"),
        (["--family", "partial", "--operators", "2"], "--operators is about the family equal"),
        (["--family", "partial", "--seed", "1"], "--seed is about the family equal"),
        (["--family", "partial", "-o", "taken.rules"], "taken.rules"),
    ],
)
def test_bad_input_is_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.rules").write_text("mine")
    assert main(["rules", "generate", *arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("rlflow: ") and message in printed and printed.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken.rules"] and Path("taken.rules").read_text() == "mine"


def test_counts_of_every_stage_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of products of matrices alone, which takes a second: none is of use, so the file has no rule."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(partial, "Settings", lambda shipped: Settings(sources=("matmul",), shipped=shipped))
    assert main(["rules", "generate", "--family", "partial", "-o", "found.rules", "--table", "found.md"]) == 0
    printed, table = capsys.readouterr().out, Path("found.md").read_text()
    assert table in printed and "Wrote 0 rules to found.rules." in printed
    assert all(f"| {stage} |" in table for stage in STAGES)
    counted = dict(line.split(",") for line in Path("found.csv").read_text().splitlines()[1:])
    assert int(counted["enumerated"]) > int(counted["type-correct"]) >= int(counted["partly equal"]) > 0
    assert counted["kept"] == counted["verified"] == "0"


def test_the_shipped_file_says_how_it_was_made() -> None:
    lines = SHIPPED.read_text().splitlines()
    assert lines[0] == f"# Written by `{partial.COMMAND}`; do not edit."
    assert lines[1].startswith(f"# {len(RuleSet.load(str(SHIPPED)))} rules")


def test_one_name_reaches_the_optional_family_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own = RuleSet.load(str(SHIPPED)).names
    assert set(load_rule_set("default+partial").names) == {*RuleSet.default().names, *own}
    assert load_rule_set("default").fingerprint == load_rule_set(None).fingerprint == RuleSet.default().fingerprint
    assert set(own) <= set(environment.make("csrnet-tiny", rules="default+partial").rule_names)
    command = ["optimise", "csrnet-tiny", "-o", "out.onnx", "--costs", "roofline:rtx2070", "--controller", "greedy"]
    assert main([*command, "--rules", "default+partial"]) == 0
    assert Path("out.onnx").is_file()
    capsys.readouterr()
    assert main([*command, "--force", "--rules", "default+partail"]) == 2
    assert "no optional family of rules is called 'partail'; there is partial" in capsys.readouterr().err


def start(name: str) -> tuple[OnnxModel, State]:
    """Returns a zoo graph with the rewrites by the optional family alone."""
    model = OnnxModel.load(zoo.build(name))
    return model, State(model.graph, RuleSet.load(str(SHIPPED)), CostModel.roofline("rtx2070"))


@pytest.mark.parametrize(
    "name", ["resnet18-tiny", "resnext50-tiny", "inception-v3-tiny", "nasrnn-tiny", "bert-base-tiny"]
)
def test_nothing_applies_without_a_batch_or_a_dilation(name: str) -> None:
    assert not start(name)[1].rule_mask().any()


def test_every_rewrite_of_a_dilated_network_keeps_its_function() -> None:
    """One after the other, on a batch: each rewritten model is run against the first one."""
    model, state = start("csrnet-tiny:batch=2")
    rules = sorted({int(rule) for rule, _ in state.legal_actions()})
    assert len(rules) >= 2
    for rule in rules:
        after = state.copy()
        after.step(*next((int(a), int(b)) for a, b in state.legal_actions() if a == rule))
        found = verify(model.source, model.export_checked(after.graph))
        assert found.equal, (RuleSet.load(str(SHIPPED)).names[rule], found.reason)
