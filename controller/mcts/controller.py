"""`mcts`: Gumbel tree search with a learned prior and value, on the exact engine or in a dream."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from controller.interface import Controller, ProgressCallback
from controller.mcts.config import FORMAT_VERSION, MctsConfig
from controller.mcts.episodes import DreamSide, EngineSide, Episode, Side, best_of
from controller.mcts.games import Game, play, restored, stored
from controller.mcts.learner import MctsLearner
from controller.mcts.search import Evaluator, TreeSearch
from controller.policies.graph import GraphPolicy
from controller.policies.latent import LatentPolicy
from controller.ppo.config import PolicyConfig
from controller.stored import read
from taso_ext.files import write_arrays
from worldmodel.config import DreamConfig, EncoderConfig
from worldmodel.training import require_finite
from worldmodel.world_model import WorldModel

_GAMES, _OF_LEARNER = "games/", "learner/"


class MctsController(Controller):
    """A tree search that plays against nobody, and the networks that learn from its games.

    In each iteration the search plays some games; then the policy is trained towards the search's improved policies,
    and the value towards the best that each game reached from its states on. In evaluation the search plays too:
    without noise if it is deterministic, else with the Gumbel noise that samples from the improved policy.

    On the engine it simulates exact rewrites at predicted prices; if the environment's costs are measured, training
    measures only the games that are better than all before. In a dream it simulates what the world model predicts.

    Sources: Danihelka et al. 2022, "Policy improvement by planning with Gumbel" (Gumbel AlphaZero, sequential halving,
    completed values); Silver et al. 2018 (AlphaZero); Schrittwieser et al. 2020 (MuZero: learned simulators).

    Attributes:
      num_iterations: number of iterations done so far.
    """

    name: ClassVar[str] = "mcts"
    worlds: ClassVar[tuple[str, ...]] = ("real", "dream")
    stochastic: ClassVar[bool] = True

    def __init__(
        self, network: Any, config: MctsConfig, side: Side, *, seed: int = 0, sampling_temperature: float = 1.0
    ) -> None:
        """
        Args:
          network: policy and value, a `controller.ppo.learner.TrainablePolicy`.
          config: the settings.
          side: the world.
          seed: the seed of every random draw in training.
          sampling_temperature: factor of the noise in sampled episodes; 1 samples from the improved policy.
        Raises:
          ValueError: the sampling temperature is negative.
        """
        if not sampling_temperature >= 0:
            raise ValueError(f"mcts: the sampling temperature is {sampling_temperature}, but noise cannot be negative.")
        self._config, self._side, self._seed = config, side, seed
        self._network, self._temperature = network, sampling_temperature
        self._learner = MctsLearner(network, config, seed=seed)
        self._window: list[list[Game]] = []
        self._stored: dict[str, np.ndarray] | None = None  # what `load` has read of the window, until training goes on
        self._best = -np.inf  # the largest sum of rewards of all games but those of the warm-up, which are random play
        self._evaluate: Evaluator | None = None
        self._episode: Episode | None = None
        self._noise = np.random.default_rng(0)

    @classmethod
    def build(
        cls,
        *,
        env: Any,
        world_model: WorldModel | None = None,
        config: MctsConfig | None = None,
        policy: PolicyConfig | None = None,
        encoder: EncoderConfig | None = None,
        dream: DreamConfig | None = None,
        seed: int = 0,
        sampling_temperature: float = 1.0,
    ) -> MctsController:
        """Builds a controller that simulates in dreams of a world model if one is given, or else on the engine.

        Args:
          env: the real environment.
          policy, encoder: sizes of the networks; those of the encoder are used on the engine only.
          dream: settings of the dream in which episodes are planned.
        """
        config, sizes = config or MctsConfig(), policy or PolicyConfig()
        side: Side
        network: GraphPolicy | LatentPolicy
        if world_model is None:
            network = GraphPolicy(env, encoder or EncoderConfig(), sizes, seed=seed)
            side = EngineSide(env, config, network.reach)
        else:
            telescoping = bool(env.unwrapped.reward.telescopes)
            side = DreamSide(world_model, config, dream or DreamConfig(), telescoping=telescoping)
            network = LatentPolicy.for_world_model(world_model, config=sizes, seed=seed)
        return cls(network, config, side, seed=seed, sampling_temperature=sampling_temperature)

    @property
    def total(self) -> int:
        return self._config.iterations

    @property
    def num_iterations(self) -> int:
        return self._learner.num_iterations

    def train(self, world: Any, *, seed: int | None = None, on_progress: ProgressCallback | None = None) -> None:
        """Runs the iterations of the configuration that have not been done yet.

        Args:
          world: a `controller.worlds.real.RealWorld`, which keeps the best game, or a `DreamEnv`.
          seed: replaces the seed given to the constructor.
          on_progress: called after every iteration with the learner's metrics; `return` and `best_return`, the mean and
            the maximum over the games of the largest sum of rewards, in the environment's unit; `length`, the mean
            number of moves; and the numbers of `simulations` and of `evaluated` states of the iteration.
        Raises:
          NonFiniteLoss: one of these metrics is NaN or infinite; the message names it and the iteration. Files that
            were saved before are intact.
        """
        seed = self._seed if seed is None else seed
        self._restore_games()
        simulator, config = self._side.simulator(world), self._config
        evaluate = Evaluator(self._network, simulator.batch, cached=config.cached)
        for iteration in range(self.num_iterations, config.iterations):
            evaluate.forget()
            known = evaluate.evaluated
            search = TreeSearch(simulator, evaluate, config.at(iteration), unit=self._learner.unit)
            game_seed = _fold(seed, iteration)
            games = play(simulator, search, config.at(iteration), seed=game_seed)
            window = [*self._window, games][-config.window :]
            metrics = self._learner.update(games, [game for each in window for game in each], simulator.batch)
            work = {"simulations": search.simulations, "evaluated": evaluate.evaluated - known}
            metrics |= _game_metrics(games) | work
            require_finite(metrics, iteration + 1, "the games of mcts's iteration {}".format)
            self._window, self._evaluate = window, None
            if metrics["best_return"] > self._best and not config.warms_up(iteration):
                self._best = metrics["best_return"]
                self._side.keep_best(world, best_of(games), game_seed)
            if on_progress is not None:
                on_progress(iteration + 1, config.iterations, metrics)

    def view(self, env: Any) -> Any:
        return self._side.view(env)

    def begin_episode(self, view: Any, *, seed: int) -> None:
        """See `Controller.begin_episode`.

        Raises:
          ValueError: the environment starts from another graph than the controller was built for.
        """
        self._episode, self._noise = self._side.episode(view, seed), np.random.default_rng(seed)

    def act(self, observation: Any, *, deterministic: bool) -> Any:
        if self._episode is None:
            raise ValueError("mcts searches from a state of an episode: call begin_episode(view, seed=…) first.")
        simulator, position = self._episode.simulator, self._episode.position()
        if position.over:  # beyond the horizon of the simulator
            return self._episode.take(len(position.columns) - 1)
        if self._evaluate is None:  # what is evaluated in one episode is known in the next
            self._evaluate = Evaluator(self._network, simulator.batch, cached=self._config.cached)
        search = TreeSearch(simulator, self._evaluate, self._config, unit=self._learner.unit)
        noise = None if deterministic else self._temperature * self._noise.gumbel(size=len(position.columns))
        return self._episode.take(search([position], [noise])[0].action)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes networks, optimiser, counters and the games that are still learned from, atomically, to an npz file of
        exactly this name."""
        self._restore_games()
        learner = {_OF_LEARNER + name: array for name, array in self._learner.state().items()}
        games = [game for each in self._window for game in each]
        packed = stored(games, self._side.packer) if games else {}
        write_arrays(
            path,
            {
                "format_version": np.array(FORMAT_VERSION),
                "best_return": np.array(self._best),
                "iterations": np.array([len(each) for each in self._window]),
                **learner,
                **{_GAMES + name: array for name, array in packed.items()},
            },
        )

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restores what `save` wrote. A controller that only plays needs no games; they can be of another graph.

        Raises:
          StoredControllerError: the controller was trained for another graph, rule set or configuration, or the file
            has another format or cannot be read.
        """
        state = read(path, FORMAT_VERSION)
        self._learner.restore(_part(state, _OF_LEARNER))
        self._window, self._stored = [], state
        self._best, self._evaluate = float(state["best_return"]), None

    def _restore_games(self) -> None:
        """Restores the games of a file, on the graph that they were played on."""
        if self._stored is None:
            return
        state, self._stored = self._stored, None
        games = iter(restored(_part(state, _GAMES), self._side.packer) if state["iterations"].sum() else [])
        self._window = [[next(games) for _ in range(count)] for count in state["iterations"]]


def _part(state: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def _game_metrics(games: Sequence[Game]) -> dict[str, float]:
    returns = [game.best_return for game in games]
    length = float(np.mean([len(game) for game in games]))
    return {"return": float(np.mean(returns)), "best_return": max(returns), "length": length}


def _fold(seed: int, iteration: int) -> int:
    """Returns a seed of its own for every iteration: a non-negative int32."""
    return int(np.random.SeedSequence([seed, iteration]).generate_state(1)[0] >> 1)
