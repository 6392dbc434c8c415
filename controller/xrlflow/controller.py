"""`xrlflow`: PPO over the graphs that one rewrite leads to, as X-RLflow, in the real environment."""

from __future__ import annotations

from typing import Any, ClassVar

from controller.ppo.controller import PpoController
from controller.xrlflow.config import XrlflowConfig
from controller.xrlflow.policy import CandidatePolicy
from worldmodel.data.trajectory import Trajectory


class XrlflowController(PpoController):
    """PPO with a graph-attention network that sees every candidate graph; the project's own learner trains it.

    The published code has no value at the last step of a buffer, lets advantages leak from an episode into the one
    before it, and takes a fixed number for NO-OP. This learner bootstraps, stops at the ends of episodes
    (`controller.ppo.learner.generalised_advantages`), and NO-OP is the present graph, number 0 of the candidates.

    Source: He et al. 2023, "X-RLflow: Graph Reinforcement Learning for Neural Network Subgraphs Transformation".
    """

    name: ClassVar[str] = "xrlflow"
    worlds: ClassVar[tuple[str, ...]] = ("real",)

    @classmethod
    def build(  # type: ignore[override]
        cls,
        *,
        env: Any,
        config: XrlflowConfig | None = None,
        seed: int = 0,
        sampling_temperature: float = 1.0,
    ) -> XrlflowController:
        """Builds a controller for `env`, to be trained in a `RealWorld` of such environments."""
        config = config or XrlflowConfig()
        policy = CandidatePolicy(env, config, seed=seed)
        return cls(policy, config, view=policy.view, seed=seed, sampling_temperature=sampling_temperature)

    def metrics_of(self, played: Trajectory) -> dict[str, float]:
        """Returns the figures of a rollout; among them `dropped`, the mean number of rewrites of a state that are no
        candidates because there was no place for them."""
        steps = played.alive.numpy().ravel()
        dropped = played.state.dropped.numpy()[: len(steps)]
        return super().metrics_of(played) | {"dropped": float(dropped[steps].mean())}
