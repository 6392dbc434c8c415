"""How `mcts` plays and trains in each world: on the engine, or in a dream."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from controller.mcts.config import MctsConfig
from controller.mcts.games import Game
from controller.mcts.simulators import DreamSimulator, EngineSimulator, Packer, Position, Simulator
from controller.records import EpisodeLog
from worldmodel.config import DreamConfig
from worldmodel.dream.dream_env import DreamEnv, structure_of
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.world_model import WorldModel


class Episode(Protocol):
    """An episode of the real environment, followed by a simulator."""

    @property
    def simulator(self) -> Simulator:
        """What the search simulates in."""
        ...

    def position(self) -> Position:
        """Returns the present state as the simulator's."""
        ...

    def take(self, action: int) -> Any:
        """Notes an action of the search, and returns it as an action of the view."""
        ...


class Side(Protocol):
    """One world.

    Attributes:
      packer: packs the observations of games.
    """

    packer: Packer

    def simulator(self, world: Any) -> Simulator:
        """Returns the simulator of games for training in `world`."""
        ...

    def keep_best(self, world: Any, game: Game, seed: int) -> None:
        """Keeps the game as an episode of the real environment, if it is one; for `RealWorld.best`."""
        ...

    def view(self, env: Any) -> Any:
        """See `controller.interface.Controller.view`."""
        ...

    def episode(self, view: Any, seed: int) -> Episode:
        """Begins an episode in the view."""
        ...


class EngineSide:
    """The real environment, and the engine as its exact simulator."""

    def __init__(self, env: Any, config: MctsConfig, reach: int | None) -> None:
        self._simulator = EngineSimulator(env, horizon=config.horizon, reach=reach)
        self.packer: Packer = self._simulator

    def simulator(self, world: Any) -> Simulator:
        return self._simulator

    def keep_best(self, world: Any, game: Game, seed: int) -> None:
        env = world.make_env()
        episode = EpisodeLog("training", seed, env.reset(seed=seed)[1])
        for seen, action in zip(game.observations, game.actions, strict=True):
            pair = self._simulator.pair(seen, int(action))
            episode.add(pair, *env.step(pair)[1:])
        world.note([episode.record()])

    def view(self, env: Any) -> Any:
        return env

    def episode(self, view: Any, seed: int) -> Episode:
        (start,) = self._simulator.starts(1, seed)
        if start.moment.graph != view.unwrapped.state.hash:
            raise ValueError(
                f"mcts simulates games from the graph {start.moment.graph}, but the environment is at "
                f"{view.unwrapped.state.hash}: build the controller for that environment."
            )
        return _EngineEpisode(self._simulator, start)


@dataclasses.dataclass
class _EngineEpisode:
    simulator: EngineSimulator
    _position: Position

    def position(self) -> Position:
        return self._position

    def take(self, action: int) -> np.ndarray:
        before = self._position
        self.simulator.expand([(before, action)])
        self._position = before.children[action]
        return self.simulator.pair(before.observation, action)


class DreamSide:
    """The real environment as a world model sees it, and a dream of temperature 0 as its simulator."""

    def __init__(self, world_model: WorldModel, config: MctsConfig, dream: DreamConfig, *, telescoping: bool) -> None:
        """
        Args:
          dream: the settings of the dream.
          telescoping: see `DreamSimulator`.
        """
        self._world_model, self._horizon, self._telescoping = world_model, config.horizon, telescoping
        self._settings = dream.from_root().certain()
        self._dream: DreamEnv | None = None
        self.packer: Packer = DreamSimulator

    def simulator(self, world: Any) -> Simulator:
        return DreamSimulator(world, telescoping=self._telescoping, horizon=self._horizon)

    def keep_best(self, world: Any, game: Game, seed: int) -> None:
        return  # nothing of a dream is real

    def view(self, env: Any) -> LatentEnv:
        return LatentEnv(env, self._world_model, structure_of(self._world_model, env, self._settings))

    def episode(self, view: Any, seed: int) -> Episode:
        if self._dream is None or self._dream.structure is not view.structure:
            self._dream = DreamEnv.of_state(self._world_model, view.state, self._settings, view.structure)
        simulator = DreamSimulator(self._dream, telescoping=self._telescoping, horizon=self._horizon, seed=seed)
        return _DreamEpisode(simulator, view)


class _DreamEpisode:
    def __init__(self, simulator: DreamSimulator, view: Any) -> None:
        self.simulator, self._view = simulator, view
        self._position: Position | None = None
        self._action = 0

    def position(self) -> Position:
        state = self._view.state
        if self._position is None:
            self._position = self.simulator.begin(state)
        else:
            self._position = self.simulator.follow(self._position, self._action, state)
        return self._position

    def take(self, action: int) -> int:
        assert self._position is not None
        self._action = action
        return int(self._position.columns[action])


def best_of(games: Sequence[Game]) -> Game:
    """Returns the game that reached the largest sum of rewards, the first of equals."""
    return max(games, key=lambda game: game.best_return)
