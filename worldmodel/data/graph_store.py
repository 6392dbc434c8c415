"""A compact store of graph observations, which keeps each distinct one once.

The rows of a graph's node and edge features come from a few hundred distinct rows (the same operator with the same
shapes). So a graph is stored as row numbers: about 5 KB instead of 60 KB for BERT-Base, without loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


class GraphLike(Protocol):
    """A graph with the fields of `gymnasium.spaces.GraphInstance`.

    They are nodes float32 [N, F], edges float32 [E, D] and edge_links int [E, 2].
    """

    @property
    def nodes(self) -> np.ndarray: ...
    @property
    def edges(self) -> np.ndarray: ...
    @property
    def edge_links(self) -> np.ndarray: ...


class StoredGraph(NamedTuple):
    """A `GraphLike`: nodes float32 [N, F], edges float32 [E, D], edge_links int64 [E, 2] (sender, receiver)."""

    nodes: np.ndarray
    edges: np.ndarray
    edge_links: np.ndarray


class _RowTable:
    """Distinct float32 rows of one width, numbered in order of arrival."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._numbers: dict[bytes, int] = {}
        self._rows: list[np.ndarray] = []
        self._matrix: np.ndarray | None = None

    def intern(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of `rows` [n, width] and adds new rows: [n], in the smallest unsigned dtype that fits."""
        rows = np.ascontiguousarray(rows, np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ValueError(f"expected feature rows of width {self.width}, got an array of shape {rows.shape}")
        keys = rows.view(np.dtype((np.void, rows.itemsize * self.width))).ravel()
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.array(
            [self._number(key.tobytes(), rows[i]) for key, i in zip(distinct, first, strict=True)], np.uint32
        )
        return _shrink(numbers[inverse.ravel()] if numbers.size else np.zeros(0, np.uint32))

    def _number(self, key: bytes, row: np.ndarray) -> int:
        number = self._numbers.setdefault(key, len(self._rows))
        if number == len(self._rows):
            self._rows.append(row.copy())
            self._matrix = None
        return number

    def intern_all(self, rows: np.ndarray) -> None:
        """Adds `rows`, which are already distinct, in their order."""
        for row in np.ascontiguousarray(rows, np.float32):
            self._number(row.tobytes(), row)

    def matrix(self) -> np.ndarray:
        """Returns all rows: float32 [distinct, width]."""
        if self._matrix is None:
            self._matrix = np.stack(self._rows) if self._rows else np.zeros((0, self.width), np.float32)
        return self._matrix

    def lookup(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the rows [n, width] of `numbers` [n]."""
        return self.matrix()[numbers]


def _shrink(values: np.ndarray) -> np.ndarray:
    """Returns `values` in the smallest unsigned dtype that holds them."""
    return values.astype(np.min_scalar_type(int(values.max()) if values.size else 0))


class GraphStore(Mapping[str, StoredGraph]):
    """Graphs by hash. Adding a hash twice keeps the first graph: equal hashes mean equal graphs.

    Args:
      node_width, edge_width: F and D of every graph.
    """

    def __init__(self, node_width: int, edge_width: int) -> None:
        self._nodes = _RowTable(node_width)
        self._edges = _RowTable(edge_width)
        self._graphs: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    @property
    def node_width(self) -> int:
        return self._nodes.width

    @property
    def edge_width(self) -> int:
        return self._edges.width

    def add(self, graph_hash: str, graph: GraphLike) -> None:
        """Stores `graph` under `graph_hash` unless it is there already."""
        if graph_hash in self._graphs:
            return
        links = np.asarray(graph.edge_links).reshape(-1, 2)
        if len(graph.edges) != len(links):
            raise ValueError(f"graph {graph_hash} has {len(graph.edges)} rows of edge features but {len(links)} links")
        self._graphs[graph_hash] = (
            self._nodes.intern(graph.nodes),
            self._edges.intern(graph.edges),
            _shrink(links),
        )

    def __getitem__(self, graph_hash: str) -> StoredGraph:
        nodes, edges, links = self._graphs[graph_hash]
        return StoredGraph(self._nodes.lookup(nodes), self._edges.lookup(edges), links.astype(np.int64))

    def __iter__(self) -> Iterator[str]:
        return iter(self._graphs)

    def __len__(self) -> int:
        return len(self._graphs)

    def subset(self, hashes: Iterable[str]) -> Mapping[str, GraphLike]:
        """Returns some of the graphs, each once in order of first mention; they are read from the store on access."""
        return _Subset(self, dict.fromkeys(hashes))

    def update(self, other: GraphStore) -> None:
        """Adds every graph of `other`."""
        for graph_hash in other:
            if graph_hash not in self._graphs:
                self.add(graph_hash, other[graph_hash])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns arrays for `np.savez`."""
        parts = list(self._graphs.values())
        return {
            "hashes": np.array(list(self._graphs), "S64"),
            "node_rows": self._nodes.matrix(),
            "edge_rows": self._edges.matrix(),
            "nodes": _concatenate([nodes for nodes, _, _ in parts], (0,)),
            "edges": _concatenate([edges for _, edges, _ in parts], (0,)),
            "links": _concatenate([links for _, _, links in parts], (0, 2)),
            "num_nodes": np.array([len(nodes) for nodes, _, _ in parts], np.int64),
            "num_edges": np.array([len(edges) for _, edges, _ in parts], np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> GraphStore:
        """Inverts `to_arrays`."""
        store = cls(arrays["node_rows"].shape[1], arrays["edge_rows"].shape[1])
        store._nodes.intern_all(arrays["node_rows"])
        store._edges.intern_all(arrays["edge_rows"])
        node_ends, edge_ends = np.cumsum(arrays["num_nodes"])[:-1], np.cumsum(arrays["num_edges"])[:-1]
        nodes, edges = np.split(arrays["nodes"], node_ends), np.split(arrays["edges"], edge_ends)
        links = np.split(arrays["links"], edge_ends)
        for graph_hash, *parts in zip(arrays["hashes"], nodes, edges, links, strict=True):
            store._graphs[graph_hash.decode()] = (parts[0].copy(), parts[1].copy(), parts[2].copy())
        return store


class _Subset(Mapping[str, GraphLike]):
    def __init__(self, graphs: GraphStore, hashes: Mapping[str, None]) -> None:
        self._graphs, self._hashes = graphs, hashes

    def __getitem__(self, graph_hash: str) -> GraphLike:
        return self._graphs[graph_hash]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hashes)

    def __len__(self) -> int:
        return len(self._hashes)


def _concatenate(parts: Sequence[np.ndarray], empty_shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(empty_shape, np.uint8)
