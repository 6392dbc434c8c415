"""Figures of predicted latents: their distance from the real ones, what heads read from them, and their uncertainty."""

from __future__ import annotations

import numpy as np
import sonnet as snt
import tensorflow as tf

from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy import metrics
from worldmodel.accuracy.baselines import COPY_LAST, MEAN, Trivial
from worldmodel.accuracy.figures import MODEL, RESAMPLES, Figure, FigureMaker
from worldmodel.accuracy.open_loop import OpenLoop, Windows, require_finite
from worldmodel.accuracy.probes import Probes, log_cost_percent
from worldmodel.accuracy.rewards_and_masks import rank_correlation
from worldmodel.accuracy.uncertainty import Mixtures, at_floor, covered, fit_scale
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.world_model import WorldModel


def latent_figures(played: OpenLoop, trivial: Trivial, step: int, *, resamples: int = RESAMPLES) -> list[Figure]:
    """Returns the mean squared error of latents after `step` steps, in units of the error of copying."""
    real = played.real.trajectory.state[step]
    errors = {key: metrics.squared_errors(z, real) for key, z in trivial.latents(played.real).items()}
    errors[MODEL] = metrics.squared_errors(played.dreamed.state[step], real)
    columns = {key: (each, errors[COPY_LAST]) for key, each in errors.items()}
    return [FigureMaker(played.real.episode, step, resamples).make(names.LATENT_ERROR, metrics.relative_error, columns)]


def read_figures(
    played: OpenLoop,
    trivial: Trivial,
    probes: Probes,
    held_out: EpisodeBuffer,
    step: int,
    *,
    resamples: int = RESAMPLES,
) -> list[Figure]:
    """Returns figures of what frozen heads read from latents after `step` steps, predicted and real ones.

    For masks, one figure shows what heads would read if latents were as many principal components of the masks, which
    are the best linear code in least squares.

    The trivial predictors of costs are what the head reads from the latent that the prediction starts from, and from
    the mean latent. Those of masks and of numbers of sites are the real ones that the prediction starts from.
    """
    windows = played.real
    make = FigureMaker(windows.episode, step, resamples).make
    cost = log_cost_percent(held_out, windows.episode, windows.depth + step)
    before, bits = windows.mask()[0], windows.mask()[step]
    copied = metrics.wrong_bits(before, bits)
    counts_before, counts = metrics.sites_per_rule(before, probes.rules), metrics.sites_per_rule(bits, probes.rules)
    kept = probes.components.restored(bits) > 0.5
    coded = {MODEL: (metrics.wrong_bits(kept, bits), copied), COPY_LAST: (copied, copied)}
    figures = [make(names.READ_MASK_ERROR + names.OF_COMPONENTS, metrics.relative_error, coded)]
    for ending, z in (("", played.dreamed.state[step]), (names.OF_REAL_LATENTS, windows.trajectory.state[step])):
        read = {MODEL: (probes.read_cost(z), cost), COPY_LAST: (probes.read_cost(windows.trajectory.state[0]), cost)}
        constant = {MEAN: (np.broadcast_to(probes.read_cost(trivial.mean_latent[np.newaxis]), cost.shape), cost)}
        wrong = {MODEL: (metrics.wrong_bits(probes.read_bits(z), bits), copied), COPY_LAST: (copied, copied)}
        exact = {
            MODEL: (metrics.exact_numbers(probes.read_counts(z), counts),),
            COPY_LAST: (metrics.exact_numbers(counts_before, counts),),
        }
        figures += [
            make(names.READ_COST_R2 + ending, metrics.determination, read | constant),
            make(names.READ_COST_RANKS + ending, rank_correlation, read),
            make(names.READ_MASK_ERROR + ending, metrics.relative_error, wrong),
            make(names.READ_COUNTS + ending, metrics.share, exact),
        ]
    return figures


FLOOR_TOLERANCE = 0.1
"""The tolerance in log σ, 10 % of σ, because a sigmoid never quite reaches its bound."""


def uncertainty_figures(
    world_model: WorldModel, windows: Windows, scale: float, *, resamples: int = RESAMPLES
) -> list[Figure]:
    """Returns the coverage of the mixtures' intervals one step after real states, and the share of scales at the floor.

    Args:
      scale: the factor of all σ, from `fit_intervals` on other episodes. Further figures use factors that are fitted on
        these episodes: on the odd ones for the even ones, and the other way round.
    """
    mixtures, real = next_latents(world_model, windows), windows.trajectory.state[1]
    make = FigureMaker(windows.episode, 1, resamples).make
    halves = windows.episode % 2 == 0, windows.episode % 2 == 1
    scales = np.full(len(real), scale)
    for here, there in (halves, halves[::-1]):
        if here.any() and there.any():
            scales[here] = fit_scale(real[there], mixtures.at(there))
    figures = []
    for level, name in names.COVERAGE.items():
        figures.append(make(name, np.mean, {MODEL: (covered(real, mixtures, level, scale),)}))
        fitted_here = covered(real, mixtures, level, scales[:, np.newaxis, np.newaxis])
        figures.append(make(name + names.FITTED_HERE, np.mean, {MODEL: (fitted_here,)}))
    floor = world_model.mdn_rnn.config.log_sigma_range[0]
    return [*figures, make(names.AT_FLOOR, np.mean, {MODEL: (at_floor(mixtures, floor, FLOOR_TOLERANCE),)})]


def fit_intervals(world_model: WorldModel, windows: Windows) -> float:
    """Fits the one factor of all σ with which intervals have their nominal coverage, on windows of validation data."""
    return fit_scale(windows.trajectory.state[1], next_latents(world_model, windows))


def next_latents(world_model: WorldModel, windows: Windows) -> Mixtures:
    """Predicts the latents after the first step of each window; the members of an ensemble have equal weights.

    Raises:
      ValueError: if the model predicts no mixtures (`MdnRnnConfig.dynamics`).
      NonFinitePrediction: if a predicted mixture is not finite.
    """
    model = world_model.mdn_rnn
    if model.config.dynamics != "mdn":
        raise ValueError(f"expected a model that predicts mixtures, dynamics 'mdn', got {model.config.dynamics!r}")
    real, codes = windows.trajectory, model.action_codes(world_model.inputs(world_model.start_graph()))
    parts = []
    for chunk in windows.chunks():
        z, actions = tf.constant(real.state[0, chunk]), tf.constant(real.action[0, chunk])
        before = snt.LSTMState(tf.constant(windows.hidden[chunk]), tf.constant(windows.cell[chunk]))
        state = model.advance(z, actions, before, codes)
        legal, past = (tf.constant(each[0, chunk], tf.float32) for each in (real.legal, real.past))
        members = model.predict(state.hidden, z, actions, legal, past, codes)
        logits = tf.concat([tf.nn.log_softmax(member["latent"].logits) for member in members], axis=1)
        means, log_sigmas = (tf.concat(each, axis=1) for each in zip(*(m["latent"][1:] for m in members), strict=True))
        parts.append((logits.numpy(), means.numpy(), log_sigmas.numpy()))
    mixtures = Mixtures(*(np.concatenate(field) for field in zip(*parts, strict=True)))
    require_finite(windows, **{f"mixture ({name})": field[np.newaxis] for name, field in mixtures._asdict().items()})
    return mixtures
