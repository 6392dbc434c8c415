"""Stored episodes as trajectories over latents and action indices, and the schedule of training batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import ActionTable, pack
from worldmodel.data.episodes import Episode, EpisodeBuffer
from worldmodel.data.past import past_of
from worldmodel.data.trajectory import Trajectory


class _Indexed(NamedTuple):
    """An episode indexed by an action table.

    Attributes:
      episode: the whole episode.
      actions: int32 [T], table indices of the actions before the first that the table does not hold.
      legal: int32 [n], table index of each of the whole episode's `legal_codes`; -1 where the table does not hold it.
    """

    episode: Episode
    actions: np.ndarray
    legal: np.ndarray

    @classmethod
    def of(cls, episode: Episode, table: ActionTable) -> _Indexed:
        actions = table.encode(episode.actions)
        return cls(episode, actions[: np.argmax(np.append(actions, -1) < 0)], table.find_codes(episode.legal_codes))

    @property
    def is_cut(self) -> bool:
        return len(self.actions) < self.episode.num_steps

    def legal_bits(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (time, action) of all legal rewrites that the table holds, in the T + 1 states."""
        offsets = self.episode.legal_offsets[: len(self.actions) + 2]
        times, legal = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), self.legal[: offsets[-1]]
        return times[legal >= 0], legal[legal >= 0]

    def carried_bits(self, table: ActionTable) -> tuple[np.ndarray, np.ndarray]:
        """Returns (time, action) of all single rewrites of everywhere-actions that the table holds.

        A match that an earlier one has given another location counts there (one in 500 on BERT-Base).
        """
        times, found = self.episode.rewrites[:, 0], table.find_codes(pack(self.episode.rewrites[:, 1:]))
        there = (times < len(self.actions)) & (found >= 0)
        return times[there], found[there]


