"""World models with each kind of encoder are saved and loaded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.worldmodel.toy_world import QUICK, SIGNATURE
from worldmodel.config import WorldModelConfig
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.fitting import fit
from worldmodel.world_model import WorldModel

pytestmark = pytest.mark.usefixtures("untraced")


def with_encoder(kind: str) -> WorldModelConfig:
    """Returns settings with that kind of encoder and one step of training, because the test needs no more."""
    return dataclasses.replace(
        QUICK,
        encoder=dataclasses.replace(QUICK.encoder, kind=kind),
        encoder_training=dataclasses.replace(QUICK.encoder_training, steps=1),
        mdn_rnn_training=dataclasses.replace(QUICK.mdn_rnn_training, steps=1),
    )


@pytest.mark.parametrize("kind", ["message_passing", "attention", "interaction"])
def test_a_loaded_model_encodes_the_same(kind: str, episodes: EpisodeBuffer, tmp_path: Path) -> None:
    few = EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:10])
    graphs = {graph_hash: few.graphs[graph_hash] for graph_hash in few[0].hashes}
    model = fit(few, SIGNATURE, with_encoder(kind), seed=0)
    model.save(tmp_path / "model")
    if kind == "message_passing":
        forget_kinds(tmp_path / "model" / "world_model.json")
    loaded = WorldModel.load(tmp_path / "model", SIGNATURE)
    assert loaded.encoder.config == model.encoder.config
    for latents in zip(*(each.encode(graphs).values() for each in (model, loaded)), strict=True):
        np.testing.assert_allclose(*latents, atol=1e-4)


def forget_kinds(file: Path) -> None:
    """Removes the fields that bundles did not have before there were kinds of encoders."""
    description = json.loads(file.read_text())
    for field in ("kind", "heads"):
        del description["encoder"][field]
    file.write_text(json.dumps(description))
