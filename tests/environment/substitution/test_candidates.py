"""The candidate list is the environment in another form: steps and rewards are equal, and rows tell rewrites apart."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from onnx import TensorProto, helper

from environment import Candidates, GraphSubstitutionEnv, Padded, zoo
from taso_ext import CostModel, RuleSet, State

TINY = tuple(name for name in zoo.names() if name.endswith("-tiny"))
M = 256  # no tiny graph has more rewrites


def listed(env: GraphSubstitutionEnv) -> np.ndarray:
    """Returns all legal (rule, location), the everywhere-actions first."""
    legal = env.legal_actions()
    return legal[np.argsort(legal[:, 1] != env.num_locations, kind="stable")]


def random_slot(env: Candidates, generator: np.random.Generator) -> int:
    """Draws the slot of a legal rewrite, or returns NO-OP if there is none."""
    return int(generator.choice(np.flatnonzero(env.action_masks())[1:])) if env.action_masks()[1:].any() else 0


@pytest.mark.parametrize("name", TINY)
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*")
def test_passes_the_environment_checker(name: str) -> None:
    check_env(Candidates(GraphSubstitutionEnv(name), M, candidate_costs=True), skip_render_check=True)


@pytest.mark.parametrize("name", TINY)
def test_plays_the_same_game(name: str) -> None:
    """An episode is the same by slot and by (rule, location), and every observation lies in its space."""
    env, plain = Candidates(GraphSubstitutionEnv(name), M), GraphSubstitutionEnv(name)
    generator = np.random.default_rng(0)
    env.reset(seed=0), plain.reset(seed=0)
    done = False
    while not done:
        slot = random_slot(env, generator)
        pair = listed(plain)[slot - 1] if slot else [plain.num_rules, 0]
        assert np.array_equal(env.rewrite(slot), pair)
        shown, *outcome, info = env.step(slot)
        observation, *expected, plain_info = plain.step(pair)
        assert env.observation_space.contains(shown)
        assert outcome == expected and info.items() >= plain_info.items()
        assert np.array_equal(shown["globals"], observation["globals"])
        done = outcome[1] or outcome[2]


@pytest.mark.parametrize("name", TINY)
def test_rows_list_the_legal_rewrites_in_order(name: str) -> None:
    env = Candidates(GraphSubstitutionEnv(name), M)
    by_id = Candidates(env.unwrapped, M, rule_encoding="id")
    last = ("everywhere", "location", "position", "log_flops", "log_bytes")
    assert env.columns[-5:] == by_id.columns[-5:] == last
    generator = np.random.default_rng(1)
    observation, info = env.reset(seed=0)
    for _ in range(8):
        rows, legal = observation["candidates"], listed(env.unwrapped)
        everywhere = legal[:, 1] == env.unwrapped.num_locations
        used = rows[1 : len(legal) + 1]
        assert rows.shape == (M + 1, len(env.columns)) and info["num_candidates"] == len(legal)
        assert np.array_equal(rows.any(axis=1), env.action_masks()) and env.action_masks().sum() == len(legal) + 1
        rules = rows[env.action_masks(), : env.unwrapped.num_rules + 1]
        assert np.array_equal(rules.argmax(axis=1), [env.unwrapped.num_rules, *legal[:, 0]])
        assert (rules.sum(axis=1) == 1).all()
        assert np.allclose(used[:, -4] * env.unwrapped.num_locations, np.where(everywhere, 0, legal[:, 1] + 1))
        assert np.array_equal(used[:, -5], everywhere) and not used[everywhere, -3].any()
        assert len(np.unique(used, axis=0)) == len(used), "two rewrites look alike"
        compact = by_id.unwrapped.state.candidate_features(M, one_hot_rules=False, everywhere=True)
        assert np.array_equal(compact[:, 1:], rows[:, -5:])
        ids = np.rint(compact[: len(legal) + 1, 0] * (env.unwrapped.num_rules + 1)) - 1
        assert np.array_equal(ids, rules.argmax(axis=1))
        observation, _, terminated, _, info = env.step(random_slot(env, generator))
        if terminated:
            break


@pytest.mark.parametrize("name", TINY)
def test_cost_change_is_what_the_step_earns(name: str) -> None:
    """The default reward, 100 ln(cost before / cost after), is the negative of the predicted cost change."""
    env = Candidates(GraphSubstitutionEnv(name), M, candidate_costs=True)
    assert env.columns[-1] == "cost_change"
    generator = np.random.default_rng(2)
    observation, _ = env.reset(seed=0)
    assert observation["candidates"][0, -1] == 0
    for _ in range(20):
        slot = random_slot(env, generator)
        expected = -observation["candidates"][slot, -1]
        observation, reward, terminated, _, _ = env.step(slot)
        assert float(reward) == pytest.approx(expected, abs=1e-4)
        if terminated:
            break


@pytest.mark.parametrize("name", ("squeezenet1.1-tiny", "nasnet-a-tiny"))
def test_positions_lead_to_the_sites(name: str) -> None:
    """The operator at a row's position has the row's location, unless another match of the rule has taken this site."""
    env = Candidates(GraphSubstitutionEnv(name, everywhere=False), M)
    generator = np.random.default_rng(0)
    rows = env.reset(seed=0)[0]["candidates"]
    for _ in range(12):
        runtime = [node for node in env.unwrapped.state.graph.nodes() if not node.weight_only]
        indices = np.rint(rows[env.action_masks()][1:, -3] * len(runtime)).astype(int) - 1
        legal = env.unwrapped.legal_actions().tolist()
        for index, (rule, location) in zip(indices, legal, strict=True):
            site = runtime[index].site
            assert site == location or [rule, site] in legal
        rows = env.step(random_slot(env, generator))[0]["candidates"]
    assert len(runtime) < len(env.unwrapped.state.graph.nodes()), "weights are computed, and not counted"


@pytest.mark.parametrize("name", ("inception-v3-tiny", "bert-base-tiny"))
def test_positions_start_as_the_locations(name: str) -> None:
    """Sites are positions in the start graph; if no two matches of a rule share a site, locations are the sites."""
    env = Candidates(GraphSubstitutionEnv(name), M)
    rows = env.reset(seed=0)[0]["candidates"][env.action_masks()][1:]
    rules, locations, positions = rows[:, :-4].argmax(axis=1), rows[:, -4], rows[:, -3]
    alone = [row for row in range(len(rows)) if len(set(positions[rules == rules[row]])) == (rules == rules[row]).sum()]
    assert alone and np.allclose(locations[alone], positions[alone])


@pytest.mark.parametrize("rule", range(len(RuleSet.default())))
def test_flops_and_bytes_are_those_of_the_matched_operators(rule: int) -> None:
    """In a graph that consists of one match, they are those of the whole graph."""
    rules, costs = RuleSet.default(), CostModel.roofline("rtx2070")
    graph = rules.instance(rule, 0)
    assert graph is not None
    state = State(graph, rules, costs)
    nodes = state.features()[0].astype(float)
    total_flops, total_bytes = (sum(math.expm1(20 * value) for value in nodes[:, column]) for column in (2, 3))
    expected = [math.log1p(total_flops) / 20, math.log1p(total_bytes) / 20]
    actions = state.legal_actions()
    rows = state.candidate_features(len(actions), one_hot_rules=False)[1:]
    assert any(np.allclose(row[-2:], expected, atol=1e-5) for row in rows[actions[:, 0] == rule])


def test_what_does_not_fit_is_counted() -> None:
    env = Candidates(GraphSubstitutionEnv("bert-base-tiny"), max_candidates=3)
    whole = Candidates(GraphSubstitutionEnv("bert-base-tiny"), M).reset(seed=0)[0]["candidates"]
    observation, info = env.reset(seed=0)
    assert np.array_equal(observation["candidates"], whole[:4]) and env.action_masks().all()
    assert info["num_candidates"] == 3
    assert info["truncated_candidates"] == len(env.unwrapped.legal_actions()) - 3 > 0
    assert env.step(4)[1] == -100.0


@pytest.mark.parametrize("slot", [None, M, M + 7, -1, 10**6])
def test_an_empty_slot_is_an_illegal_action(slot: int | None) -> None:
    env = Candidates(GraphSubstitutionEnv("resnet18-tiny", max_steps=2), M)
    before, info = env.reset(seed=0)
    count = info["num_candidates"]
    assert 0 < count < M
    slot = count + 1 if slot is None else slot
    after, reward, terminated, truncated, after_info = env.step(slot)
    assert (reward, terminated, truncated) == (-100.0, False, False)
    assert after_info["graph_hash"] == info["graph_hash"] and after_info["rule_name"] == "invalid"
    assert np.array_equal(before["candidates"], after["candidates"])
    assert env.step(slot)[3], "an illegal action takes its time"
    strict = Candidates(GraphSubstitutionEnv("resnet18-tiny", strict=True), M)
    strict.reset(seed=0)
    refused = f"candidate {slot} has no rewrite: this state has NO-OP at 0 and {count} rewrites"
    with pytest.raises(ValueError, match=refused):
        strict.step(slot)


def test_a_graph_without_rewrites_offers_noop_alone() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    env = Candidates(GraphSubstitutionEnv(model), 4)
    observation, _ = env.reset(seed=0)
    assert env.action_masks().tolist() == [True, False, False, False, False]
    assert not observation["candidates"][1:].any()
    assert env.step(0)[1:4] == (0.0, True, False)


def test_reset_to_another_graph_keeps_the_shape() -> None:
    env = Candidates(GraphSubstitutionEnv("bert-base-tiny"), 16)
    env.reset(seed=0)
    observation, info = env.reset(options={"graph": "nasrnn-tiny"})
    assert env.observation_space.contains(observation)
    assert info["num_candidates"] == 16 and info["truncated_candidates"] > 0


def test_other_wrappers_may_stand_between() -> None:
    env = gymnasium.make("rlflow/GraphSubstitution-v0", graph="resnet18-tiny")
    plain, between = Candidates(GraphSubstitutionEnv("resnet18-tiny"), 8), Candidates(Padded(env), max_candidates=8)
    for step in ("reset", "step"):
        results = [getattr(one, step)(*([] if step == "reset" else [1])) for one in (plain, between)]
        assert all(np.array_equal(results[0][0][part], results[1][0][part]) for part in results[0][0])
    assert between.spec is not None
    assert gymnasium.make(between.spec).observation_space == between.observation_space


@pytest.mark.parametrize("vector", [gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv])
def test_vectorises_with_its_masks(vector: Any) -> None:
    names = ("squeezenet1.1-tiny", "bert-base-tiny")
    alone = [Candidates(GraphSubstitutionEnv(name), 64) for name in names]
    together = vector([lambda name=name: Candidates(GraphSubstitutionEnv(name), 64) for name in names])
    try:
        expected, observations = [env.reset(seed=0) for env in alone], together.reset(seed=0)[0]
        for _ in range(3):
            assert np.array_equal(np.stack(together.call("action_masks")), [env.action_masks() for env in alone])
            for part in observations:
                assert np.array_equal(observations[part], [result[0][part] for result in expected])
            expected, observations = [env.step(1) for env in alone], together.step(np.array([1, 1]))[0]
    finally:
        together.close()


@pytest.mark.parametrize("arguments", [{"max_candidates": 0}, {"max_candidates": 2**62}, {"rule_encoding": "onehot"}])
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must lie in \[1, 1048576\]|must be 'one-hot' or 'id'"):
        Candidates(GraphSubstitutionEnv("resnet18-tiny"), **arguments)


def test_needs_a_substitution_environment() -> None:
    with pytest.raises(ValueError, match="needs a GraphSubstitutionEnv"):
        Candidates(gymnasium.make("CartPole-v1"))
