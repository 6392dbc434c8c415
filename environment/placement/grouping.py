"""Groups of operators that share a device: published rules of co-location, and automatic grouping of any graph.

    labels = colocate(graph)                       # an operation with its only consumer, recursively
    labels = colocate(graph, scopes=[r"(.*/cell_\\d+)/"])
    labels = at_most(graph, 300, start=labels)     # at most 300 groups, no cycle between them

A grouping is an array [N] with the number of each operator's group, 0 to G - 1 in the order of their first operators.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from environment.placement.errors import PlacementError
from environment.placement.operators import OperatorGraph

Labels = npt.NDArray[np.int64]
_TRAINING = re.compile(r"/training(/.+)/[^/]+|(/loss/.+)/[^/]+")


class Dataflow(Protocol):
    """Operators by number, producers first, and the edges between them; an `OperatorGraph` is one."""

    def __len__(self) -> int: ...

    def edges(self) -> Sequence[tuple[int, int, int]]:
        """Returns (producer, reader, bytes); see `OperatorGraph.edges`."""
        ...


def origin(name: str) -> str:
    """Returns the name of the operator that an operator of a training graph belongs to: its own, if it is of the model.

    Source: `environment.gradients` calls the gradient of `/conv/Conv` by names such as `/training/conv/Conv/Mul_0`.
    """
    found = _TRAINING.fullmatch(name)
    return name if found is None else found[1] or found[2]


class _Sets:
    """Disjoint sets of the numbers 0 to n - 1."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def find(self, item: int) -> int:
        while self._parents[item] != item:
            self._parents[item] = self._parents[self._parents[item]]
            item = self._parents[item]
        return item

    def join(self, one: int, other: int) -> None:
        self._parents[self.find(other)] = self.find(one)

    def labels(self) -> Labels:
        return renumbered([self.find(item) for item in range(len(self._parents))])


def renumbered(labels: Sequence[int] | Labels) -> Labels:
    """Returns the same groups with the numbers 0 to G - 1 in the order of their first operators."""
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(int(label), len(numbers)) for label in labels], np.int64)


def colocate(
    graph: OperatorGraph,
    *,
    scopes: Sequence[str] = (),
    gradients: Mapping[int, int] | None = None,
    only_consumer: bool = True,
    among: npt.NDArray[np.bool_] | None = None,
) -> Labels:
    """Groups operators by the published rules.

    Args:
      scopes: regular expressions with one group each; operators whose names match one of them with the same text in its
        group share a device, such as those of an LSTM cell, an attention step, a softmax or a branch. The first
        expression that matches counts.
      gradients: by the number of an operator of the backward pass, the number of the operator that it belongs to.
      only_consumer: whether an operator joins the only one that reads its results, recursively; an operator of a scope
        does so only within its scope.
      among: [N], the operators that are grouped and count as consumers, such as those of a forward pass; None: all.
    Returns:
      The groups, [N]. Groups may lie on cycles: forward and backward operators share one.
    Raises:
      PlacementError: an expression is malformed.
    Source: Mirhoseini et al. 2017, section 3.3.
    """
    sets = _Sets(len(graph))
    scope_of = _scopes(graph, scopes)
    first: dict[str, int] = {}
    for number, scope in enumerate(scope_of):
        if scope is not None and (among is None or among[number]):
            sets.join(first.setdefault(scope, number), number)
    if only_consumer:
        for producer, readers in _readers(graph, among).items():
            (reader, *others) = sorted(readers)
            if not others and (scope_of[producer] is None or scope_of[producer] == scope_of[reader]):
                sets.join(reader, producer)
    for backward, forward in (gradients or {}).items():
        sets.join(forward, backward)
    return sets.labels()


def _scopes(graph: OperatorGraph, scopes: Sequence[str]) -> list[str | None]:
    try:
        compiled = [re.compile(scope) for scope in scopes]
    except re.error as error:
        raise PlacementError(f"a scope is no regular expression: {error}. Write one with one group.") from error
    if any(expression.groups != 1 for expression in compiled):
        raise PlacementError("a scope needs exactly one group in parentheses, whose text names what shares a device.")

    def scope(name: str) -> str | None:
        found = (match for expression in compiled if (match := expression.match(name)))
        return next((match[1] for match in found), None)

    return [scope(_origin_path(each.name) or each.name or each.output) for each in graph.operators]


def _origin_path(name: str) -> str:
    """Returns the `origin` of an operator as a scope, which ends in a slash; empty if it is the operator itself."""
    found = origin(name)
    return "" if found == name else f"{found}/"


def _readers(graph: OperatorGraph, among: npt.NDArray[np.bool_] | None) -> dict[int, set[int]]:
    """Returns the readers of each operator whose results are all read by operators and returned by none."""
    returned = {tensor.producer for tensor in graph.tensors if tensor.is_output}
    readers: dict[int, set[int]] = {}
    for producer, reader, _ in graph.edges():
        if producer not in returned and (among is None or (among[producer] and among[reader])):
            readers.setdefault(producer, set()).add(reader)
    return readers


