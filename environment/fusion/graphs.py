"""Graphs to plan the fusion of: a fusion problem with the columns that a network sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from environment import zoo
from taso_ext import NUM_FEATURE_OPERATORS, FusionPlan, FusionProblem, Graph, OnnxModel

NODE_COLUMNS = (
    *("operator", "log_elements", "log_bytes", "log_flops", "log_uses", "is_output", "configurable", "expensive"),
    *("absorbed_share", "log_reuse", "external", "loop", "transpose", "window", "reduction", "library"),
)
"""Columns of a tensor. The first is a category; sizes x are log(1 + x) / 20, uses log(1 + x).

`absorbed_share` is the share of its readers' edges that can absorb it, and `log_reuse` the logarithm of how often its
readers together evaluate each element. None depends on a configuration, and none is a price.
"""
_FIRST_KIND = NODE_COLUMNS.index("external")
DEFAULT, RANDOM = "default", "random"
DEVICES = tuple(FusionProblem.devices())


@dataclass(frozen=True, eq=False)
class FusionGraph:
    """A fusion problem of one graph on one device, with N tensors, n of them configurable, and E edges.

    Attributes:
      name: what the graph is called in tables.
      problem: the engine's problem, which counts every price that is asked for.
      nodes: float32 [N, len(NODE_COLUMNS)].
      links: int32 [E, 2], producer and reader.
      configurable: int32 [n], ascending.
    """

    name: str
    problem: FusionProblem
    nodes: np.ndarray
    links: np.ndarray
    configurable: np.ndarray

    @classmethod
    def of(cls, graph: Graph, device: str, name: str = "graph") -> FusionGraph:
        """Makes the problem of an engine graph.

        Raises:
          ValueError: the device is unknown, or no operator of the graph can be fused.
        """
        problem = FusionProblem(graph, device)
        configurable = problem.configurable()
        if not len(configurable):
            raise ValueError(
                f"{name} has nothing to decide: no operator can be fused into one that reads its result. Fusion needs "
                "a graph with pointwise operators behind others."
            )
        edges = problem.edges()
        links = np.stack([edges["producer"], edges["reader"]], axis=1).astype(np.int32)
        return cls(name, problem, _columns(problem), links, configurable)

    def kernels(self, configuration: np.ndarray) -> list[tuple[list[int], list[int], float]]:
        """Returns (members, loaded tensors, price in ms) of each kernel of a configuration uint8 [N]; asks no cost."""
        return FusionPlan(self.problem, configuration).kernels()

    def start(self, configuration: str = DEFAULT, seed: int = 0) -> np.ndarray:
        """Returns a configuration to start from: the compiler's, or one with each decision drawn by a fair coin.

        Raises:
          ValueError: another name than `default` and `random`.
        """
        if configuration == DEFAULT:
            return self.problem.compiler_default()
        if configuration != RANDOM:
            raise ValueError(f"a search starts from {DEFAULT!r} or {RANDOM!r}, not from {configuration!r}")
        bits = np.zeros(len(self.problem), np.uint8)
        bits[self.configurable] = np.random.default_rng([seed, 34]).integers(0, 2, len(self.configurable))
        return bits


def load(graph: str | Path | OnnxModel, device: str) -> FusionGraph:
    """Loads the problem of a zoo graph or of an ONNX file.

    Raises:
      ZooError: no zoo graph has this name.
      ModelError: the file cannot be used.
      ValueError: the device is unknown, or there is nothing to decide.
    """
    if isinstance(graph, OnnxModel):
        return FusionGraph.of(graph.graph, device)
    name = str(graph)
    model = OnnxModel.load(name if name.endswith(".onnx") else zoo.build(name))
    return FusionGraph.of(model.graph, device, name)


def bytes_moved(graph: FusionGraph) -> np.ndarray:
    """Returns the trivial prediction that what moves most matters most: bytes written and read [n]."""
    tensors = graph.problem.tensors()
    moved: np.ndarray = (tensors["bytes"] * (1 + tensors["uses"]))[graph.configurable]
    return moved


def _columns(problem: FusionProblem) -> np.ndarray:
    tensors, edges = problem.tensors(), problem.edges()
    count = len(problem)
    readers = np.maximum(np.bincount(edges["producer"], minlength=count), 1)
    absorbed = np.bincount(edges["producer"], weights=edges["absorbable"], minlength=count) / readers
    reuse = np.bincount(edges["producer"], weights=edges["demanded"], minlength=count) / tensors["elements"]
    columns = np.zeros((count, len(NODE_COLUMNS)), np.float32)
    columns[:, 0] = np.minimum(tensors["operator"], NUM_FEATURE_OPERATORS - 1)
    for place, name in enumerate(("elements", "bytes", "flops"), start=1):
        columns[:, place] = np.log1p(tensors[name].astype(np.float64)) / 20
    columns[:, 4] = np.log1p(tensors["uses"].astype(np.float64))
    for place, name in enumerate(("is_output", "configurable", "expensive"), start=5):
        columns[:, place] = tensors[name]
    columns[:, 8], columns[:, 9] = absorbed, np.log1p(reuse)
    kinds = tensors["kind"].astype(np.int64)
    shown = kinds < len(NODE_COLUMNS) - _FIRST_KIND
    columns[np.flatnonzero(shown), _FIRST_KIND + kinds[shown]] = 1
    return columns
