from __future__ import annotations

import numpy as np
import pytest

from worldmodel.accuracy import metrics
from worldmodel.accuracy.probes import Components, LinearProbe, Probes, log_cost_percent
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.world_model import WorldModel


def test_what_is_linear_is_read_exactly_in_any_batches() -> None:
    rng = np.random.default_rng(0)
    z, weights = rng.normal(size=(200, 4)), rng.normal(size=(5, 3))
    targets = z @ weights[:-1] + weights[-1]
    probe = LinearProbe.fit([(z, targets)], ridge=0.0)
    np.testing.assert_allclose(probe.weights, weights, atol=1e-9)
    batched = LinearProbe.fit([(z[:30], targets[:30]), (z[30:], targets[30:])], ridge=0.0)
    np.testing.assert_allclose(batched.weights, weights, atol=1e-9)


def test_a_dimension_that_never_varies_does_no_harm() -> None:
    z = np.stack([np.arange(5.0), np.zeros(5)], axis=1)
    assert np.abs(LinearProbe.fit([(z, 2 * z[:, :1] + 1)])(z)[:, 0] - (2 * z[:, 0] + 1)).max() < 0.05


def test_noise_is_not_learned_by_heart() -> None:
    """There are as many weights as rows, so without a penalty the noise is read exactly."""
    rng = np.random.default_rng(1)
    z, noise = rng.normal(size=(40, 39)), rng.normal(size=(40, 1))
    errors = [np.abs(LinearProbe.fit([(z, noise)], ridge=ridge)(z) - noise).mean() for ridge in (0.0, 1.0)]
    assert errors[0] < 1e-6 < 0.1 < errors[1]


def test_nothing_to_be_fitted_on_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one latent"):
        LinearProbe.fit([])


def test_probes_read_training_states(world_model: WorldModel, split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    training = split[0]
    probes, episode = Probes.of(world_model, training), training[0]
    latents = world_model.encode({graph_hash: training.graphs[graph_hash] for graph_hash in episode.hashes})
    z = np.stack([latents[graph_hash] for graph_hash in episode.hashes])
    costs = log_cost_percent(training, np.zeros(len(z), int), np.arange(len(z)))
    np.testing.assert_allclose(costs, 100 * np.log(episode.cost_ms / episode.cost_ms[0]))
    assert np.corrcoef(probes.read_cost(z), costs)[0, 1] > 0.95
    bits = np.stack([world_model.table.mask(episode.legal_actions(t))[:-1] for t in range(len(z))])
    assert (probes.read_bits(z) == bits).mean() > 0.85
    counts = metrics.sites_per_rule(bits, probes.rules)
    read = probes.read_counts(z)
    assert read.shape == counts.shape and read.min() >= 0 and (read == counts).mean() > 0.5


def some_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(500, 6)) * [1, 5, 0.1, 3, 0.5, 0.2] @ np.linalg.qr(rng.normal(size=(6, 6)))[0] + 7.0


def test_the_first_hold_most_of_the_variance() -> None:
    rows = some_rows()
    found = Components.fit([rows], 2)
    np.testing.assert_allclose(found.axes @ found.axes.T, np.eye(2), atol=1e-9)
    points = found.project(rows)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(points.var(axis=0) / rows.var(axis=0).sum(), found.explained, rtol=1e-6)
    assert found.explained.sum() > 0.9 and found.explained[0] > found.explained[1]


def test_batches_do_not_matter_and_all_components_keep_all() -> None:
    rows = some_rows()
    whole, parts = Components.fit([rows], 9), Components.fit(np.split(rows, [3, 100]), 9)
    assert whole.axes.shape == (6, 6)
    np.testing.assert_allclose(np.abs(np.sum(whole.axes * parts.axes, axis=1)), 1.0, atol=1e-6)
    np.testing.assert_allclose(whole.restored(rows), rows, atol=1e-9)


def test_no_linear_code_of_the_same_width_keeps_more() -> None:
    rows, rng = some_rows() > 7.0, np.random.default_rng(1)
    found = Components.fit([rows], 3)
    error = np.mean((found.restored(rows) - rows) ** 2)
    for _ in range(20):
        code = np.linalg.qr(rng.normal(size=(6, 3)))[0]
        centred = rows - rows.mean(axis=0)
        assert error < np.mean((centred @ code @ code.T - centred) ** 2)


def test_what_never_varies_explains_nothing() -> None:
    found = Components.fit([np.full((4, 3), 2.0)], 2)
    np.testing.assert_allclose(found.explained, 0.0)
    np.testing.assert_allclose(found.restored(np.full((1, 3), 2.0)), 2.0)


def test_no_rows_have_no_components() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        Components.fit([], 2)