class _Clusters:
    """Clusters of a directed acyclic graph, whose merges never close a cycle.

    Every cluster has a place in a topological order. Two clusters may be merged if one is the nearest reader of the
    other, or its nearest producer, in this order: a path between them through a third one would have to pass a nearer
    one. The merged cluster takes the place of the one that had no neighbour between.
    """

    def __init__(self, work: npt.NDArray[np.float64], edges: Mapping[tuple[int, int], float]) -> None:
        self.work = {cluster: float(ms) for cluster, ms in enumerate(work)}
        self.readers: dict[int, dict[int, float]] = {cluster: {} for cluster in self.work}
        self.producers: dict[int, dict[int, float]] = {cluster: {} for cluster in self.work}
        for (producer, reader), nbytes in edges.items():
            self.readers[producer][reader] = nbytes
            self.producers[reader][producer] = nbytes
        self.place = {cluster: at for at, cluster in enumerate(self._in_order())}

    def _in_order(self) -> list[int]:
        missing = {cluster: len(producers) for cluster, producers in self.producers.items()}
        ready = [cluster for cluster, count in missing.items() if count == 0]
        heapq.heapify(ready)
        order = []
        while ready:
            cluster = heapq.heappop(ready)
            order.append(cluster)
            for reader in self.readers[cluster]:
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(ready, reader)
        return order

    def partner(self, cluster: int) -> int | None:
        """Returns the cluster to merge with: of the nearest reader and producer the one with more bytes between."""
        options = []
        if self.readers[cluster]:
            options.append((self.readers[cluster], min(self.readers[cluster], key=self.place.__getitem__)))
        if self.producers[cluster]:
            options.append((self.producers[cluster], max(self.producers[cluster], key=self.place.__getitem__)))
        if not options:
            return None
        # Of equal ones the smaller partner, which keeps groups even.
        return max(options, key=lambda option: (option[0][option[1]], -self.work[option[1]], -option[1]))[1]

    def neighbour(self, cluster: int) -> int:
        """Returns the cluster next to one in the topological order."""
        here = self.place[cluster]
        return min((each for each in self.work if each != cluster), key=lambda each: abs(self.place[each] - here))

    def merge(self, kept: int, gone: int) -> None:
        """Merges `gone`, for which `kept` is a partner or neighbour, into `kept`."""
        for own, others in ((self.readers, self.producers), (self.producers, self.readers)):
            for other, nbytes in own.pop(gone).items():
                del others[other][gone]
                if other != kept:
                    own[kept][other] = own[kept].get(other, 0.0) + nbytes
                    others[other][kept] = own[kept][other]
        self.work[kept] += self.work.pop(gone)
        del self.place[gone]


def at_most(
    graph: Dataflow,
    most: int,
    *,
    work: npt.NDArray[np.float64] | None = None,
    start: Labels | None = None,
) -> Labels:
    """Merges groups until there are at most `most`; there is no cycle between the groups.

    The group with the least work is merged again and again, with the nearest of those that it exchanges most bytes
    with. Groups of `start` that lie on a cycle are first divided into parts that do not.

    Args:
      most: the largest number of groups.
      work: the work of each operator [N], by which groups are kept even; None: all the same.
      start: the groups to begin with; None: each operator is one.
    Raises:
      PlacementError: `most` is below 1.
    """
    if most < 1:
        raise PlacementError(f"expected at least 1 group, got {most}.")
    parts = acyclic_parts(graph, np.arange(len(graph)) if start is None else start)
    count = int(parts.max(initial=-1)) + 1
    edges: dict[tuple[int, int], float] = {}
    for producer, reader, nbytes in graph.edges():
        ends = (int(parts[producer]), int(parts[reader]))
        if ends[0] != ends[1]:
            edges[ends] = edges.get(ends, 0.0) + nbytes
    weights = np.ones(len(graph)) if work is None else work
    clusters = _Clusters(np.bincount(parts, weights, minlength=count).astype(np.float64), edges)
    sets = _Sets(count)
    queue = [(ms, cluster) for cluster, ms in clusters.work.items()]
    heapq.heapify(queue)
    while len(clusters.work) > most:
        ms, cluster = heapq.heappop(queue)
        if clusters.work.get(cluster) != ms:
            continue  # merged meanwhile
        partner = clusters.partner(cluster)
        kept = clusters.neighbour(cluster) if partner is None else partner
        clusters.merge(kept, cluster)
        sets.join(kept, cluster)
        heapq.heappush(queue, (clusters.work[kept], kept))
    joined = sets.labels()
    return renumbered(joined[parts])


def acyclic_parts(graph: Dataflow, labels: Labels) -> Labels:
    """Divides groups that lie on cycles into parts that do not; other groups stay whole.

    Within the groups of a cycle, an operator's part is the number of changes of group on the longest way to it. So
    every edge between two parts of a cycle leads to a larger number.

    Returns:
      The parts, [N].
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    count = int(labels.max(initial=-1)) + 1
    edges = [(producer, reader) for producer, reader, _ in graph.edges()]
    ends = labels[np.array(edges, np.int64).reshape(-1, 2)]
    quotient = coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    components = connected_components(quotient, directed=True, connection="strong")[1]
    changes = np.zeros(len(labels), np.int64)
    producers: dict[int, list[int]] = {}
    for producer, reader in edges:
        producers.setdefault(reader, []).append(producer)
    for reader in range(len(labels)):
        for producer in producers.get(reader, ()):
            if components[labels[producer]] == components[labels[reader]]:
                changed = changes[producer] + (labels[producer] != labels[reader])
                changes[reader] = max(changes[reader], changed)
    return renumbered(labels * (int(changes.max(initial=0)) + 1) + changes)
