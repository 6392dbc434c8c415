"""All layers of verification of one rule, and the proof that results from them.

outcome = prove_rule(text, instances=64, seed=0)
if outcome.proof is None:
    raise SystemExit(outcome.refusal)
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from taso_ext._core import Graph, Node, RuleSet
from taso_ext.verify.axioms.proof import prove_by_axioms
from taso_ext.verify.check import RuleVerification, verify_rule
from taso_ext.verify.exact.tensor import UnsupportedOperatorError
from taso_ext.verify.rule_file import NORMWISE, Proof
from taso_ext.verify.rule_reader import RuleText, Statement, Term, read_rule

_RESTRICTED = ("group", "strides", "dilations", "pads", "kernel_shape", "ceil_mode", "keepdims", "count_include_pad")
"""Attributes that decide which elements are combined; others follow from shapes or have no further structure."""


class TestedDomain:
    """The ranks, list lengths and attributes of the instances on which one rule was tested."""

    __test__ = False  # else pytest takes the class for a test

    def __init__(self, rule: RuleText) -> None:
        self._rule = rule
        self._seen: dict[str, set[int]] = {}

    def observe(self, graph: Graph) -> None:
        """Records the ranks, list lengths and attributes of one instance."""
        tensors = _tensors(self._rule, graph)
        lists = [v.term for v in self._rule.variables.values() if v.term.starred]
        for term, ids in tensors.items():
            if term.starred and (not lists or term in lists):  # lists of results are as long as those of variables
                self._note(f"count({term.name})", len(ids))
            elif self._is_open(term):
                self._note(f"rank({term.name})", len(graph.values()[ids[0]].dims or ()))
        nodes = {id_: node for node in graph.nodes() for id_ in node.outputs}
        for statement in self._rule.source:
            made = [nodes[id_] for id_ in tensors.get(statement.results[0], []) if id_ in nodes]
            for node in made:
                self._note_attributes(statement, node)

    def conditions(self) -> tuple[str, ...]:
        """Returns conditions that all instances meet.

        They bound lengths and attributes by the least and greatest values that occurred, and allow no other ranks than
        those that occurred.
        """
        seen = sorted((name, numbers) for name, numbers in self._seen.items() if numbers)
        return tuple(condition for name, numbers in seen for condition in _bounds(name, numbers))

    def _note(self, name: str, number: int) -> None:
        self._seen.setdefault(name, set()).add(number)

    def _is_open(self, term: Term) -> bool:
        variable = self._rule.variables.get(term.name)
        return variable is not None and variable.rank is None

    def _note_attributes(self, statement: Statement, node: Node) -> None:
        for name in _RESTRICTED:
            value = node.attributes.get(name)
            written = statement.attributes.get(name)
            if value is None:
                continue
            if written is None and statement.rest is not None:
                self._note_value(f"attribute(@{statement.rest}, {name})", value)
            elif isinstance(written, ast.Name):
                self._note_value(written.id, value)

    def _note_value(self, name: str, value: Any) -> None:
        numbers = value if isinstance(value, list) else [value]
        if all(isinstance(each, int) for each in numbers):
            self._seen.setdefault(name, set()).update(numbers)


def _bounds(name: str, numbers: set[int]) -> list[str]:
    """Returns conditions that bound the value of `name` by the least and greatest number.

    Ranks are tested one by one, so for a rank they also exclude the numbers between these that are missing.
    """
    low, high = min(numbers), max(numbers)
    gaps = [each for each in range(low, high) if each not in numbers] if name.startswith("rank(") else []
    return [f"within({name}, {low}, {high})", *(f"{name} != {each}" for each in gaps)]


def _tensors(rule: RuleText, graph: Graph) -> dict[Term, list[int]]:
    """Returns the ids of the values that each name of the rule stands for in an instance."""
    results = [term for statement in rule.source for term in statement.results]
    terms = {term.name: term for term in (*(v.term for v in rule.variables.values()), *results)}
    found: dict[Term, list[int]] = {}
    for id_, value in graph.values().items():
        name = value.name.removesuffix(str(id_)).removesuffix("_")
        if name in terms:
            found.setdefault(terms[name], []).append(id_)
    return found


RING = frozenset(
    [
        *("Add", "Sub", "Mul", "Neg", "Sum", "MatMul", "Conv", "ReduceSum", "Pad"),
        *("Identity", "Concat", "Split", "Slice", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"),
        *("Tile", "DepthToSpace", "SpaceToDepth", "Gather"),
    ]
)
"""Operators that only add, multiply or move elements, as is possible in every ring."""


DEFAULT_SHAPES = 128
GLANCES = 896
"""The number of further graphs, which the exact test compares at only one point in each field."""
FLOAT_SHARE = 4
"""One in this many instances is also compared in ONNX Runtime."""
FEWEST_SHAPES = 4
"""The fewest distinct instances; a rule with fewer is hardly tested."""


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
    except UnsupportedOperatorError as error:
        return Outcome(name, refusal=f"it cannot be evaluated exactly: {error}")
    if not found.ok:
        return Outcome(name, refusal=str(found), refuted=found.counterexample is not None)
    if len(found.instances) < FEWEST_SHAPES:
        return Outcome(
            name,
            refusal=f"it was tested on only {len(found.instances)} different graphs, but {FEWEST_SHAPES} are needed",
        )
    proof = proof_of(text, found, domain)
    return Outcome(name, proof, proof.text(rules, 0))


def proof_of(text: str, found: RuleVerification, domain: TestedDomain) -> Proof:
    """Returns the proof of a rule that kept the function.

    Args:
      found: the checks that the rule passed.
      domain: the domain of the graphs on which the rule was tested.
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
