"""The legal rewrites of the graphs that a dream comes to, from the engine, which knows them exactly.

What a rewrite makes of a graph is known and costs no measurement; only what a machine takes for the graph has to be
learned. A predicted mask is wrong where a rewrite needs several others before it, and a controller finds such places:
on `generated-102`, all that `cmaes` dreamed wrongly was one fusion of attention heads, worth 6.3 points. With
`DreamConfig.legality="exact"` the engine follows the rewrites of a dream and says what is legal; latents and rewards
are predicted as ever. The engine prices these graphs by a roofline, whatever the environment's costs are, so that a
dream measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from environment import GraphSubstitutionEnv
from taso_ext import ReachedGraphs
from worldmodel.data.actions import ActionTable

MEMORY_BYTES = 512 << 20
"""Memory of the graphs and masks that are held, about; others are made again from the rewrites that led to them."""


class Structure:
    """Graphs that rewrites have led to, each with a number; 0 is the start graph. No step of an episode is taken."""

    def __init__(self, env: GraphSubstitutionEnv, table: ActionTable) -> None:
        """
        Args:
          env: the real environment, whose episode is not touched.
          table: the actions of the dream, of the same start graph.
        """
        pairs = table.decode(np.arange(table.num_actions))
        self._graphs = ReachedGraphs(env.unmeasured_start(), pairs, memory_bytes=MEMORY_BYTES)

    def step(self, graphs: npt.ArrayLike, actions: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Returns the masks bool [B, A + 1] and the numbers int64 [B] of the graphs after a rewrite in each of B rows.

        Args:
          graphs: int64 [B], numbers of graphs.
          actions: int32 [B] in [0, A]; NO-OP, which is A, leaves a graph as it is.
        Raises:
          ValueError: a rewrite is not legal in its graph.
        """
        return self._graphs.step(graphs, actions)

    def along(self, actions: Iterable[int], graph: int = 0) -> np.ndarray:
        """Returns the numbers int64 [T + 1] of the graphs before and after each of T actions, which begin at a graph.

        Raises:
          ValueError: a rewrite is not legal in its graph.
        """
        numbers = [graph]
        for action in actions:
            numbers.append(int(self.step(numbers[-1:], [action])[1][0]))
        return np.array(numbers, np.int64)

    def masks(self, graphs: npt.ArrayLike) -> np.ndarray:
        """Returns the legal actions of graphs by their numbers: bool [B, A + 1]; NO-OP is always legal."""
        return self._graphs.legal(graphs)
