from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.worldmodel.toy_world import knowing_half
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy import metrics
from worldmodel.accuracy.baselines import COPY_LAST, Trivial
from worldmodel.accuracy.latents import next_latents
from worldmodel.accuracy.open_loop import (
    OpenLoop,
    Windows,
    cut_windows,
    find_windows,
    longest_open_loop,
    open_loop,
    play,
    temperature_figures,
)
from worldmodel.accuracy.rewards_and_masks import mask_figures
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.errors import NonFinitePrediction
from worldmodel.world_model import WorldModel

Split = tuple[EpisodeBuffer, EpisodeBuffer]


@pytest.fixture(scope="module")
def played(world_model: WorldModel, split: Split) -> OpenLoop:
    return open_loop(world_model, split[1], steps=4, first=1, stride=2)


def test_windows_are_stretches_of_real_episodes(played: OpenLoop, world_model: WorldModel, split: Split) -> None:
    table, windows, w = world_model.table, played.real, 0
    real = windows.trajectory
    for number, episode in enumerate(split[1]):
        usable = episode.num_steps - (episode.actions[-1, 0] == table.num_rules)
        for t in range(1, usable - 4 + 1, 2):
            np.testing.assert_array_equal(table.decode(real.action[:, w]), episode.actions[t : t + 4])
            np.testing.assert_array_equal(real.reward[:, w], episode.rewards[t : t + 4])
            np.testing.assert_array_equal(real.legal[3, w], table.mask(episode.legal_actions(t + 3)))
            assert (windows.episode[w], windows.depth[w], windows.last_reward[w]) == (number, t, episode.rewards[t - 1])
            nothing_left = [not len(episode.legal_actions(later)) for later in range(t + 1, t + 5)]
            assert real.terminal[:, w].tolist() == nothing_left
            w += 1
    assert real.action.shape == (4, w) and windows.steps == 4
    assert real.terminal.any(), "some episodes end with nothing left"


def test_prediction_starts_from_the_real_state(played: OpenLoop) -> None:
    np.testing.assert_array_equal(played.dreamed.state[0], played.real.trajectory.state[0])
    np.testing.assert_array_equal(played.dreamed.legal[0], played.real.trajectory.legal[0])


def test_nothing_was_seen_before_an_episode(world_model: WorldModel, split: Split) -> None:
    windows = cut_windows(world_model, split[1], steps=1, first=0, stride=100)
    assert len(windows.episode) == len(split[1])
    for zero in (windows.depth, windows.last_reward, windows.hidden, windows.cell):
        assert not zero.any()


def test_windows_start_in_no_state_seen_in_training(world_model: WorldModel, split: Split) -> None:
    """Windows may lead to states seen in training, because the model is not told of these states."""
    training, held_out = split
    seen = training.states()
    everything = cut_windows(world_model, held_out, steps=2, first=0, stride=1)
    unseen = cut_windows(world_model, held_out, steps=2, first=0, stride=1, seen=seen)
    expected = [
        (episode, depth)
        for episode, depth in zip(everything.episode.tolist(), everything.depth.tolist(), strict=True)
        if held_out[episode].hashes[depth] not in seen
    ]
    assert list(zip(unseen.episode.tolist(), unseen.depth.tolist(), strict=True)) == expected
    assert 0 < len(expected) < len(everything.episode)
    assert any(set(held_out[episode].hashes[depth : depth + 3]) & seen for episode, depth in expected)
    with pytest.raises(ValueError, match="from an unseen state at depth 0 on"):
        cut_windows(world_model, training, steps=1, seen=seen)


def test_windows_start_within_the_depths_that_are_asked_for(world_model: WorldModel, split: Split) -> None:
    found = find_windows(world_model, split[1], steps=1, first=2, last=4, stride=1)
    assert found is not None and set(found.depth) == {2, 3, 4}


