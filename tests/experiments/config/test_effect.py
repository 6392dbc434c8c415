"""Which settings a finished unit of work depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from experiments.config.effect import effective, in_effect, same_effect, same_play, same_run
from experiments.config.run import RunConfig, load_config
from experiments.config.tree import as_mapping


def of(controller: str, *changes: str) -> dict[str, Any]:
    return {"config": in_effect(load_config("demo", {"controller": controller}, changes)), "rules": "r"}


@pytest.mark.parametrize(
    ("controller", "world", "has", "without"),
    [
        ("taso", "auto", {"search", "environment", "collect"}, {"world_model", "dream", "ppo", "policy", "saturation"}),
        ("saturation", "auto", {"search", "saturation"}, {"world_model", "dream", "ppo", "mcts", "policy"}),
        ("mcts", "real", {"mcts", "policy", "graph_encoder"}, {"ppo", "ppo_real", "cmaes", "dream", "world_model"}),
        ("mcts", "dream", {"mcts", "dream", "recollect", "world_model"}, {"ppo", "ppo_real", "mixed", "graph_encoder"}),
        ("xrlflow", "real", {"xrlflow"}, {"ppo", "world_model", "graph_encoder"}),
        ("ppo", "dream", {"ppo", "policy", "dream"}, {"ppo_real", "mixed", "mcts", "saturation"}),
        ("ppo", "mixed", {"ppo", "mixed", "dream"}, {"ppo_real", "mcts"}),
        ("ppo", "real", {"ppo_real", "policy"}, {"ppo", "mixed", "dream"}),
    ],
)
def test_what_a_controller_does_not_read_has_no_effect(
    controller: str, world: str, has: set[str], without: set[str]
) -> None:
    names = set(of(controller, f"world={world}")["config"])
    assert has <= names and not without & names


@pytest.mark.parametrize("changes", ["world=real", "environment.everywhere=false", "recollect.rounds=0"])
def test_turns_of_the_policy_have_no_effect_without_a_round_that_differs(changes: str) -> None:
    assert of("ppo", changes) == of("ppo", changes, "policy.everywhere=always")
    assert of("ppo", changes) != of("ppo", changes, "policy.everywhere=never")


def test_turns_of_the_policy_have_an_effect_in_rounds_of_a_dream() -> None:
    assert of("ppo", "world=dream") != of("ppo", "world=dream", "policy.everywhere=always")


def test_settings_without_effect_are_defaults() -> None:
    changes = ("recollect.rounds=2", "mpc.plans=9", "search.budget=7")
    config = load_config("demo", {"controller": "taso"}, changes)
    kept = effective(config)
    assert (kept.recollect, kept.mpc, kept.ppo) == (RunConfig().recollect, RunConfig().mpc, RunConfig().ppo)
    assert kept.search == config.search and in_effect(kept) == in_effect(config)


def test_a_unit_is_found_again_after_settings_were_added() -> None:
    wanted = of("mcts")
    older = json.loads(json.dumps(wanted))
    del older["config"]["mcts"]["revisit"], older["config"]["max_growth"]
    assert same_effect(older, wanted)


def test_a_unit_is_found_again_after_defaults_of_other_controllers_were_changed() -> None:
    wanted = of("taso")
    older = json.loads(json.dumps(wanted))
    older["config"]["saturation"] = {"matches": 1_000}
    assert same_effect(older, wanted)
    assert not same_effect({**older, "config": {**older["config"], "max_growth": 3.0}}, wanted)


@pytest.mark.parametrize(
    "stored",
    [
        of("mcts", "mcts.games=5"),
        of("taso"),
        {**of("mcts"), "rules": "others"},
        {"config": {**of("mcts")["config"], "removed": 1}, "rules": "r"},
    ],
)
def test_a_unit_of_other_settings_is_not_taken(stored: Mapping[str, Any]) -> None:
    assert not same_effect(stored, of("mcts"))


@pytest.mark.parametrize(
    "costs, same",
    [("roofline:rtx2070", True), ("prices.sqlite", True), ("measured:cpu", False), ("endtoend:cpu", False)],
)
def test_how_a_result_would_be_timed_has_no_effect_on_who_only_plays_on_paper(costs: str, same: bool) -> None:
    wanted, stored = of("taso", f"costs={costs}"), of("taso", f"costs={costs}", "measure.pairs=7")
    assert not same_effect(stored, wanted)
    assert same_play(stored, wanted) == same
    assert not same_play({**stored, "config": {**stored["config"], "max_growth": 3.0}}, wanted)


def run_of(controller: str, *changes: str) -> dict[str, Any]:
    settings = as_mapping(load_config("demo", {"controller": controller}, changes))
    run: dict[str, Any] = json.loads(json.dumps({**settings, "fingerprint": {"model": "m"}}))
    return run


@pytest.mark.parametrize("controller", ["taso", "saturation", "ppo", "xrlflow"])
def test_a_run_is_resumed_after_settings_without_effect_have_come(controller: str) -> None:
    wanted = run_of(controller)
    older = {name: value for name, value in wanted.items() if name != "graph_encoder"}
    assert same_run(older, wanted)


def test_a_policy_on_graphs_of_an_older_version_had_the_encoder_of_world_models() -> None:
    older = run_of("mcts", "world=real")
    del older["graph_encoder"]
    assert not same_run(older, run_of("mcts", "world=real"))
    as_it_was = [f"graph_encoder.{name}={json.dumps(value)}" for name, value in older["world_model"]["encoder"].items()]
    assert same_run(older, run_of("mcts", "world=real", *as_it_was))


@pytest.mark.parametrize(
    "stored",
    [
        run_of("taso", "search.alpha=2"),
        run_of("ppo"),
        {**run_of("taso"), "fingerprint": {"model": "other"}},
        {**run_of("taso"), "removed": {}},
        {**run_of("taso"), "search": {"removed": 1}},
    ],
)
def test_another_run_is_not_resumed(stored: Mapping[str, Any]) -> None:
    assert not same_run(stored, run_of("taso"))
