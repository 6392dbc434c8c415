"""All layers of verification of one rule, and the proof that results from them.

outcome = prove_rule(text, instances=64, seed=0)
if outcome.proof is None:
    raise SystemExit(outcome.refusal)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from taso_ext._core import RuleSet
from taso_ext.verify.axioms.proof import prove_by_axioms
from taso_ext.verify.check import RuleVerification, floating_variables, verify_rule
from taso_ext.verify.element_types import TypeClass, UntypedRuleError, needs_types, type_classes
from taso_ext.verify.exact.points import FEWEST_SHAPES
from taso_ext.verify.exact.tensor import UnsupportedOperatorError
from taso_ext.verify.numeric.other_dtypes import DTYPES
from taso_ext.verify.rule_file import NORMWISE, Proof, Rounding
from taso_ext.verify.rule_reader import RuleText, read_rule
from taso_ext.verify.tested_domain import TestedDomain

DEFAULT_SHAPES = 128
GLANCES = 896
"""The number of further graphs, which the exact test compares at only one point in each field."""
FLOAT_SHARE = 4
"""One in this many instances is also compared in ONNX Runtime."""


@dataclass(frozen=True)
class Outcome:
    """The result of verifying one rule.

    Attributes:
      name: the name of the rule.
      proof: the proof, or None if the rule was refused.
      proof_text: the proof as it stands in a rule file.
      refusal: why there is no proof, in one paragraph; the lines of a counterexample follow below it.
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
    """Verifies the only rule of `text`, which has no proof.

    Args:
      instances, glances: the numbers of graphs on which the rule is tested, as in `verify_rule`.
      seed: the seed of these graphs and of all tensor data.
      normwise: whether the rule is said to be equal in real arithmetic only (numeric/differential.py).
      file: the file that messages name together with a line of `text`.
      domain: the instances on which the rule was tested before; those of this test are added to it.
    Raises:
      ValueError: if `text` is not a rule.
    """
    rules, rule = RuleSet.parse(f"{text}  proof  {NORMWISE}\n" if normwise else text, file), read_rule(text)
    name = rules.names[0]
    try:
        classes = type_classes(rule) if needs_types(rule) else []
    except UntypedRuleError as error:
        return Outcome(name, refusal=str(error))
    dtypes = {name: dtype for each in classes for name, dtype in each.dtypes(each.kind[0]).items()}
    domain = TestedDomain(rule) if domain is None else domain

    def verify(measure: Rounding) -> RuleVerification:
        return verify_rule(
            rules,
            0,
            instances=instances,
            float_instances=math.ceil(instances / FLOAT_SHARE),
            glances=glances,
            seed=seed,
            dtypes=dtypes,
            observe=domain.observe,
            measure=measure,
        )

    try:
        found = verify(Rounding.ELEMENT)
        if found.counterexample is not None and found.counterexample.rounds:
            less_strict = verify(Rounding.LARGEST)
            found = less_strict if less_strict.ok else found
    except UnsupportedOperatorError as error:
        return Outcome(name, refusal=f"it cannot be evaluated exactly: {error}")
    if not found.ok:
        return Outcome(name, refusal=str(found), refuted=found.counterexample is not None)
    if classes and found.spreads_nonfinite:
        return Outcome(
            name,
            refusal="an infinity or NaN in an input reaches results in its target that it does not reach in its "
            "source, which is allowed for products with zeros of a kernel alone, and not where truth values choose",
        )
    if len(found.instances) < FEWEST_SHAPES:
        return Outcome(
            name,
            refusal=f"it was tested on only {len(found.instances)} different graphs, but {FEWEST_SHAPES} are needed",
        )
    proof = proof_of(text, found, domain, _type_conditions(rules, classes, seed), dtypes)
    return Outcome(name, proof, proof.text(rules, 0))


INTEGER_INSTANCES = 10
"""The number of graphs on which a rule is tested for each integer type."""


def _type_conditions(rules: RuleSet, classes: Sequence[TypeClass], seed: int) -> tuple[str, ...]:
    """Returns conditions that keep matches to the types in which the only rule of `rules` was tested.

    Integer types are tried if only one class admits them; mixtures of types were not tested otherwise.
    """
    base = {name: dtype for each in classes for name, dtype in each.dtypes(each.kind[0]).items()}
    whole = [each for each in classes if each.integers]
    conditions = []
    for each in classes:
        agreed = []
        for name in each.integers if len(whole) == 1 else ():
            dtypes = {**base, **each.dtypes(name)}
            found = verify_rule(rules, 0, instances=INTEGER_INSTANCES, seed=seed, dtypes=dtypes)
            agreed += [name] if found.ok and len(found.whole_instances) >= FEWEST_SHAPES else []
        conditions.append(each.condition(agreed))
    return tuple(conditions)


def proof_of(
    text: str,
    found: RuleVerification,
    domain: TestedDomain,
    typed: Sequence[str] = (),
    dtypes: Mapping[str, int] = MappingProxyType({}),
) -> Proof:
    """Returns the proof of a rule that kept the function.

    Args:
      found: the checks that the rule passed.
      domain: the domain of the graphs on which the rule was tested.
      typed: conditions on element types, without which the rule was not tested; axioms do not replace them.
      dtypes: the element types (onnx.TensorProto) of the variables that were tested in another one than float32.
    """
    axioms, rule = None if typed or domain.casts else prove_by_axioms(text), read_rule(text)
    domain.run(found.float_instances)
    beside = (*typed, *found.facts.conditions(), *_dtype_conditions(rule, found, dtypes))
    return Proof(
        shapes=len(found.instances),
        error_bits=math.floor(found.error_bits),
        real_shapes=len(found.real_instances),
        float_shapes=len(found.float_instances),
        rounding=found.float_error or None if found.measure is Rounding.ELEMENT else found.float_error,
        spreads=found.spreads_nonfinite,
        axioms=axioms,
        domain=(*domain.conditions(real_only=axioms is not None), *beside),
        measure=found.measure,
    )


def _dtype_conditions(rule: RuleText, found: RuleVerification, dtypes: Mapping[str, int]) -> Iterator[str]:
    """Yields conditions that exclude the floating element types in which a rule was not seen to keep the function."""
    names = [name for name in floating_variables(rule, dtypes) if not rule.variables[name].term.starred]
    results = [term.name for statement in rule.source for term in statement.results if not term.starred]
    tested = names or (results if not dtypes else [])
    for dtype in sorted(DTYPES.keys() - found.dtypes) if tested else ():
        yield f'dtype({tested[0]}) != "{dtype}"'
