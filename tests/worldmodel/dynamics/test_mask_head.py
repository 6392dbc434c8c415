from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from worldmodel.config import MdnRnnConfig, MdnRnnTrainingConfig
from worldmodel.dynamics.mask_head import MaskHead


def test_bits_of_what_pays_or_is_seldom_legal_weigh_more() -> None:
    """Of four rewrites the first pays, and the third is legal in 1 % of the states."""
    head = MaskHead(MdnRnnConfig(features="state"), sizes=None)  # type: ignore[arg-type]  # which only weights need
    rewards = SimpleNamespace(mean=tf.constant([5.0, -1.0, 0.0, 0.0, 0.0]))
    actions = SimpleNamespace(kinds=tf.range(5), rules=tf.range(5))
    inputs = SimpleNamespace(rewards=rewards, actions=actions)
    seen: Any = SimpleNamespace(codes=SimpleNamespace(inputs=inputs), carried_out=None)
    target = np.tile([1.0, 0.0, 0.0, 1.0], (100, 1)).astype(np.float32)
    target[7, 2] = 1.0
    losses = head.loss(tf.zeros([100, 4]), tf.constant(target), seen)
    np.testing.assert_allclose(losses["mask"], 4 * np.log(2), rtol=1e-6)
    np.testing.assert_allclose(losses["emphasised_mask"], 2 * np.log(2), rtol=1e-6)
    weights = head.weight(MdnRnnTrainingConfig(mask_weight=2.0, mask_emphasis=3.0))
    assert weights == {"mask": 2.0, "emphasised_mask": 6.0, "carried": 2.0}
    assert head.weight(MdnRnnTrainingConfig())["emphasised_mask"] == 0.0, "the published model has none of it"
