"""How well a dream's returns agree with reality at other temperatures than 0."""

from __future__ import annotations

from collections.abc import Sequence

from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy import metrics
from worldmodel.accuracy.figures import MODEL, RESAMPLES, Figure, FigureMaker
from worldmodel.accuracy.open_loop import Windows, play
from worldmodel.world_model import WorldModel

TEMPERATURES = (0.5, 1.0, 1.5, 2.0)
"""The papers dream of 0.1 to 3.0 (X-RLflow's Table III); what is drawn there moves away from the most likely mean."""


def temperature_figures(
    world_model: WorldModel,
    windows: Windows,
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Figure]:
    """Of the sum of a window's rewards along its own actions, dreamed at each of some τ; `total_figures` is of τ = 0.

    Args:
      windows: of two steps or more: τ says how a latent is drawn, and the first reward does not depend on it.
      temperatures: τ > 0.
      seed: of what is drawn, one dream a window.
    Raises:
      ValueError: the windows are of one step.
    """
    if windows.steps < 2:
        raise ValueError(f"expected windows of two steps or more, got {windows.steps}: one reward is the same at all τ")
    make = FigureMaker(windows.episode, windows.steps, resamples).make
    real = windows.trajectory.reward.sum(axis=0)
    figures = []
    for temperature in temperatures:
        dreamed = play(world_model, windows, temperature=temperature, seed=seed).dreamed.reward.sum(axis=0)
        for name, statistic in (
            (names.TOTAL_R2, metrics.determination),
            (names.TOTAL_RELATIVE, metrics.relative_absolute_error),
        ):
            figures.append(make(names.at_temperature(name, temperature), statistic, {MODEL: (dreamed, real)}))
    return figures
