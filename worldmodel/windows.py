"""Stretches of real episodes, and what a model makes of them, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Windows(NamedTuple):
    """W stretches of K steps of real episodes.

    Attributes:
      z: float32 [K + 1, W, latent].
      mask: bool [K + 1, W, A], NO-OP left out.
      reward: float32 [K, W], percent.
      terminal: bool [K, W], nothing was left to rewrite after the step.
      actions: int32 [K, W].
      last_reward: float32 [W], of the step before; 0 where an episode begins.
      hidden, cell: float32 [W, hidden], the recurrent state that the first step starts from.
      episode: int [W], position in the buffer.
      depth: int [W], steps before the first.
    """

    z: np.ndarray
    mask: np.ndarray
    reward: np.ndarray
    terminal: np.ndarray
    actions: np.ndarray
    last_reward: np.ndarray
    hidden: np.ndarray
    cell: np.ndarray
    episode: np.ndarray
    depth: np.ndarray

    @property
    def steps(self) -> int:
        """K."""
        return len(self.actions)


class OpenLoop(NamedTuple):
    """What the model makes of windows.

    Attributes:
      real: the windows.
      z, mask, reward, terminal: as in `Windows`, predicted; z and mask are the real ones in row 0.
    """

    real: Windows
    z: np.ndarray
    mask: np.ndarray
    reward: np.ndarray
    terminal: np.ndarray
