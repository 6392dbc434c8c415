from __future__ import annotations

import numpy as np
import pytest

from worldmodel.accuracy import OpenLoop, accuracy_at, open_loop
from worldmodel.episodes import EpisodeBuffer
from worldmodel.world_model import WorldModel


@pytest.fixture(scope="module")
def played(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> OpenLoop:
    return open_loop(world_model, split[1], steps=4, first=1, stride=2)


def test_windows_are_stretches_of_real_episodes(
    played: OpenLoop, world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    table, w = world_model.table, 0
    for episode in split[1]:
        usable = episode.num_steps - (episode.actions[-1, 0] == table.num_rules)
        for t in range(1, usable - 4 + 1, 2):
            np.testing.assert_array_equal(table.decode(played.actions[:, w]), episode.actions[t : t + 4])
            np.testing.assert_array_equal(played.real_reward[:, w], episode.rewards[t : t + 4])
            np.testing.assert_array_equal(played.real_mask[3, w], table.mask(episode.legal_actions(t + 3))[:-1])
            w += 1
    assert played.actions.shape == (4, w)


def test_prediction_starts_from_the_real_state(played: OpenLoop) -> None:
    np.testing.assert_array_equal(played.z[0], played.real_z[0])
    np.testing.assert_array_equal(played.mask[0], played.real_mask[0])


def test_a_perfect_prediction_scores_perfectly(played: OpenLoop) -> None:
    truth = played._replace(z=played.real_z, mask=played.real_mask, reward=played.real_reward)
    accuracy = accuracy_at(truth, 4)
    assert (accuracy.latent_error, accuracy.mask_error, accuracy.return_mae) == (0.0, 0.0, 0.0)
    assert (accuracy.change.f1, accuracy.mask.f1, accuracy.return_r2) == (1.0, 1.0, 1.0)


def test_copying_the_first_state_scores_one(played: OpenLoop) -> None:
    copied = played._replace(
        z=np.broadcast_to(played.real_z[:1], played.z.shape),
        mask=np.broadcast_to(played.real_mask[:1], played.mask.shape),
    )
    accuracy = accuracy_at(copied, 3)
    assert (accuracy.latent_error, accuracy.mask_error) == (1.0, 1.0)


def test_too_short_episodes_are_an_error(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    with pytest.raises(ValueError, match="500 usable steps"):
        open_loop(world_model, split[1], steps=500)
