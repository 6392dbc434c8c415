"""The data contract of `worldmodel` and `controller`: what a policy sees, and what episodes leave behind.

Episodes that are learned from, dreamed, or compared have one form, `Trajectory`; stored episodes (`data.episodes`) hold
the same in terms of graph hashes and (rule, location) pairs. Letters in shapes:

    T  steps             Z  numbers of a latent
    B  rows (episodes)   H  numbers of the recurrent state
    A  rewrites of an `ActionTable`; action A is NO-OP, which is always legal

Units: rewards are in the environment's unit (of `log_ratio`: percent, 100 · ln(cost before / cost after)), latents are
standardised, log-probabilities are in nats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:  # tables of rewards are made of trajectories without TensorFlow
    import tensorflow as tf


class Trajectory(NamedTuple):
    """B episodes of at most T steps; time is the first axis, as arrays or as tensors.

    A row ends by a terminal step (`terminal` is true there), or it is truncated: it stopped being watched, and has no
    terminal. Everything behind the last step of a row is padding: `alive` is false, the reward and the log-probability
    are 0, the action is NO-OP, no step is terminal. A latent in padding is meaningless: that of a dream repeats the
    last one, that of stored episodes is 0. `()`, a nest without tensors, stands for what a trajectory does not have.

    Attributes:
      state: what each of the T + 1 states is: a latent float32 [T + 1, B, Z], or in model-free training a
        `controller.worlds.graph_view.GraphObservation` with row t · B + b for row b at time t.
      legal: bool [T + 1, B, A + 1], the legal actions; NO-OP, the last, is true in padding too. `()` beside graphs,
        which hold their own.
      action: int32 [T, B], index into the action table; beside graphs the position among the state's candidates.
      reward: float32 [T, B].
      terminal: bool [T, B], the step that ended the row. In stored episodes this is the step after which nothing is
        left to rewrite: what NO-OP does is known. In rollouts it is NO-OP as well.
      alive: bool [T, B], the step was taken: the mask of every loss.
      hidden: float32 [T + 1, B, H], the recurrent state that the policy saw.
      log_prob: float32 [T, B], of the action under the policy that acted.
      value: float32 [T + 1, B], the policy's value of each state in its learner's unit; 0 after a terminal. A truncated
        row keeps the value of its last state behind its end: the return is bootstrapped from it.
    """

    state: Any
    legal: Any
    action: Any
    reward: Any
    terminal: Any
    alive: Any
    hidden: Any = ()
    log_prob: Any = ()
    value: Any = ()

    def lengths(self) -> np.ndarray:
        """Steps of every row, NO-OP included: int [B]."""
        lengths: np.ndarray = np.asarray(self.alive).sum(axis=0)
        return lengths

    def truncated(self) -> np.ndarray:
        """Rows without an end of their own: bool [B]."""
        truncated: np.ndarray = ~np.any(self.terminal, axis=0)
        return truncated

    def observations(self) -> Any:
        """What the policy saw before each step, row t · B + b for row b at time t; of graphs, the last states too."""
        if isinstance(self.hidden, tuple):
            return self.state
        import tensorflow as tf

        fields = (field[:-1] for field in (self.state, self.hidden, self.legal))
        return LatentObservation(*(tf.reshape(field, [-1, field.shape[-1]]) for field in fields))


class LatentObservation(NamedTuple):
    """What a policy sees of B states, in a dream and around the real environment alike.

    Attributes:
      z: float32 [B, Z], the latent of the graph (predicted, in a dream).
      h: float32 [B, H], output of the MDN-RNN's LSTM after the previous step; 0 at the start of an episode.
      action_mask: bool [B, A + 1], the legal actions (predicted, in a dream).
    """

    z: tf.Tensor
    h: tf.Tensor
    action_mask: tf.Tensor


class Policy(Protocol):
    """Chooses actions in rollouts; it is called inside a `tf.function`.

    A policy is traced once per (policy object, batch): it must keep its weights in `tf.Variable`s, draw every random
    number from `seed` with `tf.random.stateless_*`, and be the same (equal and hashable) object from call to call.
    """

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Chooses one legal action a row.

        Args:
          observation: the latent state of every row.
          seed: int32 [2], different at every step of a rollout.
        Returns:
          action int32 [B] in [0, A]; log_prob float32 [B] of that action; value float32 [B] of the state.
        """
        ...
