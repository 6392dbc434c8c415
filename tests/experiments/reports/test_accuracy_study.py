"""Tests of `AccuracyStudy` on the run directory that the notebooks show."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments.errors import UserError
from experiments.reports.accuracy_study import LABELS, MODEL, AccuracyStudy
from worldmodel.accuracy import baselines as trivial
from worldmodel.errors import IncompatibleEpisodes

RUN = Path(__file__).parents[3] / "notebooks" / "small_run"


@pytest.fixture(scope="module")
def study() -> AccuracyStudy:
    return AccuracyStudy.load(RUN)


def test_it_measures_on_what_was_held_out(study: AccuracyStudy) -> None:
    trained, held_out = ({episode.index for episode in part} for part in (study.training, study.held_out))
    assert not trained & held_out
    assert trained | held_out == set(range(study.config.collect.episodes))
    latents, costs = study.latents()
    np.testing.assert_allclose(latents.mean(axis=0), 0.0, atol=0.01)  # the latents were standardised on these states
    assert costs.min() < 100 < costs.max() and len(latents) == len(costs)


def test_rewards_are_those_of_the_held_out_steps(study: AccuracyStudy) -> None:
    predicted, real = study.rewards()
    assert list(predicted) == [MODEL, LABELS[trivial.PER_SITE], LABELS[trivial.PER_RULE]]
    expected = []
    for episode in study.held_out:
        actions = study.model.table.encode(episode.actions)
        known = (actions >= 0) & (actions < study.model.num_actions)  # windows end before other actions
        steps = int(np.argmin(np.append(known, False)))
        expected += episode.rewards[5:steps].tolist()
    np.testing.assert_allclose(np.sort(real), np.sort(expected), atol=1e-5)
    assert all(len(values) == len(real) for values in predicted.values())


def test_errors_add_up_over_the_rules(study: AccuracyStudy) -> None:
    masks, latents = study.mask_errors(), study.latent_errors()
    assert len({len(errors) for errors in (*masks.values(), *latents.values())}) == 1
    windows = len(study.played.real.episode)
    for step in (1, 5):
        rules = study.mask_errors_per_rule(step).values()
        assert sum(each.missed + each.invented for each in rules) == pytest.approx(windows * masks[MODEL][step - 1])
        assert sum(each.copied for each in rules) == pytest.approx(windows * masks[LABELS[trivial.COPY_LAST]][step - 1])
    for errors in (masks, latents):
        assert (errors[MODEL] < errors[LABELS[trivial.COPY_LAST]]).all()


def test_wider_intervals_cover_more_and_a_fitted_scale_covers_what_it_says(study: AccuracyStudy) -> None:
    levels = np.array([0.1, 0.5, 0.9])
    for shares in study.coverage(levels).values():
        assert 0 < shares[0] < shares[1] < shares[2] < 1
    np.testing.assert_allclose(shares[1:], levels[1:], atol=0.05)


def test_models_without_mixtures_have_no_intervals(study: AccuracyStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(study.model.mdn_rnn.config, dynamics="deterministic")
    monkeypatch.setattr(study.model.mdn_rnn, "config", config)
    assert study.coverage([0.5, 0.9]) == {}


def test_dreams_of_an_episode_start_where_it_does(study: AccuracyStudy) -> None:
    trajectories = study.trajectories(held_out=2, samples=3)
    assert [each.title.split(" ")[0] for each in trajectories] == ["random"] * 2 + ["controller,"] * 2
    for each in trajectories:
        assert each.real[0] == each.dreamed[0] == 0 and not each.sampled[:, 0].any()
        assert each.sampled.shape == (3, len(each.real)) and len(each.dreamed) == len(each.real)
    record = study.evaluation.deterministic
    controller = trajectories[2]
    np.testing.assert_allclose(controller.real, np.cumsum([0.0, *record.rewards])[: len(controller.real)], atol=1e-4)
    assert not np.array_equal(*(sample for sample in trajectories[0].sampled[:2]))


def test_temperature_spreads_what_is_drawn(study: AccuracyStudy) -> None:
    drawn = study.drawn([0.0, 0.5, 2.0], samples=40)
    spreads = [latents.std(axis=0).mean() for latents in drawn.latents.values()]
    assert spreads[0] == pytest.approx(0.0, abs=1e-6) and spreads[0] < spreads[1] < spreads[2]
    assert drawn.latents[0.0].shape == (40, len(drawn.before)) and drawn.before.shape == drawn.after.shape


def test_another_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"world_model.*is missing.*--controller ppo"):
        AccuracyStudy.load(tmp_path)


def test_a_run_without_its_episodes_is_refused(tmp_path: Path) -> None:
    shutil.copytree(RUN, tmp_path / "run")
    for shard in (tmp_path / "run" / "checkpoints" / "episodes").iterdir():
        shard.unlink()
    with pytest.raises(IncompatibleEpisodes, match="holds no episodes"):
        AccuracyStudy.load(tmp_path / "run")
