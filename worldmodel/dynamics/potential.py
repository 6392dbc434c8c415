"""A potential: what a graph saves, as a sum over the rewrites that are legal and past in it, and over pairs of them.

A network that predicts the reward of every step adds up its mistakes, and whoever acts in a dream goes where they are
in its favour. What a state saves is no such sum: it is one number, and a mistake in it counts once. It is fitted to the
costs of the states that were visited, without training, and linear in the bits of the state (`data.past` says which
there are) and in products of two bits. Where a policy was lured to, it is right as soon as it has been there.

The weight of a bit is that of its rule plus a part of its own, which ridge regression holds small: what was never seen
at a site is taken from the other sites of its rule. Where kernels are fused, a rewrite saves something only beside
another one. Products are of bits near each other, and have one weight for all sites: that of the two rules, the kinds
of their bits and the distance between their sites. Those are taken that explain most of what single bits leave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from worldmodel.data.actions import ActionTable, pack
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import Episode, EpisodeBuffer

MOST_STATES = 10_000
"""States that are fitted; of more, as many are taken evenly."""
PENALTY = 0.3
"""Of the square of a rule's weight, in percent of the start graph's cost, beside the squared error of one state."""
OWN = 0.3
"""Size of a bit's own part beside the weight of its rule."""
KINDS_OF_BITS = 2
"""Legal and past."""
MOST_PRODUCTS, REACH, SEEN = 150, 20, 8
"""Number of products at most, the distance between their sites, and the states in which both bits have to be set."""
ALIKE = 0.98
"""The correlation from which a product tells nothing beside another one."""


class Potential(NamedTuple):
    """The potential of one start graph, in percent of its cost where z holds costs, else in the unit of rewards.

    Attributes:
      bits: float32 [A + 1, 2], the weights of the bits "legal" and "past" of every action; 0 for everywhere-actions and
        NO-OP.
      pairs: int32 [K, 2], pairs of bits: of action a, number a is whether it is legal and A + 1 + a whether it is past.
      weights: float32 [K], of their products.
    """

    bits: np.ndarray
    pairs: np.ndarray
    weights: np.ndarray


class RulePotential(NamedTuple):
    """What of a potential is the same on all graphs.

    Attributes:
      bits: float32 [R + 1, 2], the weights of the bits of every rule; 0 for rules that have no action.
      products: int32 [G, 5], the products: a rule, the kind of its bit, another rule, the kind of its bit, and the
        distance from the site of the first to that of the second.
      weights: float32 [G].
    """

    bits: np.ndarray
    products: np.ndarray
    weights: np.ndarray

    def on(self, table: ActionTable, share: float = 1.0) -> Potential:
        """Returns the potential of a graph with the actions of a table, in which everything saves a share of this."""
        bits = share * self.bits[table.rules] * ~table.is_everywhere[:, np.newaxis]
        found = [_sites(product, table) for product in self.products]
        pairs = np.concatenate([np.zeros((0, 2), np.int32), *found])
        weights = share * np.repeat(self.weights, [len(each) for each in found])
        return Potential(bits.astype(np.float32), pairs, weights.astype(np.float32))

    @classmethod
    def none(cls, num_rules: int) -> RulePotential:
        """Returns the potential of which everything is 0."""
        bits = np.zeros((num_rules + 1, KINDS_OF_BITS), np.float32)
        return cls(bits, np.zeros((0, 5), np.int32), np.zeros(0, np.float32))

    @classmethod
    def mean(cls, parts: list[RulePotential]) -> RulePotential:
        """Returns the mean of the potentials of graphs, for each rule and product over the graphs that have it."""
        bits = np.stack([part.bits for part in parts])
        there = np.maximum(np.any(bits != 0.0, axis=2).sum(axis=0), 1)[:, np.newaxis]
        products, place, counts = np.unique(
            np.concatenate([part.products for part in parts]), axis=0, return_inverse=True, return_counts=True
        )
        weights = np.bincount(place.ravel(), np.concatenate([part.weights for part in parts]), len(products)) / counts
        return cls((bits.sum(axis=0) / there).astype(np.float32), products.astype(np.int32), weights.astype(np.float32))


def _sites(product: np.ndarray, table: ActionTable) -> np.ndarray:
    """Returns the pairs of bits that a product stands for: int32 [n, 2]."""
    rule, kind, other, kind_of_other, distance = product.tolist()
    actions = np.flatnonzero((table.rules[:-1] == rule) & ~table.is_everywhere[:-1])
    places = table.locations[actions] + distance
    actions, places = actions[places >= 0], places[places >= 0]
    found = table.find_codes(pack(np.stack([np.full_like(places, other), places], axis=1)))
    there = (found >= 0) & ~table.is_everywhere[found]
    size = table.num_actions + 1
    return np.stack([actions + kind * size, found + kind_of_other * size], axis=1)[there].astype(np.int32)


