from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worldmodel.golden_world_model import GOLDENS, LATEST, PREDICTIONS, predictions
from tests.worldmodel.golden_world_model import episodes as golden_episodes
from tests.worldmodel.toy_world import FEATURES, LENIENT, RULE_NAMES, SIGNATURE, UniformPolicy
from worldmodel.config import FORMAT_VERSION
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.dream_env import DreamEnv, start_states
from worldmodel.errors import IncompatibleWorldModel
from worldmodel.signature import Signature
from worldmodel.world_model import WorldModel

EXPECTED = rf"expected {FORMAT_VERSION}\. Train a world model"


@pytest.fixture(scope="module")
def stored(world_model: WorldModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "world_model"
    world_model.save(path)
    return path


def test_a_loaded_model_dreams_the_same(world_model: WorldModel, stored: Path, episodes: EpisodeBuffer) -> None:
    policy, dreams = UniformPolicy(), []
    few = EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:10])
    for model in (world_model, WorldModel.load(stored, SIGNATURE)):
        dreams.append(DreamEnv(model, start_states(model, few), LENIENT).rollout(policy, batch=8, horizon=5, seed=1))
    np.testing.assert_array_equal(dreams[0].action, dreams[1].action)
    np.testing.assert_allclose(dreams[0].state, dreams[1].state, atol=1e-5)
    np.testing.assert_allclose(dreams[0].reward, dreams[1].reward, atol=1e-5)


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
        (Signature(RULE_NAMES, dataclasses.replace(FEATURES, num_operators=9)), "num_operators .* is 4 there, 9 here"),
        (Signature(RULE_NAMES, dataclasses.replace(FEATURES, version=2)), "version .* is 1 there, 2 here"),
    ],
)
def test_it_refuses_to_load_for_anything_else(stored: Path, signature: Signature, said: str) -> None:
    with pytest.raises(IncompatibleWorldModel, match=said):
        WorldModel.load(stored, signature)


def test_it_refuses_rules_of_the_same_names_that_say_something_else(world_model: WorldModel, tmp_path: Path) -> None:
    named = dataclasses.replace(SIGNATURE, rules="a" * 32)
    parts = world_model._parts()
    WorldModel(named, *parts[1:5], embeddings=world_model.embeddings).save(tmp_path / "named")
    for fitting in (named, SIGNATURE):  # the second holds nothing but the names of its rules
        assert WorldModel.load(tmp_path / "named", fitting).signature == named
    with pytest.raises(IncompatibleWorldModel, match=r"same names that say something else.*aaa there, bbb.*anew"):
        WorldModel.load(tmp_path / "named", dataclasses.replace(SIGNATURE, rules="b" * 32))


def without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def remove(description: dict[str, Any]) -> None:
        *path, last = keys
        for key in path:
            description = description[key]
        del description[last]

    return remove


