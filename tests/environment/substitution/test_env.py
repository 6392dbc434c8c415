"""The environment keeps Gymnasium's contract and its own: exact masks, telescoping rewards, replayable logs."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import onnx
import pytest
from gymnasium.utils.env_checker import check_env
from onnx import TensorProto, helper

from environment import GraphSubstitutionEnv, rewards, zoo
from environment.costs import registry as cost_models
from environment.policies.random import RandomAgent
from environment.substitution import features
from taso_ext import ModelError, State

TINY = ("squeezenet1.1-tiny", "bert-base-tiny")


@pytest.fixture(scope="module", params=TINY)
def env(request: pytest.FixtureRequest) -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(request.param)


def play(env: GraphSubstitutionEnv, seed: int, steps: int = 50) -> tuple[list[tuple[int, int]], float, dict]:
    agent = RandomAgent(seed, noop_probability=0.0)
    observation, info = env.reset(seed=seed)
    actions, total = [], 0.0
    for _ in range(steps):
        action = agent(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        if action[0] < env.num_rules:
            actions.append((int(action[0]), int(action[1])))
        if terminated or truncated:
            break
    return actions, total, info


def moved_on(env: GraphSubstitutionEnv, rule: int, location: int) -> State:
    """Returns the state after an action that is legal in the present one."""
    after = env.state.copy()
    if location == env.num_locations:
        after.step_everywhere(int(rule))
    else:
        after.step(int(rule), int(location))
    return after


@pytest.mark.parametrize("name", TINY)
def test_passes_the_environment_checker(name: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*obs.*")
        check_env(GraphSubstitutionEnv(name), skip_render_check=True)


def test_registered_with_gymnasium() -> None:
    env = gymnasium.make("rlflow/GraphSubstitution-v0", graph="squeezenet1.1-tiny")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)


def test_same_seed_same_episode(env: GraphSubstitutionEnv) -> None:
    assert play(env, 3) == play(env, 3)


def test_log_ratio_telescopes(env: GraphSubstitutionEnv) -> None:
    for seed in range(3):
        _, total, info = play(env, seed)
        assert total == pytest.approx(100 * np.log(env.initial_cost.ms / info["cost_ms"]), abs=1e-9)


def test_masks_show_exactly_the_legal_actions(env: GraphSubstitutionEnv) -> None:
    observation, _ = env.reset(seed=0)
    legal = {tuple(action) for action in env.legal_actions()}
    assert legal == {tuple(pair) for pair in np.argwhere(observation["location_mask"])}
    assert np.array_equal(observation["rule_mask"][:-1], observation["location_mask"].any(axis=1))
    for rule, location in legal:
        env.replay([(rule, location)])
    illegal = next(iter(set(map(tuple, np.argwhere(observation["location_mask"] == 0))) - legal))
    with pytest.raises(ValueError, match="not legal"):
        env.replay([illegal])


def test_candidates_are_priced_exactly(env: GraphSubstitutionEnv) -> None:
    agent = RandomAgent(5, noop_probability=0.0)
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        for rule, location, cost_ms in zip(*env.candidates(), strict=True):
            assert cost_ms == pytest.approx(moved_on(env, rule, location).cost.ms, rel=1e-9), env.rule_names[rule]
        observation, _, terminated, _, _ = env.step(agent(observation))
        if terminated:
            break


def test_untouched_rewrites_keep_their_location(env: GraphSubstitutionEnv) -> None:
    """After a rewrite, at least half of the legal rewrites are still legal at the same (rule, location)."""
    env.reset(seed=0)
    before = {tuple(action) for action in env.legal_actions()}
    rule, location = (int(part) for part in env.legal_actions()[0])
    after = env.state.copy()
    after.step(rule, location)
    kept = before & {tuple(action) for action in after.legal_actions()}
    site_of = {node.name: node.site for node in env.state.graph.nodes()}
    assert len(kept) >= len(before) // 2
    assert all(site_of.get(node.name, node.site) == node.site for node in after.graph.nodes() if node.name)


def test_replay_reaches_the_same_graph(env: GraphSubstitutionEnv) -> None:
    actions, _, info = play(env, 1)
    assert env.replay(actions).hash == info["graph_hash"]


def test_replay_names_the_first_illegal_action(env: GraphSubstitutionEnv) -> None:
    with pytest.raises(ValueError, match=r"action 0 .* cannot be replayed"):
        env.replay([(0, env.num_locations + 5)])


def test_noop_terminates_and_changes_nothing(env: GraphSubstitutionEnv) -> None:
    _, before = env.reset(seed=0)
    _, reward, terminated, truncated, after = env.step([env.num_rules, 0])
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert after["graph_hash"] == before["graph_hash"]


def test_larger_graphs_have_longer_episodes() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    assert env.max_steps == 30
    env.reset(options={"graph": "nasrnn"})
    assert env.max_steps == env.model.graph.num_runtime_nodes // 6 == 40
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", max_steps=7)
    env.reset(options={"graph": "bert-base"})
    assert env.max_steps == 7


def test_there_is_room_for_the_single_rewrites_of_a_descent() -> None:
    assert GraphSubstitutionEnv("bert-base", everywhere=True).max_steps == 88
    env = GraphSubstitutionEnv("bert-base", everywhere=False)
    costs_ms = [env.initial_cost.ms]
    while len(costs_ms) < env.max_steps:
        rules, locations, after_ms = env.candidates()
        if after_ms.min() >= costs_ms[-1]:
            break
        env.step((rules[after_ms.argmin()], locations[after_ms.argmin()]))
        costs_ms.append(env.cost.ms)
    assert 60 < len(costs_ms) < env.max_steps == 88 and costs_ms[-1] < 0.85 * costs_ms[0]


def test_max_steps_truncates() -> None:
    env = GraphSubstitutionEnv("bert-base-tiny", max_steps=2)
    _, _, info = play(env, 0, steps=2)
    assert info["rule_name"]
    env.reset(seed=0)
    flags = [env.step(env.legal_actions()[0])[2:4] for _ in range(2)]
    assert flags == [(False, False), (False, True)]
    env.reset(options={"max_steps": 1})
    assert env.step(env.legal_actions()[0])[3]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        env.reset(options={"max_steps": 0})
    with pytest.raises(ValueError, match=r"a whole number, got 2\.5"):
        env.reset(options={"max_steps": 2.5})


def test_an_option_that_there_is_not_is_refused() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    with pytest.raises(ValueError, match=r"no option 'max_step' \(did you mean 'max_steps'\?\)"):
        env.reset(options={"max_step": 3})


def test_invalid_action_is_punished_or_raises() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    _, before = env.reset(seed=0)
    rule, location = np.argwhere(env.state.location_mask() == 0)[0]
    _, reward, terminated, _, after = env.step([rule, location])
    assert (reward, terminated, after["graph_hash"]) == (-100.0, False, before["graph_hash"])
    strict = GraphSubstitutionEnv("squeezenet1.1-tiny", strict=True, max_steps=2)
    strict.reset(seed=0)
    with pytest.raises(ValueError, match="location"):
        strict.step([rule, location])
    assert not strict.step(strict.legal_actions()[0])[3], "an action that raised is no step"


def test_features_are_bounded_and_describe_the_graph(env: GraphSubstitutionEnv) -> None:
    observation, _ = env.reset(seed=0)
    nodes, edges, links = observation["graph"]
    runtime = [node for node in env.state.graph.nodes() if not node.weight_only]
    assert len(nodes) == len(runtime) + len(env.state.graph.inputs)
    assert nodes.shape[1:] == (len(features.NODE_FEATURES),) and edges.shape[1:] == (len(features.EDGE_FEATURES),)
    assert links.min() >= 0 and links.max() < len(nodes) and (links[:, 0] < links[:, 1]).all()
    assert np.isfinite(nodes).all() and nodes[:, 0].max() < features.NUM_OPERATORS
    assert nodes[:, 1:].max() < 4 and edges[:, 0].max() < features.NUM_DTYPES


def test_reset_can_change_the_graph() -> None:
    env = GraphSubstitutionEnv("bert-base-tiny")
    env.reset(seed=0, options={"graph": "squeezenet1.1-tiny"})
    assert env.num_locations == env.state.num_locations
    assert env.observation_space.contains(env.reset()[0])


def test_max_locations_counts_what_it_cuts() -> None:
    full, cut = GraphSubstitutionEnv("bert-base-tiny"), GraphSubstitutionEnv("bert-base-tiny", max_locations=2)
    shown, hidden = len(cut.legal_actions()), cut.reset()[1]["truncated_matches"]
    assert hidden > 0 and shown + hidden == len(full.legal_actions())


def test_a_graph_without_rewrites_terminates_by_noop_only() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", [x], [y])
    env = GraphSubstitutionEnv(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    observation, _ = env.reset(seed=0)
    assert observation["rule_mask"].tolist() == [0] * env.num_rules + [1]
    assert RandomAgent(0)(observation)[0] == env.num_rules


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'roofline:rtx2070'"):
        cost_models.find("roofline:rtx2080")
    with pytest.raises(ValueError, match="did you mean"):
        rewards.find("logratio")
    with pytest.raises(zoo.ZooError, match=r"squeezenet1\.1"):
        GraphSubstitutionEnv("squeezenet1.2")
    with pytest.raises(ModelError):
        GraphSubstitutionEnv(onnx.ModelProto())


class TestRewards:
    """Properties of the named rewards on a random episode."""

    @pytest.mark.parametrize("name", rewards.names())
    def test_finite_and_zero_for_noop(self, name: str) -> None:
        env = GraphSubstitutionEnv("squeezenet1.1-tiny", reward=name)
        env.reset(seed=0)
        reward = float(env.step([env.num_rules, 0])[1])
        assert reward == (-100.0 if name == "new_runtime" else 0.0)

    def test_final_pays_the_sum_of_incremental(self) -> None:
        totals = [play(GraphSubstitutionEnv("bert-base-tiny", reward=name), 2)[1] for name in ("final", "incremental")]
        assert totals[0] == pytest.approx(totals[1])

    def test_percent_measures_every_fifth_step(self) -> None:
        steps = 12
        env = GraphSubstitutionEnv("bert-base-tiny", reward="percent", max_steps=steps)
        actions, total, info = play(env, 2, steps)
        saving = 100 * (1 - info["cost_ms"] / env.initial_cost.ms)
        unmeasured = sum(1 for step in range(1, len(actions) + 1) if step % 5 and step < len(actions))
        assert total == pytest.approx(saving + 0.1 * unmeasured)

    @pytest.mark.parametrize("name", rewards.names())
    def test_an_illegal_last_step_costs_the_penalty_and_nothing_that_is_due(self, name: str) -> None:
        """Apart from the penalty, it earns as much as NO-OP in the last step."""
        totals = []
        for legal in (True, False):
            env = GraphSubstitutionEnv("bert-base-tiny", reward=name, max_steps=8, invalid_reward=-7.0)
            _, before, _ = play(env, 2, 7)
            _, reward, _, truncated, info = env.step([env.num_rules, 0] if legal else [0, env.num_places])
            assert truncated != legal and info["cost_is_fresh"]
            totals.append(before + float(reward))
        assert totals[1] == pytest.approx(totals[0] - 7.0)


def test_state_step_rejects_what_is_out_of_range() -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny")
    state: State = env.state
    for rule, location in ((-1, 0), (env.num_rules, 0), (0, -1), (0, 10**6), (10**6, 0)):
        with pytest.raises(ValueError, match=r"out of range|not legal"):
            state.step(rule, location)


@pytest.mark.parametrize("everywhere", [False, True])
def test_rewritten_nodes_are_what_a_rewrite_takes_away(everywhere: bool) -> None:
    """Their work is that of the candidate's row, which sums over the matched operators; NO-OP has none."""
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", everywhere=everywhere)
    observation, _ = env.reset()
    for _ in range(4):
        pairs, legal, nodes = env.rewritten_nodes(), env.legal_actions(), observation["graph"].nodes
        np.testing.assert_array_equal(pairs, np.unique(pairs, axis=0))
        np.testing.assert_array_equal(np.unique(pairs[:, 0]), np.arange(len(legal)))
        rows = env.state.candidate_features(len(legal), everywhere=everywhere)[1:]
        order = np.argsort(legal[:, 1] != env.num_locations, kind="stable") if everywhere else np.arange(len(legal))
        flops = np.expm1(20 * nodes[:, features.NODE_FEATURES.index("log_flops")].astype(np.float64))
        found = np.bincount(pairs[:, 0], flops[pairs[:, 1]], len(legal))[order]
        np.testing.assert_allclose(np.log1p(found) / 20, rows[:, -2], rtol=1e-4, atol=1e-5)
        observation = env.step(legal[len(legal) // 2])[0]
