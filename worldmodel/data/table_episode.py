"""One episode in terms of an action table, as sequences to train on and tables of rewards both read it."""

from __future__ import annotations

import numpy as np

from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import Episode


class TableEpisode:
    """An episode up to the first action that the table does not hold; what else it does not hold is left out of masks.

    Neither happens with the episodes that the table was made of.

    Args:
      episode: T or more steps.
      table: A actions.

    Attributes:
      episode: the whole of it.
      actions: int32 [T], table indices of the actions before the cut.
      legal: int32 [n], table index of each of the whole episode's `legal_codes`, -1 where the table does not hold it.
    """

    def __init__(self, episode: Episode, table: ActionTable) -> None:
        actions = table.encode(episode.actions)
        self.episode = episode
        self.actions = actions[: np.argmax(np.append(actions, -1) < 0)]
        self.legal = table.find_codes(episode.legal_codes)
        self._noop = table.num_actions

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.actions)

    @property
    def rewards(self) -> np.ndarray:
        """float32 [T], percent."""
        return self.episode.rewards[: self.num_steps]

    @property
    def is_cut(self) -> bool:
        return self.num_steps < self.episode.num_steps

    def legal_bits(self) -> tuple[np.ndarray, np.ndarray]:
        """(time, action) of all that is legal and in the table, in the T + 1 states; without NO-OP."""
        offsets = self.episode.legal_offsets[: self.num_steps + 2]
        times, legal = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), self.legal[: offsets[-1]]
        return times[legal >= 0], legal[legal >= 0]

    def masks(self) -> np.ndarray:
        """bool [T + 1, A + 1], legal actions; NO-OP always true."""
        masks = np.zeros((self.num_steps + 1, self._noop + 1), bool)
        masks[self.legal_bits()] = True
        masks[:, self._noop] = True
        return masks
