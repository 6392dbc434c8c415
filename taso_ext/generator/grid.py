"""Domains, which the generator enumerates: variables, constants and operators, with symbolic extents.

A domain is evaluated in several shape sets at once. Each set gives every symbol another extent, and a spatial symbol of
convolutions several extents. Two extents count as equal only if they are equal in all sets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Shape = tuple[str, ...]
Extents = tuple[int, ...]
NativeShapes = list[list[int]]
"""Extents of a tensor in each shape set."""

VARIABLE = "variable"
ZERO, ONE, IDENTITY = "zero", "one", "identity"
IDENTITY_KERNEL, AVERAGING_KERNEL = "identity kernel", "averaging kernel"

BINARY = frozenset(["Add", "Sub", "Mul", "Scale", "Div", "Max", "MatMul", "Conv", "Concat"])
SYMMETRIC = frozenset(["Add", "Mul", "Max"])


@dataclass(frozen=True)
class Leaf:
    """A variable, or a constant with some content; its extents are symbols, numbers, or sums and products of these."""

    name: str
    shape: Shape
    content: str = VARIABLE


@dataclass(frozen=True)
class Operator:
    """An operator with its attributes.

    Attributes:
      kind: what it computes, as in taso_ext/src/generator/grid.hpp.
      attributes: names and values. Axes are integers counted from the front, and extents are symbols. Attributes of
        windows (strides, pads, dilations, kernels) hold for every spatial axis.
    """

    kind: str
    attributes: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def name(self) -> str:
        """A name that is unique for the operator with its attributes, and the same in all domains."""
        written = ",".join(f"{key}={value}" for key, value in self.attributes)
        return f"{self.kind}[{written}]" if written else self.kind

    def __getitem__(self, key: str) -> Any:
        return dict(self.attributes)[key]

    @property
    def node(self) -> Operator:
        """The operator without its port, which all results of one Split have in common."""
        return Operator(self.kind, tuple(item for item in self.attributes if item[0] != "port"))


def operator(kind: str, **attributes: Any) -> Operator:
    """Makes an operator of `kind`."""
    return Operator(kind, tuple(attributes.items()))


@dataclass(frozen=True, eq=False)  # compared by identity: domains are keys of tables
class Domain:
    """A set of expressions: all of at most `most_operators` operators over the leaves.

    Attributes:
      symbols: the extents of each symbol in the shape sets; a tuple of tuples for a spatial symbol (written `*s`).
      linear: the kinds of operators of a subset, from which expressions of up to `most_linear_operators` operators are
        enumerated too.
    """

    name: str
    symbols: Mapping[str, tuple[Any, ...]]
    leaves: tuple[Leaf, ...]
    operators: tuple[Operator, ...]
    most_operators: int = 3
    most_linear_operators: int = 0
    linear: frozenset[str] = field(default=frozenset())

    @property
    def sets(self) -> int:
        """The number of shape sets."""
        return len(next(iter(self.symbols.values())))

    def extent(self, text: str, number: int) -> int:
        """Returns the value of an extent in one shape set."""
        return sum(math.prod(self._factor(factor, number) for factor in term.split("*")) for term in text.split("+"))

    def _factor(self, text: str, number: int) -> int:
        return int(text) if text.isdigit() else int(self.symbols[text][number])

    def extents(self, shape: Shape, number: int) -> list[int]:
        """Returns the extents of a shape in one shape set; `*s` is replaced by all of s."""
        extents: list[int] = []
        for text in shape:
            if text.startswith("*"):
                extents += self.symbols[text[1:]][number]
            else:
                extents.append(self.extent(text, number))
        return extents

    def native_shapes(self, shape: Shape) -> NativeShapes:
        """Returns the extents of a shape in all shape sets."""
        return [self.extents(shape, number) for number in range(self.sets)]

    @cached_property
    def by_name(self) -> dict[str, Operator]:
        """The operators by their names."""
        return {each.name: each for each in self.operators}

    @cached_property
    def spatial(self) -> list[int]:
        """The number of spatial axes of convolutions in each shape set."""
        tuples = [values for values in self.symbols.values() if isinstance(values[0], tuple)]
        return [len(extents) for extents in tuples[0]] if tuples else [0] * self.sets

    def native(self, *, seed: int, threads: int, most_operators: int | None = None) -> dict[str, Any]:
        """Returns the domain for `taso_ext._generator.enumerate`; `most_operators` can only lower the domain's own."""
        nodes: dict[Operator, int] = {}
        most = min(self.most_operators, most_operators or self.most_operators)
        operators = [
            {
                "name": each.name,
                "kind": each.kind,
                "operands": 2 if each.kind in BINARY else 1,
                "symmetric": each.kind in SYMMETRIC,
                "linear": each.kind in self.linear,
                "node": nodes.setdefault(each.node, len(nodes)),
                "attributes": [self._native_attributes(each, number) for number in range(self.sets)],
            }
            for each in self.operators
        ]
        return {
            "leaves": [(leaf.name, leaf.content, self.native_shapes(leaf.shape)) for leaf in self.leaves],
            "operators": operators,
            "most_operators": most,
            "most_linear_operators": max(most, min(self.most_linear_operators, most + 1)),
            "seed": seed,
            "threads": threads,
        }

    def _native_attributes(self, op: Operator, number: int) -> list[int]:
        spatial = self.spatial[number]
        match op.kind:
            case "Concat" | "Merge" | "Insert" | "Drop":
                return [op["axis"]]
            case "Split":
                return [op["axis"], self.extent(op["first"], number), op["port"]]
            case "Slice":
                return [op["axis"], self.extent(op["start"], number), self.extent(op["end"], number)]
            case "Unmerge":
                return [op["axis"], self.extent(op["first"], number)]
            case "Transpose":
                return list(op["perm"])
            case "ReduceSum" | "ReduceMean" | "ReduceMax":
                axes = op["axes"]
                return [op["keepdims"], *(range(2, 2 + spatial) if axes == "spatial" else axes)]
            case "Conv":
                window = [op["strides"], op["pads"], op["pads"], op["dilations"]]
                return [op["group"], *(value for value in window for _ in range(spatial))]
            case "AveragePool" | "MaxPool":
                window = [op["kernel"], op["strides"], op["pads"], op["pads"], 1]
                include = int(dict(op.attributes).get("count_include_pad", 0))
                return [include, *(value for value in window for _ in range(spatial))]
            case "Pad":
                return ([0, 0] + [op["pads"]] * spatial) * 2
        return []
