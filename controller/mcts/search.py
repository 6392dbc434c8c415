"""`TreeSearch`: Gumbel tree search in many positions at once, with the networks' work in large batches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from controller.mcts.config import MctsConfig
from controller.mcts.gumbel import completed_q, improved_logits, inner_choice, softmax, sweeps
from controller.mcts.simulators import Position, Simulator
from controller.ppo.learner import any_rows

LARGEST_BATCH = 64
"""States that the networks see at once. More are not faster on a CPU, and need more memory."""


class Evaluation(NamedTuple):
    """What the networks say of a position: log π [K], and the value in their own unit."""

    log_prior: np.ndarray
    value: float


class Evaluator:
    """The networks, with a memory. Positions with equal keys are evaluated once.

    Attributes:
      evaluated: number of evaluations so far.
    """

    def __init__(self, policy: Any, batch: Callable[[Sequence[Any]], Any], *, cached: int) -> None:
        """
        Args:
          policy: has `distribution_and_value`; see `controller.ppo.learner.TrainablePolicy`.
          batch: see `Simulator.batch`.
          cached: number of evaluations to remember. Beyond it, all are forgotten.
        """
        self._policy, self._batch, self._cached = policy, batch, cached
        self._known: dict[Hashable, Evaluation] = {}
        self.evaluated = 0
        self._program: Callable[[Any], tuple[tf.Tensor, tf.Tensor]] | None = None

    def forget(self) -> None:
        """Forgets all evaluations; to be called whenever the weights change."""
        self._known.clear()

    def __call__(self, positions: Sequence[Position]) -> list[Evaluation]:
        """Returns the evaluation of each position."""
        if len(self._known) + len(positions) > self._cached:
            self.forget()
        new = list({each.key: each for each in positions if each.key not in self._known}.values())
        self.evaluated += len(new)
        for begin in range(0, len(new), LARGEST_BATCH):
            self._evaluate(new[begin : begin + LARGEST_BATCH])
        return [self._known[each.key] for each in positions]

    def _evaluate(self, positions: Sequence[Position]) -> None:
        seen = self._batch([position.observation for position in positions])
        if self._program is None:
            self._program = tf.function(self._networks, input_signature=[any_rows(seen)], autograph=False)
        log_probs, values = (part.numpy() for part in self._program(seen))
        for position, row, value in zip(positions, log_probs, values, strict=True):
            self._known[position.key] = Evaluation(row[position.columns].astype(np.float64), float(value))

    def _networks(self, observation: Any) -> tuple[tf.Tensor, tf.Tensor]:
        distribution, value = self._policy.distribution_and_value(observation)
        return distribution.all_log_probs(), value


class Decision(NamedTuple):
    """The result of a search.

    Attributes:
      action: the action to take, an index into the position's `columns`.
      improved: float [K], the improved policy, which the prior learns.
      visits: int [K], the simulations through each action.
      q: float [K], the values of the actions in units of the return scale.
    """

    action: int
    improved: np.ndarray
    visits: np.ndarray
    q: np.ndarray


class _Node:
    """A position of one tree, with the statistics of its K actions."""

    __slots__ = ("children", "log_prior", "position", "totals", "value", "visits")

    def __init__(self, position: Position, evaluation: Evaluation | None, value: float) -> None:
        self.position, self.value = position, value
        self.children: dict[int, _Node] = {}
        if evaluation is not None:
            self.log_prior = evaluation.log_prior.copy()  # minus infinity: an action that was removed
            self.visits, self.totals = np.zeros(len(self.log_prior), np.int64), np.zeros(len(self.log_prior))

    @property
    def q(self) -> np.ndarray:
        """The mean values of the visited actions, 0 for the others."""
        result: np.ndarray = self.totals / np.maximum(self.visits, 1)
        return result


_Path = list[tuple[_Node, int]]


class TreeSearch:
    """A search by simulations that sequential halving shares among the actions of the root.

    All simulations of a sweep belong to different actions of the root, so they do not depend on each other. They are
    carried out side by side, for all roots, and what they reach is evaluated in one batch. This changes nothing.

    Attributes:
      simulations: number of simulations so far.
    """

    def __init__(self, simulator: Simulator, evaluate: Evaluator, config: MctsConfig, *, unit: float) -> None:
        """
        Args:
          simulator: carries out actions.
          evaluate: the networks.
          config: numbers of simulations and constants.
          unit: the return scale: the networks' values are in this unit, and so are those of the search.
        """
        self._simulator, self._evaluate, self._config, self._unit = simulator, evaluate, config, unit
        self.simulations = 0

    def __call__(self, roots: Sequence[Position], noises: Sequence[np.ndarray | None]) -> list[Decision]:
        """Searches from every root.

        Args:
          roots: positions in which the game is not over.
          noises: float [K] for each root, Gumbel noise; None: none, so that the search is deterministic.
        """
        evaluations = self._evaluate(roots)
        trees = [
            _Tree(self._node(root, evaluation), noise, self._config)
            for root, evaluation, noise in zip(roots, evaluations, noises, strict=True)
        ]
        schedules = [tree.sweeps() for tree in trees]
        while paths := [path for schedule in schedules for path in next(schedule, ())]:
            self._simulate(paths)
        while paths := [path for tree in trees for path in tree.first_visits()]:
            self._simulate(paths)
        return [tree.decision() for tree in trees]

    def _simulate(self, paths: Sequence[_Path]) -> None:
        """Carries out the last action of every path, evaluates what it leads to, and backs up the values.

        A simulation that comes back to an earlier state of its episode only removes that action from the tree.
        """
        self.simulations += len(paths)
        self._simulator.expand([(path[-1][0].position, path[-1][1]) for path in paths])
        forward = [path for path in paths if not self._removed(*path[-1])]
        reached = [path[-1][0].position.children[path[-1][1]] for path in forward]
        evaluations = iter(self._evaluate([position for position in reached if not position.over]))
        for path, position in zip(forward, reached, strict=True):
            node, action = path[-1]
            if action not in node.children:  # only where an episode is over does a path end in a known node
                node.children[action] = self._node(position, None if position.over else next(evaluations))
            self._back_up(path, node.children[action].value)

    def _removed(self, node: _Node, action: int) -> bool:
        """Removes an action if it only comes back; returns whether it does. NO-OP is never removed."""
        noop = action == len(node.position.columns) - 1
        if noop or self._config.revisit or not self._simulator.telescoping:
            return False
        if node.position.children[action].returned:
            node.log_prior[action] = -np.inf
        return node.position.children[action].returned

    def _node(self, position: Position, evaluation: Evaluation | None) -> _Node:
        if evaluation is None:
            return _Node(position, None, 0.0)
        return _Node(position, evaluation, self._stopping(evaluation.value))

    def _stopping(self, value: float) -> float:
        """Returns the value of a state in which one may stop, where that keeps what was earned."""
        return max(0.0, value) if self._simulator.telescoping else value

    def _back_up(self, path: _Path, value: float) -> None:
        for node, action in reversed(path):
            reward = node.children[action].position.reward - self._step_cost(node, action)
            node.visits[action] += 1
            node.totals[action] += reward / self._unit + value
            value = self._stopping(reward / self._unit + value)

    def _step_cost(self, node: _Node, action: int) -> float:
        return step_cost(node.position, action, self._config)


def step_cost(position: Position, action: int, config: MctsConfig) -> float:
    """Returns what is deducted for an action: nothing for NO-OP, which is the last one."""
    return 0.0 if action == len(position.columns) - 1 else config.step_cost


class _Tree:
    """The tree of one root."""

    def __init__(self, root: _Node, noise: np.ndarray | None, config: MctsConfig) -> None:
        self._root, self._config = root, config
        self._noise = np.zeros(len(root.log_prior)) if noise is None else noise

    def sweeps(self) -> Iterator[list[_Path]]:
        """Yields the paths of each sweep; they must have been simulated before the next one is asked for."""
        considered: np.ndarray = np.arange(len(self._root.log_prior))
        for width in sweeps(self._config.simulations, min(self._config.considered, len(considered))):
            scores = self._scores()[considered]
            order = np.argsort(-scores, kind="stable")[:width]
            considered = considered[order[np.isfinite(scores[order])]]
            yield [self._descend(int(action)) for action in considered]

    def first_visits(self) -> list[_Path]:
        """Returns the path of the best action, if no action has been visited because all that were tried came back."""
        return [] if self._root.visits.any() else [self._descend(int(self._scores().argmax()))]

    def _descend(self, action: int) -> _Path:
        path = [(self._root, action)]
        while (node := path[-1][0].children.get(path[-1][1])) is not None and not node.position.over:
            path.append((node, inner_choice(self._improved(node), node.visits)))
        return path

    def _improved(self, node: _Node) -> np.ndarray:
        constants = {"c_visit": self._config.c_visit, "c_scale": self._config.c_scale}
        return improved_logits(node.value, node.log_prior, node.q, node.visits, **constants)

    def _scores(self) -> np.ndarray:
        """Returns g + log π + σ(q): unvisited actions, among which only noise and prior decide, have equal values."""
        return self._noise + self._improved(self._root)

    def decision(self) -> Decision:
        root = self._root
        most = root.visits == root.visits.max()
        action = int(np.where(most, self._scores(), -np.inf).argmax())
        values = completed_q(root.value, root.log_prior, root.q, root.visits)
        return Decision(action, softmax(self._improved(root)), root.visits, values)
