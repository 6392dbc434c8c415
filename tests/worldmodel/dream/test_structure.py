"""Tests of dreams in which the engine says what is legal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from controller.mpc.config import MpcConfig
from controller.mpc.controller import MpcController
from environment import GraphSubstitutionEnv
from environment.counting import Counts, counting
from environment.policies.random import RandomAgent
from taso_ext import CostModel, Graph
from tests.worldmodel.golden_world_model import TINY
from tests.worldmodel.toy_world import ToyEnv, UniformPolicy
from worldmodel.accuracy.exploit import compare, dreamed_then_replayed, plan_replayed
from worldmodel.config import DreamConfig
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.dream import structure as structures
from worldmodel.dream.dream_env import DreamEnv, start_states
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.planning import beam_search, cross_entropy_planning
from worldmodel.dream.players import ActingPlayer, Player, PolicyPlayer
from worldmodel.dream.recollection import recollect
from worldmodel.dream.structure import Structure, with_operators
from worldmodel.fitting import fit
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

EXACT = DreamConfig(legality="exact", legal_from=0.5)
PREDICTED = DreamConfig(legal_from=0.5)


@pytest.fixture(scope="module")
def env() -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv("bert-base-tiny", max_steps=8, strict=True)


@pytest.fixture(scope="module")
def buffer(env: GraphSubstitutionEnv) -> EpisodeBuffer:
    return collect(env, RandomAgent(0, 0.0, everywhere_probability=0.3), 8, seed=0)


@pytest.fixture(scope="module")
def world_model(env: GraphSubstitutionEnv, buffer: EpisodeBuffer) -> WorldModel:
    """A model that has hardly learned, so that its masks are wrong."""
    return fit(buffer, Signature.of(env), TINY, seed=0)


@pytest.mark.parametrize("held", [structures.MEMORY_BYTES, 0])
def test_masks_are_those_of_reality_also_of_graphs_that_are_not_held(
    held: int,
    env: GraphSubstitutionEnv,
    buffer: EpisodeBuffer,
    world_model: WorldModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(structures, "MEMORY_BYTES", held)
    env.reset()
    table, before = world_model.start_graph().table, env.state.hash
    structure = Structure(env, table)
    along = [structure.along(table.encode(episode.actions)) for episode in buffer]
    for numbers, episode in zip(along, buffer, strict=True):
        legal = np.stack([table.mask(episode.legal_actions(t)) for t in range(len(numbers))])
        np.testing.assert_array_equal(structure.masks(numbers), legal)
        first = table.encode(episode.actions)[:1]
        np.testing.assert_array_equal(structure.step(numbers[:1], first)[0], legal[1:2])
    assert env.state.hash == before, "the episode is not touched"
    some = np.array([numbers[-2] for numbers in along])
    last = np.array([table.encode(episode.actions)[-1] for episode in buffer])
    _, reached = structure.step(some, last)
    last_numbers = [numbers[-1] for numbers in along]
    np.testing.assert_array_equal(structure.masks(reached), structure.masks(last_numbers))
    if held:
        assert reached.tolist() == [numbers[-1] for numbers in along], "a graph that was met keeps its number"


def test_to_follow_a_dream_is_no_real_step(
    env: GraphSubstitutionEnv, buffer: EpisodeBuffer, world_model: WorldModel
) -> None:
    """It asks for no price; and what a dream has met before is not carried out again, which may not change counts."""
    table = world_model.start_graph().table
    with counting() as counts:
        structure, actions = Structure(env, table), table.encode(buffer[0].actions)
        structure.along(actions)
        with_operators(world_model, env, buffer)
        assert counts.take() == Counts()
        env.reset()
        env.step(buffer[0].actions[0])
        assert counts.take().real_steps == 1, "else this test could not fail"


def test_dreams_measure_nothing(buffer: EpisodeBuffer, world_model: WorldModel) -> None:
    """What a graph takes is what a dream predicts; only reality asks the machine."""
    asked: list[int] = []

    def price(_: Graph, positions: list[int]) -> np.ndarray:
        asked.append(len(positions))
        return np.ones((len(positions), 3))

    costs = CostModel.learned("counted", "xeon", price, np.empty(0, np.uint64), np.empty((0, 3)), 21)
    env = GraphSubstitutionEnv("bert-base-tiny", costs=costs, max_steps=8, strict=True)
    assert asked, "else this test could not fail"
    asked.clear()
    table = world_model.start_graph().table
    structure, actions = Structure(env, table), table.encode(buffer[0].actions)
    reached = structure.along(actions)[-1]
    assert not asked
    for rule, location in buffer[0].actions:
        env.step((rule, location))
    assert asked
    np.testing.assert_array_equal(structure.masks([reached])[0], table.mask(env.legal_actions()))


def test_noop_stays_and_what_is_illegal_is_refused(env: GraphSubstitutionEnv, world_model: WorldModel) -> None:
    table = world_model.start_graph().table
    structure = Structure(env, table)
    masks, reached = structure.step(np.array([0]), np.array([table.num_actions]))
    assert reached.tolist() == [0] and masks[0, -1]
    illegal = int(np.flatnonzero(~structure.masks([0])[0])[0])
    with pytest.raises(ValueError, match="legal"):
        structure.along([illegal])


def legal_in_reality(env: GraphSubstitutionEnv, model: WorldModel, actions: Sequence[int]) -> bool:
    table = model.start_graph().table
    try:
        env.replay(table.decode(np.array([each for each in actions if each != table.num_actions], int)).tolist())
    except ValueError:
        return False
    return True


def test_every_dreamed_rewrite_is_legal_and_not_only_by_chance(
    env: GraphSubstitutionEnv, world_model: WorldModel
) -> None:
    found = {}
    for config in (EXACT, PREDICTED):
        dream = DreamEnv.of_root(world_model, env, config)
        played = dream.rollout(UniformPolicy(-9.0), batch=16, horizon=8, seed=1)
        rows = played.action.numpy().T.tolist()
        found[config.legality] = [legal_in_reality(env, world_model, row) for row in rows]
        assert played.alive.numpy().sum() > 16
    assert all(found["exact"]) and not all(found["predicted"])


def test_dreams_begin_in_the_graphs_of_their_start_states(
    env: GraphSubstitutionEnv, buffer: EpisodeBuffer, world_model: WorldModel
) -> None:
    dream = DreamEnv.of_episodes(world_model, buffer, EXACT, env=env)
    assert dream.structure is not None
    structure = Structure(env, world_model.start_graph().table)
    starts = start_states(world_model, buffer, structure=structure)
    np.testing.assert_array_equal(structure.masks(starts.state.graph.numpy()), starts.state.action_mask.numpy())
    assert int(tf.reduce_max(starts.depth)) > 1
    state = dream.start(8, tf.constant([3, 4]))
    for step in range(3):
        legal = dream.structure.masks(state.graph.numpy())
        np.testing.assert_array_equal(legal, state.action_mask.numpy())
        state, _, _ = dream.step(state, tf.constant(legal.argmax(axis=1), tf.int32), tf.constant([0, step]))
    root = dream.from_root()
    assert root.structure is dream.structure


def test_searches_find_plans_that_can_be_carried_out(env: GraphSubstitutionEnv, world_model: WorldModel) -> None:
    dream = DreamEnv.of_root(world_model, env, EXACT.certain())
    plans = (
        beam_search(dream, width=8, depth=6),
        cross_entropy_planning(dream, depth=6, population=32, elites=4, iterations=3, seed=0),
    )
    for plan in plans:
        tried = plan_replayed(world_model, env, plan, dream)
        assert plan.actions and tried.illegal == 0 and len(tried.real_percent) == len(tried.dreamed_percent)


@pytest.mark.parametrize("name", ["policy", "mpc"])
def test_players_dream_of_nothing_illegal_and_can_be_recollected(
    name: str, env: GraphSubstitutionEnv, world_model: WorldModel
) -> None:
    player: Player = PolicyPlayer(UniformPolicy(-9.0))
    if name == "mpc":
        quick = MpcConfig(plans=32, elites=2, iterations=1, horizon=4, replan=2)
        mpc = MpcController.build(world_model, quick, dream=EXACT)
        player = ActingPlayer(mpc)
        view = mpc.view(env)
        observation, _ = view.reset(seed=0)
        mpc.begin_episode(view, seed=0)
        over = False
        while not over:
            observation, _, terminated, truncated, _ = view.step(mpc.act(observation, deterministic=True))
            assert (
                view.structure.masks(view.state.graph.numpy())[0].tolist()
                == observation.action_mask.numpy()[0].tolist()
            )
            over = terminated or truncated
    dream = DreamEnv.of_root(world_model, env, EXACT)
    found = compare(dreamed_then_replayed(world_model, dream, env, player, episodes=4, horizon=8, seed=0))
    assert (found.illegal_share, found.lost_share) == (0.0, 0.0)
    episodes = recollect(world_model, env, player, episodes=2, seed=0, dream=dream, dreamed=0.5)
    assert sum(episode.num_steps for episode in episodes) > 0


def test_exact_legality_needs_an_engine_to_ask(
    env: GraphSubstitutionEnv, buffer: EpisodeBuffer, world_model: WorldModel
) -> None:
    with pytest.raises(ValueError, match="needs a GraphSubstitutionEnv"):
        DreamEnv.of_episodes(world_model, buffer, EXACT)
    with pytest.raises(ValueError, match="needs a GraphSubstitutionEnv"):
        DreamEnv.of_episodes(world_model, buffer, EXACT, env=ToyEnv(8))
    with pytest.raises(ValueError, match="needs a structure"):
        DreamEnv(world_model, start_states(world_model, buffer), EXACT)
    structure = Structure(env, world_model.start_graph().table)
    starts = start_states(world_model, buffer, structure=structure)
    with pytest.raises(ValueError, match="XLA"):
        DreamEnv(world_model, starts, EXACT, structure=structure, xla=True)
    assert LatentEnv(env, world_model).structure is None
