"""Groups of training graphs: a gradient goes with its operation, and an update with its weight.

    graph = OperatorGraph.of(OnnxModel.load(training_model(model, optimiser="adam"), clean="none"))
    labels = grouped(graph, 188, scopes=[r"/(lstm/layers\\.\\d+/step\\.\\d+)/"])

What an operator belongs to stands in its name, which `environment.gradients` writes:

| name | belongs to |
|---|---|
| `/training/NAME/…` | the operator NAME of the model, as its gradient or as the form that training gives it |
| `/loss/OUTPUT/…` | the loss of an output, and its derivative |
| `/optimiser/W/…`, `/training/gradients/W/…` | the weight W: its update, and the sum of its gradients |

Groups of forward and backward operators lie on cycles: `PlacementProblem` divides them into tasks that do not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from environment.placement.grouping import Labels, at_most, colocate, origin, renumbered
from environment.placement.operators import OperatorGraph

_WEIGHT = re.compile(r"/(?:optimiser|training/gradients)/(.+)/[^/]+")
LOSS = "loss"
"""The output of a training graph that its forward pass ends in."""


def is_training(graph: OperatorGraph) -> bool:
    """Returns whether a graph has a loss, and parameters that it updates."""
    outputs = [tensor for tensor in graph.tensors if tensor.is_output]
    return any(each.updates for each in outputs) and any(each.name == LOSS for each in outputs)


@dataclass(frozen=True)
class _Part:
    """Some operators of a graph, numbered anew, as `at_most` reads them."""

    count: int
    kept: Sequence[tuple[int, int, int]]

    def __len__(self) -> int:
        return self.count

    def edges(self) -> Sequence[tuple[int, int, int]]:
        """See `OperatorGraph.edges`."""
        return self.kept


@dataclass(frozen=True)
class TrainingParts:
    """What the operators of a training graph are there for.

    Attributes:
      forward: [N], whether the loss depends on an operator.
      anchors: [N], the forward operator that each operator belongs to; of a forward one, itself; -1 for updates.
      weights: by the number of an operator that updates a weight, or adds up its gradients, the name of the weight.
    """

    forward: npt.NDArray[np.bool_]
    anchors: Labels
    weights: dict[int, str]

    @classmethod
    def of(cls, graph: OperatorGraph) -> TrainingParts:
        """Returns the parts of a graph for which `is_training` holds."""
        forward = _ancestors(graph, LOSS)
        anchors, weights = np.full(len(graph), -1, np.int64), dict[int, str]()
        first: dict[str, int] = {}
        for number in np.flatnonzero(forward):
            anchors[number] = number
            first.setdefault(origin(graph.operators[number].name), int(number))
        for number in np.flatnonzero(~forward):
            name = graph.operators[number].name
            if found := _WEIGHT.fullmatch(name):
                weights[int(number)] = found[1]
            else:
                anchors[number] = first.get(origin(name), -1)
        _follow_neighbours(graph, anchors, weights)
        return cls(forward, anchors, weights)


def _ancestors(graph: OperatorGraph, output: str) -> npt.NDArray[np.bool_]:
    """Returns [N], the operators that an output depends on."""
    producers: dict[int, list[int]] = {}
    for producer, reader, _ in graph.edges():
        producers.setdefault(reader, []).append(producer)
    found = np.zeros(len(graph), np.bool_)
    pending = [tensor.producer for tensor in graph.tensors if tensor.name == output and tensor.producer >= 0]
    while pending:
        number = pending.pop()
        if not found[number]:
            found[number] = True
            pending += producers.get(number, [])
    return found


def _follow_neighbours(graph: OperatorGraph, anchors: Labels, weights: dict[int, str]) -> None:
    """Gives operators that belong to nothing by name to what reads their results, or else to what they read."""
    edges = graph.edges()
    for (at, other), order in (((0, 1), reversed(edges)), ((1, 0), edges)):
        for edge in order:
            here, there = edge[at], edge[other]
            if anchors[here] < 0 and here not in weights:
                anchors[here] = anchors[there]
                if there in weights:
                    weights[here] = weights[there]


def grouped(
    graph: OperatorGraph,
    most: int,
    *,
    scopes: Sequence[str] = (),
    work: npt.NDArray[np.float64] | None = None,
    by_rules: bool = True,
) -> Labels:
    """Returns at most `most` groups of a training graph, [N].

    The forward operators are grouped first, by the published rules or from single operators (`by_rules`), and merged as
    `at_most` does. Then gradients join their operations. The update of a weight joins the group that reads the weight;
    if several do, it is a group of its own, as a shared variable of TensorFlow is.

    Args:
      scopes: see `colocate`.
      work: see `at_most`.
    Raises:
      PlacementError: see `colocate` and `at_most`.
    """
    parts = TrainingParts.of(graph)
    labels = _forward_labels(graph, parts, scopes) if by_rules else _by_origin(graph, np.arange(len(graph)))
    ahead = np.flatnonzero(parts.forward)
    place = np.full(len(graph), -1, np.int64)
    place[ahead] = np.arange(len(ahead))
    given = np.ones(len(graph)) if work is None else np.asarray(work, np.float64)
    own = np.zeros(len(graph))
    np.add.at(own, parts.anchors[parts.anchors >= 0], given[parts.anchors >= 0])
    part = _Part(
        len(ahead),
        [(int(place[a]), int(place[b]), nbytes) for a, b, nbytes in graph.edges() if place[a] >= 0 and place[b] >= 0],
    )
    shared = len(set(parts.weights.values()))
    for limit in _limits(most, shared):
        forward = np.full(len(graph), -1, np.int64)
        forward[ahead] = at_most(part, limit, work=own[ahead], start=renumbered(labels[ahead]))
        found = _with_gradients(graph, parts, forward, alone=limit > 1)
        if int(found.max()) < most:
            return found
    return found


def _limits(most: int, shared: int) -> list[int]:
    """Returns numbers of forward groups to try: all, then fewer by the shared weights, and one in the end."""
    return sorted({most, max(most - shared, 1), max(most // 2, 1), 1}, reverse=True)


def colocated(graph: OperatorGraph, scopes: Sequence[str] = ()) -> Labels:
    """Returns the groups that the published rules give for a training graph, [N]; see `colocate`."""
    parts = TrainingParts.of(graph)
    labels = _forward_labels(graph, parts, scopes)
    return _with_gradients(graph, parts, np.where(parts.forward, labels, -1), alone=True)


def _forward_labels(graph: OperatorGraph, parts: TrainingParts, scopes: Sequence[str]) -> Labels:
    return _by_origin(graph, colocate(graph, scopes=scopes, among=parts.forward))


def _by_origin(graph: OperatorGraph, labels: Labels) -> Labels:
    """Joins the groups of operators that training has made of one, such as those of a batch norm."""
    first: dict[str, int] = {}
    joined = np.arange(int(labels.max(initial=-1)) + 1)
    for label, each in zip(labels, graph.operators, strict=True):
        found = origin(each.name)
        if found != each.name:
            other = first.setdefault(found, int(label))
            joined[joined == joined[label]] = joined[other]
    return renumbered(joined[labels])


def _with_gradients(graph: OperatorGraph, parts: TrainingParts, forward: Labels, *, alone: bool) -> Labels:
    """Returns the groups of all operators from those of the forward ones.

    Args:
      forward: [N], the groups of forward operators.
      alone: whether the updates of a weight that several groups read are a group.
    """
    labels = np.where(parts.anchors >= 0, forward[parts.anchors], -1)
    count = int(labels.max(initial=-1)) + 1
    readers = {
        tensor.name: dict.fromkeys(int(labels[reader]) for reader in tensor.readers if parts.forward[reader])
        for tensor in graph.tensors
        if tensor.kind == "parameter"
    }
    groups: dict[str, int] = {}
    for number, weight in parts.weights.items():
        if weight not in groups:
            reading = list(readers.get(weight, {}))
            joins = len(reading) == 1 or (reading and not alone)
            groups[weight] = reading[0] if joins else count
            count += not joins
        labels[number] = groups[weight]
    labels[labels < 0] = 0  # belongs to nothing at all: reads nothing and is read by nothing that does
    return renumbered(labels)
