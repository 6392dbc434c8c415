"""Figures of accuracy: a number with its interval, beside the numbers of the trivial predictors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from environment.statistics.intervals import Estimate, bootstrap

Columns = Sequence[np.ndarray]
MODEL = "model"
RESAMPLES = 200


@dataclass(frozen=True)
class Figure:
    """One figure of predictions some steps after real states.

    Attributes:
      name: a name from `worldmodel.accuracy.figure_names`.
      step: how many steps were predicted without a look at reality.
      model: the number of the world model, with its 95 % interval over episodes.
      trivial: the numbers of the trivial predictors that have such a figure (see `worldmodel.accuracy.baselines`).
      windows: how many predictions the figure is made of.
    """

    name: str
    step: int
    model: Estimate
    trivial: Mapping[str, float] = field(default_factory=dict)
    windows: int = 0


@dataclass(frozen=True)
class FigureMaker:
    """A maker of figures for one set of windows after one number of steps.

    Attributes:
      episodes: int [n], the episode that each window comes from.
      step: see `Figure`.
      resamples: bootstrap resamples of each interval; 0 leaves the intervals out.
    """

    episodes: np.ndarray
    step: int
    resamples: int = RESAMPLES

    def make(self, name: str, statistic: Callable[..., float], columns: Mapping[str, Columns]) -> Figure:
        """Returns a figure: one statistic of the predictions of the model and of each trivial predictor.

        Args:
          statistic: a function of a predictor's columns.
          columns: the columns of each predictor, `MODEL` among them; each column has one row for each window.
        """
        own = columns[MODEL]
        if self.resamples:
            estimate = bootstrap(statistic, own, groups=self.episodes, resamples=self.resamples)
        else:
            estimate = Estimate.without_interval(float(statistic(*own)))
        trivial = {key: float(statistic(*others)) for key, others in columns.items() if key != MODEL}
        return Figure(name, self.step, estimate, trivial, len(self.episodes))
