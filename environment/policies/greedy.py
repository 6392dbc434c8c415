"""Greedy play with some randomness; its episodes are nearer to those of a trained controller than random ones are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

_SAME_PERCENT = 1e-7
"""Gains closer than this are equal: rounding must not decide between two equal rewrites."""


class ForeseeingEnv(Protocol):
    """The part of `GraphSubstitutionEnv` that looking ahead needs."""

    @property
    def num_rules(self) -> int: ...
    @property
    def state(self) -> Any:
        """The engine's state; `state.cost.ms` can be compared with the costs of `candidates`."""
        ...

    def candidates(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """Returns (rule [C], location [C], cost_ms [C]) of all legal rewrites."""
        ...


class GreedyAgent:
    """An agent that takes the rewrite with the largest gain one step ahead, and sometimes wanders.

        agent = GreedyAgent(env)
        action = agent(observation)                  # its own random stream, or
        action = agent(observation, generator)       # a stream of the caller's

    The observation must be that of the state that `env` is in. Equally good rewrites are equally likely.

    If no rewrite gains, the agent wanders until one gains again: it takes a rewrite with a probability proportional to
    exp(gain / temperature), both in percent of the cost. Episodes therefore stay deep and around good graphs, as those
    of controllers do. If all rewrites gain a little (BERT-Base: 400 rewrites of 0.2 to 1 % each), an agent that always
    took the best one would play equal episodes except for ties; a share of the steps therefore wanders anyway.
    Wandering is not uniform, because on SqueezeNet1.1 some rewrites make the graph 30 % dearer.
    """

    def __init__(
        self, env: ForeseeingEnv, seed: int = 0, *, randomness: float = 0.2, temperature_percent: float = 1.0
    ) -> None:
        """
        Args:
          env: the environment that predicts the costs of rewrites.
          seed: seed of the agent's own random stream.
          randomness: share of the steps in which the agent wanders although a rewrite gains, in [0, 1].
          temperature_percent: loss of gain that makes a rewrite e times less likely when the agent wanders; positive.
        Raises:
          ValueError: an argument is out of its range.
        """
        if not 0.0 <= randomness <= 1.0 or temperature_percent <= 0.0:
            raise ValueError(
                f"randomness must lie in [0, 1] and temperature_percent be positive, got {randomness} and "
                f"{temperature_percent}"
            )
        self._env, self._randomness, self._temperature = env, randomness, temperature_percent
        self._generator = np.random.default_rng(seed)

    def __call__(self, observation: Mapping[str, Any], rng: np.random.Generator | None = None) -> npt.NDArray[np.int64]:
        """Returns the action [rule, location]; NO-OP only if nothing else is legal."""
        generator = self._generator if rng is None else rng
        rules, locations, costs_ms = self._env.candidates()
        if not len(rules):
            return np.array([self._env.num_rules, 0], np.int64)
        gains = 100.0 * np.log(self._env.state.cost.ms / costs_ms)
        chosen = generator.choice(len(rules), p=self._probabilities(gains, generator))
        return np.array([rules[chosen], locations[chosen]], np.int64)

    def _probabilities(self, gains: npt.NDArray[np.float64], generator: np.random.Generator) -> npt.NDArray[np.float64]:
        """Returns the probabilities of rewrites from their gains in percent."""
        best = gains.max()
        if best > _SAME_PERCENT and generator.random() >= self._randomness:
            weights = (gains >= best - _SAME_PERCENT).astype(float)
        else:
            return softmax(gains, self._temperature)
        probabilities: npt.NDArray[np.float64] = weights / weights.sum()
        return probabilities


def softmax(gains: npt.NDArray[np.float64], temperature: float) -> npt.NDArray[np.float64]:
    """Returns probabilities proportional to exp(gain / temperature)."""
    weights = np.exp((gains - gains.max()) / temperature)
    probabilities: npt.NDArray[np.float64] = weights / weights.sum()
    return probabilities
