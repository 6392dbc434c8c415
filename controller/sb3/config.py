"""Settings of `sb3`. This module imports neither PyTorch nor TensorFlow."""

from __future__ import annotations

import dataclasses

FORMAT_VERSION = 1
"""Version of stored controllers; it increases whenever their arrays change their meaning."""


@dataclasses.dataclass(frozen=True)
class Sb3Config:
    """The settings of sb3-contrib's MaskablePPO; those that are not here have its defaults.

    Attributes:
      updates: number of iterations, each a rollout and then learning.
      steps: number of real steps of each rollout.
      batch: number of steps of each minibatch.
      epochs: passes over a rollout.
      learning_rate: learning rate of Adam.
      discount, trace_decay: γ and λ of GAE, see `PpoConfig`.
      entropy: weight of the entropy bonus.
    """

    updates: int = 40
    steps: int = 512
    batch: int = 128
    epochs: int = 10
    learning_rate: float = 1e-3
    discount: float = 0.97
    trace_decay: float = 0.95
    entropy: float = 0.01

    def __post_init__(self) -> None:
        for name in ("updates", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"sb3: {name} is {getattr(self, name)}; it counts something and must be at least 1.")
        for name in ("steps", "batch"):
            if getattr(self, name) < 2:
                raise ValueError(f"sb3: {name} is {getattr(self, name)}; advantages are normalised over 2 or more.")
        if self.steps % self.batch:
            raise ValueError(f"sb3: {self.steps} steps are no multiple of {self.batch} steps a minibatch (batch).")
        for name in ("discount", "trace_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"sb3: {name} is {getattr(self, name)}, outside [0, 1].")
