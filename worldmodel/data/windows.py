"""Stretches of real episodes, and what a model makes of them, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from worldmodel.errors import NonFinitePrediction


class Windows(NamedTuple):
    """W stretches of K steps of real episodes.

    Attributes:
      z: float32 [K + 1, W, latent].
      mask: bool [K + 1, W, A], of the model's table, NO-OP left out.
      reward: float32 [K, W], percent.
      terminal: bool [K, W], nothing was left to rewrite after the step.
      actions: int32 [K, W].
      unknown: bool [K + 1, W, E], the same as `mask` for E actions that the table does not hold.
      last_reward: float32 [W], of the step before; 0 where an episode begins.
      hidden, cell: float32 [W, hidden], the recurrent state that the first step starts from.
      episode: int [W], position in the buffer.
      depth: int [W], steps before the first.
      unknown_rules: int [E], the rule of each action of `unknown`.
    """

    z: np.ndarray
    mask: np.ndarray
    reward: np.ndarray
    terminal: np.ndarray
    actions: np.ndarray
    unknown: np.ndarray
    last_reward: np.ndarray
    hidden: np.ndarray
    cell: np.ndarray
    episode: np.ndarray
    depth: np.ndarray
    unknown_rules: np.ndarray

    @property
    def steps(self) -> int:
        """K."""
        return len(self.actions)

    def legal(self) -> np.ndarray:
        """All that is legal, in the table or not: bool [K + 1, W, A + E]."""
        return np.concatenate([self.mask, self.unknown], axis=-1)


def require_finite(windows: Windows, **predicted: np.ndarray) -> None:
    """Raises `NonFinitePrediction`, which names what and the first window, unless all predictions [K, W, ...] are."""
    for name, values in predicted.items():
        bad = ~np.isfinite(values)
        if bad.any():
            of_windows = bad.any(axis=tuple(axis for axis in range(bad.ndim) if axis != 1))
            first = int(np.argmax(of_windows))
            raise NonFinitePrediction(
                f"the {name} that the world model predicts is NaN or infinite in {of_windows.sum()} of "
                f"{len(of_windows)} windows, the first from episode {windows.episode[first]} at depth "
                f"{windows.depth[first]}: train it again, with smaller learning rates or another seed"
            )


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

    def legal(self) -> np.ndarray:
        """All that is thought legal: bool [K + 1, W, A + E]; of what the table does not hold, the first state only."""
        foretold = np.zeros_like(self.real.unknown)
        foretold[0] = self.real.unknown[0]
        return np.concatenate([self.mask, foretold], axis=-1)
