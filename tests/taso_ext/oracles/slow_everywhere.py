"""A second implementation of carrying a rule out everywhere, by the naive matcher and rewriter.

An operator is the same one as long as it makes the same values, because the naive rewriter never renames what stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from taso_ext.verify.rule_reader import RuleText
from tests.taso_ext.oracles.slow_graph import PlainGraph
from tests.taso_ext.oracles.slow_match import Match
from tests.taso_ext.oracles.slow_rewriter import legal_rewrites


def carried_out_everywhere(rule: RuleText, graph: PlainGraph, standing: Sequence[Match]) -> tuple[PlainGraph, int]:
    """Returns the graph after all matches that still stand when their turn comes, and how many did.

    Args:
      standing: the matches of the start, in the order in which they are carried out.
    """
    count = 0
    for wanted in standing:
        alike = [pair for pair in legal_rewrites(rule, graph) if _operators(pair[0]) == _operators(wanted)]
        same = [pair for pair in alike if pair[0].tensors == wanted.tensors and pair[0].lists == wanted.lists]
        if alike:
            graph, count = (same or alike)[0][1], count + 1
    return graph, count


def _operators(match: Match) -> list[tuple[int, ...]]:
    """Returns the values that the matched operators make, in the order of the source's statements."""
    return [node.outputs for index in sorted(match.nodes) for node in match.nodes[index]]
