"""The data contract of `worldmodel` and `controller`: what a policy observes, and trajectories of episodes.

Episodes that are learned from, dreamed or compared have one form, `Trajectory`. Stored episodes (`data.episodes`) hold
the same in terms of graph hashes and (rule, location) pairs. Letters in shapes:

    T  steps             Z  numbers of a latent
    B  rows (episodes)   H  numbers of the recurrent state
    A  rewrites of an `ActionTable`; action A is NO-OP, which is always legal

Units: rewards are in the environment's unit (for `log_ratio` percent, 100 · ln(cost before / cost after)), latents are
standardised, log-probabilities are in nats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:  # tables of rewards are made from trajectories without TensorFlow
    import tensorflow as tf


class Trajectory(NamedTuple):
    """B episodes of at most T steps; time is the first axis, as arrays or as tensors.

    A row ends with a terminal step (`terminal` is true there), or it is truncated: the recording stopped, and no step
    is terminal. Everything after the last step of a row is padding: `alive` is false, the reward and the
    log-probability are 0, the action is NO-OP, no step is terminal. A latent in padding is meaningless: a dream repeats
    the last one, stored episodes have 0. `()`, a nest without tensors, stands for a field that a trajectory does not
    have.

    Attributes:
      state: the T + 1 states: latents float32 [T + 1, B, Z], or in model-free training a
        `controller.worlds.graph_view.GraphObservation` whose row t · B + b is row b at time t.
      legal: bool [T + 1, B, A + 1], the legal actions; NO-OP, the last, is true in padding too. It is `()` if the
        states are graphs, which hold their own legal actions.
      action: int32 [T, B], index into the action table; if the states are graphs, position among the state's
        candidates.
      reward: float32 [T, B].
      terminal: bool [T, B], whether the step ended the row. In stored episodes this is the step after which nothing is
        left to rewrite; NO-OP is not marked, because its effect is known. In rollouts NO-OP is marked as well.
      alive: bool [T, B], whether the step was taken; this is the mask of every loss.
      hidden: float32 [T + 1, B, H], the recurrent state that the policy saw.
      log_prob: float32 [T, B], log-probability of the action under the policy that acted.
      value: float32 [T + 1, B], the policy's value of each state in its learner's unit; 0 after a terminal. A truncated
        row keeps the value of its last state after its end, because the return is bootstrapped from it.
      past: bool [T + 1, B, A + 1], what is past (`worldmodel.data.past`); only stored episodes have it.
      carried: bool [T, B, A + 1], the single rewrites that everywhere-actions carried out; only stored episodes of an
        environment with such actions have it.
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
    past: Any = ()
    carried: Any = ()

    def lengths(self) -> np.ndarray:
        """Returns the number of steps of every row, NO-OP included: int [B]."""
        lengths: np.ndarray = np.asarray(self.alive).sum(axis=0)
        return lengths

    def truncated(self) -> np.ndarray:
        """Returns which rows have no terminal step: bool [B]."""
        truncated: np.ndarray = ~np.any(self.terminal, axis=0)
        return truncated

    def observations(self) -> Any:
        """Returns what the policy saw before each step; row t · B + b is row b at time t.

        If the states are graphs, the last states are included too.
        """
        if isinstance(self.hidden, tuple):
            return self.state
        import tensorflow as tf

        fields = (field[:-1] for field in (self.state, self.hidden, self.legal))
        return LatentObservation(*(tf.reshape(field, [-1, field.shape[-1]]) for field in fields))


class LatentObservation(NamedTuple):
    """A policy's observation of B states, the same in a dream and around the real environment.

    Attributes:
      z: float32 [B, Z], the latent of the graph (predicted in a dream).
      h: float32 [B, H], output of the MDN-RNN's LSTM after the previous step; 0 at the start of an episode.
      action_mask: bool [B, A + 1], the legal actions (predicted in a dream).
    """

    z: tf.Tensor
    h: tf.Tensor
    action_mask: tf.Tensor


class Policy(Protocol):
    """A function that chooses actions in rollouts; it is called inside a `tf.function`.

    A policy is traced once per (policy object, batch): it must keep its weights in `tf.Variable`s, draw every random
    number from `seed` with `tf.random.stateless_*`, and be the same (equal and hashable) object from call to call.
    """

    def __call__(self, observation: LatentObservation, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Chooses one legal action for each row.

        Args:
          observation: the latent state of every row.
          seed: int32 [2], different at every step of a rollout.
        Returns:
          action int32 [B] in [0, A]; log_prob float32 [B] of that action; value float32 [B] of the state.
        """
        ...
