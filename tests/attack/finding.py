"""What an attack reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What came of one attempt.

    Attributes:
      seed: the number of the attempt, which repeats it.
      how: the controller, the kind of fault or the kind of rule.
      outcome: one of the texts of the attack's module.
      details: what was attacked, and what was said.
    """

    seed: int
    how: str
    outcome: str
    details: str
