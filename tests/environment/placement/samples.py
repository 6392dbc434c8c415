"""Small graphs and machines for tests of placement."""

from __future__ import annotations

import numpy as np

from environment.placement import Device, Link, Machine, OperatorGraph
from taso_ext import GraphBuilder

FLOAT = 1


def random_graph(seed: int, operators: int = 30, *, lonely: bool = False) -> OperatorGraph:
    """Returns a random graph of additions and ReLUs on tensors [8, 8]; `lonely`: some operators read inputs alone."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    values = [builder.input("x", FLOAT, [8, 8])]
    fed = values[0]
    for number in range(operators):
        one, other = (values[int(rng.integers(max(0, len(values) - 12), len(values)))] for _ in range(2))
        if lonely and rng.random() < 0.3:
            one = other = fed
        name = f"/layer.{number // 8}/op{number}"
        kind, read = ("Add", [one, other]) if rng.random() < 0.6 else ("Relu", [one])
        values += builder.node("", kind, {}, read, [(f"v{number}", FLOAT, [8, 8])], name)
    used = set()
    for value in values[-3:]:
        if value not in used and value != fed:
            builder.output(value)
            used.add(value)
    return OperatorGraph.of_graph(builder.build())


def two_gpus(memory_bytes: float = 1e9, *, gpus: int = 2, lacks: frozenset[str] = frozenset()) -> Machine:
    """Returns a host with GPUs on one switch."""
    devices = [Device("cpu:0", "roofline:xeon", 1e12)]
    devices += [Device(f"cuda:{number}", "roofline:k80", memory_bytes, 1.0, lacks) for number in range(gpus)]
    links = tuple(Link((device.name, "switch"), 12e6, 0.005) for device in devices)
    return Machine("sample", tuple(devices), links)


def is_acyclic(graph: OperatorGraph, labels: np.ndarray) -> bool:
    """Returns whether no cycle leads through groups: by taking away groups that read from no other one."""
    edges = {
        (int(labels[producer]), int(labels[reader]))
        for producer, reader, _ in graph.edges()
        if labels[producer] != labels[reader]
    }
    left = set(labels.tolist())
    while left:
        free = {group for group in left if not any(reader == group and one in left for one, reader in edges)}
        if not free:
            return False
        left -= free
    return True
