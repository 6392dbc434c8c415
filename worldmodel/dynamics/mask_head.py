"""The head that predicts which rewrites are legal after a step. A bit keeps its value unless the step changes it."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf

from worldmodel.config import PAYS_PERCENT, MdnRnnConfig, MdnRnnTrainingConfig
from worldmodel.dynamics.heads import RealSteps, Seen
from worldmodel.dynamics.single_rewrites import Neighbourhood, with_everywhere_bits
from worldmodel.dynamics.start_graphs import ActionInputs, ModelSizes, is_everywhere

SELDOM = 0.02
"""Share of the states of a batch, some hundreds, below which a rewrite counts as seldom legal."""


class MaskHead(snt.Module):
    """Predicts the logit of every rewrite being legal after the step: [n, A].

    A query of low rank reaches every bit. The neighbourhood reaches the bits near the sites that are rewritten. If
    `MdnRnnConfig.features` is "state", there is only the query. The bits of everywhere-actions are not learned, because
    they follow from the others, see `next_mask`.
    """

    learns_noop = False

    def __init__(self, config: MdnRnnConfig, sizes: ModelSizes, name: str | None = None) -> None:
        super().__init__(name=name)
        self.neighbourhood: Neighbourhood | None = None
        self._query = snt.Linear(config.mask_rank)
        self._keys = snt.Linear(config.mask_rank, w_init=snt.initializers.TruncatedNormal(stddev=0.05))
        if config.features == "step":
            self.neighbourhood = Neighbourhood(
                sizes.neighbourhoods,
                sizes.slots,
                config.neighbour_hidden,
                everywhere=sizes.everywhere,
                remembers=config.remembers,
            )
            self._inertia = tf.Variable(config.inertia, dtype=tf.float32, name="inertia")

    def keys(self, embedded: tf.Tensor) -> tf.Tensor:
        """Returns the keys [A, mask_rank] of all rewrites from their embeddings [A + 1, width], NO-OP last."""
        return self._keys(embedded[:-1])

    def predict(self, seen: Seen) -> tf.Tensor:
        logits = tf.matmul(self._query(seen.shared), seen.mask_keys, transpose_b=True)
        if seen.carried_out is None:
            return logits
        return logits + self._inertia * (2.0 * seen.legal[:, :-1] - 1.0) + seen.carried_out.changes[:, :-1]

    def target(self, seen: Seen, real: RealSteps) -> tf.Tensor:
        return real.next_legal[:, :-1]

    def loss(self, prediction: tf.Tensor, target: tf.Tensor, seen: Seen) -> dict[str, tf.Tensor]:
        """Returns `mask`, the cross-entropy in nats, summed over the bits, and `emphasised_mask`, over some of them.

        These are the bits of rewrites that pay, which a policy needs, and of those that are seldom legal, which are
        learned last. `carried` are the nats of which matches everywhere-actions carry out.
        """
        single = tf.logical_not(is_everywhere(seen.codes.inputs.actions)[:-1])
        nats = tf.cast(single, tf.float32) * tf.nn.sigmoid_cross_entropy_with_logits(target, prediction)
        often = tf.reduce_mean(target, axis=0)
        matter = (seen.codes.inputs.rewards.mean[:-1] > PAYS_PERCENT) | ((often > 0.0) & (often < SELDOM))
        emphasised = tf.reduce_sum(nats * tf.cast(matter, tf.float32), axis=-1)
        losses = {"mask": tf.reduce_sum(nats, axis=-1), "emphasised_mask": emphasised}
        if seen.carried_out is not None:
            losses["carried"] = seen.carried_out.surprise
        return losses

    def weight(self, config: MdnRnnTrainingConfig) -> dict[str, float]:
        weight = config.mask_weight
        return {"mask": weight, "emphasised_mask": weight * config.mask_emphasis, "carried": weight}


def next_mask(mask_logits: tf.Tensor, threshold: float | tf.Tensor, actions: ActionInputs) -> tf.Tensor:
    """Returns the mask bool [n, A + 1] of the actions whose logits [n, A] exceed a threshold; NO-OP is always legal.

    Everywhere-actions are legal if the mask has two sites of their rules, whatever their logits.
    """
    bits = with_everywhere_bits(mask_logits > threshold, actions)
    return tf.pad(bits, [[0, 0], [0, 1]], constant_values=True)