def test_the_longest_length_with_enough_windows_is_taken(world_model: WorldModel, split: Split) -> None:
    lengths = [2, 500, 6]
    longest = longest_open_loop(world_model, split[1], lengths)
    assert longest is not None and longest.real.steps == 6
    enough = len(longest.real.episode) + 1
    shorter = longest_open_loop(world_model, split[1], lengths, at_least=enough)
    assert shorter is not None and shorter.real.steps == 2
    few = longest_open_loop(world_model, split[1], lengths, at_least=10**6)
    assert few is not None and few.real.steps == 2
    assert longest_open_loop(world_model, split[1], [500]) is None
    assert longest_open_loop(world_model, EpisodeBuffer(split[1].rule_names, split[1].graphs), [1]) is None


def test_windows_do_not_depend_on_how_many_are_played_at_once(
    played: OpenLoop, world_model: WorldModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixtures = next_latents(world_model, played.real)
    monkeypatch.setattr("worldmodel.accuracy.open_loop._AT_ONCE", 7)
    again = play(world_model, played.real)
    for one, other in zip(played.dreamed[:6], again.dreamed[:6], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    for one, other in zip(mixtures, next_latents(world_model, played.real), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_open_loop_follows_the_likeliest_mean(played: OpenLoop, world_model: WorldModel) -> None:
    mixtures = next_latents(world_model, played.real)
    rows = np.arange(len(mixtures.logits))
    np.testing.assert_allclose(
        played.dreamed.state[1], mixtures.means[rows, mixtures.logits.argmax(axis=-1)], atol=1e-4
    )


def test_what_the_table_does_not_hold_is_legal_and_missed(world_model: WorldModel, split: Split) -> None:
    """The bits that half of a table lacks are judged too; the model is told them in the first state only."""
    held_out, blinkered = split[1], knowing_half(world_model)
    judged = open_loop(blinkered, held_out, steps=1, stride=1)
    windows = judged.real
    assert len(windows.episode) and len(windows.unknown_rules) == windows.unknown.shape[-1] > 3
    legal, predicted = windows.legal(), judged.legal()
    for w, (number, depth) in enumerate(zip(windows.episode.tolist(), windows.depth.tolist(), strict=True)):
        for step in range(2):
            assert legal[step, w].sum() == len(held_out[number].legal_actions(depth + step))
    np.testing.assert_array_equal(predicted[0], legal[0])
    assert not predicted[1][:, blinkered.num_actions :].any() and legal[1][:, blinkered.num_actions :].any()
    trivial = Trivial.of(split[0], blinkered)
    figures = {
        figure.name: figure for figure in mask_figures(judged, trivial, blinkered.table.rules[:-1], 1, resamples=0)
    }
    wrong = (predicted[1] ^ legal[1]).sum() / (legal[0] ^ legal[1]).sum()
    assert figures[names.MASK_ERROR].model.value == pytest.approx(wrong)
    assert figures[names.MASK_ERROR].trivial[COPY_LAST] == 1.0
    recall = (predicted[1] ^ legal[0])[legal[0] ^ legal[1]].mean()
    assert figures[names.CHANGE_RECALL].model.value == pytest.approx(recall)


def test_some_windows_are_taken_each_as_often_as_it_is_named(played: OpenLoop) -> None:
    windows = played.real
    found = windows.rows([3, 3])
    for one, other in zip(tf.nest.flatten(found.trajectory), tf.nest.flatten(windows.trajectory), strict=True):
        np.testing.assert_array_equal(one, other[:, [3, 3]])
    np.testing.assert_array_equal(found.unknown, windows.unknown[:, [3, 3]])
    for name in ("last_reward", "hidden", "cell", "episode", "depth"):
        np.testing.assert_array_equal(getattr(found, name), getattr(windows, name)[[3, 3]])


def test_too_short_episodes_are_an_error(world_model: WorldModel, split: Split) -> None:
    with pytest.raises(ValueError, match="500 usable steps"):
        open_loop(world_model, split[1], steps=500)


def test_predictions_that_are_not_finite_stop_with_what_and_where(played: OpenLoop, world_model: WorldModel) -> None:
    """An average over the other windows would look like a result."""
    z, real = played.real.trajectory.state.copy(), played.real
    z[0, 3] = np.nan
    broken = real._replace(trajectory=real.trajectory._replace(state=z))
    place = f"the first from episode {real.episode[3]} at depth {real.depth[3]}"
    with pytest.raises(
        NonFinitePrediction, match=rf"the latent .* is NaN or infinite in 1 of \d+ windows, {place}: train"
    ):
        play(world_model, broken)
    with pytest.raises(NonFinitePrediction, match=rf"the mixture \(logits\) .* in 1 of \d+ windows, {place}"):
        next_latents(world_model, broken)


@pytest.mark.parametrize("logit", ["mask", "idle", "terminal"])
def test_logits_that_are_not_numbers_stop_too(logit: str, played: OpenLoop, world_model: WorldModel) -> None:
    """If such logits were read as bits, the bits would all be False."""
    (member,) = world_model.mdn_rnn.members
    weight = {
        "mask": member.mask._inertia,
        "idle": member.reward._outputs.b,
        "terminal": member.heads["terminal"]._logit.b,
    }[logit]
    before = tf.identity(weight)
    poisoned = {"mask": np.nan, "idle": [0.0, np.nan], "terminal": [np.nan]}
    weight.assign(poisoned[logit])
    try:
        with pytest.raises(NonFinitePrediction, match=r"the reward .* is NaN"):
            play(world_model, played.real)
    finally:
        weight.assign(before)


TAUS = (0.01, 1.0, 100.0)


@pytest.fixture(scope="module")
def five_steps(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> Windows:
    return cut_windows(world_model, split[1], steps=5, stride=2)


def test_each_temperature_is_judged_on_the_same_actions(world_model: WorldModel, five_steps: Windows) -> None:
    figures = temperature_figures(world_model, five_steps, temperatures=TAUS, resamples=0)
    expected = [names.at_temperature(name, tau) for tau in TAUS for name in (names.TOTAL_R2, names.TOTAL_RELATIVE)]
    assert [figure.name for figure in figures] == expected
    assert {(figure.step, figure.windows) for figure in figures} == {(5, len(five_steps.episode))}
    dreamed = play(world_model, five_steps, temperature=1.0).dreamed.reward.sum(axis=0)
    assert figures[2].model.value == metrics.determination(dreamed, five_steps.trajectory.reward.sum(axis=0))


def test_little_noise_dreams_as_none_and_much_of_it_of_nothing_real(
    world_model: WorldModel, five_steps: Windows
) -> None:
    figures = temperature_figures(world_model, five_steps, temperatures=TAUS, resamples=0)
    errors = [figure.model.value for figure in figures if figure.name.startswith(names.TOTAL_RELATIVE)]
    certain = play(world_model, five_steps).dreamed.reward.sum(axis=0)
    assert errors[0] == pytest.approx(
        metrics.relative_absolute_error(certain, five_steps.trajectory.reward.sum(axis=0)), rel=0.2, abs=0.02
    )
    assert errors[2] > 1.5 * errors[0]


def test_intervals_of_temperatures_hold_their_value(world_model: WorldModel, five_steps: Windows) -> None:
    for figure in temperature_figures(world_model, five_steps, temperatures=(1.0,)):
        assert figure.model.low <= figure.model.value <= figure.model.high


def test_one_step_says_nothing_of_temperatures(
    world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]
) -> None:
    one = cut_windows(world_model, split[1], steps=1)
    with pytest.raises(ValueError, match="two steps or more, got 1"):
        temperature_figures(world_model, one)
    rewards = [play(world_model, one, temperature=tau).dreamed.reward for tau in (0.0, 3.0)]
    np.testing.assert_array_equal(*rewards)
