"""Graphs as plain Python data, made from engine graphs and turned back into them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from taso_ext import Graph, GraphBuilder
from tests.taso_ext.oracles.slow_shapes import COMMUTATIVE, TensorType

ABSENT = -1


@dataclass(frozen=True)
class Tensor:
    """A value; `dims` is None if the shape is unknown, and only initializers have a `handle` and a `content`."""

    name: str
    dtype: int
    dims: tuple[int, ...] | None
    handle: str | None
    weight_only: bool
    content: float | str | None = None

    @property
    def type(self) -> TensorType | None:
        return None if self.dims is None else TensorType(self.dtype, self.dims)


@dataclass(frozen=True)
class Operator:
    """A node; operands and results are ids of values, and ABSENT stands for an optional operand that is left out."""

    domain: str
    op_type: str
    attributes: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weight_only: bool
    site: int
    origin: str = ""  # empty unless the engine has made the operator

    @property
    def symmetric(self) -> bool:
        """Whether the operands may change places."""
        return self.domain == "" and self.op_type in COMMUTATIVE

    @property
    def orders(self) -> list[tuple[int, ...]]:
        """The orders in which a rule reads the operands: both orders of an interchangeable pair, otherwise one."""
        both = self.symmetric and len(self.inputs) == 2 and self.inputs[0] != self.inputs[1]
        return [self.inputs, self.inputs[::-1]] if both else [self.inputs]


@dataclass(frozen=True, repr=False)
class PlainGraph:
    """Operators in topological order; made from an engine's graph, only its live operators."""

    tensors: Mapping[int, Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @staticmethod
    def of(graph: Graph) -> PlainGraph:
        tensors = {
            id_: Tensor(v.name, v.dtype, None if v.dims is None else tuple(v.dims), v.handle, v.weight_only, v.content)
            for id_, v in graph.values().items()
        }
        operators = tuple(
            Operator(
                n.domain, n.op_type, n.attributes, tuple(n.inputs), tuple(n.outputs), n.weight_only, n.site, n.origin
            )
            for n in graph.nodes()
        )
        return PlainGraph(tensors, operators, tuple(graph.inputs), tuple(graph.outputs))

    def __repr__(self) -> str:
        """Returns the graph as text, one line for each operator, for the failing examples of hypothesis."""
        lines = [f"inputs {', '.join(map(self._text, self.inputs))}"]
        for each in self.operators:
            operands, results = (", ".join(map(self._text, ids)) for ids in (each.inputs, each.outputs))
            attributes = "".join(f"; {name}={value}" for name, value in sorted(each.attributes.items()))
            lines.append(f"{results} = {each.op_type}({operands}{attributes})  # site {each.site}")
        return "\n" + "\n".join([*lines, f"outputs {', '.join(map(self._text, self.outputs))}\n"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints the graph for hypothesis, which would otherwise list the fields of the dataclass."""
        printer.text(repr(self))

    def _text(self, id_: int) -> str:
        if id_ == ABSENT:
            return "_"
        tensor = self.tensors[id_]
        dims = "?" if tensor.dims is None else list(tensor.dims)
        return f"{(tensor.handle or f'v{id_}').split('x')[0]}{dims}" + ("" if tensor.dtype == 1 else f":{tensor.dtype}")

    @cached_property
    def producer(self) -> dict[int, Operator]:
        """The operator that computes each value, by the value's id."""
        return {output: operator for operator in self.operators for output in operator.outputs}

    @cached_property
    def readers(self) -> dict[int, list[Operator]]:
        """The operators that read each value, once each, by the value's id."""
        found: dict[int, list[Operator]] = {id_: [] for id_ in self.tensors}
        for operator in self.operators:
            for value in {*operator.inputs} - {ABSENT}:
                found[value].append(operator)
        return found

    def build(self, shuffle: random.Random | None = None) -> Graph:
        """Returns the engine's graph; `shuffle` renames values, and permutes nodes, weights and symmetric operands."""
        builder, order = GraphBuilder(), list(self.operators)
        weights = [id_ for id_, tensor in self.tensors.items() if tensor.handle is not None]
        if shuffle is not None:
            order = topological(self.operators, shuffle) or []
            shuffle.shuffle(weights)
        label = str if shuffle is None else (lambda id_: f"renamed{id_}")
        ids = {ABSENT: ABSENT}
        for id_ in self.inputs:
            ids[id_] = builder.input(label(id_), self.tensors[id_].dtype, self.tensors[id_].dims)
        for id_ in weights:
            weight = self.tensors[id_]
            assert weight.handle is not None and weight.dims is not None
            ids[id_] = builder.weight(label(id_), weight.handle, weight.dtype, weight.dims, weight.content)
        for operator in order:
            operands = [ids[value] for value in operator.inputs]
            if shuffle is not None and operator.symmetric:
                shuffle.shuffle(operands)
            results = [(label(id_), self.tensors[id_].dtype, self.tensors[id_].dims) for id_ in operator.outputs]
            made = builder.node(operator.domain, operator.op_type, operator.attributes, operands, results)
            ids |= zip(operator.outputs, made, strict=True)
        for value in self.outputs:
            builder.output(ids[value])
        return builder.build()


def topological(operators: Sequence[Operator], shuffle: random.Random | None = None) -> list[Operator] | None:
    """Returns the operators in topological order, a random one with `shuffle`, or None if there is a cycle."""
    made_by = {output: index for index, operator in enumerate(operators) for output in operator.outputs}
    needs = [{made_by[value] for value in operator.inputs if value in made_by} for operator in operators]
    needed_by: list[list[int]] = [[] for _ in operators]
    for index, producers in enumerate(needs):
        for producer in producers:
            needed_by[producer].append(index)
    ready, order = [index for index, producers in enumerate(needs) if not producers], []
    while ready:
        index = ready.pop(0 if shuffle is None else shuffle.randrange(len(ready)))
        order.append(operators[index])
        for reader in needed_by[index]:
            needs[reader].remove(index)
            if not needs[reader]:
                ready.append(reader)
    return order if len(order) == len(operators) else None
