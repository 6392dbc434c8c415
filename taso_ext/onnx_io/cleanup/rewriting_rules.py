"""onnxscript's default rewrite rules, made to cost nothing where they cannot apply.

The library tries every rule at every node, which takes most of the time of a clean-up. Here only rules remain whose
operators a model has, and a rule first looks whether a node is the operator that its pattern ends in.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir
from onnxscript.rewriter import _DEFAULT_REWRITE_RULES, RewritePass
from onnxscript.rewriter.pattern import MatchResult, PatternMatcher, RewriteRule

_MOST_VISITS = 10**7
"""A pattern with several last nodes is tried on all combinations of them; beyond this many nodes it is left out."""


@dataclass(frozen=True)
class _Rule:
    """A rule, the operators its pattern needs, and the last of them if the pattern has a single one."""

    rule: RewriteRule
    operators: frozenset[str]
    root: str
    num_roots: int

    def applies_to(self, counts: Counter[str]) -> bool:
        visits = counts[self.root] * counts.total() ** (self.num_roots - 1)
        return self.operators <= counts.keys() and (self.num_roots == 1 or visits <= _MOST_VISITS)


def rewrite_once(model: ir.Model) -> bool:
    """Applies the rules at every node once; whether anything changed."""
    counts = Counter(node.op_type for node in model.graph.all_nodes())
    rules = [each.rule for each in _rules() if each.applies_to(counts)]
    return bool(rules) and bool(RewritePass(rules)(model).modified)


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(_prepared(rule) for rule in _DEFAULT_REWRITE_RULES)


def _prepared(rule: RewriteRule) -> _Rule:
    pattern = rule._target_pattern
    root = str(pattern.output_nodes[0].op)
    quick = copy.copy(rule)
    quick._matcher = _FromRoot(rule._matcher, root)
    return _Rule(quick, frozenset(str(node.op) for node in pattern), root, len(pattern.output_nodes))


class _FromRoot(PatternMatcher):
    """A matcher that gives up at once unless the node is the operator its pattern ends in."""

    def __init__(self, matcher: PatternMatcher, root: str) -> None:
        super().__init__(matcher.pattern)
        self._matcher, self._root = matcher, root

    def match(
        self, model: ir.Model, graph_or_function: ir.Graph, node: ir.Node, **options: object
    ) -> MatchResult | None:
        if node.op_type != self._root:
            return None
        return self._matcher.match(model, graph_or_function, node, **options)
