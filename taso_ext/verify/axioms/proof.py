"""Proofs from the axioms that a rule holds for all shapes.

proof = prove_by_axioms(text)
if proof is not None:
    print(", ".join(proof))

The search saturates the rule's terms with instances of axioms whose conditions follow from the conditions of the rule.
z3 then decides: the instances that were found, which have no quantifiers, must contradict the negation of the rule.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import z3

from taso_ext.verify.axioms.axiom_set import Axiom, axioms, has_stars
from taso_ext.verify.axioms.matching import Built, Match, build, matches
from taso_ext.verify.axioms.rule_terms import RuleTerms
from taso_ext.verify.axioms.symbolic_shapes import BROADCASTING
from taso_ext.verify.axioms.tensor_terms import Node, Terms, item
from taso_ext.verify.rule_reader import RuleText, Statement, read_rule

CONGRUENCE = "congruence"
"""The name of a proof that needs no axiom: equal operators on equal operands give equal results."""
_ROUNDS = 4
_MOST_OPERATORS = 24
"""The most statements of a rule that is tried; the proof of a longer rule would take more than a few seconds."""
_MOST_TERMS = 300
_MOST_MATCHES = 3000
"""The most matches that one round looks for."""
_EFFORT = 10_000_000
"""The limit of z3's own count of steps. Unlike a time limit, it gives the same answer on every machine."""


@dataclass(frozen=True)
class Instance:
    """An axiom with terms for its variables.

    Attributes:
      axiom: the name of the axiom.
      equations: what the axiom says of these terms, as equations between terms of z3.
    """

    axiom: str
    equations: tuple[z3.BoolRef, ...]


def prove_by_axioms(text: str) -> tuple[str, ...] | None:
    """Returns the names of the axioms that imply the rule of `text`, or None if no proof was found.

    Raises:
      ValueError: if `text` is not a rule.
    """
    rule = read_rule(text)
    if len(rule.source) + len(rule.target) > _MOST_OPERATORS:
        return None
    whole = _prove(rule)
    return whole if whole is not None else _prove_by_cases(rule)


def _prove(rule: RuleText) -> tuple[str, ...] | None:
    rule_terms = RuleTerms.of(rule)
    if rule_terms is None:
        return None
    return _Search(rule, rule_terms, _usable(rule)).proof()


def _usable(rule: RuleText) -> list[Axiom]:
    """Returns the axioms that apply to a rule.

    An axiom about float tensors says nothing about integers, and an axiom about lists says nothing about shorter lists.
    """
    exact = any(not variable.floating for variable in rule.variables.values())
    usable = [a for a in axioms() if not exact or not any(v.floating for v in a.rule.variables.values())]
    return [axiom for axiom in usable if rule.least >= axiom.rule.least or axiom.lists or not has_stars(axiom.rule)]


def _prove_by_cases(rule: RuleText) -> tuple[str, ...] | None:
    """Returns a proof that joins one proof for each operator that an operator variable may stand for."""
    for name, choices in rule.operators.items():
        if len(choices) > 1 and set(choices) <= BROADCASTING:  # these operators have no attributes
            proofs = [_prove(_with_operator(rule, name, choice)) for choice in choices]
            if all(proof is not None for proof in proofs):
                return tuple(sorted({axiom for proof in proofs for axiom in proof or ()}))
    return None


def _with_operator(rule: RuleText, name: str, choice: str) -> RuleText:
    source, target = (
        tuple(replace(s, op=choice if s.op == name else s.op) for s in side) for side in (rule.source, rule.target)
    )
    operators = {other: choices for other, choices in rule.operators.items() if other != name}
    return replace(rule, operators=operators, source=source, target=target)


def equated_variables(text: str) -> list[tuple[str, str]]:
    """Returns the pairs of variables that the axioms make equal in the rule of `text`.

    Consistent axioms make no variables equal.
    """
    rule = read_rule(text)
    rule_terms = RuleTerms.of(rule)
    if rule_terms is None:
        return []
    _Search(rule, rule_terms, _usable(rule)).exhaust()
    names = sorted(rule_terms.variables)
    leaders = {name: rule_terms.terms.find(rule_terms.variables[name]) for name in names}
    return [(a, b) for a in names for b in names if a < b and leaders[a] == leaders[b]]