def with_field(section: str) -> Callable[[dict[str, Any]], None]:
    return lambda description: description[section].update(of_another_version=1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda description: description.update(format_version=0), f"has format 0, {EXPECTED}"),
        (without("format_version"), f"has format none, {EXPECTED}"),
        (without("sizes"), "KeyError: 'sizes'.*Train a world model"),
        (without("sizes", "num_sites"), "num_sites.*Train a world model"),
        (without("signature", "features", "num_dtypes"), "num_dtypes.*Train a world model"),
        (with_field("encoder"), "of_another_version.*Train a world model"),
        (with_field("mdn_rnn"), "of_another_version.*Train a world model"),
        (lambda description: description["mdn_rnn"].update(hidden=7), "Train a world model"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(
    change: Callable[[dict[str, Any]], None], said: str, tmp_path: Path
) -> None:
    shutil.copytree(LATEST, tmp_path / "model")
    description = json.loads((tmp_path / "model" / "world_model.json").read_text())
    change(description)
    (tmp_path / "model" / "world_model.json").write_text(json.dumps(description))
    with pytest.raises(IncompatibleWorldModel, match=said):
        WorldModel.load(tmp_path / "model")


@pytest.mark.parametrize("name", sorted(path.name for path in LATEST.iterdir() if path.stem != "predictions"))
@pytest.mark.parametrize("left", [b"PK is how it should begin", b"[]", b"", "half", None])
def test_damage_is_said_to_be_some(name: str, left: bytes | str | None, tmp_path: Path) -> None:
    shutil.copytree(LATEST, tmp_path / "model")
    damaged = tmp_path / "model" / name
    if left is None:
        damaged.unlink()
    else:
        whole = damaged.read_bytes()
        damaged.write_bytes(left if isinstance(left, bytes) else whole[: len(whole) // 2])
    with pytest.raises(IncompatibleWorldModel, match=r"or is damaged\. Train a world model anew"):
        WorldModel.load(tmp_path / "model")


@pytest.mark.parametrize("failing", ["write_arrays", "rename"])
def test_saving_that_fails_leaves_what_was_there(
    failing: str, world_model: WorldModel, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saving fails while the new model is written, or when it replaces the old one."""
    rename = Path.rename

    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    def unless_back(self: Path, target: Path) -> Path:
        return full() if target == stored and not self.name.endswith(".old") else rename(self, target)  # type: ignore

    before = {path.name: path.read_bytes() for path in stored.iterdir()}
    with monkeypatch.context() as patch:
        if failing == "rename":
            patch.setattr(Path, "rename", unless_back)
        else:
            patch.setattr("worldmodel.storage.write_arrays", full)
        with pytest.raises(OSError, match="disk full"):
            world_model.save(stored)
    assert {path.name: path.read_bytes() for path in stored.iterdir()} == before
    assert [path.name for path in stored.parent.iterdir()] == ["world_model"]


def test_every_graph_is_encoded_once(
    world_model: WorldModel, episodes: EpisodeBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = WorldModel(
        world_model.signature,
        world_model.encoder,
        world_model.mdn_rnn,
        world_model.statistics,
        list(world_model.start_graphs.values()),
    )
    graphs = {h: episodes.graphs[h] for h in list(episodes.graphs)[:20]}
    first = model.encode(graphs)
    monkeypatch.setattr(model.embeddings, "_encode", None)
    for graph_hash, latent in model.encode(graphs).items():
        np.testing.assert_array_equal(latent, first[graph_hash])


def test_a_loaded_model_need_not_encode_what_it_was_trained_on(
    world_model: WorldModel, stored: Path, split: tuple[EpisodeBuffer, EpisodeBuffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = WorldModel.load(stored)
    monkeypatch.setattr(loaded.embeddings, "_encode", None)
    visited = {h: split[0].graphs[h] for episode in split[0] for h in episode.hashes}
    latents = world_model.encode(visited)
    for graph_hash, latent in loaded.encode(visited).items():
        np.testing.assert_array_equal(latent, latents[graph_hash])
    assert loaded.statistics.encoder_states == len(visited)


def test_latents_of_the_training_states_are_standardised(
    world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    visited = {h: split[0].graphs[h] for episode in split[0] for h in episode.hashes}
    latents = np.stack(list(world_model.encode(visited).values()))
    np.testing.assert_allclose(latents.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(latents.std(axis=0), 1.0, atol=0.02)


def test_a_stored_bundle_predicts_what_it_did_when_it_was_stored() -> None:
    model = WorldModel.load(LATEST, SIGNATURE)
    found = predictions(model)
    with np.load(LATEST / PREDICTIONS) as expected:
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=1e-4, err_msg=name)
    graphs = dict(golden_episodes().graphs)
    known = model.encode(graphs)
    model.embeddings.known.clear()
    for graph_hash, latent in model.encode(graphs).items():
        np.testing.assert_allclose(latent, known[graph_hash], atol=1e-3)


def test_episodes_of_the_first_format_load() -> None:
    episodes = EpisodeBuffer.load(GOLDENS / "episodes_v1.npz")
    assert len(episodes) == 8 and episodes.num_transitions > 8 and episodes.action_table().num_actions > 0
