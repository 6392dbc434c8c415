"""The action table: the distinct (rule, location) pairs that were ever legal in the collected data.

A rewrite is of the kind of its rule. An everywhere-action is of a kind of its own, because it does the work of many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

# A pair packs into one non-negative int32: 11 bits of rule, 20 bits of location. Both limits are far above what a rule
# file or a graph reaches; `pack` checks them.
LOCATION_BITS = 20
MAX_RULES = 1 << (31 - LOCATION_BITS)
MAX_LOCATIONS = 1 << LOCATION_BITS


def pack(pairs: np.ndarray) -> np.ndarray:
    """Packs (rule, location) pairs into int32 codes that sort like the pairs.

    Args:
      pairs: integer [n, 2].
    Returns:
      int32 [n].
    Raises:
      ValueError: if a rule or location does not fit.
    """
    rules, locations = np.asarray(pairs, np.int64).reshape(-1, 2).T
    fits = (rules >= 0) & (rules < MAX_RULES) & (locations >= 0) & (locations < MAX_LOCATIONS)
    if not fits.all():
        raise ValueError(
            f"actions must be (rule, location) pairs with 0 <= rule < {MAX_RULES} and 0 <= location < {MAX_LOCATIONS}, "
            f"got {np.stack([rules, locations], axis=-1)[~fits][0].tolist()}"
        )
    return ((rules << LOCATION_BITS) | locations).astype(np.int32)


def unpack(codes: np.ndarray) -> np.ndarray:
    """Inverts `pack`: int32 [n] to int32 [n, 2]."""
    codes = np.asarray(codes, np.int32)
    return np.stack([codes >> LOCATION_BITS, codes & (MAX_LOCATIONS - 1)], axis=-1)


def num_kinds(num_rules: int, everywhere: int | None) -> int:
    """Returns the number of kinds: of R rules and NO-OP, and of R everywhere-actions if there are any."""
    return num_rules + 1 + (0 if everywhere is None else num_rules)


def kinds_of(pairs: np.ndarray, num_rules: int, everywhere: int | None) -> np.ndarray:
    """Returns the kinds of actions: int32 [n]; the rule, R for NO-OP, and R + 1 + rule for everywhere-actions.

    Args:
      pairs: integer [n, 2], (rule, location).
      num_rules: R.
      everywhere: the location of everywhere-actions; None if there are none.
    """
    rules, locations = np.asarray(pairs, np.int32).reshape(-1, 2).T
    if everywhere is None:
        return rules
    there = (locations == everywhere) & (rules < num_rules)
    return np.where(there, num_rules + 1 + rules, rules).astype(np.int32)


@dataclass(frozen=True, eq=False)
class ActionTable:
    """The table of A known rewrites, and of NO-OP, which has index A.

    Attributes:
      codes: int32 [A], packed (rule, location) pairs, sorted and distinct.
      num_rules: R; an environment action with rule R is NO-OP.
      everywhere: the location of everywhere-actions; None if the environment has none.
    """

    codes: np.ndarray
    num_rules: int
    everywhere: int | None = None

    def __post_init__(self) -> None:
        if np.any(np.diff(self.codes) <= 0):
            raise ValueError("the codes of an ActionTable must be sorted and distinct; use ActionTable.of_codes")
        if self.codes.size and unpack(self.codes[-1:])[0, 0] >= self.num_rules:
            last = unpack(self.codes[-1:])[0, 0]
            raise ValueError(f"a table for {self.num_rules} rules cannot hold rule {last}; pass all rules' number")

    @classmethod
    def of_codes(cls, codes: np.ndarray, num_rules: int, everywhere: int | None = None) -> ActionTable:
        """Returns the table of all distinct `codes` (any order, repetitions allowed)."""
        return cls(np.unique(np.asarray(codes, np.int32)), int(num_rules), everywhere)

    @property
    def num_actions(self) -> int:
        """A, the number of rewrites in the table without NO-OP, and the index of NO-OP."""
        return int(self.codes.size)

    @cached_property
    def rules(self) -> np.ndarray:
        """The rule of every action: int32 [A + 1]; R for NO-OP."""
        return np.append(unpack(self.codes)[:, 0], self.num_rules).astype(np.int32)

    @cached_property
    def locations(self) -> np.ndarray:
        """The location of every action: int32 [A + 1]; 0 for NO-OP, for which it means nothing."""
        return np.append(unpack(self.codes)[:, 1], 0).astype(np.int32)

    @cached_property
    def is_everywhere(self) -> np.ndarray:
        """Which actions are everywhere-actions: bool [A + 1]."""
        if self.everywhere is None:
            return np.zeros(self.num_actions + 1, bool)
        return np.append(self.locations[:-1] == self.everywhere, False)

    @cached_property
    def single_rewrites(self) -> tuple[np.ndarray, np.ndarray]:
        """The single rewrites that actions may carry out, as first action and number of actions: int32 [A + 1] each.

        For an everywhere-action these are all actions of its rule at one site, which precede it; every other action is
        its own only one.
        """
        own = np.arange(self.num_actions + 1)
        first = np.where(self.is_everywhere, np.searchsorted(self.rules[:-1], self.rules), own)
        return first.astype(np.int32), np.where(self.is_everywhere, own - first, 1).astype(np.int32)

    @cached_property
    def kinds(self) -> np.ndarray:
        """The kind of every action, see `kinds_of`: int32 [A + 1]."""
        pairs = np.stack([self.rules, self.locations], axis=-1)
        return kinds_of(pairs, self.num_rules, self.everywhere)

    @cached_property
    def sites(self) -> np.ndarray:
        """The site of every action: int32 [A + 1], locations renumbered without gaps; the last is that of NO-OP."""
        distinct, ids = np.unique(self.locations[:-1], return_inverse=True)
        return np.append(ids, distinct.size).astype(np.int32)

    @property
    def num_sites(self) -> int:
        """The number of distinct locations in the table, and one more for NO-OP."""
        return int(self.sites[-1]) + 1

    def find_codes(self, codes: np.ndarray) -> np.ndarray:
        """Returns the index of every packed code, -1 if the table does not hold it: int32 [n]."""
        if not self.num_actions:
            return np.full(np.shape(codes), -1, np.int32)
        slots = np.minimum(np.searchsorted(self.codes, codes), self.num_actions - 1)
        return np.where(self.codes[slots] == codes, slots, -1).astype(np.int32)

    def encode(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the index of every (rule, location) pair; A for NO-OP, -1 if the table does not hold the pair.

        Args:
          pairs: integer [n, 2].
        Returns:
          int32 [n].
        """
        pairs = np.asarray(pairs).reshape(-1, 2)
        noop = pairs[:, 0] == self.num_rules
        found = self.find_codes(pack(np.where(noop[:, np.newaxis], 0, pairs)))
        return np.where(noop, self.num_actions, found).astype(np.int32)

    def decode(self, actions: np.ndarray) -> np.ndarray:
        """Returns the (rule, location) of every index in [0, A]: int32 [n, 2]; NO-OP becomes (R, 0).

        Raises:
          ValueError: if an index is outside [0, A].
        """
        actions = np.atleast_1d(actions)
        outside = actions[(actions < 0) | (actions > self.num_actions)]
        if outside.size:
            raise ValueError(f"actions must lie in [0, {self.num_actions}] (the last is NO-OP), got {outside[0]}")
        return np.stack([self.rules[actions], self.locations[actions]], axis=-1)

    def mask(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the mask of the legal `pairs`: bool [A + 1]; NO-OP is true, pairs outside the table are left out."""
        mask = np.zeros(self.num_actions + 1, bool)
        indices = self.encode(pairs)
        mask[indices[indices >= 0]] = True
        mask[-1] = True
        return mask

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns arrays for `np.savez`."""
        everywhere = {} if self.everywhere is None else {"everywhere": np.array(self.everywhere)}
        return {"codes": self.codes, "num_rules": np.array(self.num_rules)} | everywhere

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> ActionTable:
        """Inverts `to_arrays`."""
        everywhere = int(arrays["everywhere"]) if "everywhere" in arrays else None
        return cls(np.asarray(arrays["codes"], np.int32), int(arrays["num_rules"]), everywhere)
