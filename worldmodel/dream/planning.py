"""Planners: searches for the sequence of rewrites that a dream promises the most for.

Both take the dream's steps and obey its masks. A plan may end after any of its rewrites, so NO-OP is never searched.
Rewards telescope, in the dream itself (`worldmodel.dream.settlement`) and over what came before the origin: a plan that
comes back to the legal actions of one of its earlier states has earned nothing in between. Give both a dream of
temperature 0, because then its promise depends on the plan alone.

| `beam_search`            | keeps the best `width` states of every depth (Lowerre 1976)                          |
| `cross_entropy_planning` | refits a distribution over plans to the best that it drew (Rubinstein & Kroese 2004) |

The controller `mpc` plans from every state of an episode. From the start state, both are stronger exploiters of a world
model than a learned policy: `worldmodel.accuracy.exploit.plan_replayed` tries their plans in reality.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.step import DreamState
from worldmodel.errors import NonFinitePrediction

ROWS_AT_ONCE = 1024
"""Most rows of one dreamed step: with several thousand, the networks' intermediate results would fill the memory."""
LEAST_SHARE = 1e-9
"""Share with which actions without any are drawn: too small to matter where others are legal, and sums keep it."""
ANY_TIME = 0.05
"""Share of a step's distribution that comes from all steps of the best plans, because a rewrite that pays at one step
may pay at another. A trained model of SqueezeNet1.1 promised plans 18 to 20 % with 0.5, and 40 % with 0.05."""


@dataclass(frozen=True)
class Plan:
    """A sequence of rewrites and the returns that a dream promises for it.

    Attributes:
      actions: T indices into the dream's table; none is NO-OP.
      totals: T numbers, the sum of rewards after each rewrite, in percent of logarithm.
    """

    actions: tuple[int, ...]
    totals: tuple[float, ...]

    @property
    def total(self) -> float:
        """The promised return of the whole plan; 0 for an empty plan."""
        return self.totals[-1] if self.totals else 0.0


class Origin(NamedTuple):
    """Where plans begin: a state in the middle of an episode, and what came before it.

    Attributes:
      state: the state, with one row.
      masks: bool [n + 1, A + 1], the legal actions of the episode's states so far; the last is that of `state`.
      totals: float64 [n + 1], the sum of rewards up to each of these states.
    """

    state: DreamState
    masks: np.ndarray
    totals: np.ndarray

    @classmethod
    def of(cls, state: DreamState) -> Origin:
        """Returns the origin of plans that begin an episode in a state."""
        return cls(state, state.action_mask.numpy(), np.zeros(1))


class _Visited(NamedTuple):
    """The states and returns that n plans have passed, those before their origin first.

    Attributes:
      states: uint64 [n, t + 1], codes of the legal actions before and after every step.
      totals: float64 [n, t + 1], the telescoped sum of rewards before and after every step; 0 at the origin.
    """

    states: np.ndarray
    totals: np.ndarray

    @classmethod
    def start(cls, codes: np.ndarray, origin: Origin, plans: int = 1) -> _Visited:
        """Returns the record of plans without a step."""
        states, totals = _code(codes, origin.masks), origin.totals - origin.totals[-1]
        return cls(np.tile(states, (plans, 1)), np.tile(totals, (plans, 1)))

    def after(self, parents: np.ndarray, states: np.ndarray, rewards: np.ndarray) -> tuple[_Visited, np.ndarray]:
        """Returns the record of plans that are one step longer, and which of them came back to an earlier state.

        Args:
          parents: int [m], the plan that each longer plan continues.
          states: uint64 [m], codes of the legal actions after the step.
          rewards: [m], the rewards of the step.
        """
        same = self.states[parents] == states[:, np.newaxis]
        returned = same.any(axis=1)
        earned = np.where(returned, self.totals[parents, same.argmax(axis=1)], self.totals[parents, -1] + rewards)
        columns = (self.states[parents], states), (self.totals[parents], earned)
        longer = (np.concatenate([before, new[:, np.newaxis]], axis=1) for before, new in columns)
        return _Visited(*longer), returned


