"""What single rewrites change near their sites. A step carries out one, or those of a rule at all its sites.

An everywhere-action carries out the matches that stand when the step begins, in the order of their locations, except
those whose operators an earlier one has taken away. So a step changes what its single rewrites change. What a single
rewrite does is learned once, from steps of both kinds, and which matches are carried out is learned beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import sonnet as snt
import tensorflow as tf

from worldmodel.dynamics.own_products import product_with_own
from worldmodel.dynamics.start_graphs import ActionCodes, ActionInputs, is_everywhere

MATCHES_OF_STEP = 2
"""In a compiled dream, matches are dealt with in chunks of this many for each row. Good policies take an
everywhere-step now and then, so that most batches need one chunk."""
SURELY = 3.0
"""The logit with which each match is carried out at the start of training."""


class CarriedOut(NamedTuple):
    """What the single rewrites of n steps do together.

    Attributes:
      features: float32 [n, hidden], mean of what is known of each rewrite: of the step, and of the bits around it.
      count: float32 [n], the number of rewrites.
      earned: float32 [n], the sum of what the matches of everywhere-actions earn, each as a single rewrite; 0 if that
        was not asked for.
      changes: float32 [n, A + 1], by how much the logits of the legal actions change; the last column means nothing.
      taken: float32 [n, A + 1], 1 where a single rewrite is carried out, else 0.
      surprise: float32 [n], nats of which matches were really carried out, over the matches of everywhere-actions; 0 if
        that was not told.
    """

    features: tf.Tensor
    count: tf.Tensor
    earned: tf.Tensor
    changes: tf.Tensor
    taken: tf.Tensor
    surprise: tf.Tensor


Earned = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""A function of the steps int32 [m], the single rewrites int32 [m] and the features [m, hidden] of matches that returns
what each of them earns alone: [m]."""


class _Steps(NamedTuple):
    """Inputs of `Neighbourhood` for n steps, see `Neighbourhood.__call__`."""

    features: tf.Tensor
    action: tf.Tensor
    legal: tf.Tensor
    past: tf.Tensor
    codes: ActionCodes
    carried: tf.Tensor | tuple[()]
    earned: Earned | None


