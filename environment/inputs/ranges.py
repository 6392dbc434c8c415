"""Which integers (and strings) a model accepts as input, found by following an input to the operators that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import AttributeProto

from taso_ext.onnx_io.checked_model import CheckedModel, ValueType
from taso_ext.onnx_io.operators import all_nodes, bodies

Range = tuple[int, int]
"""Lowest and highest accepted integer."""

_KEEPS_VALUES = frozenset(
    {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Slice", "Split", "Tile"}
)
"""Operators whose first input comes out with the same values in another arrangement."""
_MOST_ITERATIONS = 3
"""Trip counts and repeats multiply run time and memory; a few show as much as many."""


@dataclass(frozen=True)
class Reader:
    """An operator that reads a value, with the types of all it reads."""

    node: onnx.NodeProto
    position: int
    types: Mapping[str, ValueType]

    def dims(self, position: int) -> tuple[int, ...] | None:
        """Static dims of one of the operator's inputs."""
        names = self.node.input
        return self.types[names[position]].dims if position < len(names) and names[position] in self.types else None

    def axis_size(self, position: int, default_axis: int = 0) -> int | None:
        """Size of an input along the operator's `axis`."""
        dims = self.dims(position)
        axis = next((each.i for each in self.node.attribute if each.name == "axis"), default_axis)
        return dims[axis] if dims and -len(dims) <= axis < len(dims) else None


class InputReaders:
    """Finds the operators of a model that read an input, directly or rearranged, in nested graphs too."""

    def __init__(self, model: CheckedModel) -> None:
        self._types = model.types
        self._by_value: dict[str, list[Reader]] = {}
        for node in all_nodes(model.skeleton.graph):
            for position, name in enumerate(node.input):
                self._by_value.setdefault(name, []).append(Reader(node, position, self._types))

    def of(self, name: str) -> list[Reader]:
        """Readers of a value and of its rearrangements."""
        found: list[Reader] = []
        pending, seen = [name], {name}
        while pending:
            for reader in self._by_value.get(pending.pop(), []):
                found.append(reader)
                passes = reader.node.op_type == "Concat" or (
                    reader.node.op_type in _KEEPS_VALUES and reader.position == 0
                )
                fresh = [output for output in reader.node.output if passes and output not in seen]
                pending += fresh
                seen.update(fresh)
        return found


def accepted_range(readers: list[Reader]) -> Range | None:
    """The integers that all readers accept; None if none of them restricts them."""
    ranges = [found for reader in readers if (found := _range_of(reader)) is not None]
    return (max(low for low, _ in ranges), min(high for _, high in ranges)) if ranges else None


def accepted_strings(readers: list[Reader]) -> list[bytes]:
    """Strings that readers have in their attributes, such as the keys of a LabelEncoder."""
    attributes = (attribute for reader in readers for attribute in reader.node.attribute)
    return sorted({text for each in attributes if each.type == AttributeProto.STRINGS for text in each.strings})


def _range_of(reader: Reader) -> Range | None:
    rule = _RANGES.get((reader.node.op_type, reader.position))
    return None if rule is None else rule(reader)


def _index_along_axis(reader: Reader) -> Range | None:
    size = reader.axis_size(0)
    return None if not size else (0, size - 1)


def _index_of_leading_axes(reader: Reader) -> Range | None:
    dims, indices = reader.dims(0), reader.dims(1)
    if not dims or not indices:
        return None
    return 0, min(dims[: indices[-1]], default=1) - 1


def _row_of(table: int) -> Callable[[Reader], Range | None]:
    def rows(reader: Reader) -> Range | None:
        dims = reader.dims(table)
        return (0, dims[0] - 1) if dims else None

    return rows


def _up_to_axis(axis: int) -> Callable[[Reader], Range | None]:
    """Counts of things along an axis of the first input: at least one, at most all."""

    def counts(reader: Reader) -> Range | None:
        size = reader.axis_size(0, axis)
        return (1, size) if size else None

    return counts


def _few(reader: Reader) -> Range | None:
    return 1, _MOST_ITERATIONS


_RANGES: dict[tuple[str, int], Callable[[Reader], Range | None]] = {
    ("Gather", 1): _index_along_axis,
    ("GatherElements", 1): _index_along_axis,
    ("ScatterElements", 1): _index_along_axis,
    ("Scatter", 1): _index_along_axis,
    ("GatherND", 1): _index_of_leading_axes,
    ("ScatterND", 1): _index_of_leading_axes,
    ("ArrayFeatureExtractor", 1): lambda reader: (0, dims[-1] - 1) if (dims := reader.dims(0)) else None,
    ("EmbedLayerNormalization", 0): _row_of(2),
    ("EmbedLayerNormalization", 1): _row_of(4),
    ("TopK", 1): _up_to_axis(-1),
    ("LSTM", 4): _up_to_axis(0),
    ("GRU", 4): _up_to_axis(0),
    ("RNN", 4): _up_to_axis(0),
    ("ReverseSequence", 1): _up_to_axis(0),
    ("Loop", 0): _few,
    ("Tile", 1): _few,
}
"""By operator and input position."""


def reachable_outputs(model: CheckedModel, inputs: list[str]) -> set[str]:
    """Outputs that depend on the values (not only on the shapes) of these inputs."""
    reached = set(inputs)
    for node in model.skeleton.graph.node:
        read = {*node.input, *(name for body in bodies(node) for inner in all_nodes(body) for name in inner.input)}
        if node.op_type not in ("Shape", "Size") and read & reached:
            reached.update(node.output)
    return {output.name for output in model.skeleton.graph.output} & reached


def default_range(dtype: np.dtype) -> Range:
    """Integers of a type that nothing restricts: all of a small type, else 0 and 1, since they are usually masks."""
    if dtype.itemsize == 1 and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min), int(limits.max)
    return 0, 1
