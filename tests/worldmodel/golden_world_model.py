"""The smallest world model that there can be, as it is stored, beside what it predicts.

`PYTHONPATH=. python tests/worldmodel/golden_world_model.py` writes it for the present format. That is to be done once
for each format, and never again: what was stored then has to load, or to be refused with what to do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from taso_ext.files import write_arrays
from tests.worldmodel.toy_world import SIGNATURE, ToyEnv, uniform_policy
from worldmodel.accuracy.open_loop import cut_windows, play
from worldmodel.config import (
    FORMAT_VERSION,
    EncoderConfig,
    EncoderTrainingConfig,
    MdnRnnConfig,
    MdnRnnTrainingConfig,
    WorldModelConfig,
)
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.fitting import fit
from worldmodel.world_model import WorldModel

GOLDENS = Path(__file__).parent / "goldens"
LATEST = GOLDENS / f"world_model_v{FORMAT_VERSION}"
PREDICTIONS = "predictions.npz"
TINY = WorldModelConfig(
    EncoderConfig(latent=3, hidden=4, edge_hidden=2, rounds=1, operator_embedding=2, dtype_embedding=2),
    EncoderTrainingConfig(steps=5, batch=4, calibration=8, action_embedding=4, consistency_hidden=8),
    MdnRnnConfig(
        hidden=6,
        mixtures=2,
        rule_embedding=2,
        site_embedding=3,
        action_embedding=4,
        head_hidden=6,
        latent_hidden=6,
        mask_rank=3,
        neighbours=4,
        neighbour_hidden=4,
    ),
    MdnRnnTrainingConfig(steps=20, batch=4),
)


def episodes() -> EpisodeBuffer:
    """What it is trained on and asked about."""
    return collect(ToyEnv(6, max_steps=8), uniform_policy(0.02), 12, seed=5)


def predictions(model: WorldModel) -> dict[str, np.ndarray]:
    """Open loop, three steps long, without chance."""
    windows = cut_windows(model, episodes(), steps=3, stride=2)
    played = play(model, windows)
    dreamed = played.dreamed
    return {"hidden": windows.hidden, "state": dreamed.state, "reward": dreamed.reward, "legal": dreamed.legal}


def make(directory: Path) -> None:
    """Trains the model and stores it."""
    model = fit(episodes(), SIGNATURE, TINY, seed=0)
    model.save(directory)
    write_arrays(directory / PREDICTIONS, predictions(model), compress=True)


if __name__ == "__main__":
    make(LATEST)
