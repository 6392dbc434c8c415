"""The worth of partially equal rules, under a roofline and beside the shipped rules.

A rule is worth having if it makes a convolution of a known network cheaper than the shipped rules alone do, with these
applied behind it. A rule that takes a dilation or a stride away, or makes larger planes of several images, is worth
having even so, because what libraries have for such convolutions is often faster. Of several rules that do the same,
the simplest is taken, and one more if it also applies where the simplest does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property

import onnx

from taso_ext._core import CostModel, Graph, GraphBuilder, RuleSet, State, search_taso
from taso_ext.generator.partial.wording import Candidate, makes_larger_planes
from taso_ext.verify.check import COST_MODEL

ALPHA, BUDGET, MOST_MATCHES = 1.2, 40, 200
"""Of the searches that price a rule. A re-layout alone makes one convolution dearer by up to a fifth."""
LEAST_GAIN = 0.01  # share of the cost that counts as a gain
MOST_OF_A_KIND = 2


@dataclass(frozen=True)
class Workload:
    """A convolution [batch, channels, size, size] as networks have it, with a square window and equal pads."""

    channels: int
    size: int
    filters: int
    kernel: int = 3
    stride: int = 1
    dilation: int = 1
    pad: int = 1
    group: int = 1

    @cached_property
    def extent(self) -> int:
        """Height and width of the result."""
        return (self.size + 2 * self.pad - (self.kernel - 1) * self.dilation - 1) // self.stride + 1

    def graph(self, batch: int) -> Graph:
        """Returns the convolution, with a bias, as a graph."""
        builder, float32 = GraphBuilder(), onnx.TensorProto.FLOAT
        x = builder.input("x", float32, [batch, self.channels, self.size, self.size])
        shape = [self.filters, self.channels // self.group, self.kernel, self.kernel]
        weights = [builder.weight("k", "k", float32, shape), builder.weight("v", "v", float32, [self.filters])]
        attributes: dict[str, int | list[int]] = {
            "dilations": [self.dilation] * 2,
            "group": self.group,
            "kernel_shape": [self.kernel] * 2,
            "pads": [self.pad] * 4,
            "strides": [self.stride] * 2,
        }
        dims = [batch, self.filters, self.extent, self.extent]
        (result,) = builder.node("", "Conv", attributes, [x, *weights], [("y", float32, dims)])
        builder.output(result)
        return builder.build()


WORKLOADS = (
    *(Workload(64 << stage, 56 >> stage, 64 << stage) for stage in range(4)),  # ResNet-18
    Workload(64, 56, 128, stride=2),
    Workload(3, 224, 64, kernel=7, stride=2, pad=3),
    Workload(256, 56, 64, kernel=1, pad=0),  # ResNet-50
    Workload(256, 56, 512, kernel=1, stride=2, pad=0),
    Workload(128, 56, 128, group=32),  # ResNeXt-50
    Workload(32, 149, 32, pad=0),  # Inception v3
    Workload(512, 28, 512, dilation=2, pad=2),  # CSRNet
    Workload(256, 28, 128, dilation=2, pad=2),
    Workload(512, 33, 512, dilation=2, pad=2),  # the same on an image of 264 pixels, which the dilation does not divide
)
BATCHES = (1, 16)


class Worth(StrEnum):
    """The reason why a rule is kept, or not."""

    CHEAPER = "cheaper than by the shipped rules alone"
    PLAINER = "takes a dilation or a stride away"
    LARGER = "makes larger planes of several images"
    NOTHING = "has no use"


KEPT = (Worth.CHEAPER, Worth.PLAINER, Worth.LARGER)


def worth(candidate: Candidate, text: str, shipped: str) -> Worth:
    """Returns the worth of a rule.

    Args:
      text: the rule with a bias, if it is about convolutions.
      shipped: the text of the shipped rules.
    """
    if candidate.mutant.source.name == "conv" and _is_cheaper(text, shipped):
        return Worth.CHEAPER
    if candidate.mutant.source.name != "conv":
        return Worth.NOTHING
    if any(move.name in ("dilation", "stride") for move in candidate.mutant.relayout.moves):
        return Worth.PLAINER
    return Worth.LARGER if makes_larger_planes(candidate.mutant) else Worth.NOTHING


def _is_cheaper(text: str, shipped: str) -> bool:
    alone = RuleSet.parse(text)
    both: RuleSet | None = None
    for workload in WORKLOADS:
        for batch in BATCHES:
            graph = workload.graph(batch)
            if not State(graph, alone, CostModel.roofline(COST_MODEL)).rule_mask().any():
                continue
            both = both or RuleSet.parse(f"{shipped}\n{text}")
            found = search_taso(State(graph, both, CostModel.roofline(COST_MODEL), MOST_MATCHES), ALPHA, BUDGET)
            if found.cost_ms < (1 - LEAST_GAIN) * _shipped_ms(workload, batch, shipped):
                return True
    return False


@cache
def _shipped_ms(workload: Workload, batch: int, shipped: str) -> float:
    """Returns what the shipped rules make of a convolution, in ms."""
    state = State(workload.graph(batch), RuleSet.parse(shipped), CostModel.roofline(COST_MODEL), MOST_MATCHES)
    return search_taso(state, ALPHA, BUDGET).cost_ms


def kind(candidate: Candidate) -> tuple[object, ...]:
    """Returns what a rule does: which factors move, from which axes to which, and whether it computes a part again."""
    mutant = candidate.mutant
    moves = tuple((move.axis, move.to, move.name) for move in mutant.relayout.moves)
    return mutant.source.name, moves, mutant.kernel, candidate.is_corrected


def size(candidate: Candidate) -> tuple[object, ...]:
    """Returns the sort key of simple rules: those with the fewest windows, operators, conditions and letters."""
    texts: Sequence[str] = [each.text for each in candidate.statements]
    windows = sum(each.op == candidate.mutant.source.statement.op for each in candidate.statements)
    return windows, len(texts), len(candidate.conditions), -len(candidate.covered), sum(map(len, texts)), texts
