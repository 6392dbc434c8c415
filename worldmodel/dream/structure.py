"""The graphs that a dream comes to, followed by the engine: what is legal in them, and what their operators save.

What a rewrite makes of a graph is known and costs no measurement; only what a machine takes for the graph has to be
learned. A predicted mask is wrong where a rewrite needs several others before it, and a controller finds such places:
on `generated-102`, all that `cmaes` dreamed wrongly was one fusion of attention heads, worth 6.3 points. With
`DreamConfig.legality="exact"` the engine follows the rewrites of a dream and says what is legal; latents are predicted
as ever. A dream then pays what the operators of its graphs save, if the model has learned that from the costs of real
episodes (`with_operators`). The engine itself prices the graphs by a roofline, whatever the environment's costs are, so
that a dream measures nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from environment import GraphSubstitutionEnv
from taso_ext import ReachedGraphs, State
from worldmodel.data.actions import ActionTable
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dynamics.operators import DISTANCE, OperatorWeights, Weighed, fitted
from worldmodel.dynamics.potential import MOST_STATES, savings
from worldmodel.dynamics.reward_table import without_noise
from worldmodel.world_model import WorldModel

MEMORY_BYTES = 512 << 20
"""Memory of the graphs and masks that are held, about; others are made again from the rewrites that led to them."""


class Structure:
    """Graphs that rewrites have led to, each with a number; 0 is the start graph. No real step is taken or counted."""

    def __init__(self, env: GraphSubstitutionEnv, table: ActionTable, operators: OperatorWeights | None = None) -> None:
        """
        Args:
          env: the real environment, whose episode is not touched.
          table: the actions of the dream, of the same start graph.
          operators: what operators save, as was learned by `with_operators`; None: nothing was.
        """
        pairs, operators = table.decode(np.arange(table.num_actions)), operators or OperatorWeights.none()
        self.knows_costs = operators.known
        self._graphs = ReachedGraphs(
            env.unmeasured_start(),
            pairs,
            operators.signatures,
            operators.weights,
            opset=env.model.opset,
            distance=DISTANCE,
            per_total=tuple(operators.per_total.tolist()),
            memory_bytes=MEMORY_BYTES,
        )

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

    def state(self, graph: int) -> State:
        """Returns the engine's state of a graph, priced by a roofline."""
        return self._graphs.state(graph)

    def saved(self, graphs: npt.ArrayLike) -> np.ndarray:
        """Returns what the operators of graphs save, by their numbers: float32 [B], up to a constant."""
        return self._graphs.weights(graphs).astype(np.float32)


def with_operators(world_model: WorldModel, env: GraphSubstitutionEnv, episodes: EpisodeBuffer) -> WorldModel:
    """Returns a model that has learned what the operators of graphs save, for dreams that the engine follows.

    Args:
      world_model: it knows one start graph.
      env: the environment that the episodes are of; no episode is touched.
      episodes: real episodes, whose rewards are differences of costs.
    """
    graph = world_model.start_graph()
    of_log_cost = bool(world_model.mdn_rnn.sizes.cost_in_latent)
    weighed = _weighed(Structure(env, graph.table), graph.table, env.model.opset, episodes, of_log_cost=of_log_cost)
    return world_model.with_start_graphs([dataclasses.replace(graph, operators=fitted(weighed))])


def _weighed(
    structure: Structure, table: ActionTable, opset: int, episodes: EpisodeBuffer, *, of_log_cost: bool
) -> list[Weighed]:
    """Returns the graphs that episodes have met and what they save, the start graph first."""
    found: dict[str, Weighed] = {}
    for episode in without_noise(episodes) if of_log_cost else episodes:
        saved = savings(episode, of_log_cost=of_log_cost)
        for step, number in enumerate(structure.along(table.encode(episode.actions))):
            name = episode.hashes[step]
            if name not in found:
                found[name] = _weighed_state(structure.state(number), opset, float(saved[step]))
    return list(found.values())[:: 1 + len(found) // MOST_STATES]


def _weighed_state(state: State, opset: int, saved: float) -> Weighed:
    near = [state.graph.neighbourhood_signatures(opset, distance) for distance in range(DISTANCE + 1)]
    cost = state.cost
    return Weighed(near, np.array([cost.flops, cost.memory_bytes, cost.kernel_launches], float), saved)