class _Search:
    def __init__(self, rule: RuleText, rule_terms: RuleTerms, usable: list[Axiom]) -> None:
        self._terms = rule_terms.terms
        self._goals = rule_terms.goals
        self._axioms = usable
        self._operators = {name: frozenset(choices) for name, choices in rule.operators.items()}
        self._instances: list[Instance] = []
        self._seen: set[Hashable] = set()
        self._exhaustive = False
        self._language = _Language(self._terms)

    def proof(self) -> tuple[str, ...] | None:
        for _ in range(_ROUNDS):
            if self._reached() or not self._round():
                break
        return self._core() if self._reached() else None

    def exhaust(self) -> None:
        """Adds instances in all rounds, also after the goals are reached."""
        self._exhaustive = True
        for _ in range(_ROUNDS):
            if not self._round():
                return

    def _reached(self) -> bool:
        return all(self._terms.find(a) == self._terms.find(b) for a, b in self._goals)

    def _round(self) -> bool:
        """Adds every instance that can be found among the present terms, and returns whether there was a new one."""
        all_matches = (match for axiom in self._axioms for match in matches(axiom, self._terms, self._operators))
        found = list(islice(all_matches, _MOST_MATCHES))
        news = [self._instantiate(match) for match in found]
        return any(news)

    def _instantiate(self, match: Match) -> bool:
        axiom = match.axiom
        key = (id(axiom), tuple(sorted((name, self._terms.find(term)) for name, term in match.tensors.items())))
        if key in self._seen:
            return False
        if not self._exhaustive and self._reached():  # the matches that are left would only cost time
            return False
        new = axiom.follows and len(self._terms) < _MOST_TERMS
        made = build(match, new=new)
        if made is None:
            return False
        results = [term.name for term in axiom.rule.outputs]
        pairs = [(match.tensors[name], made.results[name]) for name in results]
        if not axiom.follows and not all(self._terms.same_type(a, b) for a, b in pairs):
            return False
        self._seen.add(key)
        self._instances.append(self._language.instance(match, made))
        for a, b in pairs:
            self._terms.equate(a, b)
        return True

    def _core(self) -> tuple[str, ...] | None:
        """Returns the axioms of instances that contradict the rule's negation, or None if z3 finds no contradiction.

        None of these instances can be left out.
        """
        goal = z3.Not(z3.And([self._language.term(a) == self._language.term(b) for a, b in self._goals]))
        kept = _contradicting(self._instances, goal)
        if kept is None:
            return None
        for instance in reversed(kept):
            fewer = _contradicting([each for each in kept if each is not instance], goal) if len(kept) > 1 else None
            kept = fewer if fewer is not None else kept
        return tuple(sorted({instance.axiom for instance in kept})) or (CONGRUENCE,)


def _contradicting(instances: list[Instance], goal: z3.BoolRef) -> list[Instance] | None:
    """Returns those of `instances` that z3 uses to refute `goal`, or None if it cannot refute it."""
    solver = z3.Solver()
    solver.set("rlimit", _EFFORT)
    solver.add(goal)
    marks = [z3.Bool(f"instance {number}") for number in range(len(instances))]
    for mark, instance in zip(marks, instances, strict=True):
        solver.add(z3.Implies(mark, z3.And(list(instance.equations))))
    if solver.check(*marks) != z3.unsat:
        return None
    core = {str(mark) for mark in solver.unsat_core()}
    return [instance for mark, instance in zip(marks, instances, strict=True) if str(mark) in core]


class _Language:
    """A translation of terms into the language of z3.

    Each operator with its attributes becomes one uninterpreted function. Lists of tensors have the sort of tensors.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._sort = z3.DeclareSort("Tensor")
        self._functions: dict[Hashable, z3.FuncDeclRef] = {}
        self._known: dict[int, z3.ExprRef] = {}

    def term(self, number: int) -> z3.ExprRef:
        if number not in self._known:
            node = self._terms.nodes[number]
            operands = [self.term(term) for term, _ in node.operands]
            key: Hashable = _key(node) if node.op else number
            self._known[number] = self._apply(key, operands)
        return self._known[number]

    def instance(self, match: Match, built: Built) -> Instance:
        """Returns the axiom of a match, with the terms of the match for its variables."""
        rule = match.axiom.rule
        inputs = {name: self.term(match.tensors[name]) for name in rule.variables if name in match.tensors}
        source = self._side(rule.source, match.found, inputs)
        target = self._side(rule.target, built.found, inputs)
        return Instance(match.axiom.name, tuple(source[t.name] == target[t.name] for t in rule.outputs))

    def _side(
        self, statements: tuple[Statement, ...], found: Mapping[str, int], inputs: Mapping[str, z3.ExprRef]
    ) -> dict[str, z3.ExprRef]:
        """Returns what one side computes, by name; `found` has the terms of its operators by their first result."""
        values = dict(inputs)
        for statement in statements:
            operands = [values[term.name] for term in statement.arguments]
            if not statement.op:
                values[statement.results[0].name] = operands[0]
                continue
            node = self._terms.nodes[found[statement.results[0].name]]
            value = self._apply(_key(node), operands)
            values[statement.results[0].name] = value
            if node.op.startswith("Split "):
                for place, term in enumerate(statement.results):
                    values[term.name] = self._apply(_key(item(0, place)), [value])
        return values

    def _apply(self, key: Hashable, operands: list[z3.ExprRef]) -> z3.ExprRef:
        if key not in self._functions:
            self._functions[key] = z3.Function(f"f{len(self._functions)}", *[self._sort] * len(operands), self._sort)
        return self._functions[key](*operands)


def _key(node: Node) -> Hashable:
    return (node.op, node.attributes, tuple(starred for _, starred in node.operands))
