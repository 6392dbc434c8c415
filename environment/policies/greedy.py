"""Greedy play with some chance in it: episodes nearer to what a trained controller visits than random ones are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

_SAME_PERCENT = 1e-7
"""Gains closer than this are equal: rounding must not decide between two like rewrites."""


class ForeseeingEnv(Protocol):
    """What looking ahead asks of an environment; `GraphSubstitutionEnv` has it."""

    @property
    def num_rules(self) -> int: ...
    @property
    def state(self) -> Any:
        """The engine's state; `state.cost.ms` is comparable with what `candidates` foretells."""
        ...

    def candidates(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """(rule [C], location [C], cost_ms [C]) of every legal rewrite."""
        ...


class GreedyAgent:
    """Takes the rewrite that gains most, one step ahead; where none gains, and now and then, one of the less dear.

        agent = GreedyAgent(env)
        action = agent(observation)                  # its own random stream, or
        action = agent(observation, generator)       # a stream of the caller's

    It must be asked about the state that `env` is in. Equally good rewrites are equally likely. Episodes do not end
    where nothing gains: from there it wanders, a rewrite with probability proportional to exp(gain / temperature), both
    in percent of the cost, until something gains again. So episodes stay deep, and stay around good graphs, as
    controllers do. Where everything gains a little (BERT-Base: 400 rewrites, 0.2 to 1 % each), choosing always the best
    makes all episodes one but for ties, hence the share of steps that wander anyway. Wandering uniformly instead would
    not do: on SqueezeNet1.1 some rewrites make the graph 30 % dearer, and nobody who looks ahead takes those.
    """

    def __init__(
        self, env: ForeseeingEnv, seed: int = 0, *, randomness: float = 0.2, temperature_percent: float = 1.0
    ) -> None:
        """
        Args:
          env: what looks ahead.
          seed: of its own random stream.
          randomness: share of steps that wander although something gains.
          temperature_percent: a rewrite that gains this much less is e times less likely when it wanders.
        Raises:
          ValueError: if they are not in [0, 1] and positive.
        """
        if not 0.0 <= randomness <= 1.0 or temperature_percent <= 0.0:
            raise ValueError(
                f"randomness must lie in [0, 1] and temperature_percent be positive, got {randomness} and "
                f"{temperature_percent}"
            )
        self._env, self._randomness, self._temperature = env, randomness, temperature_percent
        self._generator = np.random.default_rng(seed)

    def __call__(self, observation: Mapping[str, Any], rng: np.random.Generator | None = None) -> npt.NDArray[np.int64]:
        """The action [rule, location]; NO-OP only where nothing else is legal."""
        generator = self._generator if rng is None else rng
        rules, locations, costs_ms = self._env.candidates()
        if not len(rules):
            return np.array([self._env.num_rules, 0], np.int64)
        gains = 100.0 * np.log(self._env.state.cost.ms / costs_ms)
        chosen = generator.choice(len(rules), p=self._probabilities(gains, generator))
        return np.array([rules[chosen], locations[chosen]], np.int64)

    def _probabilities(self, gains: npt.NDArray[np.float64], generator: np.random.Generator) -> npt.NDArray[np.float64]:
        """Of rewrites that gain this many percent."""
        best = gains.max()
        if best > _SAME_PERCENT and generator.random() >= self._randomness:
            weights = (gains >= best - _SAME_PERCENT).astype(float)
        else:
            weights = np.exp((gains - best) / self._temperature)
        probabilities: npt.NDArray[np.float64] = weights / weights.sum()
        return probabilities
