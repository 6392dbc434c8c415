"""Sizes of the policies; without TensorFlow, so that settings can be read without it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """Sizes and starting point of a policy.

    Attributes:
      torso: hidden sizes of the policy and of the value network.
      width: size of the embeddings of sites, and of the query that looks for one.
      mask_width: size of the learned summary of the legal actions that both networks read.
      noop_logit: initial logit of NO-OP against 0 for a rule. Rare at first: an episode that NO-OP ends early shows
        nothing of what longer plans are worth.
    """

    torso: tuple[int, ...] = (128, 128)
    width: int = 32
    mask_width: int = 32
    noop_logit: float = -4.0