class Neighbourhood(snt.Module):
    """Reads the bits around single rewrites and predicts how these change; each rule has weights of its own.

    Which rewrites are legal around a site does not say everything about it: what a rewrite switches on may depend on
    what was rewritten there before. So the bits are of two kinds, what is legal and what is past (`data.past`).

    Args:
      rows: number of rules that have a neighbourhood, plus one for all others, whose slots are empty (row 0).
      slots: P, the number of slots.
      hidden: width of the features.
      everywhere: whether there are everywhere-actions.
      remembers: whether it reads what is past.
    """

    def __init__(
        self, rows: int, slots: int, hidden: int, *, everywhere: bool, remembers: bool, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        scatter = snt.initializers.TruncatedNormal(stddev=1.0 / slots**0.5)
        read = [scatter([rows, slots, hidden], tf.float32), *[tf.zeros([rows, slots, hidden])] * remembers]
        self._remembers = remembers
        self._read = tf.Variable(tf.stack(read, axis=2), name="read")  # [rows, P, kinds of bits, hidden]
        # The slots come last so that `write` sums along memory, which is twice as fast.
        self._write = tf.Variable(scatter([rows, hidden, slots], tf.float32), name="write")
        self._bias = tf.Variable(tf.zeros([rows, slots]), name="bias")
        self._carry: list[tf.Variable] = []
        if everywhere:
            weights, bias = tf.zeros([rows, hidden]), tf.fill([rows], SURELY)
            self._carry = [tf.Variable(weights, name="carry"), tf.Variable(bias, name="carry_bias")]

    @property
    def tables(self) -> dict[str, list[tf.Variable]]:
        """The weights of every slot: "slots" of shape [rows, P, ...], "slots last" of shape [rows, ..., P].

        Beside them stand those of every rule, "rules" of shape [rows, ...].
        """
        return {"slots": [self._read, self._bias], "slots last": [self._write], "rules": self._carry}

    def __call__(
        self,
        features: tf.Tensor,
        action: tf.Tensor,
        legal: tf.Tensor,
        past: tf.Tensor,
        codes: ActionCodes,
        carried: tf.Tensor | tuple[()] = (),
        earned: Earned | None = None,
    ) -> CarriedOut:
        """Returns what the single rewrites of n steps do.

        Args:
          features: float32 [n, hidden], what is known of the steps as a whole.
          action: int32 [n].
          legal, past: float32 [n, A + 1], before the steps.
          codes: the codes of the start graph's actions.
          carried: bool [n, A + 1], the single rewrites that everywhere-actions really carried out; () if that is to be
            predicted.
          earned: returns what matches earn; None if nobody asks.
        """
        steps = _Steps(features, action, legal, past, codes, carried, earned)
        actions = codes.inputs.actions
        if actions.places.shape[0] == 1:  # no everywhere-actions
            every_row = tf.range(tf.shape(action)[0])
            return _together(self._done(every_row, action, tf.ones_like(features[:, 0]), steps), features)
        stand = _standing(action, legal, actions)
        if features.shape[0] is None:
            rows, places = tf.unstack(tf.cast(tf.where(stand), tf.int32), axis=1)
            matches = tf.gather(tf.gather(actions.first, action), rows) + places
            return _together(self._done(rows, matches, tf.ones_like(rows, tf.float32), steps), features)
        return _together(self._in_chunks(stand, steps), features)

    def _in_chunks(self, stand: tf.Tensor, steps: _Steps) -> _Done:
        """Returns `_done` for all matches that stand, bool [n, S], in operations whose shapes are known beforehand."""
        n, most = stand.shape
        chunk = MATCHES_OF_STEP * n
        standing = tf.reshape(stand, [-1])
        numbers = tf.cumsum(tf.cast(standing, tf.int32), exclusive=True)
        total = numbers[-1] + tf.cast(standing[-1], tf.int32)
        first = tf.gather(steps.codes.inputs.actions.first, steps.action)

        def add(begin: tf.Tensor, *so_far: tf.Tensor) -> tuple[tf.Tensor, ...]:
            here = standing & (numbers >= begin) & (numbers < begin + chunk)
            found = tf.math.unsorted_segment_sum(tf.range(n * most), tf.where(here, numbers - begin, -1), chunk)
            rows = found // most
            matches = tf.gather(first, rows) + found % most
            there = tf.cast(begin + tf.range(chunk) < total, tf.float32)
            more = self._done(rows, matches, there, steps)
            return begin + chunk, *(sums + here for sums, here in zip(so_far, more, strict=True))

        nothing = (tf.zeros([n, steps.features.shape[1] + SUMS]), *[tf.zeros(steps.legal.shape)] * 2)
        return _Done(*tf.while_loop(lambda begin, *_: begin < total, add, (tf.constant(0), *nothing))[1:])

    def _done(self, rows: tf.Tensor, matches: tf.Tensor, there: tf.Tensor, steps: _Steps) -> _Done:
        """Returns what the matches of every step do together.

        Args:
          rows: int32 [m], the step of every match.
          matches: int32 [m], the match as a single rewrite.
          there: float32 [m], 0 for what only fills up a chunk.
          steps: the n steps.
        """
        inputs, n, width = steps.codes.inputs, tf.shape(steps.legal)[0], tf.shape(steps.legal)[1]
        rules, slots = tf.gather(inputs.neighbours.rows, matches), tf.gather(inputs.neighbours.slots, matches)
        places = rows[:, tf.newaxis] * width + slots
        bits = self._bits(places, tf.cast(slots < width - 1, tf.float32), steps)
        read = tf.reshape(self._read, [self._read.shape[0], -1, self._read.shape[3]])
        features = tf.nn.relu(tf.gather(steps.features, rows) + product_with_own(bits, rules, read))

        carried, surprise = self._carried(rows, matches, rules, features, steps)
        carried *= there
        earned = tf.zeros_like(carried)
        if self._carry and steps.earned is not None:
            earned = carried * steps.earned(rows, matches, features)
        sums = tf.stack([carried, earned, there * surprise], axis=1)
        sums = tf.concat([features * carried[:, tf.newaxis], sums], axis=1)
        change = product_with_own(features, rules, self._write) + tf.gather(self._bias, rules)
        # Empty slots point at the last column.
        changes = tf.math.unsorted_segment_sum(
            tf.reshape(change * carried[:, tf.newaxis], [-1]), tf.reshape(places, [-1]), n * width
        )
        taken = tf.math.unsorted_segment_sum(carried, rows * width + matches, n * width)
        by_action = (tf.reshape(each, [n, width]) for each in (changes, taken))
        return _Done(tf.math.unsorted_segment_sum(sums, rows, n), *by_action)

    def _bits(self, places: tf.Tensor, there: tf.Tensor, steps: _Steps) -> tf.Tensor:
        """Returns the bits of m matches, slot by slot, and of a slot kind by kind: [m, P · kinds].

        Args:
          places: int32 [m, P], where the bit of every slot is among all bits of the steps.
          there: float32 [m, P], 0 for empty slots.
        """
        bits = (2.0 * tf.gather(tf.reshape(steps.legal, [-1]), places) - 1.0) * there
        if not self._remembers:
            return bits
        past = tf.gather(tf.reshape(steps.past, [-1]), places) * there
        return tf.reshape(tf.stack([bits, past], axis=2), [-1, 2 * places.shape[1]])

    def _carried(
        self, rows: tf.Tensor, matches: tf.Tensor, rules: tf.Tensor, features: tf.Tensor, steps: _Steps
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns whether matches are carried out, 1 or 0, and the nats of this if the truth is told: [m] each."""
        one, nothing = tf.ones_like(features[:, 0]), tf.zeros_like(features[:, 0])
        if not self._carry:
            return one, nothing
        weights, bias = (tf.gather(each, rules) for each in self._carry)
        logits = tf.reduce_sum(features * weights, axis=1) + bias
        of_many = tf.gather(is_everywhere(steps.codes.inputs.actions), tf.gather(steps.action, rows))
        if isinstance(steps.carried, tuple):
            return tf.where(of_many, tf.cast(logits > 0.0, tf.float32), one), nothing
        places = rows * tf.shape(steps.legal)[1] + matches
        really = tf.cast(tf.gather(tf.reshape(steps.carried, [-1]), places), tf.float32)
        nats = tf.nn.sigmoid_cross_entropy_with_logits(really, logits)
        return tf.where(of_many, really, one), tf.where(of_many, nats, nothing)


SUMS = 3
"""Sums beside those of the features: the count, the rewards, the surprise."""


class _Done(NamedTuple):
    """Sums over matches: of the features and of `SUMS` other things [n, hidden + SUMS], and by action [n, A + 1]."""

    sums: tf.Tensor
    changes: tf.Tensor
    taken: tf.Tensor


def _together(done: _Done, features: tf.Tensor) -> CarriedOut:
    """Returns the sums of `Neighbourhood._done` in their form."""
    summed, (count, earned, surprise) = done.sums[:, :-SUMS], tf.unstack(done.sums[:, -SUMS:], axis=1)
    mean = tf.ensure_shape(summed / tf.maximum(count, 1.0)[:, tf.newaxis], features.shape)
    return CarriedOut(mean, count, earned, done.changes, done.taken, surprise)


def _standing(action: tf.Tensor, legal: tf.Tensor, actions: ActionInputs) -> tf.Tensor:
    """Returns the matches that may be carried out: bool [n, S].

    Place s of a step stands for the action `ActionInputs.first` + s: of an everywhere-action for a match of its rule,
    which stands if it is legal; of any other action for itself, in place 0.
    """
    width = tf.shape(legal)[1]
    places = tf.minimum(tf.gather(actions.first, action)[:, tf.newaxis] + actions.places, width - 1)
    legal_there = tf.gather(legal, places, batch_dims=1) > 0.5
    is_one = tf.logical_not(tf.gather(is_everywhere(actions), action))[:, tf.newaxis]
    return (actions.places < tf.gather(actions.spans, action)[:, tf.newaxis]) & (legal_there | is_one)


def with_everywhere_bits(bits: tf.Tensor, actions: ActionInputs) -> tf.Tensor:
    """Returns masks bool [n, A] in which everywhere-actions are legal if their rules are at two sites or more.

    That is when the environment offers them (`GraphSubstitutionEnv`). Their own bits in `bits` do not matter.
    """
    if actions.places.shape[0] == 1:
        return bits
    everywhere, groups = is_everywhere(actions)[:-1], actions.groups[:-1]
    sites = tf.cast(tf.transpose(bits & ~everywhere), tf.int32)  # sums along rows are much faster
    of_rule = tf.math.unsorted_segment_sum(sites, groups, tf.shape(actions.group_numbers)[0])
    return tf.where(everywhere, tf.gather(tf.transpose(of_rule >= 2), groups, axis=1), bits)
