"""Small samples of what `tests.conformance.rule_corruptions` and `.schema_bodies` judge in full."""

from __future__ import annotations

import pytest

from taso_ext import RuleSet
from tests.conformance import rule_corruptions, schema_bodies
from tests.conformance.rule_mutations import Draft
from tests.conformance.rule_truth import differs, rewrites

SAMPLE = range(13, 24)
RULES = RuleSet.default()


def test_drafts_say_the_same_as_the_rules_they_were_read_from() -> None:
    for _, text in rule_corruptions._true_rules():
        drafted, rule = RuleSet.parse(Draft.read(text).text()), RuleSet.parse(text)
        graphs = [each.instance(0, 3) for each in (drafted, rule)]
        assert len({graph and graph.hash for graph in graphs}) == 1


@pytest.mark.parametrize("name", ["merge-matmuls-sharing-lhs", "fold-scale-into-conv", "compose-transposes"])
def test_the_judge_finds_true_rules_true(name: str) -> None:
    rules = RuleSet.parse(RULES.text(RULES.names.index(name)).split("\n  proof")[0])
    found = list(rewrites(rules, 0, 4))
    assert found
    assert not any(differs(rewrite, 0) for rewrite in found)


def test_the_judge_finds_a_wrong_rule_wrong() -> None:
    rules = RuleSet.parse("rule r\n var x, y: float[m, n]\n source z = Sub(x, y)\n target z = Sub(y, x)\n")
    found = list(rewrites(rules, 0, 4))
    assert found and all(differs(rewrite, 0) for rewrite in found)


def test_corrupted_rules_are_rejected() -> None:
    judgements = [rule_corruptions.judge(seed) for seed in SAMPLE]
    wrong = [each for each in judgements if each.truth == rule_corruptions.WRONG]
    assert len(wrong) >= len(SAMPLE) // 3
    assert not any(each.accepted for each in wrong)
    # One wrong rule in a thousand may pass the exact layer; in a sample this small, one in a hundred rule sets has one.
    assert not any(each.exact for each in wrong), next(each for each in wrong if each.exact).text


@pytest.mark.parametrize("op_type", ["Gelu", "LayerNormalization", "LogSoftmax", "Clip", "GroupNormalization"])
def test_function_bodies_of_schemas_are_accepted(op_type: str) -> None:
    cases = [case for case in schema_bodies._cases() if case.op_type == op_type]
    verdicts = [schema_bodies.judge(case) for case in (cases[0], cases[-1])]
    assert all(each.outcome == schema_bodies.ACCEPTED for each in verdicts), verdicts
