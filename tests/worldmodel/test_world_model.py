from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from test_dream import UniformPolicy
from toy_world import FEATURES, RULE_NAMES, SIGNATURE

from worldmodel.dream import DreamEnv
from worldmodel.episodes import EpisodeBuffer
from worldmodel.signature import IncompatibleWorldModel, Signature
from worldmodel.world_model import WorldModel

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture(scope="module")
def stored(world_model: WorldModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "world_model"
    world_model.save(path)
    return path


def test_a_loaded_model_dreams_the_same(world_model: WorldModel, stored: Path, episodes: EpisodeBuffer) -> None:
    policy, dreams = UniformPolicy(), []
    few = EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:10])
    for model in (world_model, WorldModel.load(stored, SIGNATURE)):
        dreams.append(DreamEnv(model, model.start_states(few)).rollout(policy, batch=8, horizon=5, seed=1))
    np.testing.assert_array_equal(dreams[0].actions, dreams[1].actions)
    np.testing.assert_allclose(dreams[0].z, dreams[1].z, atol=1e-5)
    np.testing.assert_allclose(dreams[0].rewards, dreams[1].rewards, atol=1e-5)


def test_saving_replaces_what_was_there(world_model: WorldModel, stored: Path) -> None:
    (stored / "left over").touch()
    world_model.save(stored)
    assert not (stored / "left over").exists()
    assert [path.name for path in stored.parent.iterdir()] == ["world_model"]


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        (Signature((*RULE_NAMES, "new rule"), FEATURES), "only here: .'new rule'"),
        (Signature(RULE_NAMES[:2], FEATURES), "3 rules there, 2 here"),
        (Signature(RULE_NAMES[::-1], FEATURES), "another order"),
        (Signature(RULE_NAMES, dataclasses.replace(FEATURES, num_operators=9)), "num_operators"),
    ],
)
def test_it_refuses_to_load_for_anything_else(stored: Path, signature: Signature, said: str) -> None:
    with pytest.raises(IncompatibleWorldModel, match=said):
        WorldModel.load(stored, signature)


def test_another_format_says_what_to_do(world_model: WorldModel, tmp_path: Path) -> None:
    world_model.save(tmp_path / "old")
    description = json.loads((tmp_path / "old" / "world_model.json").read_text())
    (tmp_path / "old" / "world_model.json").write_text(json.dumps({**description, "format_version": 0}))
    with pytest.raises(IncompatibleWorldModel, match="train it anew"):
        WorldModel.load(tmp_path / "old")


def test_every_graph_is_encoded_once(
    world_model: WorldModel, episodes: EpisodeBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = WorldModel(
        world_model.signature,
        world_model.encoder,
        world_model.mdn_rnn,
        world_model.statistics,
        list(world_model.scenes.values()),
    )
    graphs = {h: episodes.graphs[h] for h in list(episodes.graphs)[:20]}
    first = model.encode(graphs)
    monkeypatch.setattr(model, "_embed", None)
    for graph_hash, latent in model.encode(graphs).items():
        np.testing.assert_array_equal(latent, first[graph_hash])


def test_latents_of_the_training_states_are_standardised(
    world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    visited = {h: split[0].graphs[h] for episode in split[0] for h in episode.hashes}
    latents = np.stack(list(world_model.encode(visited).values()))
    np.testing.assert_allclose(latents.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(latents.std(axis=0), 1.0, atol=0.02)


def test_a_bundle_of_the_first_format_says_what_to_do() -> None:
    with pytest.raises(IncompatibleWorldModel, match="has format 1, expected 2; train it anew"):
        WorldModel.load(GOLDENS / "world_model_v1", SIGNATURE)


def test_episodes_of_the_first_format_load() -> None:
    episodes = EpisodeBuffer.load(GOLDENS / "episodes_v1.npz")
    assert len(episodes) == 8 and episodes.num_transitions > 8 and episodes.action_table().num_actions > 0
