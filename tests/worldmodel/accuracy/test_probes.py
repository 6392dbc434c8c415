from __future__ import annotations

import numpy as np
import pytest

from worldmodel.accuracy import metrics
from worldmodel.accuracy.probes import LinearProbe, Probes, log_cost_percent
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
    """As many dimensions as rows: without a penalty they would be read exactly."""
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
