"""Adam as one kernel for each weight."""

from __future__ import annotations

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf


class Adam(snt.optimizers.Adam):
    """Sonnet's Adam, with the same state and formula, computed by TensorFlow's own kernel.

    Sonnet writes some fifteen operators for each weight, so that half of a short training is spent on building them.
    The kernel adds its epsilon before the second moment is freed from its bias, and Sonnet adds it afterwards (Kingma
    and Ba 2015, end of section 2): an epsilon times the root of 1 - beta2^t makes both the same up to rounding.
    Gradients are dense.
    """

    def apply(self, updates: Sequence[tf.Tensor], parameters: Sequence[tf.Variable]) -> None:
        """Moves each parameter by its gradient, `updates`, of the same shape and type."""
        self._initialize(parameters)
        self.step.assign_add(1)
        step = tf.cast(self.step, tf.float32)
        first, second = tf.pow(self.beta1, step), tf.pow(self.beta2, step)
        epsilon = self.epsilon * tf.sqrt(1.0 - second)
        for gradient, parameter, m, v in zip(updates, parameters, self.m, self.v, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=parameter.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=first,
                beta2_power=second,
                lr=self.learning_rate,
                beta1=self.beta1,
                beta2=self.beta2,
                epsilon=epsilon,
                grad=gradient,
            )
