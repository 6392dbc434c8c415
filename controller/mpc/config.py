"""Settings of `mpc`. This module imports no TensorFlow."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class MpcConfig:
    """How hard `mpc` plans.

    Attributes:
      plans: number of plans that are drawn in each iteration.
      elites: number of the best plans that the distribution over plans is fitted to.
      iterations: how often plans are drawn and the distribution is fitted.
      horizon: largest number of rewrites in a plan.
      replan: number of steps of a plan that are taken before the next plan is made; 1: a plan at every step.
    """

    plans: int = 256
    elites: int = 16
    iterations: int = 8
    horizon: int = 20
    replan: int = 4

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise ValueError(f"mpc: {name} is {value}; it counts something and must be at least 1.")
        if self.elites > self.plans:
            raise ValueError(f"mpc: {self.elites} elites cannot be chosen from {self.plans} plans; draw more plans.")
        if self.replan > self.horizon:
            raise ValueError(
                f"mpc: replan is {self.replan}, but plans end after {self.horizon} steps (horizon); replan earlier."
            )
