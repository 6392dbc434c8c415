"""What tree search simulates in: the engine itself, or a dream of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from controller.worlds.graph_view import GRAPHS, GraphRow, row_of
from environment import GraphSubstitutionEnv
from environment.substitution.env import Snapshot
from worldmodel.data.trajectory import LatentObservation
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.step import DreamState


@dataclasses.dataclass(eq=False)
class Position:
    """A state that a simulator has reached.

    Attributes:
      columns: int [K], the legal actions as columns of the policy's distribution, in ascending order; an action of the
        search is an index into them. The last one is NO-OP.
      observation: one row of the policy's observation.
      key: equal for positions with equal observations.
      moment: the state as the simulator needs it to go on.
      reward: reward of the step that led here.
      over: whether the episode is over.
      returned: whether the step that led here only came back to an earlier state of the episode.
      children: the positions after the actions that were simulated.
    """

    columns: np.ndarray
    observation: Any
    key: Hashable
    moment: Any
    reward: float = 0.0
    over: bool = False
    returned: bool = False
    children: dict[int, Position] = dataclasses.field(default_factory=dict)


class Packer(Protocol):
    """Keeps the observations of games in files."""

    def pack(self, games: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
        """Returns what `unpack` needs, besides the actions, to return the observations of all moves of some games."""
        ...

    def unpack(self, actions: Sequence[Sequence[int]], packed: Mapping[str, np.ndarray]) -> list[list[Any]]:
        """Returns the observations of all moves of some games, bit for bit."""
        ...


class Simulator(Protocol):
    """Carries out actions.

    Attributes:
      telescoping: whether rewards are differences of a cost, so that an episode may stop at its best state and keep
        what it has earned so far.
    """

    telescoping: bool

    def starts(self, number: int, seed: int) -> list[Position]:
        """Returns the first positions of `number` games; `seed` decides every draw in them."""
        ...

    def expand(self, steps: Sequence[tuple[Position, int]]) -> None:
        """Adds the child after an action to each position that does not have it yet."""
        ...

    def batch(self, rows: Sequence[Any]) -> Any:
        """Returns the policy's observation of `Position.observation` of several positions."""
        ...


class _Played(NamedTuple):
    """A moment of an episode on the engine.

    Attributes:
      snapshot: the environment's.
      graph: hash of the graph.
      past: hashes of all graphs so far.
    """

    snapshot: Snapshot
    graph: str
    past: frozenset[str]


