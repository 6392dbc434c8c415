"""`mpc`: cross-entropy planning in the world model, again and again while an episode is played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from controller.interface import Controller
from controller.mpc.config import MpcConfig
from worldmodel.config import DreamConfig
from worldmodel.dream.dream_env import DreamEnv, structure_of
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.planning import Origin, cross_entropy_planning
from worldmodel.dream.step import DreamState
from worldmodel.dream.structure import Structure
from worldmodel.world_model import WorldModel


class MpcController(Controller):
    """A planner with a receding horizon. It learns nothing but what its world model knows.

    Every `replan` steps it searches for the plan that the dream promises the most for, from the real state, and begins
    to carry it out. What is left of the last plan is one of the first plans that the next search tries. If no plan is
    promised a gain, it takes NO-OP.

    Source: Chua et al. 2018 (PETS: cross-entropy planning in a learned model, with a receding horizon).
    """

    name: ClassVar[str] = "mpc"
    stochastic: ClassVar[bool] = True
    worlds: ClassVar[tuple[str, ...]] = ("dream",)

    def __init__(
        self,
        make_dream: Callable[[DreamState, Structure | None], DreamEnv],
        config: MpcConfig | None = None,
        *,
        view: Callable[[Any], Any],
        seed: int = 0,
    ) -> None:
        """
        Args:
          make_dream: a function that makes the dream in which it plans, with a given start state, and with the
            structure of the view that this state is of.
          config: how hard it plans.
          view: a function that wraps the real environment as a `LatentEnv`.
          seed: the seed of the plans in deterministic episodes; in the others the seed of the episode decides.
        """
        self._make_dream, self._view = make_dream, view
        self._config, self._seed = config or MpcConfig(), seed
        self._dream: DreamEnv | None = None
        self._episode: _Episode | None = None

    @classmethod
    def build(
        cls,
        world_model: WorldModel,
        config: MpcConfig | None = None,
        *,
        dream: DreamConfig | None = None,
        seed: int = 0,
    ) -> MpcController:
        """Builds a controller that plans in dreams of `world_model`, which is bound to one start graph.

        Args:
          dream: the settings of these dreams, in which nothing is drawn.
        """
        settings = (dream or DreamConfig()).certain()

        def make_dream(state: DreamState, structure: Structure | None) -> DreamEnv:
            return DreamEnv.of_state(world_model, state, settings, structure)

        def view(env: Any) -> LatentEnv:
            return LatentEnv(env, world_model, structure_of(world_model, env, settings))

        return cls(make_dream, config, view=view, seed=seed)

    def view(self, env: Any) -> Any:
        return self._view(env)

    def begin_episode(self, view: Any, *, seed: int) -> None:
        if self._dream is None or self._dream.structure is not view.structure:
            self._dream = self._make_dream(view.state, view.structure)
        self._episode = _Episode(view, self._dream, self._config, seed)

    def act(self, observation: Any, *, deterministic: bool) -> int:
        if self._episode is None:
            raise ValueError("mpc plans from a state of an episode: call begin_episode(view, seed=…) first.")
        return self._episode.act(self._seed if deterministic else None)


class _Episode:
    """The plan of one episode, and what has happened before."""

    def __init__(self, view: Any, dream: DreamEnv, config: MpcConfig, seed: int) -> None:
        self._view, self._dream, self._config, self._seed = view, dream, config, seed
        self._masks: list[np.ndarray] = []
        self._totals = [0.0]  # what the dream has promised for the steps so far
        self._plan: list[tuple[int, float]] = []  # the actions that are left of the plan, and their rewards
        self._left = 0  # steps until the next plan

    def act(self, seed: int | None) -> int:
        """Returns the next action; `seed` replaces that of the episode."""
        mask = self._view.state.action_mask.numpy()
        self._masks.append(mask[0])
        if self._left < 1 or not self._plan or not mask[0, self._plan[0][0]]:
            self._replan(self._seed if seed is None else seed)
        if not self._plan:
            return self._dream.num_actions
        action, reward = self._plan.pop(0)
        self._left -= 1
        self._totals.append(self._totals[-1] + reward)
        return action

    def _replan(self, seed: int) -> None:
        config = self._config
        origin = Origin(self._view.state, np.stack(self._masks), np.array(self._totals))
        plan = cross_entropy_planning(
            self._dream,
            depth=config.horizon,
            population=config.plans,
            elites=config.elites,
            iterations=config.iterations,
            seed=int(np.random.default_rng([seed, len(self._masks)]).integers(2**31)),
            origin=origin,
            guess=[action for action, _ in self._plan],
            loops=False,
        )
        self._plan = list(zip(plan.actions, np.diff(plan.totals, prepend=0.0).tolist(), strict=True))
        self._left = config.replan
