"""Prices a fusion configuration from its definition: slowly, as a whole, with dictionaries and sets.

It reads only the columns of the problem, not the engine's kernels or costs. The engine keeps kernels, counts of readers
and utilisations up to date flip by flip; here every kernel is made again, from the outputs of the graph back.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from taso_ext import FusionProblem

EXTERNAL, LOOP, TRANSPOSE, WINDOW, REDUCTION, LIBRARY, OPAQUE, PROJECTION = range(8)
HEROES = {TRANSPOSE, WINDOW, REDUCTION, LIBRARY}


@dataclass
class SlowKernel:
    """A kernel: the tensors it computes and those it loads, each with how often it is evaluated."""

    root: int
    members: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    times: dict[int, float] = field(default_factory=dict)


class SlowFusion:
    """The kernels and the cost of one configuration."""

    def __init__(self, problem: FusionProblem, configuration: np.ndarray) -> None:
        self.columns = {name: values.tolist() for name, values in problem.tensors().items()}
        self.constants: Mapping[str, float] = problem.constants
        self.bits = configuration.tolist()
        self.reads_of: dict[int, list[tuple[int, float, bool, bool]]] = defaultdict(list)
        edges = {name: values.tolist() for name, values in problem.edges().items()}
        for producer, reader, *rest in zip(
            *(edges[name] for name in ("producer", "reader")),
            *(edges[name] for name in ("demanded", "elementwise", "absorbable")),
            strict=True,
        ):
            self.reads_of[reader].append((producer, *rest))

    def kernels(self) -> dict[int, SlowKernel]:
        """Returns the kernels by root: of every output, and of everything that some kernel loads."""
        wanted = [tensor for tensor, is_output in enumerate(self.columns["is_output"]) if is_output]
        found: dict[int, SlowKernel] = {}
        while wanted:
            root = wanted.pop()
            if root in found or self.columns["kind"][root] == EXTERNAL:
                continue
            found[root] = self.kernel(root)
            wanted.extend(found[root].reads)
        return found

    def kernel(self, root: int) -> SlowKernel:
        """Forms the kernel of a root; the youngest undecided tensor is decided next."""
        kernel = SlowKernel(root, [root])
        sources: dict[int, set[int]] = defaultdict(set)  # the members at whose positions a tensor is evaluated
        extra: dict[int, float] = defaultdict(float)  # evaluations at positions of its own
        vetoed, undecided, hero = set(), set(), root if self.columns["kind"][root] in HEROES else None
        sources[root], extra[root] = {root}, 1.0
        last = root
        while True:
            kernel.times[last] = sum(extra[source] for source in sources[last])
            for producer, demanded, elementwise, absorbable in self.reads_of[last]:
                undecided.add(producer)
                if not absorbable:
                    vetoed.add(producer)
                if elementwise:
                    sources[producer] |= sources[last]
                else:
                    extra[producer] += kernel.times[last] * demanded / self.columns["elements"][producer]
            taken = None
            while undecided and taken is None:
                youngest = max(undecided)
                fits = self._fits(youngest, kernel, undecided)
                undecided.remove(youngest)
                is_hero = self.columns["kind"][youngest] in HEROES
                plain = sources[youngest] == {root} and extra[youngest] == 0.0
                if (
                    self.bits[youngest]
                    and youngest not in vetoed
                    and fits
                    and (not is_hero or (hero is None and plain))
                ):
                    taken = youngest
                    hero = youngest if is_hero else hero
                    if extra[youngest] > 0:
                        sources[youngest] = sources[youngest] | {youngest}
                    kernel.members.append(youngest)
                else:
                    kernel.reads.append(youngest)
                    kernel.times[youngest] = extra[youngest] + sum(extra[source] for source in sources[youngest])
            if taken is None:
                return kernel
            last = taken

    def _fits(self, tensor: int, kernel: SlowKernel, undecided: set[int]) -> bool:
        """Whether registers, parameters and code allow one more member."""
        known = undecided | set(kernel.reads) | set(kernel.members)
        fresh = {producer for producer, *_ in self.reads_of[tensor]} - known
        now = len(undecided) + len(kernel.reads)
        operands, live = now - 1 + len(fresh), len(undecided) - 1 + len(fresh)
        if len(kernel.members) >= 64:
            return False
        return operands <= now or (operands <= 63 and 16 + 2 * (operands + 1) + 4 * live <= 255)

    def price_ms(self, kernel: SlowKernel) -> float:
        """The price of a kernel that `kernel` has just formed."""
        column, device = self.columns, self.constants
        kind = column["kind"]
        if kind[kernel.root] == PROJECTION:
            return 0.0
        heroes = [member for member in kernel.members if kind[member] in HEROES]
        hero = heroes[0] if heroes else kernel.root
        blocks = math.ceil(max(column["loop_elements"][hero], 1) / 512)
        if kind[hero] in (LIBRARY, OPAQUE):
            blocks = device["cores"]
        gigahertz = device["clock_ghz"]
        work = sum(column["flops"][member] * kernel.times[member] for member in kernel.members)
        compute = work / (min(blocks, device["cores"]) * min(128, device["lanes"]) * gigahertz * 2e6)
        issue = blocks * gigahertz * 1e6 * 32
        memory = column["bytes"][kernel.root] / device["bytes_per_ms"]
        for read in kernel.reads:
            total = column["bytes"][read] * kernel.times[read]
            first = min(total, column["bytes"][read])
            speedup = 1.0
            if first < device["cache_bytes"]:
                speedup = 20.0 if first < 2048 * device["cores"] else 2.5
            memory += first / min(device["bytes_per_ms"], issue)
            memory += (total - first) / min(speedup * device["bytes_per_ms"], issue)
        return compute + memory - 0.95 * min(compute, memory) + device["launch_ms"]

    def cost_ms(self) -> float:
        return math.fsum(self.price_ms(kernel) for kernel in self.kernels().values())
