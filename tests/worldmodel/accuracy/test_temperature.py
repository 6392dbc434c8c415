from __future__ import annotations

import numpy as np
import pytest

from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy import metrics
from worldmodel.accuracy.open_loop import Windows, cut_windows, play, temperature_figures
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.world_model import WorldModel

TAUS = (0.01, 1.0, 100.0)


@pytest.fixture(scope="module")
def windows(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> Windows:
    return cut_windows(world_model, split[1], steps=5, stride=2)


def test_each_temperature_is_judged_on_the_same_actions(world_model: WorldModel, windows: Windows) -> None:
    figures = temperature_figures(world_model, windows, temperatures=TAUS, resamples=0)
    expected = [names.at_temperature(name, tau) for tau in TAUS for name in (names.TOTAL_R2, names.TOTAL_RELATIVE)]
    assert [figure.name for figure in figures] == expected
    assert {(figure.step, figure.windows) for figure in figures} == {(5, len(windows.episode))}
    dreamed = play(world_model, windows, temperature=1.0).dreamed.reward.sum(axis=0)
    assert figures[2].model.value == metrics.determination(dreamed, windows.trajectory.reward.sum(axis=0))


def test_little_noise_dreams_as_none_and_much_of_it_of_nothing_real(world_model: WorldModel, windows: Windows) -> None:
    figures = temperature_figures(world_model, windows, temperatures=TAUS, resamples=0)
    errors = [figure.model.value for figure in figures if figure.name.startswith(names.TOTAL_RELATIVE)]
    certain = play(world_model, windows).dreamed.reward.sum(axis=0)
    assert errors[0] == pytest.approx(
        metrics.relative_absolute_error(certain, windows.trajectory.reward.sum(axis=0)), rel=0.2, abs=0.02
    )
    assert errors[2] > 1.5 * errors[0]


def test_intervals_hold_their_value(world_model: WorldModel, windows: Windows) -> None:
    for figure in temperature_figures(world_model, windows, temperatures=(1.0,)):
        assert figure.model.low <= figure.model.value <= figure.model.high


def test_one_step_says_nothing_of_temperatures(
    world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    one = cut_windows(world_model, split[1], steps=1)
    with pytest.raises(ValueError, match="two steps or more, got 1"):
        temperature_figures(world_model, one)
    rewards = [play(world_model, one, temperature=tau).dreamed.reward for tau in (0.0, 3.0)]
    np.testing.assert_array_equal(*rewards)
