"""What a run loads: the rules that its options allow, and environments that share its costs."""

from __future__ import annotations

import pickle

from environment.counting import counting
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


def test_an_environment_more_times_no_graph_again_and_can_be_made_in_another_process() -> None:
    loaded = load("bert-base-tiny", load_config("demo", {"costs": "endtoend:cpu:pairs=2", "device": "cpu"}))
    timings = []
    for env in (loaded.env_source(), loaded.env):
        with counting() as counts:
            env.reset(seed=0)
            env.step(env.legal_actions()[0])
        timings.append(counts.end_to_end_timings)
    assert timings == [1, 0]
    sent = pickle.loads(pickle.dumps(loaded.env_source))()
    assert sent.costs is not loaded.env.costs and sent.costs.name == loaded.env.costs.name
    assert sent.reset(seed=0)[1]["graph_hash"] == loaded.env.reset(seed=0)[1]["graph_hash"]
