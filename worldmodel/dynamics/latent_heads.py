"""The head of the next latent: a mixture of Gaussians as in the papers, and two other kinds for comparison.

| `dynamics`      | the next latent                                                                                  |
|-----------------|--------------------------------------------------------------------------------------------------|
| `mdn`           | a mixture of Gaussians (Ha & Schmidhuber 2018)                                                     |
| `deterministic` | one vector                                                                                       |
| `discrete`      | independent categorical variables (DreamerV3, Hafner et al. 2023), for an encoder with categories  |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import sonnet as snt
import tensorflow as tf

from worldmodel.config import MdnRnnConfig, MdnRnnTrainingConfig
from worldmodel.dynamics import mixture as mdn
from worldmodel.dynamics.heads import RealSteps, Seen
from worldmodel.dynamics.start_graphs import ModelSizes

SMALL = snt.initializers.TruncatedNormal(stddev=0.02)
"""Initialises the last layers so that predictions start near "nothing changes"."""


class LatentKind(Protocol):
    """A kind of distribution over the next latents [n, Z]. Its parameters are a tuple of tensors."""

    def __call__(self, features: tf.Tensor, z: tf.Tensor) -> Any:
        """Returns the parameters, from features [n, any] and the latents before the step [n, Z]."""

    def with_last(self, parameters: Any, means: tf.Tensor) -> Any:
        """Returns the parameters with other means [n] in the last dimension; for latents of real numbers only."""

    def held(self, parameters: Any, least: tf.Tensor, most: tf.Tensor) -> Any:
        """Returns the parameters with their means clipped to `least` and `most`, both [n, Z].

        Categories and means that are not finite stay as they are.
        """

    def losses(self, parameters: Any, target: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Returns the losses [n] of targets [n, Z] per dimension: `latent`, in nats, and `mean`, a squared error."""

    def sample(self, parameters: Any, temperature: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns latents [n, Z] drawn with `seed` int32 [2] at a temperature of at least 0; 0 means `most_likely`."""

    def most_likely(self, parameters: Any) -> tf.Tensor:
        """Returns the most likely latents [n, Z]."""


class LatentMixture(NamedTuple):
    """A mixture over the next latent: logits [n, K], means [n, K, Z], log_sigmas [n, K, Z]; see `mdn`."""

    logits: tf.Tensor
    means: tf.Tensor
    log_sigmas: tf.Tensor


class Mixture(snt.Module):
    """The kind `mdn`. Its means are changes of z, because one rewrite changes a graph little."""

    def __init__(self, mixtures: int, latent: int, log_sigma_range: tuple[float, float]) -> None:
        super().__init__()
        self._mixtures, self._latent, self._log_sigma_range = mixtures, latent, log_sigma_range
        self._linear = snt.Linear(mixtures * (2 * latent + 1), w_init=SMALL)

    def __call__(self, features: tf.Tensor, z: tf.Tensor) -> LatentMixture:
        k, width = self._mixtures, self._latent
        logits, means, raw = tf.split(self._linear(features), [k, k * width, k * width], axis=-1)
        log_sigmas = mdn.bound_log_sigma(tf.reshape(raw, [-1, k, width]), *self._log_sigma_range)
        return LatentMixture(logits, z[:, tf.newaxis] + tf.reshape(means, [-1, k, width]), log_sigmas)

    def with_last(self, parameters: LatentMixture, means: tf.Tensor) -> LatentMixture:
        return parameters._replace(means=with_last(parameters.means, means[:, tf.newaxis]))

    def held(self, parameters: LatentMixture, least: tf.Tensor, most: tf.Tensor) -> LatentMixture:
        return parameters._replace(means=_held(parameters.means, least[:, tf.newaxis], most[:, tf.newaxis]))

    def losses(self, parameters: LatentMixture, target: tf.Tensor) -> dict[str, tf.Tensor]:
        deviation = mdn.mixture_mean(*parameters[:2]) - target
        return {
            "latent": -mdn.log_prob(target, *parameters) / self._latent,
            "mean": tf.reduce_mean(tf.square(deviation), axis=-1),
        }

    def sample(self, parameters: LatentMixture, temperature: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return mdn.sample(*parameters, temperature, seed)

    def most_likely(self, parameters: LatentMixture) -> tf.Tensor:
        return mdn.most_likely_mean(*parameters[:2])


class Point(NamedTuple):
    """One vector for each row: mean [n, Z]."""

    mean: tf.Tensor


class Vector(snt.Module):
    """The kind `deterministic`: a Gaussian of unit variance, of which only the mean is ever drawn."""

    def __init__(self, latent: int) -> None:
        super().__init__()
        self._linear = snt.Linear(latent, w_init=SMALL)

    def __call__(self, features: tf.Tensor, z: tf.Tensor) -> Point:
        return Point(z + self._linear(features))

    def with_last(self, parameters: Point, means: tf.Tensor) -> Point:
        return Point(with_last(parameters.mean, means))

    def held(self, parameters: Point, least: tf.Tensor, most: tf.Tensor) -> Point:
        return Point(_held(parameters.mean, least, most))

    def losses(self, parameters: Point, target: tf.Tensor) -> dict[str, tf.Tensor]:
        error = tf.reduce_mean(tf.square(parameters.mean - target), axis=-1)
        return {"latent": 0.5 * error + mdn.HALF_LOG_TWO_PI, "mean": error}

    def sample(self, parameters: Point, temperature: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return parameters.mean

    def most_likely(self, parameters: Point) -> tf.Tensor:
        return parameters.mean


class Categories(NamedTuple):
    """Independent categorical variables: logits [n, groups, categories]."""

    logits: tf.Tensor


class Categorical(snt.Module):
    """The kind `discrete`: a latent is the one-hot codes of some categorical variables, end to end.

    Every category keeps a probability of `uniform / categories` (DreamerV3: 1 %), so that no likelihood is infinite.
    """

    def __init__(self, latent: int, categories: int, inertia: float, uniform: float = 0.01) -> None:
        super().__init__()
        self._groups, self._categories, self._uniform = latent // categories, categories, uniform
        self._linear = snt.Linear(latent, w_init=SMALL)
        self._inertia = tf.Variable(inertia, dtype=tf.float32, name="inertia")

    def __call__(self, features: tf.Tensor, z: tf.Tensor) -> Categories:
        logits = tf.reshape(self._linear(features) + self._inertia * z, [-1, self._groups, self._categories])
        mixed = (1.0 - self._uniform) * tf.nn.softmax(logits) + self._uniform / self._categories
        return Categories(tf.math.log(mixed))

    def with_last(self, parameters: Categories, means: tf.Tensor) -> Categories:
        raise TypeError("a latent of categories has no last real number")

    def held(self, parameters: Categories, least: tf.Tensor, most: tf.Tensor) -> Categories:
        return parameters

    def losses(self, parameters: Categories, target: tf.Tensor) -> dict[str, tf.Tensor]:
        codes = tf.reshape(target, tf.shape(parameters.logits))
        nats = -tf.reduce_sum(codes * parameters.logits, axis=[1, 2])
        error = tf.square(tf.exp(parameters.logits) - codes)
        return {"latent": nats / (self._groups * self._categories), "mean": tf.reduce_mean(error, axis=[1, 2])}

    def sample(self, parameters: Categories, temperature: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return self._one_hot(mdn.categorical_sample(parameters.logits, temperature, seed))

    def most_likely(self, parameters: Categories) -> tf.Tensor:
        return self._one_hot(tf.argmax(parameters.logits, axis=-1))

    def _one_hot(self, chosen: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.one_hot(chosen, self._categories), [-1, self._groups * self._categories])


def _held(means: tf.Tensor, least: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
    """Returns clipped means. Means that are not finite stay, because training and evaluation check for them."""
    return tf.where(tf.math.is_finite(means), tf.clip_by_value(means, least, most), means)


def with_last(means: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """Returns `means` [..., Z] with other numbers in the last dimension; `last` is broadcast."""
    return tf.concat([means[..., :-1], tf.broadcast_to(last, tf.shape(means)[:-1])[..., tf.newaxis]], axis=-1)


class LatentHead(snt.Module):
    """Predicts the next latent as a distribution of the kind that `config.dynamics` names.

    It has features of its own: the gradient of the likelihood grows as σ falls, and would drown those of other heads.
    """

    learns_noop = False

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self._features = snt.Linear(config.latent_hidden)
        self.kind = _make_kind(config, sizes)

    def predict(self, seen: Seen) -> Any:
        return self.kind(tf.nn.relu(self._features(seen.everything)), seen.z)

    def target(self, seen: Seen, real: RealSteps) -> tf.Tensor:
        return real.next_z

    def loss(self, prediction: Any, target: tf.Tensor, seen: Seen) -> Mapping[str, tf.Tensor]:
        """Returns `latent` and `mean`, see `LatentKind.losses`."""
        return self.kind.losses(prediction, target)

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        return {"latent": config.latent_weight, "mean": config.mean_weight}


def _make_kind(config: MdnRnnConfig, sizes: ModelSizes) -> LatentKind:
    if config.dynamics == "deterministic":
        return Vector(sizes.latent)
    if config.dynamics == "discrete":
        return Categorical(sizes.latent, sizes.categories, config.inertia)
    return Mixture(config.mixtures, sizes.latent, config.log_sigma_range)
