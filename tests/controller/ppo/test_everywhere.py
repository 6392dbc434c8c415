"""PPO learns to carry a rule out everywhere where nothing else pays within its horizon."""

from __future__ import annotations

import numpy as np
import pytest

from controller.evaluation import play_episode, replay_record
from controller.ppo.config import PolicyConfig, PpoConfig
from controller.ppo.controller import PpoController
from controller.worlds.real import RealWorld
from tests.controller.exhaustive import best_improvement
from tests.controller.shared_product import READERS, shared_product
from worldmodel.config import EncoderConfig

STEPS = 2
"""Fewer than single rewrites need before anything pays."""


def test_ppo_learns_what_pays_only_everywhere() -> None:
    env = shared_product(max_steps=STEPS)
    encoder = EncoderConfig(latent=4, hidden=8, edge_hidden=4, rounds=1)
    policy = PolicyConfig(torso=(16,), width=4, mask_width=4)
    config = PpoConfig(updates=20, batch=8, horizon=STEPS, epochs=2, minibatches=1, learning_rate=3e-2)
    controller, metrics = PpoController.for_real(env, config, policy, encoder, seed=0), []
    controller.train(
        RealWorld(lambda: shared_product(max_steps=STEPS)),
        on_progress=lambda done, total, values: metrics.append(values),
    )
    assert max(each["first_ratio_error"] for each in metrics) < 1e-4
    record = play_episode(env, controller, seed=0, deterministic=True)
    optimum = best_improvement(shared_product(everywhere=False, max_steps=READERS))
    assert record.everywhere[0] == READERS and record.improvement == pytest.approx(optimum, abs=1e-6)
    assert optimum > 0
    replay_record(shared_product(everywhere=False), record)
    assert np.mean([each["return"] for each in metrics[-4:]]) > np.mean([each["return"] for each in metrics[:4]])
