"""Dreamed rewards that sum to zero around every loop, whatever the networks say.

Rewards that are differences of a cost telescope: what is undone is paid back. A world model's errors do not telescope,
and whoever acts in a dream finds loops that it pays for. So a dream keeps a ledger of each row's steps and corrects the
predicted rewards by three facts of rewriting. It knows states by their legal rewrites, and steps by the legal rewrites
that they change:

1. Who comes back to a state has earned nothing since.
2. A step that changes the legal rewrites exactly back, as an earlier step had changed them, undoes that step, whatever
   was done in between, and pays back what that step has earned. It can be undone itself.
3. A step that changes no legal rewrite earns nothing, though it may cost something; it leads to a state of its own.

In 9,900 steps of random and of greedy play on SqueezeNet1.1 and a small BERT, 896 steps undid another one by fact 2,
469 of them with other steps in between, and 895 had exactly the reward that it says. No step that changed no legal
rewrite earned more than 0.1 %, and 330 cost something (`experiments/results/accuracy/tried.md`).
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

STATES, TOTALS, CHANGES, PAID = range(4)
"""The rows of a ledger, float64 [B, 4, L]. Column L - 1 is the present state, and the columns before are the states
before it: the number of the state, the sum of the rewards up to it, the change of the number by the step that was taken
there (0 if no later step can undo it), and the cost that this step has added. float64 holds whole numbers exactly."""
UNVISITED = -1.0
"""A number that no state has."""
LEAST_COST = 1e-3
"""The least cost, as a share of that of the state that a row began in, so that its logarithm stays finite."""


def draw_numbers(num_actions: int, steps: int) -> np.ndarray:
    """Draws whole numbers for A actions and NO-OP: float64 [2, A + 1].

    The number of a state is the sum of the first numbers of its legal actions and of the second numbers of the steps of
    fact 3. Sums of that many stay exact, and those of two different states hardly ever agree.
    """
    most = 2**52 // (num_actions + 1 + steps)
    return np.random.default_rng(0).integers(1, most, size=[2, num_actions + 1]).astype(np.float64)


def open_ledger(mask: tf.Tensor, numbers: tf.Tensor, steps: int) -> tf.Tensor:
    """Returns the ledger of rows that begin in states with the masks bool [B, A + 1]; it remembers so many steps."""
    here = tf.linalg.matvec(tf.cast(mask, tf.float64), numbers[0])
    zero = tf.zeros_like(here)
    past = tf.tile(tf.constant([UNVISITED, 0.0, 0.0, 0.0], tf.float64)[:, tf.newaxis], [1, steps])
    present = tf.stack([here, zero, zero, zero], axis=1)[..., tf.newaxis]
    return tf.concat([tf.broadcast_to(past, [tf.shape(mask)[0], 4, steps]), present], axis=-1)


def settled(
    ledger: tf.Tensor,
    before: tf.Tensor,
    after: tf.Tensor,
    action: tf.Tensor,
    reward: tf.Tensor,
    numbers: tf.Tensor,
    *,
    of_log_cost: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Corrects the rewards of one step of B rows; NO-OP is left alone.

    Args:
      ledger: float64 [B, 4, L], see `STATES`.
      before, after: bool [B, A + 1], the masks before and after the step.
      action: int32 [B].
      reward: float32 [B], the predicted rewards.
      numbers: from `draw_numbers`.
      of_log_cost: whether rewards are 100 · ln(cost before / cost after); otherwise they are differences of costs.
    Returns:
      (rewards float32 [B], ledger).
    """
    states, totals, changes, paid = tf.unstack(ledger, axis=1)
    here, total = states[:, -1], totals[:, -1]
    change = tf.linalg.matvec(tf.cast(after, tf.float64) - tf.cast(before, tf.float64), numbers[0])
    unchanged = change == 0.0
    earned = tf.cast(reward, tf.float64)
    earned = tf.where(unchanged, tf.minimum(earned, 0.0), earned)
    aside = tf.where(earned < 0.0, tf.gather(numbers[1], action), tf.zeros_like(here))
    reached = here + tf.where(unchanged, aside, change)

    places = tf.range(tf.shape(states)[1])
    undone = _last(places, (changes == -change[:, tf.newaxis]) & (changes != 0.0))
    returned = _last(places, states == reached[:, tf.newaxis])
    undoes, returns = undone >= 0, returned >= 0
    paid_back = _cost(total, of_log_cost) - tf.gather(paid, tf.maximum(undone, 0), batch_dims=1)
    new_total = tf.where(undoes, _total(paid_back, of_log_cost), total + earned)
    new_total = tf.where(returns, tf.gather(totals, tf.maximum(returned, 0), batch_dims=1), new_total)

    is_last = places == tf.shape(states)[1] - 1
    added = _cost(new_total, of_log_cost) - _cost(total, of_log_cost)
    paid = tf.where(is_last, added[:, tf.newaxis], paid)
    changes = tf.where(is_last, change[:, tf.newaxis], changes)
    since = tf.where(returns, returned, tf.size(places))[:, tf.newaxis]  # these steps are all undone
    closed = (places >= since) | (undoes[:, tf.newaxis] & (places == undone[:, tf.newaxis]))
    changes = tf.where(closed, tf.zeros_like(changes), changes)
    columns = zip((states, totals, changes, paid), (reached, new_total, *[tf.zeros_like(here)] * 2), strict=True)
    longer = tf.stack([tf.concat([row[:, 1:], new[:, tf.newaxis]], axis=1) for row, new in columns], axis=1)
    stays = action == tf.shape(numbers)[1] - 1
    rewards = tf.where(stays, reward, tf.cast(new_total - total, tf.float32))
    return rewards, tf.where(stays[:, tf.newaxis, tf.newaxis], ledger, longer)


def _last(places: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns the last place of each row of bool [B, L] that is true, -1 if there is none: int32 [B]."""
    return tf.reduce_max(tf.where(where, places, -1), axis=1)


def _cost(total: tf.Tensor, of_log_cost: bool) -> tf.Tensor:
    """Returns the cost after earning a total [B], as a share of the cost at the start, or up to a constant."""
    return tf.exp(-total / 100.0) if of_log_cost else -total


def _total(cost: tf.Tensor, of_log_cost: bool) -> tf.Tensor:
    """Inverts `_cost`."""
    return -100.0 * tf.math.log(tf.maximum(cost, LEAST_COST)) if of_log_cost else -cost