def fitted(part: EpisodeBuffer, table: ActionTable, *, of_log_cost: bool) -> tuple[Potential, RulePotential]:
    """Returns the potential of a start graph, and what of it is the same on all graphs.

    Args:
      part: episodes of the start graph; their rewards are differences of costs.
      table: its A actions.
      of_log_cost: whether rewards are 100 · ln(cost before / cost after) of the costs that the agent saw.
    """
    single = np.flatnonzero(~table.is_everywhere[:-1])
    rules, group = np.unique(table.rules[single], return_inverse=True)
    bits, saved = _states(part, table, single, of_log_cost=of_log_cost)
    size, count = len(single), len(rules)
    of_rule = np.zeros((KINDS_OF_BITS * size, KINDS_OF_BITS * count), np.float32)
    of_rule[np.arange(len(of_rule)), np.concatenate([group + kind * count for kind in range(KINDS_OF_BITS)])] = 1.0
    features = np.concatenate([bits @ of_rule, OWN * bits], axis=1)
    left = saved - saved.mean() - _centred(features) @ _ridge(features, saved)
    products = _products(bits, left, table, single)
    together = [_sites(product, table) for product in products]
    size_of_table = table.num_actions + 1
    whole = np.zeros((len(bits), KINDS_OF_BITS * size_of_table), np.float32)
    whole[:, np.concatenate([single, size_of_table + single])] = bits
    of_products = [np.sum(whole[:, each[:, 0]] * whole[:, each[:, 1]], axis=1) for each in together]
    weights = _ridge(np.concatenate([features, *[column[:, np.newaxis] for column in of_products]], axis=1), saved)
    by_rule, own, by_product = np.split(weights, np.cumsum([of_rule.shape[1], of_rule.shape[0]]))
    rule_bits = np.zeros((table.num_rules + 1, KINDS_OF_BITS), np.float32)
    rule_bits[rules] = by_rule.reshape(KINDS_OF_BITS, -1).T
    rule = RulePotential(rule_bits, products, by_product.astype(np.float32))
    everything = rule.on(table)
    everything.bits[single] += (OWN * own).reshape(KINDS_OF_BITS, -1).T
    return everything, rule


def savings(episode: Episode, *, of_log_cost: bool) -> np.ndarray:
    """Returns what each state of an episode saves [T + 1], in the unit of a `Potential`."""
    if of_log_cost:
        return 100.0 * (1.0 - episode.seen_ms / episode.seen_ms[0])
    return np.concatenate([[0.0], np.cumsum(episode.rewards)])


def _states(
    part: EpisodeBuffer, table: ActionTable, single: np.ndarray, *, of_log_cost: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct states of episodes: their bits float32 [n, 2 · actions], and what they save [n]."""
    data, states = EpisodeData(part, table), []
    for row, episode in enumerate(part):
        whole = data.trajectory([row])
        bits = np.concatenate([each[:, 0, single] for each in (whole.legal, whole.past)], axis=1)
        saved = savings(episode, of_log_cost=of_log_cost)
        states.append((np.packbits(bits, axis=1), saved[: len(bits)]))
    packed, saved = (np.concatenate(column) for column in zip(*states, strict=True))
    _, first = np.unique(packed, axis=0, return_index=True)
    kept = np.sort(first)[:: 1 + len(first) // MOST_STATES]
    bits = np.unpackbits(packed[kept], axis=1, count=KINDS_OF_BITS * len(single))
    return bits.astype(np.float32), saved[kept]


def _products(bits: np.ndarray, left: np.ndarray, table: ActionTable, single: np.ndarray) -> np.ndarray:
    """Returns the products, as in `RulePotential`, that explain most of what is left to explain of n states.

    Args:
      bits: float32 [n, 2 · actions].
      left: [n], of mean 0.
      single: int [actions], the actions of the bits.
    """
    together = bits.T @ bits
    covered = bits.T @ (bits * left[:, np.newaxis].astype(np.float32))
    rules, locations = (np.tile(each[single], KINDS_OF_BITS) for each in (table.rules, table.locations))
    kinds = np.repeat(np.arange(KINDS_OF_BITS), len(single))
    distances = locations[np.newaxis] - locations[:, np.newaxis]
    codes = KINDS_OF_BITS * rules + kinds
    first = (codes[:, np.newaxis] < codes) | ((codes[:, np.newaxis] == codes) & (distances > 0))
    one, two = np.nonzero(first & (np.abs(distances) <= REACH) & (together >= SEEN))
    columns = np.stack([rules[one], kinds[one], rules[two], kinds[two], distances[one, two]], axis=1)
    products, place = np.unique(columns, axis=0, return_inverse=True)
    place = place.ravel()
    spread = together[one, two] * (1.0 - together[one, two] / len(bits))
    explained = np.abs(np.bincount(place, covered[one, two])) / np.sqrt(np.maximum(np.bincount(place, spread), 1.0))
    by_product = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
    chosen: list[int] = []
    known = np.zeros((0, len(bits)), np.float32)
    for number in np.argsort(-explained, kind="stable")[: 4 * MOST_PRODUCTS].tolist():
        members = by_product[number]
        column = _centred(np.sum(bits[:, one[members]] * bits[:, two[members]], axis=1))
        length = float(np.linalg.norm(column))
        if length > 0 and not np.any(np.abs(known @ (column / length)) > ALIKE):
            chosen.append(number)
            known = np.concatenate([known, column[np.newaxis] / length])
        if len(chosen) == MOST_PRODUCTS:
            break
    return products[chosen].astype(np.int32).reshape(-1, 5)


def _centred(values: np.ndarray) -> np.ndarray:
    centred: np.ndarray = values - values.mean(axis=0)
    return centred


def _ridge(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns the weights [p] of features [n, p] for targets [n], beside a constant that has no penalty."""
    features, targets = _centred(features), _centred(targets)
    if features.shape[0] > features.shape[1]:
        gram = (features.T @ features).astype(float) + PENALTY * np.eye(features.shape[1])
        return np.linalg.solve(gram, features.T @ targets)
    gram = (features @ features.T).astype(float) + PENALTY * np.eye(features.shape[0])
    weights: np.ndarray = features.T @ np.linalg.solve(gram, targets)
    return weights
