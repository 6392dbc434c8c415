"""The proof line of a rule: what was verified, on what, and a seal that ties it to the rule's text.

    proof  finite-field(primes=2, shapes=64, error<2^-117)  axioms(concat-matmul, split-of-concat)
           onnxruntime(32)  rounding(error=3e-07)  digest(0123456789abcdef)

A rule that the axioms do not reach has `domain(...)` in place of `axioms(...)`: conditions that hold for all instances
it was tested on. The engine compiles them like those of `where`, so the rule matches nothing else.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from taso_ext._core import RuleSet

_WIDTH = 120
_INDENT = 9


@dataclass(frozen=True)
class Proof:
    """What a verified rule records.

    Attributes:
      shapes: distinct graphs compared in both prime fields.
      error_bits: a wrong rule passes each of these with probability below 2^−error_bits.
      float_shapes: of these, how many ONNX Runtime compared as well.
      rounding: largest difference there, relative to the largest result; None where all results were equal.
      normwise: the rule is equal in real arithmetic only; its author says so with `proof rounding(normwise)`.
      spreads: an infinity or NaN of an input reaches more results than before.
      axioms: names of those that prove the rule for all shapes; None where they do not reach it.
      domain: conditions that all tested graphs meet; empty where the axioms prove the rule.
    """

    shapes: int
    error_bits: int
    float_shapes: int
    rounding: float | None
    spreads: bool
    axioms: tuple[str, ...] | None
    domain: tuple[str, ...]
    normwise: bool = False

    def clauses(self) -> list[str]:
        """The evidence, without the seal."""
        found = [f"finite-field(primes=2, shapes={self.shapes}, error<2^-{self.error_bits})"]
        if self.axioms is not None:
            found.append(f"axioms({', '.join(self.axioms)})")
        found.append(f"onnxruntime({self.float_shapes})")
        if self.rounding is not None:
            found.append(f"rounding(error={self.rounding:.0e}{', normwise' if self.normwise else ''})")
        if self.spreads:
            found.append("spreads(infinity)")
        if self.axioms is None:
            found.append(f"domain({', '.join(self.domain)})")
        return found

    def text(self, rules: RuleSet, index: int) -> str:
        """The proof of rule `index`, sealed; lines of at most 120 characters."""
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
"""The proof with which an author says so before the rule is verified."""


def is_normwise(proof: str) -> bool:
    """Whether the rule that this proof belongs to is said to be equal in real arithmetic only."""
    return re.search(r"\brounding\([^)]*\bnormwise\b", proof) is not None
