"""Broken files of TASO's rules are refused in one paragraph, and the command reports on good files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taso_ext import RuleSet
from taso_ext.taso_rules import TasoFileError, load_taso_rules
from taso_ext.taso_rules.__main__ import main
from taso_ext.taso_rules.file import read_taso_file
from taso_ext.taso_rules.instances import source_graphs
from taso_ext.taso_rules.substitution import substitution
from tests.taso_ext.samples.taso_collections import ASSOCIATE, COMMUTE, MERGE_CONVS, collection, write

VALID = collection([ASSOCIATE, MERGE_CONVS]).SerializeToString()


def _with(change: Callable[[Any], None]) -> bytes:
    message = collection([ASSOCIATE])
    change(message.rule[0])
    return message.SerializeToString()


def _set(message: Any, **fields: int) -> None:
    for name, value in fields.items():
        setattr(message, name, value)


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it holds no rule"),
    "truncated": (VALID[:-3], "is not a collection of TASO's rules"),
    "text": (b"rule merge-matmuls\n  var x: float[...]\n", "is not a collection of TASO's rules"),
    "unknown fields": (VALID + b"\x50\x01", "2 of its"),
    "unknown operator": (_with(lambda rule: _set(rule.srcOp[0], type=200)), "200 is not a valid OpType"),
    "unknown parameter": (_with(lambda rule: _set(rule.srcOp[0].para[0], key=99)), "99 is not a valid ParameterKey"),
    "dangling input": (_with(lambda rule: _set(rule.srcOp[0].input[0], opId=1)), "operator 0 reads tensor (1, 0)"),
    "dangling port": (_with(lambda rule: _set(rule.srcOp[1].input[0], tsId=1)), "operator 1 reads tensor (0, 1)"),
    "dangling output": (_with(lambda rule: _set(rule.mappedOutput[0], dstOpId=7)), "maps an output to tensor (7, 0)"),
    "missing field": (VALID + b"\x0a\x02\x1a\x00", "it lacks rule[2].mappedOutput[0].srcOpId"),
    "no operators": (_with(lambda rule: rule.ClearField("dstOp")), "expected 1 to 8 operators, got 0"),
}


@pytest.mark.parametrize(("data", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_file_is_refused_in_one_paragraph(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "broken.pb"
    path.write_bytes(data)
    with pytest.raises(TasoFileError) as caught:
        load_taso_rules(path)
    assert reason in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["absent.pb", "."])
def test_unreadable_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TasoFileError, match="Cannot read"):
        load_taso_rules(tmp_path / name)


@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=4), st.integers(0, len(VALID)))
@settings(max_examples=300, deadline=None)
def test_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], length: int
) -> None:
    """Every rule that is read can be translated or says why not; no other error is ever raised."""
    data = bytearray(VALID)
    for at, byte in changes:
        data[at] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.pb"
    path.write_bytes(data[:length] if len(changes) < 4 else data)
    try:
        rules = read_taso_file(path)
    except TasoFileError:
        return
    for rule in rules:
        try:
            translated = substitution(rule)
        except ValueError as error:
            assert str(error)
        else:
            next(source_graphs(translated, seed=0, draws=3), None)


def test_command_prints_every_rule_and_writes_the_accepted_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "rules.pb", ASSOCIATE, COMMUTE)
    output = tmp_path / "out.rules"
    assert main([str(file), "-o", str(output), "--instances", "4"]) == 0
    printed = capsys.readouterr().out
    assert "| accepted | 1 |" in printed and "| wrong | 1 |" in printed
    assert "| 0 | `MatMul(MatMul(x1, x4), x5) → MatMul(x1, MatMul(x4, x5))` | accepted |" in printed
    assert RuleSet.load(str(output)).names == ["taso-0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.rules", "rules.pb"]


@pytest.mark.parametrize("case", ["garbage", "output exists", "no directory", "nothing accepted", "no instances"])
def test_command_ends_with_status_2_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    file = write(tmp_path / "rules.pb", COMMUTE)
    output = tmp_path / ("absent/out.rules" if case == "no directory" else "out.rules")
    if case == "garbage":
        file.write_bytes(b"garbage")
    if case == "output exists":
        output.write_text("kept")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as caught:
        main([str(file), "-o", str(output), "--instances", "0" if case == "no instances" else "4"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.strip()
    assert sorted(tmp_path.iterdir()) == before
    assert case != "output exists" or output.read_text() == "kept"
