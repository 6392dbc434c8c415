"""What a run loads: the rules that its options allow."""

from __future__ import annotations

from experiments.config.run import load_config
from experiments.pipeline.loading.load import load
from taso_ext import RuleSet

MODEL = "squeezenet1.1-tiny"


def names(**options: object) -> list[str]:
    return load(MODEL, load_config("demo", {"costs": "roofline:rtx2070", "device": "cpu", **options})).env.rules.names


def test_only_named_rules_are_used() -> None:
    every = RuleSet.default().names
    assert names() == every
    assert names(only=["fold-*", "merge-*"]) == [each for each in every if each.startswith(("fold-", "merge-"))]
    assert names(skip=["fold-*"]) == [each for each in every if not each.startswith("fold-")]
    assert names(only=["fold-*"], skip=["fold-batch-*"]) == [
        each for each in every if each.startswith("fold-") and not each.startswith("fold-batch-")
    ]
