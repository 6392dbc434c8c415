"""`RealWorld`: the real environment for model-free training. It imports no TensorFlow before its first rollout.

PyTorch and TensorFlow cannot be loaded by one process, and a controller may be built on the one or on the other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from controller.evaluation import repriced
from controller.records import EpisodeRecord, best_record
from worldmodel.data.trajectory import Trajectory

if TYPE_CHECKING:
    from controller.worlds.lockstep import Lockstep


class RealWorld:
    """Environments that play in lockstep, so that the policy sees them as one batch.

        world = RealWorld(lambda: GraphSubstitutionEnv(model, max_steps=50))
        trajectory = world.rollout(policy, batch=16, horizon=50, seed=update)

    Attributes:
      best: the episode of all rollouts with the largest improvement, of kind "training"; None before the first.
    """

    def __init__(self, make_env: Callable[[], Any], best: EpisodeRecord | None = None) -> None:
        """
        Args:
          make_env: a function that builds one more environment; it is called once for each row of the largest batch.
          best: the value of `best` when an interrupted training was saved.
        """
        self._make_env, self.best = make_env, best
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._new: list[float] = []  # improvements of the episodes since `figures` was last called
        self._lockstep: Lockstep | None = None

    def make_env(self) -> Any:
        """Returns one more environment."""
        env = self._make_env()
        self._made.add(env)
        return env

    def reprice(self) -> None:
        """Makes all environments, between their episodes, and `best` follow prices that have changed."""
        for env in self._made:
            env.reset(options={"graph": env.unwrapped.model})
        if self.best is not None:
            self.best = repriced(next(iter(self._made), None) or self.make_env(), self.best)

    def rollout(self, policy: Any, *, batch: int, horizon: int, seed: int) -> Trajectory:
        """Plays `batch` episodes from the initial graph for at most `horizon` steps.

        Args:
          policy: a `GraphPolicy`, or another one that sees what its `view` of an environment shows.
          batch, horizon: numbers of rows and of steps.
          seed: the seed of every random draw.
        """
        trajectory, played = self._in_lockstep().rollout(policy, batch=batch, horizon=horizon, seed=seed)
        self.note(played)
        return trajectory

    @property
    def longest(self) -> int:
        """Number of steps after which the environments truncate an episode."""
        return self._in_lockstep().longest

    def _in_lockstep(self) -> Lockstep:
        if self._lockstep is None:
            from controller.worlds.lockstep import Lockstep

            self._lockstep = Lockstep(self.make_env)
        return self._lockstep

    def note(self, played: Iterable[EpisodeRecord]) -> None:
        """Takes the best of some episodes into account in `best`; a controller that plays itself calls this."""
        played = list(played)
        self._new += [episode.improvement for episode in played]
        self.best = best_record([*([] if self.best is None else [self.best]), *played])

    def figures(self) -> dict[str, float]:
        """Returns improvements by the best graphs of episodes, whatever rewards are [%].

        Returns:
          `percent`, the mean of the episodes since the last call, and `best_percent`, that of `best`; empty if no
          episode was played since.
        """
        new, self._new = self._new, []
        if self.best is None or not new:
            return {}
        return {"percent": 100 * sum(new) / len(new), "best_percent": 100 * self.best.improvement}
