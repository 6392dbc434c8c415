"""The legal rewrites of the graphs that a dream comes to, from the engine, which knows them exactly.

What a rewrite makes of a graph is known and costs no measurement; only what a machine takes for the graph has to be
learned. A predicted mask is wrong where a rewrite needs several others before it, and a controller finds such places:
on `generated-102`, all that `cmaes` dreamed wrongly was one fusion of attention heads, worth 6.3 points. With
`DreamConfig.legality="exact"` the engine follows the rewrites of a dream and says what is legal; latents and rewards
are predicted as ever. The engine prices these graphs by a roofline, whatever the environment's costs are, so that a
dream measures nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np

from environment import GraphSubstitutionEnv
from taso_ext import State
from worldmodel.data.actions import ActionTable

MOST_STATES = 4096
"""Graphs that are held at a time; others are made again from the rewrites that led to them."""


class Structure:
    """Graphs that rewrites have led to, each with a number; 0 is the start graph. No step of an episode is taken."""

    def __init__(self, env: GraphSubstitutionEnv, table: ActionTable) -> None:
        """
        Args:
          env: the real environment, whose episode is not touched.
          table: the actions of the dream, of the same start graph.
        """
        self._env, self._noop = env, table.num_actions
        self._pairs = table.decode(np.arange(table.num_actions)).tolist()
        unknown = table.num_actions + 1
        self._slots = np.full((env.num_rules, env.num_places), unknown, np.int32)  # of [rule, location] in the table
        self._slots[table.rules[:-1], table.locations[:-1]] = np.arange(table.num_actions)
        start = env.unmeasured_start()
        self._masks = [self._packed(start)]
        self._origins = [(0, self._noop)]  # of each graph, the one before it, and the rewrite that led to it
        self._after: dict[tuple[int, int], int] = {}
        self._states = OrderedDict({0: start})

    def step(self, graphs: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the masks bool [B, A + 1] and the numbers int64 [B] of the graphs after a rewrite in each of B rows.

        Args:
          graphs: int64 [B], numbers of graphs.
          actions: int32 [B] in [0, A]; NO-OP, which is A, leaves a graph as it is.
        Raises:
          ValueError: a rewrite is not legal in its graph.
        """
        reached = np.array([self._reached(*pair) for pair in zip(graphs.tolist(), actions.tolist(), strict=True)])
        return self.masks(reached), reached.astype(np.int64)

    def along(self, actions: Iterable[int], graph: int = 0) -> np.ndarray:
        """Returns the numbers int64 [T + 1] of the graphs before and after each of T actions, which begin at a graph.

        Raises:
          ValueError: a rewrite is not legal in its graph.
        """
        numbers = [graph]
        for action in actions:
            numbers.append(self._reached(numbers[-1], int(action)))
        return np.array(numbers, np.int64)

    def masks(self, graphs: Sequence[int] | np.ndarray) -> np.ndarray:
        """Returns the legal actions of graphs by their numbers: bool [B, A + 1]; NO-OP is always legal."""
        packed = np.stack([self._masks[number] for number in graphs])
        return np.unpackbits(packed, axis=1, count=self._noop + 1).astype(bool)

    def _reached(self, number: int, action: int) -> int:
        if action == self._noop:
            return number
        key = number, action
        if key not in self._after:
            state = self._moved(self._state(number), action)
            self._after[key] = len(self._masks)
            self._masks.append(self._packed(state))
            self._origins.append(key)
            self._hold(self._after[key], state)
        return self._after[key]

    def _state(self, number: int) -> State:
        """Returns a graph; if it is not held any more, it is made again from the nearest one before it that is."""
        missing: list[int] = []
        while number not in self._states:
            missing.append(number)
            number = self._origins[number][0]
        state = self._states[number]
        if number:
            self._states.move_to_end(number)
        for later in reversed(missing):
            state = self._moved(state, self._origins[later][1])
            self._hold(later, state)
        return state

    def _hold(self, number: int, state: State) -> None:
        self._states[number] = state
        if len(self._states) > MOST_STATES:
            self._states.move_to_end(0, last=True)  # the start graph stays, since all others are made from it
            self._states.popitem(last=False)

    def _moved(self, state: State, action: int) -> State:
        return self._env.after(state, *self._pairs[action])

    def _packed(self, state: State) -> np.ndarray:
        """Returns the mask of a graph as bits; actions that the table does not hold are left out."""
        mask, legal = np.zeros(self._noop + 2, bool), state.legal_actions()
        mask[self._slots[legal[:, 0], legal[:, 1]]] = True
        if self._env.everywhere:
            mask[self._slots[state.everywhere_mask(), -1]] = True
        mask[self._noop] = True
        return np.packbits(mask[:-1])
