"""Settings of `mcts`, with their sources. This module imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any

FORMAT_VERSION = 1
"""Version of stored `mcts` controllers; it increases whenever the state of the learner changes its meaning."""


@dataclasses.dataclass(frozen=True)
class MctsConfig:
    """The settings of a tree search and of the training of its prior and value.

    Attributes:
      simulations: number of simulations before each move, n in the paper; each adds at most one state to the tree.
      considered: largest number of actions of the root that simulations are spent on, m in the paper. Sequential
        halving gives more of them to the actions that look better. 16 in Danihelka et al. 2022.
      c_visit, c_scale: σ(q) = (c_visit + largest number of visits) · c_scale · q turns values into logits; q is in
        units of the root mean square of the returns. 50 and 0.1 in Danihelka et al. 2022 for games of one player.
      step_cost: deducted for every rewrite, in the reward's unit (percent), so that of two ways to a graph the shorter
        one is better, and an episode ends when nothing is left to gain. It is no part of reported returns.
      revisit: whether the search may come back to an earlier state of the episode. If rewards telescope, a loop of
        rewrites earns nothing, and many rewrites have another one that undoes them. False: such actions are removed as
        soon as they are met.
      iterations: number of times that games are played and then learned from.
      games: number of games in each iteration. They are played side by side, so that the networks see large batches.
      warm_up: number of games that the first iteration draws from the prior instead, without a search. They show the
        values how much there is to earn, and give them their unit. 0: the first iteration is like the others.
      horizon: largest number of moves of a game; None: the environment's, or in a dream as many as the world model
        knows.
      window: number of the latest iterations whose games are learned from.
      gradient_steps, batch: number of gradient steps in each iteration, and of states in each.
      value_weight: weight of the squared value error in the loss, beside the policy's cross-entropy.
      learning_rate, last_learning_rate: of Adam in the first and in the last iteration; it falls quadratically.
      gradient_norm: bound on the global norm of the gradient.
      cached: number of evaluated states that are remembered until the weights change; 1 to 2 kB each.
    """

    simulations: int = 32
    considered: int = 16
    c_visit: float = 50.0
    c_scale: float = 0.1
    step_cost: float = 0.01
    revisit: bool = False
    iterations: int = 12
    games: int = 16
    warm_up: int = 64
    horizon: int | None = None
    window: int = 3
    gradient_steps: int = 40
    batch: int = 64
    value_weight: float = 0.5
    learning_rate: float = 3e-3
    last_learning_rate: float = 3e-4
    gradient_norm: float = 1.0
    cached: int = 100_000

    @property
    def episodes(self) -> int:
        """The number of games of all iterations."""
        return sum(self.at(iteration).games for iteration in range(self.iterations))

    def warms_up(self, iteration: int) -> bool:
        """Whether an iteration is the warm-up."""
        return iteration == 0 and self.warm_up > 0

    def at(self, iteration: int) -> MctsConfig:
        """Returns the settings of an iteration; in the warm-up, the search only follows prior and noise."""
        if not self.warms_up(iteration):
            return self
        return dataclasses.replace(self, games=self.warm_up, simulations=1, considered=1, c_scale=0.0)

    def __post_init__(self) -> None:
        counts = ("simulations", "considered", "iterations", "games", "window", "gradient_steps", "batch", "cached")
        for name in counts:
            _require(self, name, 1)
        _require(self, "warm_up", 0)
        if self.horizon is not None:
            _require(self, "horizon", 1)
        for name in ("c_visit", "c_scale", "step_cost", "value_weight", "learning_rate", "last_learning_rate"):
            _require(self, name, 0)
        if not self.gradient_norm > 0:
            raise ValueError(f"mcts: gradient_norm is {self.gradient_norm}, but it must be above 0.")


def _require(config: Any, name: str, low: float) -> None:
    value = getattr(config, name)
    if not value >= low:
        raise ValueError(f"mcts: {name} is {value}, but it must be at least {low:g}.")
