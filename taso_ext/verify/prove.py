"""All layers of verification of one rule, and the proof that comes of them.

outcome = prove_rule(text, instances=64, seed=0)
if outcome.proof is None:
    raise SystemExit(outcome.refusal)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from taso_ext._core import RuleSet
from taso_ext.verify.axioms.proof import prove_by_axioms
from taso_ext.verify.check import RuleVerification, verify_rule
from taso_ext.verify.domain import RING, TestedDomain
from taso_ext.verify.exact.operator_call import UnsupportedOperatorError
from taso_ext.verify.exact.prime_field import NotInvertibleError
from taso_ext.verify.proof import NORMWISE, Proof
from taso_ext.verify.rule_reader import read_rule

DEFAULT_SHAPES = 128
GLANCES = 896
"""Further graphs, on which the exact test only glances."""
FLOAT_SHARE = 4
"""One of so many instances is compared in ONNX Runtime too."""
FEWEST_SHAPES = 4
"""Of instances that differ; a rule that offers fewer is hardly tested."""


@dataclass(frozen=True)
class Outcome:
    """
    Attributes:
      name: of the rule.
      proof: what was verified, or None.
      proof_text: it, as it stands in a rule file.
      refusal: why there is no proof, in one paragraph; a counterexample stands below it, line by line.
      refuted: whether there is a counterexample.
    """

    name: str
    proof: Proof | None = None
    proof_text: str = ""
    refusal: str = ""
    refuted: bool = False


def prove_rule(
    text: str,
    *,
    instances: int = DEFAULT_SHAPES,
    glances: int = GLANCES,
    seed: int = 0,
    normwise: bool = False,
    file: str = "<text>",
    domain: TestedDomain | None = None,
) -> Outcome:
    """Verifies the single rule of `text`, which bears no proof.

    Args:
      normwise: the rule is said to be equal in real arithmetic only (differential.py).
      instances, glances: graphs that the rule is tested on (`verify_rule`).
      seed: of these graphs and of all tensor data.
      file: where the text is from, line by line.
      domain: what the rule was tested on before, to which this test is added.
    Raises:
      ValueError: if `text` is no rule.
    """
    rules, rule = RuleSet.parse(f"{text}  proof  {NORMWISE}\n" if normwise else text, file), read_rule(text)
    name = rules.names[0]
    if any(not variable.floating for variable in rule.variables.values()):
        computing = sorted(rule.operator_names - RING)
        if computing:
            return Outcome(
                name,
                refusal=f"it takes tensors of any dtype through {', '.join(computing)}, and is verified for floating "
                "ones alone: declare its variables `float`",
            )
    domain = TestedDomain(rule) if domain is None else domain
    try:
        found = verify_rule(
            rules,
            0,
            instances=instances,
            float_instances=math.ceil(instances / FLOAT_SHARE),
            glances=glances,
            seed=seed,
            observe=domain.observe,
        )
    except (UnsupportedOperatorError, NotInvertibleError) as error:
        return Outcome(name, refusal=f"it cannot be evaluated exactly: {error}")
    if not found.ok:
        return Outcome(name, refusal=str(found), refuted=found.counterexample is not None)
    if len(found.instances) < FEWEST_SHAPES:
        return Outcome(
            name,
            refusal=f"it applied to only {len(found.instances)} different graphs of {instances} drawn; at least "
            f"{FEWEST_SHAPES} are needed to say that it was tested",
        )
    proof = proof_of(text, found, domain)
    return Outcome(name, proof, proof.text(rules, 0))


def proof_of(text: str, found: RuleVerification, domain: TestedDomain) -> Proof:
    """What is recorded of a rule that kept the function.

    Args:
      domain: of the graphs that it was tested on.
    """
    axioms = prove_by_axioms(text)
    return Proof(
        shapes=len(found.instances),
        error_bits=math.floor(found.error_bits),
        float_shapes=len(found.float_instances),
        rounding=found.float_error or None if not found.normwise else found.float_error,
        spreads=found.spreads_nonfinite,
        axioms=axioms,
        domain=domain.conditions() if axioms is None else (),
        normwise=found.normwise,
    )
