"""Rule files: families, proofs, digests, and the places that errors name."""

from __future__ import annotations

from pathlib import Path

import pytest

import taso_ext
from taso_ext import RuleSet

FOLDER = Path(taso_ext.__file__).parent / "rules"
RULE = "rule r\n  var x: any\n  source y = Relu(x)\n  target y = Tanh(x)\n"
NEXT = "# heading of the next\n\nrule s\n  var x: any\n  source y = Tanh(x)\n  target y = Relu(x)\n"


def test_default_rules_are_those_of_all_files_but_the_optional_one() -> None:
    files = sorted(FOLDER.glob("*.rules"))
    names = {path.stem: RuleSet.load(str(path)).names for path in files}
    assert RuleSet.default(["partial"]).names == [name for of_file in names.values() for name in of_file]
    assert RuleSet.default().names == [name for file, each in names.items() if file != "partial" for name in each]


def test_place_is_where_the_name_stands() -> None:
    rules = RuleSet.default()
    for index, name in enumerate(rules.names):
        file, line, column = rules.place(index)
        assert Path(file).read_text().splitlines()[line - 1][column - 1 :] == name


@pytest.mark.parametrize("proof", ["", 'exact(error<2^-60) "§" ~{}$!', "a; b\n    # inside\n  second line\t&"])
def test_proof_is_kept_verbatim_and_ends_before_the_next_rule(proof: str) -> None:
    rules = RuleSet.parse(f"{RULE}  proof  {proof} \n\n{NEXT}")
    assert rules.names == ["r", "s"]
    assert [rules.proof(0), rules.proof(1)] == [proof, ""]
    assert rules.proof_place(0) == ("<text>", 5, 3)
    assert rules.proof_place(1) == rules.place(1)


def test_digest_ignores_comments_spaces_and_proof_and_nothing_else() -> None:
    digest = RuleSet.parse(RULE).digest(0)
    spaced, noted = RULE.replace(" ", "   "), RULE.replace("\n", "  # why\n")
    for same in (spaced, noted, f"{RULE}  proof any", f"# x\n\n{RULE}{NEXT}"):
        assert RuleSet.parse(same).digest(0) == digest
    for other in ("Tanh", "any"):
        assert RuleSet.parse(RULE.replace(other, {"Tanh": "Sigmoid", "any": "float"}[other])).digest(0) != digest


def test_fingerprint_tells_sets_apart_by_order_and_content() -> None:
    sets = [RULE, RULE + NEXT, NEXT + RULE, NEXT]
    assert len({RuleSet.parse(text).fingerprint for text in sets}) == len(sets)
    assert RuleSet.parse(RULE + "proof p\n" + NEXT).fingerprint == RuleSet.parse(RULE + NEXT).fingerprint


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ("  var x: any\n  source y = Foo(x)\n  target y = x\n", (3, 14), "'Foo' is neither an operator"),
        ("  var x: any\n  source y = Relu(z)\n  target y = x\n", (3, 19), "tensor 'z' is not defined"),
        ("  var x: int\n", (2, 10), "expected the dtype class"),
        ("  var x: any\n  source y = Relu(x); y = Tanh(x)\n  target y = x\n", (3, 23), "defines 'y' twice"),
        ("  var x: any\n  source y = Relu(x)\n  where a == 2\n  target y = x\n", (4, 9), "symbol 'a' is not bound"),
        ("  var x: any\n  source y = Relu(x)\n  target z = x\n", (4, 10), "share no result"),
        ("  var x: any\n  source y = Relu(x)\n  target z = x; y = Neg(w)\n", (4, 25), "tensor 'w' is not defined"),
        ("  var x: any\n  source y = Relu(x) §\n", (3, 22), "unexpected character"),
        ("  var x: any\n  source y = Relu(x)\n", (1, 6), "needs a 'source' and a 'target'"),
        ("  var x, z: any\n  source y = Relu(x); u = Relu(z)\n  target y = x\n", (1, 6), "not connected"),
    ],
)
def test_errors_name_line_and_column(body: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        RuleSet.parse(f"rule r\n{body}")
    assert str(error.value).startswith(f"<text>:{place[0]}:{place[1]}: ")
