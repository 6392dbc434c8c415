"""Tests of the graphs that a run has timed as a whole: which of their records are found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from environment import GraphSubstitutionEnv
from experiments.validation.timed_graphs import ends, journal_differences, whole_graph_differences


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv("squeezenet1.1-tiny")


def walked(env: GraphSubstitutionEnv, choice: int, steps: int) -> tuple[tuple[int, int], ...]:
    """Returns the rewrites of a walk that always takes the legal one of the same place in their list."""
    state, plan = env.start_state(), []
    for _ in range(steps):
        actions = state.legal_actions()
        rule, location = (int(part) for part in actions[choice % len(actions)])
        state.step(rule, location)
        plan.append((rule, location))
    return tuple(plan)


def test_plans_end_where_the_environment_replays_them_to(env: GraphSubstitutionEnv) -> None:
    long, other = walked(env, 0, 5), walked(env, 3, 4)
    plans = [long, long[:2], (*long[:3], (env.num_rules + 5, 0)), other, ()]
    found = ends(env, plans)
    assert len({found[long], found[long[:2]], found[other], found[()]}) == 4
    for plan in (long, long[:2], other, ()):
        assert found[plan] == env.replay(plan).hash
    assert found[plans[2]] == "none, because action 3 is not legal"


def journal(env: GraphSubstitutionEnv) -> list[dict[str, Any]]:
    """Returns a journal of a climb that has moved once and then timed another graph."""
    first, second = walked(env, 0, 1), walked(env, 0, 3)
    start, reached, last = (env.replay(plan).hash for plan in ((), first, second))
    timed = {"verdict": "faster", "low": 0.7, "high": 0.9, "pairs": 6, "sessions": 1, "bill": None}
    return [
        {"kind": "begun", "graph": start, "rules": env.rules.fingerprint},
        {"kind": "proposed", "source": "guide 0", "actions": [[99, 99]]},
        {"kind": "timed", "graph": reached, "actions": first, "base": start, "base_ratio": 1.0, "ratio": 0.8, **timed},
        {"kind": "best", "graph": reached, "actions": first, "ratio": 0.8, "timed": 1},
        {"kind": "timed", "graph": last, "actions": second, "base": reached, "base_ratio": 0.8, "ratio": 1.1, **timed},
    ]


def test_a_journal_that_is_right_is_found_right(env: GraphSubstitutionEnv) -> None:
    assert not list(journal_differences(env, journal(env), None))
    assert not list(journal_differences(env, [], None))


@pytest.mark.parametrize(
    ("line", "edit", "what"),
    [
        (0, lambda line: line.update(rules="other"), "the rule set"),
        (0, lambda line: line.update(graph="other"), "the start graph"),
        (2, lambda line: line.update(graph="other"), "the graph of its actions"),
        (4, lambda line: line.update(actions=line["actions"][:2]), "the graph of its actions"),
        (4, lambda line: line.update(actions=[[99, 99]]), "the graph of its actions"),
        (4, lambda line: line.update(base="other"), "the graph that it was compared with"),
        (4, lambda line: line.update(base_ratio=0.7), "the ratio of that graph"),
        (3, lambda line: line.update(ratio=0.5), "the ratio"),
        (2, lambda line: line.update(ratio=0.5), "the ratio"),
        (3, lambda line: line.update(timed=2), "the number of graphs timed so far"),
    ],
)
def test_a_changed_line_is_named(
    line: int, edit: Callable[[dict[str, Any]], None], what: str, env: GraphSubstitutionEnv
) -> None:
    lines = journal(env)
    edit(lines[line])
    (found,) = journal_differences(env, lines, None)
    assert found.what == what and found.expected != found.found and "climb.jsonl, line" in found.record


def test_the_hash_of_a_graph_that_corrected_prices_is_compared(env: GraphSubstitutionEnv) -> None:
    plan = walked(env, 0, 2)
    right = env.replay(plan).hash
    assert not list(whole_graph_differences(env, [(right, plan), ("old", None)], {"old"}))
    first, second = whole_graph_differences(env, [("other", plan), ("old", None)], set())
    assert first.found == right and "no episode meets" in second.found
