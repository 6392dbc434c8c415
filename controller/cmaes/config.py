"""Settings of `cmaes`. This module imports no TensorFlow."""

from __future__ import annotations

import dataclasses

FORMAT_VERSION = 1
"""Version of stored controllers; it increases whenever their arrays change their meaning."""


@dataclasses.dataclass(frozen=True)
class CmaesConfig:
    """The settings of a training run of `cmaes`.

    Attributes:
      generations: number of iterations of CMA-ES.
      population: number of controllers in each generation; 64 in Ha & Schmidhuber 2018.
      rollouts: number of dreams whose mean return is the fitness of a controller; 16 there, where worlds are random. A
        dream of rewrites hardly is.
      horizon: largest number of steps of a dream; none: as many as the world model knows.
      features: number of principal components of [z, h] that the controller reads.
      keys: number of principal components of the world model's embeddings of actions.
      sigma: initial standard deviation of every parameter.
    """

    generations: int = 100
    population: int = 64
    rollouts: int = 4
    horizon: int | None = None
    features: int = 16
    keys: int = 32
    sigma: float = 0.5

    def __post_init__(self) -> None:
        for name in ("generations", "rollouts", "horizon", "features", "keys"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"cmaes: {name} is {getattr(self, name)}; it counts something and must be at least 1.")
        if self.population < 4:
            raise ValueError(f"cmaes: a population of {self.population} cannot be ranked; use 4 or more.")
        if not self.sigma > 0:
            raise ValueError(f"cmaes: sigma is {self.sigma}, so that all controllers would be equal; use e.g. 0.5.")
