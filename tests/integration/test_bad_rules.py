"""The command line refuses bad rule files: it names the place, what was expected and a command that helps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cli import main
from taso_ext import RuleSet

MODEL = "squeezenet1.1-tiny"
GOOD = "rule add-commutes\n  var    x, y: float[...]\n  source z = Add(x, y)\n  target z = Add(y, x)\n"
CONTRADICTION = (
    "rule r\n  var    x: float[m, n]\n  source t = Transpose(x; perm=[1, 0]); y = Transpose(t; perm=[0, 2, 1])\n"
    "  target y = x\n"
)
UNREADABLE = {
    "syntax error": ("rule r\n  var    x: float\n  source y = Relu(x\n  target y = x\n", "4:3", "expected"),
    "unknown operator": (
        "rule r\n  var    x: float\n  source y = Rleu(x)\n  target y = x\n",
        "3:14",
        "neither an operator",
    ),
    "unbound tensor": ("rule r\n  var    x: float\n  source y = Relu(z)\n  target y = x\n", "3:19", "not defined"),
    "unbound symbol": (
        "rule r\n  var    x: float[m]\n  source y = Relu(x)\n  where  n == 2\n  target y = x\n",
        "4:10",
        "not bound",
    ),
}


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(list(arguments))
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    return status, said.out + said.err


def verify(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    return outcome(capsys, "rules", "verify", "my.rules", "--instances", "12", "--processes", "1", *arguments)


def optimise(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Runs `rlflow optimise` with a rule file that must not be used; returns its status and its last line."""
    status, said = outcome(
        capsys, "optimise", MODEL, "-o", "out.onnx", "--rules", "my.rules", "--costs", "roofline:rtx2070"
    )
    assert not Path("out.onnx").exists()
    return status, said.strip().splitlines()[-1]


@pytest.mark.parametrize(("text", "place", "expected"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_rule_file_is_located(
    text: str, place: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("my.rules").write_text(text)
    for status, said in (optimise(capsys), verify(capsys), verify(capsys, "--write")):
        assert status == 2
        assert f"my.rules:{place}: " in said and expected in said
    assert Path("my.rules").read_text() == text


def test_shapes_that_contradict_each_other_are_located(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.rules").write_text(f"# Two rules.\n\n{GOOD}\n{CONTRADICTION}")
    status, said = verify(capsys, "--write")
    assert status == 2
    assert "my.rules:8:6: rule 'r' is rejected" in said
    assert "my.rules:10:41: no shapes and attributes fit this statement" in said
    assert [bool(RuleSet.load("my.rules", proven=False).proof(index)) for index in range(2)] == [True, False]


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the text of `GOOD` with its proof."""
    path = tmp_path_factory.mktemp("proven") / "my.rules"
    path.write_text(GOOD)
    assert main(["rules", "verify", str(path), "--instances", "12", "--processes", "1", "--write"]) == 0
    return path.read_text().rstrip()


SPOILT_PROOFS = [
    (r"  proof[\s\S]*", "", "expected a proof, but there is none"),
    (r"Add\(y, x\)", "Add(x, y)", "the proof is stale"),
    (r"shapes=", "shapes=9", "the proof is stale"),
    (r"digest\(", "digest(0", "the proof is stale"),
    (r"\)$", "", "this one cannot be read"),
    (r"finite-field\(", "trust me, finite-field(", "this one cannot be read"),
    (r"onnxruntime\(", "tensorflow(", "unknown clause 'tensorflow'"),
    (r"onnxruntime\(\d+\)", "", "lacks the clause 'onnxruntime'"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), SPOILT_PROOFS)
def test_rules_without_their_own_proof_are_refused(
    old: str, new: str, complaint: str, proven: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edited = re.sub(old, new, proven, count=1)
    assert edited != proven
    Path("my.rules").write_text(edited.rstrip() + "\n")
    status, said = optimise(capsys)
    assert status == 2
    assert re.search(r"my\.rules:(1:6|5:3): rule 'add-commutes': ", said) and complaint in said
    assert "run: rlflow rules verify my.rules --write" in said


def test_the_command_that_is_named_then_helps(proven: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command runs once, on one file with all these rules."""
    spoilt = [re.sub(old, new, proven, count=1).rstrip() for old, new, _ in SPOILT_PROOFS]
    renamed = [text.replace("add-commutes", f"add-commutes-{number}", 1) for number, text in enumerate(spoilt)]
    Path("my.rules").write_text("\n\n".join(renamed) + "\n")
    assert verify(capsys, "--write")[0] == 0
    assert len(RuleSet.load("my.rules")) == len(SPOILT_PROOFS)


def test_a_false_rule_is_shown_with_its_counterexample(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.rules").write_text(GOOD.replace("Add", "Sub"))
    status, said = verify(capsys, "--write")
    assert status == 2
    assert "my.rules:1:6: rule 'add-commutes' is rejected" in said
    assert "--- source" in said and "Sub(" in said
    assert Path("my.rules").read_text() == GOOD.replace("Add", "Sub")
