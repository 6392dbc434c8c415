"""Episodes as padded, time-major arrays over latents and action-table indices, for training and for metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.table_episode import TableEpisode

LEAST_REWARD = 1e-6
"""Percent; what is less is nothing, but for rounding."""


class SequenceBatch(NamedTuple):
    """B episodes padded to T steps; padding repeats nothing and means nothing: `valid` is false there.

    Attributes:
      z: float32 [T + 1, B, latent], standardised latents; zero in padding.
      masks: bool [T + 1, B, A + 1], legal actions; NO-OP always true.
      actions: int32 [T, B], table indices; NO-OP (A) in padding.
      rewards: float32 [T, B], percent.
      idle: bool [T, B], steps that earned nothing at all; false in padding.
      terminals: bool [T, B], the step after which nothing was left to rewrite. NO-OP and truncation are not terminals.
      valid: bool [T, B], steps that were taken.
    """

    z: np.ndarray
    masks: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    idle: np.ndarray
    terminals: np.ndarray
    valid: np.ndarray


class SequenceData:
    """The episodes of one start graph in terms of latents and table indices.

    Args:
      buffer: the episodes; where they leave the table, see `TableEpisode`.
      table: the actions.
      latents: standardised latent [latent] of every graph hash in the buffer.

    Attributes:
      table: the actions.
    """

    def __init__(self, buffer: EpisodeBuffer, table: ActionTable, latents: Mapping[str, np.ndarray]) -> None:
        self.table = table
        self._latents = latents
        self._episodes = [TableEpisode(episode, table) for episode in buffer]

    def __len__(self) -> int:
        return len(self._episodes)

    def in_words(self, rows: Sequence[int] | np.ndarray) -> str:
        """Which episodes those are; by their places, since numbers begin anew with every collection."""
        places = ", ".join(str(int(row)) for row in rows)
        return f"episodes {places} of {len(self)}, counted from 0, from the graph {self._episodes[0].episode.start}"

    def open_states(self) -> np.ndarray:
        """(episode, time) of all states before a step that leave something of the table to rewrite: int [n, 2]."""
        found = [np.zeros((0, 2), int)]
        for row, episode in enumerate(self._episodes):
            times = np.unique(episode.legal_bits()[0])
            times = times[times < episode.num_steps]
            found.append(np.stack([np.full_like(times, row), times], axis=-1))
        return np.concatenate(found)

    @cached_property
    def unknown(self) -> ActionTable:
        """All that is legal in some state but outside the table."""
        outside = [each.episode.legal_codes[each.legal < 0] for each in self._episodes]
        return ActionTable.of_codes(np.concatenate([np.zeros(0, np.int32), *outside]), self.table.num_rules)

    def unknown_bits(self, row: int) -> np.ndarray:
        """Which of the E actions of `unknown` are legal in the states of an episode: bool [T + 1, E]."""
        episode, outside = self._episodes[row].episode, self._episodes[row].legal < 0
        bits = np.zeros((episode.num_steps + 1, self.unknown.num_actions), bool)
        times = np.repeat(np.arange(episode.num_steps + 1), np.diff(episode.legal_offsets))
        bits[times[outside], self.unknown.find_codes(episode.legal_codes[outside])] = True
        return bits

    @property
    def unknown_share(self) -> float:
        """Of all legal actions of all states, those outside the table; NaN where nothing is legal anywhere."""
        outside = sum(int((each.legal < 0).sum()) for each in self._episodes)
        legal = sum(len(each.legal) for each in self._episodes)
        return outside / legal if legal else float("nan")

    @property
    def cut_share(self) -> float:
        """Of all episodes, those that are cut before an action outside the table."""
        return sum(each.is_cut for each in self._episodes) / len(self)

    def batch(self, rows: Sequence[int] | np.ndarray) -> SequenceBatch:
        """The episodes `rows`, padded to the longest of them."""
        steps = max(self._episodes[row].num_steps for row in rows)
        width, noop = len(rows), self.table.num_actions
        latent = len(self._latents[self._episodes[rows[0]].episode.hashes[0]])
        batch = SequenceBatch(
            z=np.zeros((steps + 1, width, latent), np.float32),
            masks=np.zeros((steps + 1, width, noop + 1), bool),
            actions=np.full((steps, width), noop, np.int32),
            rewards=np.zeros((steps, width), np.float32),
            idle=np.zeros((steps, width), bool),
            terminals=np.zeros((steps, width), bool),
            valid=np.zeros((steps, width), bool),
        )
        batch.masks[:, :, noop] = True
        for column, row in enumerate(rows):
            self._fill(batch, column, int(row))
        return batch

    def _fill(self, batch: SequenceBatch, column: int, row: int) -> None:
        known = self._episodes[row]
        whole, steps = known.episode, known.num_steps
        batch.z[: steps + 1, column] = [self._latents[graph_hash] for graph_hash in whole.hashes[: steps + 1]]
        batch.actions[:steps, column] = known.actions
        batch.rewards[:steps, column] = known.rewards
        batch.idle[:steps, column] = np.abs(known.rewards) < LEAST_REWARD
        batch.valid[:steps, column] = True
        if whole.terminated and not known.is_cut:
            batch.terminals[steps - 1, column] = known.actions[-1] != self.table.num_actions
        times, legal = known.legal_bits()
        batch.masks[times, column, legal] = True
