from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy.baselines import COPY_LAST, MEAN, PER_RULE, PER_SITE, ZERO, Trivial
from worldmodel.accuracy.figures import Figure
from worldmodel.accuracy.latents import fit_intervals, latent_figures, read_figures, uncertainty_figures
from worldmodel.accuracy.open_loop import OpenLoop, cut_windows, open_loop
from worldmodel.accuracy.probes import Probes
from worldmodel.accuracy.rewards_and_masks import mask_figures, reward_figures, terminal_figures, total_figures
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.world_model import WorldModel

Split = tuple[EpisodeBuffer, EpisodeBuffer]


@pytest.fixture(scope="module")
def played(world_model: WorldModel, split: Split) -> OpenLoop:
    return open_loop(world_model, split[1], steps=5, stride=2)


@pytest.fixture(scope="module")
def trivial(world_model: WorldModel, split: Split) -> Trivial:
    return Trivial.of(split[0], world_model)


@pytest.fixture(scope="module")
def probes(world_model: WorldModel, split: Split) -> Probes:
    return Probes.of(world_model, split[0])


def by_name(figures: Iterable[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def all_figures(played: OpenLoop, trivial: Trivial, world_model: WorldModel, step: int) -> dict[str, Figure]:
    rules = world_model.table.rules[:-1]
    parts = [
        reward_figures(played, trivial, resamples=0),
        total_figures(played, trivial, step, resamples=0),
        mask_figures(played, trivial, rules, step, resamples=0),
        terminal_figures(played, step, resamples=0),
        latent_figures(played, trivial, step, resamples=0),
    ]
    return by_name(figure for part in parts for figure in part)


PERFECT_IS_ZERO = {
    names.REWARD_ERROR,
    names.TOTAL_ERROR,
    names.TOTAL_RELATIVE,
    names.MASK_ERROR,
    names.LATENT_ERROR,
}


def test_a_perfect_prediction_scores_perfectly(played: OpenLoop, trivial: Trivial, world_model: WorldModel) -> None:
    real = played.real
    perfect = OpenLoop(real, real.trajectory)
    figures = all_figures(perfect, trivial, world_model, 5)
    assert len(figures) == 16
    for name, figure in figures.items():
        assert figure.model.value == pytest.approx(0.0 if name in PERFECT_IS_ZERO else 1.0, abs=1e-9), name
        assert figure.windows == len(real.episode)


def test_what_copies_scores_as_copying(played: OpenLoop, trivial: Trivial, world_model: WorldModel) -> None:
    """A model that predicts the same as a trivial predictor gets the figures of that predictor."""
    real = played.real.trajectory
    copying = real._replace(
        state=np.broadcast_to(real.state[:1], real.state.shape),
        legal=np.broadcast_to(real.legal[:1], real.legal.shape),
        reward=np.broadcast_to(played.real.last_reward, real.reward.shape),
        terminal=played.dreamed.terminal,
    )
    copied = OpenLoop(played.real, copying)
    figures = all_figures(copied, trivial, world_model, 3)
    assert figures[names.LATENT_ERROR].model.value == figures[names.MASK_ERROR].model.value == 1.0
    for figure in figures.values():
        if COPY_LAST in figure.trivial:
            assert figure.model.value == pytest.approx(figure.trivial[COPY_LAST], nan_ok=True)


@pytest.mark.parametrize("predictor", [MEAN, ZERO, PER_RULE, PER_SITE])
def test_tables_score_as_what_they_say(
    predictor: str, played: OpenLoop, trivial: Trivial, world_model: WorldModel, split: Split
) -> None:
    training, table = split[0], world_model.table
    taken = [(*pair, reward) for e in training for pair, reward in zip(e.actions.tolist(), e.rewards, strict=True)]
    said = np.zeros(table.num_actions)
    for index, (rule, _) in enumerate(table.decode(np.arange(table.num_actions)).tolist()):
        alike = [r for at, _, r in taken if at == rule] if predictor == PER_RULE else [r for *_, r in taken]
        said[index] = 0.0 if predictor == ZERO else np.mean(alike)
    if predictor == PER_SITE:
        said = trivial.per_site
    predicted = played._replace(dreamed=played.dreamed._replace(reward=said[played.real.trajectory.action]))
    figures = by_name(total_figures(predicted, trivial, 4, resamples=0))
    for name in (names.TOTAL_ERROR, names.TOTAL_R2):
        assert figures[name].model.value == pytest.approx(figures[name].trivial[predictor], rel=1e-4)
    assert (predictor in figures[names.TOTAL_RANKS].trivial) == (predictor in (PER_RULE, PER_SITE))


def test_the_usual_mask_is_what_bits_mostly_are(trivial: Trivial, world_model: WorldModel, split: Split) -> None:
    masks = [world_model.table.mask(e.legal_actions(t))[:-1] for e in split[0] for t in range(e.num_steps + 1)]
    np.testing.assert_array_equal(trivial.usual_mask, np.mean(masks, axis=0) > 0.5)
    assert trivial.usual_mask.any() and not trivial.usual_mask.all()


def test_intervals_hold_their_value_and_shrink_with_more_episodes(played: OpenLoop, trivial: Trivial) -> None:
    few = np.flatnonzero(played.real.episode < 8)
    dreamed = played.dreamed._replace(reward=played.dreamed.reward[:, few])
    smaller = OpenLoop(played.real.rows(few), dreamed)
    widths = []
    for each in (played, smaller):
        estimate = by_name(total_figures(each, trivial, 5))[names.TOTAL_ERROR].model
        assert estimate.low <= estimate.value <= estimate.high
        widths.append(estimate.high - estimate.low)
    assert 0 < widths[0] < widths[1]


def test_held_out_rewards_are_learned(world_model: WorldModel, split: Split, trivial: Trivial) -> None:
    ones = open_loop(world_model, split[1], steps=1, stride=1)
    figures = by_name(reward_figures(ones, trivial, resamples=0))
    error = figures[names.REWARD_ERROR]
    assert figures[names.REWARD_RANKS].model.value > 0.95
    assert error.model.value < 0.4 * min(error.trivial.values())


def test_held_out_masks_and_latents_are_learned_open_loop(
    played: OpenLoop, trivial: Trivial, world_model: WorldModel
) -> None:
    for step in (1, 3, 5):
        figures = all_figures(played, trivial, world_model, step)
        assert figures[names.CHANGE_F1].model.value > 0.85
        assert figures[names.MASK_ERROR].model.value < 0.35
        assert figures[names.LATENT_ERROR].model.value < 0.4
        assert figures[names.TOTAL_R2].model.value > 0.95
        assert figures[names.COUNTS_PER_RULE].model.value > 0.7


def test_ends_are_foreseen(world_model: WorldModel, split: Split) -> None:
    ones = open_loop(world_model, split[1], steps=1, stride=1)
    figures = by_name(terminal_figures(ones, 1, resamples=0))
    assert figures[names.TERMINAL_PRECISION].model.value > 0.8
    assert figures[names.TERMINAL_RECALL].model.value > 0.8
    never = np.zeros_like(ones.dreamed.terminal)
    real = ones.real._replace(trajectory=ones.real.trajectory._replace(terminal=never))
    assert terminal_figures(OpenLoop(real, ones.dreamed._replace(terminal=never)), 1) == []


def test_frozen_heads_read_predicted_latents(played: OpenLoop, trivial: Trivial, probes: Probes, split: Split) -> None:
    """The heads read nearly as well as from real latents, and better than from the latent that was seen last."""
    figures = by_name(read_figures(played, trivial, probes, split[1], 5, resamples=0))
    cost, at_best = figures[names.READ_COST_R2], figures[names.READ_COST_R2 + names.OF_REAL_LATENTS]
    assert at_best.model.value > 0.9
    assert at_best.model.value - 0.1 < cost.model.value
    assert cost.trivial[COPY_LAST] < 0.5 and cost.trivial[MEAN] < 0.1
    read, at_best = figures[names.READ_MASK_ERROR], figures[names.READ_MASK_ERROR + names.OF_REAL_LATENTS]
    assert at_best.model.value < 0.5 and read.model.value < 0.6
    coded = figures[names.READ_MASK_ERROR + names.OF_COMPONENTS]
    assert 0.0 < coded.model.value < at_best.model.value and coded.trivial[COPY_LAST] == 1.0
    counts, at_best = figures[names.READ_COUNTS], figures[names.READ_COUNTS + names.OF_REAL_LATENTS]
    lost, added = at_best.model.value - counts.model.value, at_best.model.value - counts.trivial[COPY_LAST]
    assert abs(lost) < 0.25 * added


def test_the_mean_is_that_of_the_training_data(
    played: OpenLoop, trivial: Trivial, probes: Probes, split: Split, world_model: WorldModel
) -> None:
    """This holds for latents and for the costs that are read from them."""
    latents = world_model.encode(split[0].used_graphs())
    visited = np.stack([latents[state] for episode in split[0] for state in episode.hashes])
    np.testing.assert_allclose(trivial.mean_latent, visited.mean(axis=0), atol=1e-5)
    np.testing.assert_array_equal(trivial.latents(played.real)[MEAN][3], trivial.mean_latent)
    costs = [100 * np.log(episode.cost_ms / episode.cost_ms[0]) for episode in split[0]]
    assert probes.read_cost(trivial.mean_latent[np.newaxis])[0] == pytest.approx(np.concatenate(costs).mean(), abs=1e-2)


def test_real_latents_are_read_alike_however_they_come(
    played: OpenLoop, trivial: Trivial, probes: Probes, split: Split
) -> None:
    real = played._replace(dreamed=played.dreamed._replace(state=played.real.trajectory.state))
    figures = by_name(read_figures(real, trivial, probes, split[1], 3, resamples=0))
    for name, figure in figures.items():
        if not name.endswith((names.OF_REAL_LATENTS, names.OF_COMPONENTS)):
            assert figure.model.value == figures[name + names.OF_REAL_LATENTS].model.value


def test_one_scale_makes_intervals_cover_what_they_say(world_model: WorldModel, split: Split) -> None:
    """The scale is fitted on some episodes and judged on others; the tolerance is wide because these are few."""
    validation, judged = split[1].split(0.5, seed=0)
    cut = [cut_windows(world_model, part, steps=1, stride=1) for part in (validation, judged)]
    scale = fit_intervals(world_model, cut[0])
    figures = by_name(uncertainty_figures(world_model, cut[1], scale, resamples=0))
    for level, name in names.COVERAGE.items():
        assert figures[name].model.value == pytest.approx(level, abs=0.12)
    assert 0.0 <= figures[names.AT_FLOOR].model.value <= 1.0


def test_intervals_that_are_fitted_elsewhere_stand_beside_those_fitted_here(
    world_model: WorldModel, split: Split
) -> None:
    windows = cut_windows(world_model, split[1], steps=1, stride=1)
    figures = by_name(uncertainty_figures(world_model, windows, 0.01, resamples=0))
    for level, name in names.COVERAGE.items():
        assert figures[name].model.value < level - 0.15, "at a hundredth of the scales"
        assert figures[name + names.FITTED_HERE].model.value == pytest.approx(level, abs=0.12)
    one = windows._replace(episode=np.zeros_like(windows.episode))
    figures = by_name(uncertainty_figures(world_model, one, 0.01, resamples=0))
    assert figures[names.COVERAGE[0.5]].model.value == figures[names.COVERAGE[0.5] + names.FITTED_HERE].model.value


def test_no_figure_is_made_of_nothing(played: OpenLoop, trivial: Trivial) -> None:
    """If all real totals are equal, they have neither an order nor a spread."""
    ones = np.ones_like(played.dreamed.reward)
    flat = played._replace(real=played.real._replace(trajectory=played.real.trajectory._replace(reward=ones)))
    figures = by_name(total_figures(flat, trivial, 2))
    assert all(math.isnan(figures[name].model.value) for name in (names.TOTAL_R2, names.TOTAL_RELATIVE))
    assert not math.isnan(figures[names.TOTAL_ERROR].model.value)
