"""Rule files as text in which only the proofs change, and the proof section of a rule.

The proof says what was verified and on what. It ends with a seal, `digest(...)`, that ties it to the rule's text:

    proof  finite-field(primes=2, shapes=64, error<2^-117)  axioms(concat-matmul, split-of-concat)
           onnxruntime(32)  rounding(error=3e-07)  digest(0123456789abcdef)

`reals(digits=60, shapes=20)` says that 20 of the graphs were compared in real numbers, because prime fields have only
random functions for their operators. `domain(...)` holds conditions that all instances meet on which the rule was
tested. The engine compiles them like the conditions of `where`, so the rule matches nothing else. If axioms prove the
rule, its domain does not restrict shapes.
"""

from __future__ import annotations

import enum
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from taso_ext._core import RuleSet
from taso_ext.verify.exact.reals import DIGITS

_WIDTH = 120
_INDENT = 9


class Rounding(enum.Enum):
    """What the error of each element of a target is measured by; the value is the word in a proof.

    Attributes:
      ELEMENT: the accuracy of this element in the source.
      LARGEST: the least accuracy in the output. Tanh by Sigmoid, for example, is inexact near 0.
      REAL: the same, and large intermediate results may overflow. The sides are equal in real arithmetic only, as
        Winograd's convolutions are; the author says so with `proof rounding(normwise)`.
    """

    ELEMENT = ""
    LARGEST = "largest"
    REAL = "normwise"


@dataclass(frozen=True)
class Proof:
    """The evidence that a verified rule records.

    Attributes:
      shapes: the number of distinct graphs that were compared in both prime fields.
      error_bits: a wrong rule passes the test on each of these graphs with probability below 2^−error_bits.
      real_shapes: the number of those graphs that were compared in real numbers (exact/reals.py).
      float_shapes: the number of distinct graphs that were compared in ONNX Runtime.
      rounding: the largest difference in ONNX Runtime, relative to the largest result; None if all results were equal
        and the error is that of each element.
      spreads: whether an infinity or NaN in an input reaches more results in the target than in the source.
      axioms: the names of the axioms that prove the rule for all shapes; None if the axioms do not prove it.
      domain: conditions that all tested graphs meet, and that the matcher enforces. If the axioms prove the rule, they
        are only about what rounds or overflows: the sizes of reals, element types, and infinite or zero weights.
      measure: what the error of each element was measured by.
    """

    shapes: int
    error_bits: int
    float_shapes: int
    rounding: float | None
    spreads: bool
    axioms: tuple[str, ...] | None
    domain: tuple[str, ...]
    measure: Rounding = Rounding.ELEMENT
    real_shapes: int = 0

    def clauses(self) -> list[str]:
        """Returns the evidence, without the seal."""
        found = [f"finite-field(primes=2, shapes={self.shapes}, error<2^-{self.error_bits})"]
        if self.real_shapes:
            found.append(f"reals(digits={DIGITS}, shapes={self.real_shapes})")
        if self.axioms is not None:
            found.append(f"axioms({', '.join(self.axioms)})")
        found.append(f"onnxruntime({self.float_shapes})")
        if self.rounding is not None:
            words = [f"error={self.rounding:.0e}", *filter(None, [self.measure.value])]
            found.append(f"rounding({', '.join(words)})")
        if self.spreads:
            found.append("spreads(infinity)")
        if self.axioms is None or self.domain:
            found.append(f"domain({', '.join(self.domain)})")
        return found

    def text(self, rules: RuleSet, index: int) -> str:
        """Returns the proof of rule `index` with its seal, in lines of at most 120 characters."""
        clauses = self.clauses()
        evidence = textwrap.wrap("  ".join(clauses), _WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False)
        written = "\n".join(evidence)
        seal = f"digest({rules.seal(index, written)})"
        if len(evidence[-1]) + len(seal) + 2 > _WIDTH - _INDENT:
            evidence.append(seal)
        else:
            evidence[-1] += f"  {seal}"
        return ("\n" + " " * _INDENT).join(evidence)


NORMWISE = "rounding(normwise)"
"""The proof with which an author says, before verification, that a rule is equal in real arithmetic only."""


def is_normwise(proof: str) -> bool:
    """Returns whether a proof says that its rule is equal in real arithmetic only."""
    return re.search(r"\brounding\([^)]*\bnormwise\b", proof) is not None


_HEAD = "  proof  "


@dataclass(frozen=True)
class RuleEntry:
    """One rule of a file.

    Attributes:
      name: the name of the rule.
      place: `file:line:column` of the name.
      text: the rule without its proof.
      proof: the proof as it stands in the file; "" if there is none.
      is_current: whether this proof was made for this text.
      begin, end: where the lines of the proof begin and end in the file, in characters; if there is no proof, both are
        the place for one.
    """

    name: str
    place: str
    text: str
    proof: str
    is_current: bool
    begin: int
    end: int


def read_rule_file(path: Path) -> list[RuleEntry]:
    """Returns the rules of a file in their order.

    Raises:
      ValueError: if the file cannot be read or is not well-formed. For the latter the message gives
        `file:line:column`, what was expected and what was found.
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
    """Returns the text of the file with the proofs of the named rules replaced or added."""
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
    """Returns the rule without the blank lines and comments at its end, which belong to the next rule."""
    lines = rule.splitlines()
    while lines and (not lines[-1].strip() or lines[-1].strip().startswith("#")):
        lines.pop()
    return "\n".join([*lines, ""])


def _line_begin(text: str, line: int) -> int:
    """Returns the offset at which line number `line` (from 1) begins; the end of the text if there is no such line."""
    lines: Sequence[str] = text.splitlines(keepends=True)
    return len("".join(lines[: line - 1]))


def _is_current(rules: RuleSet, index: int) -> bool:
    try:
        rules.require_proof(index)
    except ValueError:
        return False
    return True
