"""Tests of what operators save: sums are found again, and dreams that the engine follows pay what their graphs save."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from environment import GraphSubstitutionEnv
from environment.policies.random import RandomAgent
from taso_ext import ReachedGraphs
from tests.worldmodel.golden_world_model import TINY
from worldmodel.config import DreamConfig
from worldmodel.data.episodes import Episode, EpisodeBuffer, collect
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.structure import Structure, with_operators
from worldmodel.dynamics.operators import DISTANCE, OperatorWeights, Weighed, fitted
from worldmodel.fitting import fit
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

MODEL = "bert-base-tiny"
EXACT = DreamConfig(legality="exact", noise=False, temperature=0.0)


def value_of(operators: OperatorWeights, graph: Weighed) -> float:
    weights = dict(zip(operators.signatures.tolist(), operators.weights.tolist(), strict=True))
    of_operators = sum(weights.get(signature, 0.0) for near in graph.signatures for signature in near.tolist())
    return float(of_operators + operators.per_total @ graph.totals)


def test_sums_over_operators_are_found_again() -> None:
    generator = np.random.default_rng(0)
    names = generator.integers(2**63, size=(DISTANCE + 1, 12), dtype=np.uint64)
    worth = generator.normal(size=12)
    drawn = [generator.integers(12, size=generator.integers(5, 15)) for _ in range(200)]
    totals = np.array([5.0, 6.0, 7.0])
    graphs = [Weighed([each[which] for each in names], totals, worth[which].sum() + 40.0) for which in drawn]
    operators = fitted(graphs[:150])
    left = np.array([graph.saved - value_of(operators, graph) for graph in graphs])
    np.testing.assert_allclose(left[150:], left[:150].mean(), atol=0.1)


def test_what_all_graphs_have_alike_says_nothing() -> None:
    same = np.array([1, 1, 2], np.uint64)
    other = [np.array([number], np.uint64) for number in (3, 4)]
    near = [[np.concatenate([same, each])] * (DISTANCE + 1) for each in other]
    graphs = [Weighed(each, np.ones(3), saved) for each, saved in zip(near, (0.0, 5.0), strict=True)]
    assert set(fitted(graphs).signatures.tolist()) == {3, 4}


def test_what_no_graph_has_shown_counts_by_what_it_is_in_all() -> None:
    """Bytes save in proportion; so does what comes with an operator that was never met."""
    generator = np.random.default_rng(0)
    totals = np.stack([np.full(50, 7.0), generator.uniform(1e6, 2e6, 50), np.full(50, 9.0)], axis=1)
    near = [np.array([1], np.uint64)] * (DISTANCE + 1)
    operators = fitted([Weighed(near, each, float(50.0 - 3e-5 * each[1])) for each in totals])
    unknown = [np.array([2], np.uint64)] * (DISTANCE + 1)
    few, many = (Weighed(unknown, np.array([7.0, size, 9.0]), 0.0) for size in (1e5, 5e6))
    assert value_of(operators, few) - value_of(operators, many) == pytest.approx(3e-5 * 4.9e6, rel=0.01)


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(MODEL, costs="roofline:rtx2070", max_steps=8, strict=True)


@pytest.fixture(scope="module")
def buffer(env: GraphSubstitutionEnv) -> EpisodeBuffer:
    return collect(env, RandomAgent(0, 0.0, everywhere_probability=0.3), 40, seed=0)


@pytest.fixture(scope="module", params=[True, False], ids=["cost in z", "no cost in z"])
def world_model(request: pytest.FixtureRequest, env: GraphSubstitutionEnv, buffer: EpisodeBuffer) -> WorldModel:
    """A model that has hardly learned, so that its rewards are wrong."""
    config = replace(TINY, encoder=replace(TINY.encoder, total_time=request.param))
    return fit(buffer, Signature.of(env), config, seed=0)


def dreamed(env: GraphSubstitutionEnv, model: WorldModel, config: DreamConfig, episode: Episode) -> np.ndarray:
    """Returns what a dream promises along the rewrites of an episode, in percent of the start graph's cost."""
    dream = DreamEnv.of_root(model, env, config)
    actions = model.table.encode(episode.actions)
    rewards = dream.follow(dream.start(1, tf.constant([0, 0], tf.int32)), actions[:, np.newaxis]).reward[:, 0]
    return 100.0 * (1.0 - np.exp(-np.cumsum(rewards) / 100.0))


def test_dreams_pay_what_the_operators_of_their_graphs_save(
    env: GraphSubstitutionEnv, buffer: EpisodeBuffer, world_model: WorldModel
) -> None:
    """Where the model has been."""
    assert not world_model.start_graph().operators.known
    learned, without = with_operators(world_model, env, buffer), []
    for episode in buffer[:8]:
        real = 100.0 * (1.0 - episode.cost_ms[1:] / episode.cost_ms[0])
        assert np.abs(dreamed(env, learned, EXACT, episode) - real).max() < 0.2
        without.append(np.abs(dreamed(env, world_model, EXACT, episode) - real).max())
    assert max(without) > 0.5, "else nothing was tested"


def test_a_saved_model_knows_them(
    env: GraphSubstitutionEnv, buffer: EpisodeBuffer, world_model: WorldModel, tmp_path: Path
) -> None:
    learned = with_operators(world_model, env, buffer)
    learned.save(tmp_path / "model")
    again, known = WorldModel.load(tmp_path / "model").start_graph().operators, learned.start_graph().operators
    np.testing.assert_array_equal(again.signatures, known.signatures)
    np.testing.assert_array_equal(again.weights, known.weights)
    np.testing.assert_array_equal(again.per_total, known.per_total)
    assert len(known.signatures) > 100
    world_model.save(tmp_path / "without")
    assert not WorldModel.load(tmp_path / "without").start_graph().operators.known


def test_the_engine_adds_up_the_weights_of_all_operators(env: GraphSubstitutionEnv, buffer: EpisodeBuffer) -> None:
    table, generator, opset = buffer.action_table(), np.random.default_rng(0), env.model.opset
    state, actions, graphs = env.unmeasured_start(), table.encode(buffer[0].actions), []
    for step in range(len(actions) + 1):
        rule, location = buffer[0].actions[step - 1].tolist() if step else (env.num_rules, 0)
        state = state if rule == env.num_rules else env.after(state, rule, location)
        near = [state.graph.neighbourhood_signatures(opset, each) for each in range(DISTANCE + 1)]
        totals = state.cost.flops, state.cost.memory_bytes, state.cost.kernel_launches
        graphs.append(Weighed(near, np.array(totals, float), 0.0))
    names = np.unique(np.concatenate([each for graph in graphs for each in graph.signatures]))[::2]
    weights = generator.normal(size=len(names)).astype(np.float32)
    operators = OperatorWeights(names, weights, np.array([1e-6, -2e-6, 0.3]))
    structure = Structure(env, table, operators)
    expected = [value_of(operators, each) for each in graphs]
    np.testing.assert_allclose(structure.saved(structure.along(actions)), expected, rtol=1e-4, atol=1e-3)
    assert structure.knows_costs and not Structure(env, table).knows_costs


def test_weights_without_signatures_are_refused(env: GraphSubstitutionEnv) -> None:
    with pytest.raises(ValueError, match="each signature needs a weight, got 2 and 1"):
        ReachedGraphs(env.unmeasured_start(), np.zeros((0, 2), int), [1, 2], [0.5])
    with pytest.raises(ValueError, match="at least 0, got -1"):
        ReachedGraphs(env.unmeasured_start(), np.zeros((0, 2), int), [1], [0.5], 17, -1)
