"""Checks whether the axioms prove wrong rules: `python -m tests.conformance.axiom_corruptions [--count N] [--seed N]`.

Corrupts rules that the axioms prove (rule_mutations.py), and tests in exact arithmetic those that they still prove.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from taso_ext._core import RuleSet
from taso_ext.verify.axioms.axiom_set import axiom_text
from taso_ext.verify.axioms.proof import prove_by_axioms
from taso_ext.verify.check import verify_rule
from taso_ext.verify.exact.fields import NotInvertibleError
from tests.conformance.rule_mutations import corrupt

_INSTANCES = 12


@dataclass
class Judgement:
    """The result for corrupted rules.

    Attributes:
      drawn: how many rules were drawn that differ from the true one and can be read.
      proven: how many of these the axioms prove; a corruption may be harmless.
      unclear: how many of the proven ones have no value anywhere.
      wrong: the texts of the proven ones that the exact test refutes.
      seconds: the CPU time of all attempts to prove them.
    """

    drawn: int = 0
    proven: int = 0
    unclear: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.drawn} corruptions of rules and axioms: the axioms prove {self.proven}, of which the exact test "
            f"refutes {len(self.wrong)} and cannot judge {self.unclear}; {self.seconds / max(self.drawn, 1):.3f} s each"
        )


def judge(count: int, seed: int) -> Judgement:
    """Draws `count` corruptions of the shipped rules and of the axioms themselves."""
    judgement, rng = Judgement(), random.Random(seed)
    for text in _corruptions(rng, count):
        begin = time.process_time()
        proof = prove_by_axioms(text)
        judgement.seconds += time.process_time() - begin
        judgement.drawn += 1
        if proof is None:
            continue
        judgement.proven += 1
        try:
            found = verify_rule(RuleSet.parse(text), 0, instances=_INSTANCES, float_instances=0, seed=seed)
        except NotInvertibleError:  # it divides by zero everywhere, so that it cannot be judged
            judgement.unclear += 1
            continue
        if found.counterexample is not None:
            judgement.wrong.append(f"{text}\nproven by {', '.join(proof)}, but {found}")
    return judgement


def _corruptions(rng: random.Random, count: int) -> Iterator[str]:
    texts = _true_rules()
    seen: set[str] = set()
    while len(seen) < count:
        changed = corrupt(rng.choice(texts), rng)
        if changed is None or changed[0] in seen:
            continue
        try:
            RuleSet.parse(changed[0])
        except ValueError:
            continue
        seen.add(changed[0])
        yield changed[0]


def _true_rules() -> list[str]:
    """Returns the rules and axioms that the axioms prove, without their proofs."""
    sets = (RuleSet.default(), RuleSet.parse(axiom_text()))
    texts = [rules.text(index).split("\n  proof")[0] + "\n" for rules in sets for index in range(len(rules))]
    return [text for text in texts if prove_by_axioms(text) is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    judgement = judge(options.count, options.seed)
    for text in judgement.wrong:
        print(text)
    print(judgement)


if __name__ == "__main__":
    main()
