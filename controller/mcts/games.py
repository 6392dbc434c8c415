"""Games that a search plays against nobody, and what is learned from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from controller.mcts.config import MctsConfig
from controller.mcts.search import Decision, TreeSearch, step_cost
from controller.mcts.simulators import Packer, Position, Simulator


@dataclasses.dataclass(frozen=True)
class Game:
    """The T moves of a game.

    Attributes:
      observations: T rows of observations.
      columns: T arrays int [K], see `Position.columns`.
      targets: T arrays float [K], the improved policies.
      actions: int [T], indices into `columns`.
      rewards: float [T].
      values: float [T], the best that was reached from each state on, in the reward's unit; see `values_of`.
    """

    observations: tuple[Any, ...]
    columns: tuple[np.ndarray, ...]
    targets: tuple[np.ndarray, ...]
    actions: np.ndarray
    rewards: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def best_return(self) -> float:
        """The largest sum of rewards up to any move, 0 before the first."""
        return max(0.0, float(np.cumsum(self.rewards).max()))


def values_of(rewards: Sequence[float], costs: Sequence[float], *, telescoping: bool) -> np.ndarray:
    """Returns the values of the states of a game, float [T]: the sums of the rewards less the costs of the steps.

    If rewards telescope, the result of an episode is its best state, so that only the steps up to it count.
    """
    values, value = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        value += rewards[t] - costs[t]
        value = max(0.0, value) if telescoping else value
        values[t] = value
    return values


class _Play:
    """A game that is being played. It keeps no position that it has passed, because each holds the tree below it."""

    def __init__(self, position: Position, noise: np.random.Generator) -> None:
        self.position = position
        self._noise = noise
        self._observations: list[Any] = []
        self._columns: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []
        self._actions: list[int] = []
        self._rewards: list[float] = []
        self._costs: list[float] = []

    def noise(self) -> np.ndarray:
        return self._noise.gumbel(size=len(self.position.columns))

    def take(self, decision: Decision, config: MctsConfig) -> None:
        position, action = self.position, decision.action
        self.position = position.children[action]
        self._observations.append(position.observation)
        self._columns.append(position.columns)
        self._targets.append(decision.improved)
        self._actions.append(action)
        self._rewards.append(self.position.reward)
        self._costs.append(step_cost(position, action, config))

    def game(self, *, telescoping: bool) -> Game:
        return Game(
            observations=tuple(self._observations),
            columns=tuple(self._columns),
            targets=tuple(self._targets),
            actions=np.array(self._actions, np.int64),
            rewards=np.array(self._rewards),
            values=values_of(self._rewards, self._costs, telescoping=telescoping),
        )


def play(simulator: Simulator, search: TreeSearch, config: MctsConfig, *, seed: int) -> list[Game]:
    """Plays `config.games` games to their ends, side by side.

    Args:
      seed: the seed of the first positions and of all noise.
    """
    starts = simulator.starts(config.games, seed)
    plays = [_Play(start, np.random.default_rng([seed, number])) for number, start in enumerate(starts)]
    del starts  # positions that no game can come back to are freed while others are still being played
    while going := [play for play in plays if not play.position.over]:
        decisions = search([play.position for play in going], [play.noise() for play in going])
        for each, decision in zip(going, decisions, strict=True):
            each.take(decision, config)
    return [play.game(telescoping=simulator.telescoping) for play in plays]


def stored(games: Sequence[Game], packer: Packer) -> dict[str, np.ndarray]:
    """Returns games as arrays, which `restored` makes into games again, bit for bit."""
    moves = [move for game in games for move in zip(game.columns, game.targets, strict=True)]
    return {
        "moves": np.array([len(game) for game in games]),
        "actions": np.concatenate([game.actions for game in games]),
        "rewards": np.concatenate([game.rewards for game in games]),
        "values": np.concatenate([game.values for game in games]),
        "candidates": np.array([len(columns) for columns, _ in moves]),
        "columns": np.concatenate([columns for columns, _ in moves]),
        "targets": np.concatenate([targets for _, targets in moves]),
        **packer.pack([game.observations for game in games]),
    }


def restored(arrays: Mapping[str, np.ndarray], packer: Packer) -> list[Game]:
    """Returns the games of `stored`."""
    ends = np.cumsum(arrays["moves"])[:-1]
    actions, rewards, values = (np.split(arrays[name], ends) for name in ("actions", "rewards", "values"))
    within = np.cumsum(arrays["candidates"])[:-1]
    moves = list(zip(np.split(arrays["columns"], within), np.split(arrays["targets"], within), strict=True))
    observations = packer.unpack([game.tolist() for game in actions], arrays)
    games, begin = [], 0
    for number, rows in enumerate(observations):
        columns, targets = zip(*moves[begin : begin + len(rows)], strict=True)
        begin += len(rows)
        games.append(Game(tuple(rows), columns, targets, actions[number], rewards[number], values[number]))
    return games