class EpisodeData:
    """The episodes of one start graph in terms of its latents and its action table.

    An episode is cut before the first action that the table does not hold, and masks leave out such actions. Neither
    happens with the episodes that the table was made from.

    Args:
      buffer: the episodes.
      table: the A actions.
      latents: standardised latent [Z] of every graph hash in the buffer; without them trajectories have no states.

    Attributes:
      table: the actions.
    """

    def __init__(
        self, buffer: EpisodeBuffer, table: ActionTable, latents: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self.table = table
        self._latents = latents
        self._episodes = [_Indexed.of(episode, table) for episode in buffer]

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[Trajectory]:
        """Yields each episode alone, as a trajectory of one row."""
        return (self.trajectory([row]) for row in range(len(self)))

    def in_words(self, rows: Sequence[int] | np.ndarray) -> str:
        """Names the episodes `rows` by their places, because episode numbers begin anew with every collection."""
        places = ", ".join(str(int(row)) for row in rows)
        return f"episodes {places} of {len(self)}, counted from 0, from the graph {self._episodes[0].episode.start}"

    def trajectory(self, rows: Sequence[int] | np.ndarray) -> Trajectory:
        """Returns the episodes `rows` as arrays, padded to the longest of them."""
        steps, noop = max(len(self._episodes[row].actions) for row in rows), self.table.num_actions
        whole = Trajectory(
            state=() if self._latents is None else np.zeros((steps + 1, len(rows), self._latent_size), np.float32),
            legal=np.zeros((steps + 1, len(rows), noop + 1), bool),
            action=np.full((steps, len(rows)), noop, np.int32),
            reward=np.zeros((steps, len(rows)), np.float32),
            terminal=np.zeros((steps, len(rows)), bool),
            alive=np.zeros((steps, len(rows)), bool),
            carried=() if self.table.everywhere is None else np.zeros((steps, len(rows), noop + 1), bool),
        )
        whole.legal[:, :, noop] = True
        for column, row in enumerate(rows):
            self._fill(whole, column, self._episodes[row])
        return whole._replace(past=past_of(whole.legal, self._singles(whole)))

    def _singles(self, whole: Trajectory) -> np.ndarray:
        """Returns the single rewrites of every step of a trajectory: bool [T, B, A + 1]."""
        singles = np.zeros(whole.legal[1:].shape, bool) if isinstance(whole.carried, tuple) else whole.carried.copy()
        steps, rows = np.nonzero(whole.alive & ~self.table.is_everywhere[whole.action])
        singles[steps, rows, whole.action[steps, rows]] = True
        return singles

    @property
    def _latent_size(self) -> int:
        assert self._latents is not None
        return len(next(iter(self._latents.values())))

    def _fill(self, whole: Trajectory, column: int, known: _Indexed) -> None:
        episode, steps = known.episode, len(known.actions)
        if self._latents is not None:
            whole.state[: steps + 1, column] = [self._latents[h] for h in episode.hashes[: steps + 1]]
        whole.action[:steps, column] = known.actions
        whole.reward[:steps, column] = episode.rewards[:steps]
        whole.alive[:steps, column] = True
        if episode.terminated and not known.is_cut:
            whole.terminal[steps - 1, column] = known.actions[-1] != self.table.num_actions
        times, legal = known.legal_bits()
        whole.legal[times, column, legal] = True
        if not isinstance(whole.carried, tuple):
            times, carried = known.carried_bits(self.table)
            whole.carried[times, column, carried] = True

    def open_states(self) -> np.ndarray:
        """Returns (episode, time) of all states before a step in which a rewrite of the table is legal: int [n, 2]."""
        found = [np.zeros((0, 2), int)]
        for row, known in enumerate(self._episodes):
            times = np.unique(known.legal_bits()[0])
            times = times[times < len(known.actions)]
            found.append(np.stack([np.full_like(times, row), times], axis=-1))
        return np.concatenate(found)

    @cached_property
    def unknown(self) -> ActionTable:
        """All rewrites that are legal in some state but outside `table`, as a table of their own."""
        outside = [each.episode.legal_codes[each.legal < 0] for each in self._episodes]
        codes = np.concatenate([np.zeros(0, np.int32), *outside])
        return ActionTable.of_codes(codes, self.table.num_rules, self.table.everywhere)

    def unknown_bits(self, row: int) -> np.ndarray:
        """Returns which of the E actions of `unknown` are legal in the states of an episode: bool [T + 1, E]."""
        episode, outside = self._episodes[row].episode, self._episodes[row].legal < 0
        bits = np.zeros((episode.num_steps + 1, self.unknown.num_actions), bool)
        times = np.repeat(np.arange(episode.num_steps + 1), np.diff(episode.legal_offsets))
        bits[times[outside], self.unknown.find_codes(episode.legal_codes[outside])] = True
        return bits

    @property
    def unknown_share(self) -> float:
        """The share of all legal rewrites of all states that are outside the table; NaN if no state has any."""
        outside = sum(int((each.legal < 0).sum()) for each in self._episodes)
        legal = sum(len(each.legal) for each in self._episodes)
        return outside / legal if legal else float("nan")

    @property
    def cut_share(self) -> float:
        """The share of the episodes that are cut before an action outside the table."""
        return sum(each.is_cut for each in self._episodes) / len(self)


def bootstrap_counts(members: int, graph: int, rows: np.ndarray, seed: int) -> np.ndarray:
    """Returns how often the episodes `rows` of a start graph count for each ensemble member: float32 [n, members].

    A single member counts every episode once. Several members each have their own sample with replacement: every
    episode counts as often as a draw from Poisson(1) says.
    """
    if members == 1:
        return np.ones((len(rows), 1), np.float32)
    drawn = [np.random.default_rng([seed, graph, int(row)]).poisson(1.0, members) for row in rows]
    return np.array(drawn, np.float32)


class Schedule:
    """The schedule of training batches: shuffled passes over all episodes, each pass a function of (seed, pass).

    Args:
      sizes: the number of episodes of every start graph.
      batch: episodes per step, fewer if a start graph has fewer. An incomplete last batch of a start graph is filled
        up with the first episodes of the pass.
      seed: the seed of the order.
    """

    def __init__(self, sizes: Sequence[int], batch: int, seed: int) -> None:
        self._sizes, self._batch, self._seed = list(sizes), batch, seed
        self._steps_of_pass = sum(math.ceil(size / batch) for size in self._sizes)
        self._passes: dict[int, list[tuple[int, np.ndarray]]] = {}

    def batch(self, step: int) -> tuple[int, np.ndarray]:
        """Returns (start graph, rows) of a step."""
        number, place = divmod(step, self._steps_of_pass)
        if number not in self._passes:
            self._passes = {number: self._shuffled(number)}
        return self._passes[number][place]

    def _shuffled(self, number: int) -> list[tuple[int, np.ndarray]]:
        rng = np.random.default_rng([self._seed, number])
        batches = []
        for graph, size in enumerate(self._sizes):
            order, width = rng.permutation(size), min(self._batch, size)
            for begin in range(0, size, self._batch):
                batches.append((graph, order[np.arange(begin, begin + width) % size]))
        return [batches[i] for i in rng.permutation(len(batches))]
