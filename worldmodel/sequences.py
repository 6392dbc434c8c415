"""Episodes as padded, time-major arrays over latents and action-table indices, for training and for metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from worldmodel.actions import ActionTable
from worldmodel.episodes import EpisodeBuffer

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
      buffer: the episodes. One that takes an action outside the table is cut before it; legal actions outside the table
        are left out of masks. Neither happens with the episodes that the table was made of.
      table: the actions.
      latents: standardised latent [latent] of every graph hash in the buffer.

    Attributes:
      table: the actions.
    """

    def __init__(self, buffer: EpisodeBuffer, table: ActionTable, latents: Mapping[str, np.ndarray]) -> None:
        self.table = table
        self._latents = latents
        self._episodes = list(buffer)
        self._actions = [_known_prefix(table.encode(episode.actions)) for episode in self._episodes]
        self._legal = [table.find_codes(episode.legal_codes) for episode in self._episodes]

    def __len__(self) -> int:
        return len(self._episodes)

    def in_words(self, rows: Sequence[int] | np.ndarray) -> str:
        """Which episodes those are; by their places, since numbers begin anew with every collection."""
        places = ", ".join(str(int(row)) for row in rows)
        return f"episodes {places} of {len(self)}, counted from 0, from the graph {self._episodes[0].start}"

    def open_states(self) -> np.ndarray:
        """(episode, time) of all states before a step that leave something of the table to rewrite: int [n, 2]."""
        found = [np.zeros((0, 2), int)]
        for row, actions in enumerate(self._actions):
            times = np.unique(self._legal_of(row)[0])
            times = times[times < len(actions)]
            found.append(np.stack([np.full_like(times, row), times], axis=-1))
        return np.concatenate(found)

    @cached_property
    def unknown(self) -> ActionTable:
        """All that is legal in some state but outside the table."""
        outside = [episode.legal_codes[legal < 0] for episode, legal in zip(self._episodes, self._legal, strict=True)]
        return ActionTable.of_codes(np.concatenate([np.zeros(0, np.int32), *outside]), self.table.num_rules)

    def unknown_bits(self, row: int) -> np.ndarray:
        """Which of the E actions of `unknown` are legal in the states of an episode: bool [T + 1, E]."""
        episode = self._episodes[row]
        bits = np.zeros((episode.num_steps + 1, self.unknown.num_actions), bool)
        times = np.repeat(np.arange(episode.num_steps + 1), np.diff(episode.legal_offsets))
        outside = self._legal[row] < 0
        bits[times[outside], self.unknown.find_codes(episode.legal_codes[outside])] = True
        return bits

    @property
    def unknown_share(self) -> float:
        """Of all legal actions of all states, those outside the table; NaN where nothing is legal anywhere."""
        outside, legal = sum(int((row < 0).sum()) for row in self._legal), sum(map(len, self._legal))
        return outside / legal if legal else float("nan")

    @property
    def cut_share(self) -> float:
        """Of all episodes, those that are cut before an action outside the table."""
        pairs = zip(self._episodes, self._actions, strict=True)
        return sum(len(actions) < episode.num_steps for episode, actions in pairs) / len(self)

    def batch(self, rows: Sequence[int] | np.ndarray) -> SequenceBatch:
        """The episodes `rows`, padded to the longest of them."""
        steps = max(len(self._actions[row]) for row in rows)
        width, noop = len(rows), self.table.num_actions
        latent = len(self._latents[self._episodes[rows[0]].hashes[0]])
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
        episode, actions = self._episodes[row], self._actions[row]
        steps = len(actions)
        batch.z[: steps + 1, column] = [self._latents[graph_hash] for graph_hash in episode.hashes[: steps + 1]]
        batch.actions[:steps, column] = actions
        batch.rewards[:steps, column] = episode.rewards[:steps]
        batch.idle[:steps, column] = np.abs(episode.rewards[:steps]) < LEAST_REWARD
        batch.valid[:steps, column] = True
        if episode.terminated and steps == episode.num_steps:
            batch.terminals[steps - 1, column] = actions[-1] != self.table.num_actions
        times, legal = self._legal_of(row)
        batch.masks[times, column, legal] = True

    def _legal_of(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """(time, action) of all that is legal and in the table, up to where the episode is cut."""
        offsets = self._episodes[row].legal_offsets[: len(self._actions[row]) + 2]
        times, legal = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), self._legal[row][: offsets[-1]]
        return times[legal >= 0], legal[legal >= 0]


def _known_prefix(actions: np.ndarray) -> np.ndarray:
    unknown = np.flatnonzero(actions < 0)
    return actions[: unknown[0]] if unknown.size else actions