class EngineSimulator:
    """The engine as an exact simulator of the environment's steps, at prices that it predicts and never measures.

    A step back is free: positions are snapshots, which share what rewrites have not changed. Games that pass the same
    sequence of actions share their positions.
    """

    def __init__(self, env: Any, *, horizon: int | None = None, reach: int | None = None) -> None:
        """
        Args:
          env: the real environment, which is not touched. From the next `starts` on, its prices are followed.
          horizon: largest number of steps of a game; None: the environment's.
          reach: that of the policy, see `controller.worlds.graph_view.row_of`.
        """
        self._real, self._horizon, self._reach = env.unwrapped, horizon, reach
        self._env = self._predicting()
        self.telescoping = bool(self._real.reward.telescopes)

    def _predicting(self) -> GraphSubstitutionEnv:
        """Returns an environment like the real one, which predicts by its present prices."""
        real = self._real
        return GraphSubstitutionEnv(
            real.model,
            costs=real.cost_model,
            reward=real.reward,
            rules=real.rules,
            max_steps=self._horizon or real.max_steps,
            max_locations=real.num_locations,
            everywhere=real.everywhere,
        )

    def pair(self, seen: GraphRow, action: int) -> np.ndarray:
        """Returns the environment's action [rule, location] of an action of the search."""
        return np.array(divmod(int(seen.candidates[action]), self._env.num_places), np.int64)

    def starts(self, number: int, seed: int) -> list[Position]:
        if self._env.cost_model is not self._real.cost_model:
            self._env = self._predicting()
        return [self._position(self._env.reset()[0], frozenset())] * number

    def expand(self, steps: Sequence[tuple[Position, int]]) -> None:
        for position, action in steps:
            if action not in position.children:
                self._env.restore(position.moment.snapshot)
                observation, reward, terminated, truncated, _ = self._env.step(self.pair(position.observation, action))
                child = self._position(observation, position.moment.past, reward=float(reward))
                child.over = terminated or truncated
                position.children[action] = child

    def _position(self, observation: dict[str, Any], past: frozenset[str], *, reward: float = 0.0) -> Position:
        row, graph = row_of(self._env, observation, self._reach), self._env.state.hash
        # The elapsed time and the candidates belong to the key: one graph can have its matches at different locations.
        key = graph, row.summary.tobytes(), row.candidates.tobytes()
        moment = _Played(self._env.snapshot(), graph, past | {graph})
        return Position(np.arange(len(row.candidates)), row, key, moment, reward, returned=graph in past)

    def batch(self, rows: Sequence[GraphRow]) -> Any:
        return GRAPHS.stack(rows)

    def pack(self, games: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
        return {}  # the actions say it all

    def unpack(self, actions: Sequence[Sequence[int]], packed: Mapping[str, np.ndarray]) -> list[list[Any]]:
        (start,), games = self.starts(1, 0), []
        for game in actions:
            position, rows = start, []
            for action in game:
                rows.append(position.observation)
                self.expand([(position, action)])
                position = position.children[action]
            games.append(rows)
        return games


@dataclasses.dataclass(frozen=True)
class _Dreamed:
    """A moment of a dream.

    Attributes:
      state: one row of a state, as arrays.
      left: number of steps that the episode may still take.
      past: the sum of rewards at the first visit of each state so far, by its legal actions.
      total: the sum of rewards now.
    """

    state: DreamState
    left: int
    past: Mapping[bytes, float]
    total: float


_FIELDS = LatentObservation._fields


def _rows(state: DreamState) -> list[DreamState]:
    """Returns the rows of a state, as arrays."""
    arrays = tf.nest.map_structure(lambda field: field.numpy(), state)
    return [tf.nest.map_structure(lambda field, row=row: field[row], arrays) for row in range(len(arrays.z))]


class DreamSimulator:
    """A dream as a simulator. An action of a position is dreamed once: what was drawn then stands.

    If rewards telescope, a step back to the legal actions of an earlier state of the episode pays back what was earned
    in between, also where the dream has not seen the earlier state (`worldmodel.dream.settlement`).
    """

    def __init__(self, dream: DreamEnv, *, telescoping: bool, horizon: int | None = None, seed: int = 0) -> None:
        """
        Args:
          dream: the dream.
          telescoping: whether the real environment's rewards are differences of a cost.
          horizon: largest number of steps of a game; None: as many as the world model knows.
          seed: the seed of what is drawn in dreamed steps, until `starts` gives another one.
        """
        self._dream, self.telescoping, self._horizon = dream, telescoping, horizon
        self._seed, self._calls = seed, 0

    def starts(self, number: int, seed: int) -> list[Position]:
        self._seed, self._calls = seed, 0
        state, left = self._dream.start_with_limits(number, tf.constant([seed, -1], tf.int32))
        limits = left.numpy() if self._horizon is None else np.minimum(left.numpy(), self._horizon)
        return [self._first(row, int(limit)) for row, limit in zip(_rows(state), limits, strict=True)]

    def begin(self, state: DreamState) -> Position:
        """Returns the first position of an episode; `state` has one row."""
        left = self._dream.longest if self._horizon is None else min(self._dream.longest, self._horizon)
        return self._first(_rows(self._dream.begun(state))[0], left)

    def follow(self, position: Position, action: int, state: DreamState) -> Position:
        """Returns the position after an action that was taken in the real environment, where it led to `state`."""
        self.expand([(position, action)])
        dreamed = position.children[action]
        row = _rows(state)[0]._replace(ledger=dreamed.moment.state.ledger)
        return self._after(position.moment, row, dreamed.reward, terminal=False)

    def _first(self, row: DreamState, left: int) -> Position:
        return self._position(_Dreamed(row, left, {row.action_mask.tobytes(): 0.0}, 0.0))

    def expand(self, steps: Sequence[tuple[Position, int]]) -> None:
        new = {(id(position), action): (position, action) for position, action in steps}
        wanted = [(position, action) for position, action in new.values() if action not in position.children]
        if not wanted:
            return
        moments = [position.moment for position, _ in wanted]
        before = tf.nest.map_structure(lambda *fields: tf.stack(fields), *(each.state for each in moments))
        columns = np.array([position.columns[action] for position, action in wanted], np.int32)
        self._calls += 1
        seed = tf.constant([self._seed, self._calls], tf.int32)
        reached, rewards, terminals = self._dream.step(before, tf.constant(columns), seed)
        for (position, action), row, reward, terminal in zip(
            wanted, _rows(reached), rewards.numpy(), terminals.numpy(), strict=True
        ):
            position.children[action] = self._after(position.moment, row, float(reward), bool(terminal))

    def _after(self, before: _Dreamed, row: DreamState, reward: float, terminal: bool) -> Position:
        code = row.action_mask.tobytes()
        total = before.total + reward
        if self.telescoping:
            total = before.past.get(code, total)
        moment = _Dreamed(row, before.left - 1, {code: total, **before.past}, total)
        position = self._position(moment, reward=total - before.total)
        position.over, position.returned = terminal or moment.left < 1, code in before.past
        return position

    def _position(self, moment: _Dreamed, *, reward: float = 0.0) -> Position:
        z, hidden, mask = moment.state.z, moment.state.hidden, moment.state.action_mask
        key = z.tobytes(), hidden.tobytes(), mask.tobytes()
        return Position(np.flatnonzero(mask), (z, hidden, mask), key, moment, reward)

    def batch(self, rows: Sequence[Any]) -> LatentObservation:
        return LatentObservation(*(tf.constant(np.stack(column)) for column in zip(*rows, strict=True)))

    @staticmethod
    def pack(games: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
        columns = zip(*(row for game in games for row in game), strict=True)
        return {name: np.stack(column) for name, column in zip(_FIELDS, columns, strict=True)}

    @staticmethod
    def unpack(actions: Sequence[Sequence[int]], packed: Mapping[str, np.ndarray]) -> list[list[Any]]:
        rows = zip(*(packed[name] for name in _FIELDS), strict=True)
        return [[next(rows) for _ in game] for game in actions]