def _code(codes: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Returns a number for each set of legal actions: masks [n, A + 1] to uint64 [n]. Equal sets have equal numbers."""
    actions, begins, ends = _legal(mask)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(codes[actions])])
    result: np.ndarray = sums[ends] - sums[begins]  # of a few of the table's actions; it may wrap around
    return result


def _legal(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the legal actions of all rows, one row after the other, and where those of each row begin and end."""
    flat = np.flatnonzero(mask)
    rows, actions = np.divmod(flat, mask.shape[1])
    ends = np.cumsum(np.bincount(rows, minlength=len(mask)))
    return actions, np.concatenate([[0], ends[:-1]]), ends


def _draw_codes(dream: DreamEnv) -> np.ndarray:
    """Draws a random number for every action: uint64 [A + 1]. The sums of two different sets hardly ever agree."""
    generator = np.random.default_rng(0)
    return generator.integers(2**63, size=dream.num_actions + 1, dtype=np.uint64)


class _Step(NamedTuple):
    """The result of a dreamed step of n rows: the state, float64 rewards [n] and bool terminals [n]."""

    state: DreamState
    rewards: np.ndarray
    terminals: np.ndarray


def _step(dream: DreamEnv, state: DreamState, rows: np.ndarray | None, actions: np.ndarray, depth: int) -> _Step:
    """Takes actions [n] from the states of some rows [n], or of all n with None.

    Raises:
      NonFinitePrediction: if a reward is NaN or infinite.
    """
    parts = list(_chunks(dream, state, rows, actions, depth))
    states, rewards, terminals = zip(*parts, strict=True)
    reached: DreamState = states[0]
    if len(states) > 1:
        reached = tf.nest.map_structure(lambda *fields: tf.concat(fields, axis=0), *states)
    found = _Step(reached, np.concatenate(rewards).astype(np.float64), np.concatenate(terminals))
    if not np.isfinite(found.rewards).all():
        raise NonFinitePrediction(
            f"{np.sum(~np.isfinite(found.rewards))} of {len(actions)} dreamed rewards of step {depth + 1} are NaN or "
            "infinite: train the world model again, with smaller learning rates or another seed"
        )
    return found


def _chunks(
    dream: DreamEnv, state: DreamState, rows: np.ndarray | None, actions: np.ndarray, depth: int
) -> Iterator[tuple[DreamState, np.ndarray, np.ndarray]]:
    if rows is None and len(actions) > ROWS_AT_ONCE:
        rows = np.arange(len(actions))
    for begin in range(0, len(actions), ROWS_AT_ONCE):
        chunk = slice(begin, begin + ROWS_AT_ONCE)
        before = state if rows is None else rows_of(state, rows[chunk])
        reached, reward, terminal = dream.step(
            before, tf.constant(actions[chunk], tf.int32), tf.constant([0, depth], tf.int32)
        )
        yield reached, reward.numpy(), terminal.numpy()


def rows_of(state: DreamState, rows: np.ndarray) -> DreamState:
    """Returns some rows of a state."""
    found: DreamState = tf.nest.map_structure(lambda field: tf.gather(field, rows), state)
    return found


def _plan(actions: np.ndarray, totals: np.ndarray) -> Plan:
    """Returns the plan of actions [T] and totals [T + 1], up to the greatest total."""
    end = int(totals.argmax())
    return Plan(tuple(actions[:end].tolist()), tuple(totals[1 : end + 1].tolist()))


def beam_search(dream: DreamEnv, *, width: int, depth: int) -> Plan:
    """Returns the best plan among all rewrites of the `width` best states of every depth.

    States are ranked by the dreamed return of the plan that led to them. Plans that end with the same legal actions are
    mostly orders of the same rewrites. The best of them is kept first; the others only get places that remain.

    Args:
      dream: a dream with one start state.
      width: how many states of a depth the search continues from; at least 1.
      depth: how many rewrites a plan has at most; at least 1.
    Returns:
      The plan; it is empty if no plan is promised a gain.
    Raises:
      ValueError: if the width or the depth is below 1.
      NonFinitePrediction: if a dreamed reward is NaN or infinite.
    """
    _require_positive(width=width, depth=depth)
    codes = _draw_codes(dream)
    state = dream.start(1, tf.constant([0, 0], tf.int32))
    visited = _Visited.start(codes, Origin.of(state))
    taken = np.zeros((1, 0), np.int32)
    best = Plan((), ())
    for level in range(depth):
        parents, actions = np.nonzero(state.action_mask.numpy()[:, :-1])
        if not len(parents):
            break
        step = _step(dream, state, parents, actions, level)
        reached = _code(codes, step.state.action_mask.numpy())
        candidates, returned = visited.after(parents, reached, step.rewards)
        sequences = np.concatenate([taken[parents], actions[:, np.newaxis].astype(np.int32)], axis=1)
        totals = candidates.totals[:, -1]
        first = int(totals.argmax())
        if totals[first] > best.total:
            best = _plan(sequences[first], candidates.totals[first])
        kept = _best_states(totals, reached, returned, step.terminals)[:width]
        if not len(kept):
            break
        state = rows_of(step.state, kept)
        visited, taken = _Visited(*(field[kept] for field in candidates)), sequences[kept]
    return best


def _best_states(totals: np.ndarray, states: np.ndarray, returned: np.ndarray, terminals: np.ndarray) -> np.ndarray:
    """Returns the rows that a search can continue from, best first; rows that repeat a state come last."""
    order = np.argsort(-totals, kind="stable")
    order = order[~terminals[order]]
    _, first = np.unique(states[order], return_index=True)
    again = np.ones(len(order), bool)
    again[first] = False
    kept: np.ndarray = order[np.argsort(again | returned[order], kind="stable")]
    return kept


def cross_entropy_planning(
    dream: DreamEnv,
    *,
    depth: int,
    population: int,
    elites: int,
    iterations: int,
    seed: int,
    smoothing: float = 0.4,
    origin: Origin | None = None,
    guess: Sequence[int] = (),
    loops: bool = True,
) -> Plan:
    """Returns the best plan that was drawn from a distribution over plans, which is refitted to the best plans.

    The distribution is categorical over the actions for every step, restricted to the actions that the dream considers
    legal when a plan is drawn. It begins uniform. After each iteration it moves towards the actions of the `elites`
    best plans of all iterations; each plan counts up to its greatest return.

    Args:
      dream: a dream, which has one start state if there is no origin.
      depth: how many rewrites a plan has at most.
      population: how many plans are drawn in each iteration.
      elites: how many plans the distribution is fitted to.
      iterations: how often plans are drawn and the distribution is refitted.
      seed: the seed of every draw.
      smoothing: how far the distribution moves in an iteration, in (0, 1].
      origin: where the plans begin; by default in the dream's start state. A plan that comes back to an earlier state
        of the episode has lost what was earned since then.
      guess: actions that one of the first plans takes as far as they are legal.
      loops: whether a plan goes on after it has come back to an earlier state. Whoever plans again and again must not
        let it: a plan that first takes a loop is promised as much as one without, and the next plan would loop again.
    Returns:
      The plan; it is empty if no plan is promised a gain.
    Raises:
      ValueError: if a number is below 1, or the smoothing is outside its range.
      NonFinitePrediction: if a dreamed reward is NaN or infinite.
    Source: Rubinstein & Kroese 2004, "The Cross-Entropy Method", sections 2.4 and 4.
    """
    _require_positive(depth=depth, population=population, elites=elites, iterations=iterations)
    if not 0 < smoothing <= 1:
        raise ValueError(f"smoothing must lie above 0 and be at most 1, got {smoothing}")
    generator = np.random.default_rng(seed)
    shares = np.full((depth, dream.num_actions), 1.0 / max(1, dream.num_actions))
    origin = origin or Origin.of(dream.start(1, tf.constant([0, 0], tf.int32)))
    best: list[Plan] = []
    for iteration in range(iterations):
        best += _drawn_plans(dream, origin, shares, population, generator, () if iteration else guess, loops)
        best = sorted(set(best), key=lambda plan: (-plan.total, len(plan.actions), plan.actions))[:elites]
        counts = np.zeros_like(shares)
        for plan in best:
            counts[np.arange(len(plan.actions)), list(plan.actions)] += 1.0
        if not counts.any():  # no plan is promised a gain
            continue
        at_step, at_any = counts.sum(axis=1, keepdims=True), counts.sum(axis=0) / counts.sum()
        fitted = np.where(at_step > 0, (1 - ANY_TIME) * counts / np.maximum(at_step, 1.0) + ANY_TIME * at_any, at_any)
        shares = (1 - smoothing) * shares + smoothing * fitted
    return best[0]


def _drawn_plans(
    dream: DreamEnv,
    origin: Origin,
    shares: np.ndarray,
    population: int,
    generator: np.random.Generator,
    guess: Sequence[int],
    loops: bool,
) -> list[Plan]:
    """Draws plans from the shares [depth, A] of the actions of every step; each ends at its greatest return.

    The first plan follows the guess as far as it is legal.
    """
    codes, rows = _draw_codes(dream), np.arange(population)
    state: DreamState = tf.nest.map_structure(lambda field: tf.repeat(field, population, axis=0), origin.state)
    visited = _Visited.start(codes, origin, population)
    taken = np.zeros((population, len(shares)), np.int32)
    over = np.zeros(population, bool)
    # If only actions without any share are legal, one of them is still drawn.
    for t, likely in enumerate(np.maximum(shares, LEAST_SHARE)):
        mask = state.action_mask.numpy()
        drawn, possible = _drawn(mask, likely, generator)
        over |= ~possible
        if over.all():
            break
        if t < len(guess) and mask[0, guess[t]]:
            drawn[0] = guess[t]
        taken[:, t] = np.where(over, dream.num_actions, drawn)
        step = _step(dream, state, None, taken[:, t], t)
        state = step.state
        # NO-OP leaves the mask as it is, so a plan that is over stays in its state and earns nothing.
        visited, returned = visited.after(rows, _code(codes, state.action_mask.numpy()), step.rewards)
        over |= step.terminals | (returned & (not loops))
    steps = len(origin.totals) - 1
    return [_plan(actions, totals[steps:]) for actions, totals in zip(taken, visited.totals, strict=True)]


def _drawn(mask: np.ndarray, shares: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws an action of every row among its legal ones, by their shares, which need not add up to 1.

    Args:
      mask: bool [B, A + 1], the last column is NO-OP, which is never drawn.
      shares: [A], all above 0.
    Returns:
      The actions int [B], and whether a row has any: bool [B].
    """
    actions, begins, ends = _legal(mask[:, :-1])
    sums = np.concatenate([[0.0], np.cumsum(shares[actions])])
    possible = ends > begins
    points = sums[begins] + generator.random(len(mask)) * (sums[ends] - sums[begins])
    found = np.clip(np.searchsorted(sums, points, side="right") - 1, begins, np.maximum(ends - 1, begins))
    drawn = np.zeros(len(mask), np.int64)
    drawn[possible] = actions[found[possible]]
    return drawn, possible


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
