"""How far every rule moved the latent in the training data: what dreams hold the means of their steps to.

Good play goes where random play hardly ever does. What a network makes of a rewrite there is held to nothing, and one
wrong step spoils all that come after it; the rewrite itself does there much the same as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from worldmodel.data.episodes import EpisodeBuffer


def changes_per_rule(buffer: EpisodeBuffer, embeddings: Mapping[str, np.ndarray]) -> np.ndarray:
    """Least and greatest change of every dimension that each rule brought: float32 [R + 1, 2, Z].

    Of a rule that was never taken, those of all rules together; of NO-OP, none.

    Args:
      buffer: episodes with at least one rewrite.
      embeddings: float32 [Z], of every graph that they visit, by its hash.
    """
    rules = np.concatenate([episode.actions[:, 0] for episode in buffer])
    changes = np.concatenate([np.diff([embeddings[h] for h in episode.hashes], axis=0) for episode in buffer])
    known = np.zeros((buffer.num_rules + 1, 2, changes.shape[1]), np.float32)
    for rule in range(buffer.num_rules):
        its_own = changes[rules == rule] if rule in rules else changes
        known[rule] = its_own.min(axis=0), its_own.max(axis=0)
    return known
