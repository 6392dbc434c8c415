"""Lies by omission: rewrites that are legal and pay in reality, and that a dream does not offer.

A policy cannot take what its dream does not offer. Its dream and reality then agree on all that it does, and no gap
shows what it has missed. So states are asked for the rewrites that really pay there, which the engine knows exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from environment.policies.greedy import ForeseeingEnv
from environment.rewards import Reward
from worldmodel.accuracy import metrics
from worldmodel.accuracy.figures import MODEL, RESAMPLES, Columns, Figure, FigureMaker
from worldmodel.config import PAYS_PERCENT
from worldmodel.data.actions import ActionTable, pack, unpack
from worldmodel.data.episodes import EpisodeBuffer, RewriteEnv

if TYPE_CHECKING:  # tables that only name figures must not import TensorFlow
    from worldmodel.accuracy.baselines import Trivial
    from worldmodel.accuracy.open_loop import OpenLoop, Windows

PAYING_RECALL = "rewrites that pay: share that the dream offers"
GAIN_RECALL = "rewrites that pay: share of their gain that the dream offers"


class PayingEnv(RewriteEnv, ForeseeingEnv, Protocol):
    """A real environment that knows what each legal rewrite of its state costs; `GraphSubstitutionEnv` fulfils it."""

    @property
    def reward(self) -> Reward:
        """What it pays for a rewrite."""
        ...


class Paying(NamedTuple):
    """The rewrites that are legal in a state and pay.

    Attributes:
      codes: int32 [n], packed (rule, location) pairs.
      gains: float64 [n], 100 · ln(cost before / cost after).
    """

    codes: np.ndarray
    gains: np.ndarray


def paying_rewrites(env: ForeseeingEnv) -> Paying:
    """Returns the rewrites that pay in the present state of an environment."""
    rules, locations, costs_ms = env.candidates()
    gains = 100.0 * np.log(env.state.cost.ms / np.asarray(costs_ms, float))
    pays = gains > PAYS_PERCENT
    return Paying(pack(np.stack([rules[pays], locations[pays]], axis=-1)), gains[pays])


class Offers(NamedTuple):
    """The rewrites that pay in some states, and which of them a dream offers.

    Attributes:
      states: int [n], the number of the state that each rewrite is legal in.
      rules: int [n], the rule of each rewrite.
      gains: float64 [n], see `Paying`.
      offered: bool [n], whether the dream considers the rewrite legal in that state.
    """

    states: np.ndarray
    rules: np.ndarray
    gains: np.ndarray
    offered: np.ndarray

    @classmethod
    def of(cls, table: ActionTable, paying: Sequence[Paying], legal: np.ndarray) -> Offers:
        """Compares what pays in m states with a dream's masks bool [m, at least A] of them.

        A rewrite that the table does not hold is not offered.
        """
        states = np.repeat(np.arange(len(paying)), [len(each.codes) for each in paying])
        codes = np.concatenate([np.zeros(0, np.int32), *(each.codes for each in paying)])
        gains = np.concatenate([np.zeros(0), *(each.gains for each in paying)])
        actions = table.find_codes(codes)
        known = actions >= 0
        offered = np.zeros(len(codes), bool)
        offered[known] = legal[states[known], actions[known]]
        return cls(states, unpack(codes)[:, 0], gains, offered)

    @classmethod
    def joined(cls, parts: Iterable[Offers]) -> Offers:
        """Returns the offers of all parts, whose states are numbered anew."""
        found, first = [NOTHING_PAYS], 0
        for part in parts:
            found.append(part._replace(states=part.states + first))
            first += int(part.states.max(initial=-1)) + 1
        return cls(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def counts(self, states: int) -> np.ndarray:
        """Returns how many rewrites are offered and how many pay in each of the states: float64 [states, 2]."""
        return self._sums(np.ones_like(self.gains), states)

    def payable(self, states: int) -> np.ndarray:
        """Returns the gain of what is offered and of all that pays in each of the states: float64 [states, 2]."""
        return self._sums(self.gains, states)

    def _sums(self, weights: np.ndarray, states: int) -> np.ndarray:
        columns = [np.bincount(self.states, each, minlength=states) for each in (weights * self.offered, weights)]
        return np.stack(columns, axis=-1)

    @property
    def recall(self) -> float:
        """The share of the rewrites that the dream offers; NaN if nothing pays."""
        return metrics.ratio(self.offered.sum(), len(self.offered))

    @property
    def gain_recall(self) -> float:
        """The same with each rewrite weighted by its gain."""
        return metrics.ratio(self.gains[self.offered].sum(), self.gains.sum())

    def omitted(self) -> dict[int, float]:
        """Returns the sum of the gains that are not offered by rule, the largest first."""
        missed: Counter[int] = Counter()
        for rule, gain in zip(self.rules[~self.offered].tolist(), self.gains[~self.offered].tolist(), strict=True):
            missed[rule] += gain
        return dict(missed.most_common())

    def facts(self, rule_names: Sequence[str]) -> dict[str, Any]:
        """Returns what a run keeps of the offers.

        Returns:
          "paying": how many rewrites pay; "offered": the share of them that the dream offers, None if nothing pays;
          "omitted": the sum of the gains that it does not offer, by the name of the rule.
        """
        return {
            "paying": len(self.offered),
            "offered": self.recall if len(self.offered) else None,
            "omitted": {rule_names[rule]: gain for rule, gain in self.omitted().items()},
        }


NOTHING_PAYS = Offers(np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(0, bool))


def paying_along(
    env: PayingEnv, buffer: EpisodeBuffer, windows: Windows, steps: Sequence[int]
) -> dict[int, list[Paying]]:
    """Replays the episodes of windows and returns, for each number of steps, what pays after it in every window.

    Args:
      env: the environment that the episodes were played in.
      buffer: the episodes, whose actions must be named by their site.
      windows: windows of the episodes.
      steps: numbers of steps, at most `windows.steps`.
    Raises:
      ValueError: if the episodes do not lead to the same graphs in this environment.
    """
    places = list(zip(windows.episode.tolist(), windows.depth.tolist(), strict=True))
    wanted: dict[int, set[int]] = {}
    for row, depth in places:
        wanted.setdefault(row, set()).update(depth + step for step in steps)
    found = {row: _replayed(env, buffer, row, times) for row, times in wanted.items()}
    return {step: [found[row][depth + step] for row, depth in places] for step in steps}


def _replayed(env: PayingEnv, buffer: EpisodeBuffer, row: int, times: set[int]) -> Mapping[int, Paying]:
    """Returns what pays at some times of an episode."""
    episode, found = buffer[row], {}
    _, info = env.reset()
    for t in range(max(times) + 1):
        if info["graph_hash"] != episode.hashes[t]:
            raise ValueError(
                f"episode {row} leads to the graph {info['graph_hash']} after {t} steps, and led to "
                f"{episode.hashes[t]} when it was played: give the environment that it was played in, and actions "
                "that are named by their site"
            )
        if t in times:
            found[t] = paying_rewrites(env)
        if t < max(times):
            *_, info = env.step(episode.actions[t])
    return found


def offers_after(played: OpenLoop, paying: Sequence[Paying], table: ActionTable, step: int) -> Offers:
    """Returns the offers of open-loop predictions after some steps; `paying` has what pays there in each window."""
    return Offers.of(table, paying, played.dreamed.legal[step])


def paying_figures(
    played: OpenLoop,
    trivial: Trivial,
    paying: Sequence[Paying],
    table: ActionTable,
    step: int,
    *,
    resamples: int = RESAMPLES,
) -> list[Figure]:
    """Returns the figures of the rewrites that pay after `step` steps.

    Args:
      played: predictions at the probability from which the dream considers rewrites legal.
      paying: for each window what pays after these steps, see `paying_along`.
      table: the actions of the model.
    """
    windows = len(played.real.episode)
    masks = {MODEL: played.dreamed.legal[step], **trivial.masks(played.real)}
    offers = {key: Offers.of(table, paying, mask) for key, mask in masks.items()}
    make = FigureMaker(played.real.episode, step, resamples).make
    counts: Mapping[str, Columns] = {key: (each.counts(windows),) for key, each in offers.items()}
    gains: Mapping[str, Columns] = {key: (each.payable(windows),) for key, each in offers.items()}
    return [
        make(PAYING_RECALL, metrics.share, counts),
        make(GAIN_RECALL, metrics.share, gains),
    ]
