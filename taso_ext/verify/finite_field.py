"""Equality of two graphs as functions, by evaluation at random points of prime fields.

Two graphs of linear and rational operators compute the same function for given shapes exactly when their outputs agree
as rational functions of all input and weight elements. If they do not, they still agree at a uniformly random point
of the field of p elements with probability at most d/p, where d is the degree of the difference (Schwartz 1980; Zippel
1979). `POINTS` are two points in each of two fields with p ≈ 2³¹, so a wrong pair of degree below 2¹⁶ passes with
probability under 2⁻⁶⁰ per shape and attribute instance. Nonlinear operators are random functions (keyed_functions.py):
distinct arguments give independent values, which are fresh variables to the same argument. What is *not* covered is
float rounding, overflow and the special values: differential.py is for those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taso_ext._core import Graph, Value
from taso_ext.verify.field_operators import Call, evaluate_call
from taso_ext.verify.keyed_functions import KeyedFunctions
from taso_ext.verify.prime_field import PRIMES, Array, NotInvertibleError, PrimeField

POINTS_PER_PRIME = 2
_ATTEMPTS = 8  # a random divisor is zero with probability about elements / 2³¹: one retry is already rare


@dataclass(frozen=True)
class FieldMismatch:
    """Where two graphs differ: output position, element, and what each graph computes there modulo `prime`."""

    output: int
    index: tuple[int, ...]
    source: int
    target: int
    prime: int

    def __str__(self) -> str:
        return (
            f"output {self.output} at {list(self.index)} is {self.source} in the source and {self.target} in the "
            f"target, modulo {self.prime}"
        )


def evaluate(graph: Graph, leaves: Mapping[str, Array], field: PrimeField, seed: int) -> list[Array]:
    """Outputs of `graph`, in order.

    Args:
      leaves: field elements of every graph input (by name) and every weight (by handle).
      seed: chooses the random functions; two graphs to compare need the same one.
    Raises:
      UnsupportedOperatorError: if the graph contains an operator that is no function of its inputs.
      NotInvertibleError: if a division meets zero.
    """
    values, functions = graph.values(), KeyedFunctions(field.prime, seed)
    computed = {id_: leaves[leaf_key(value)] for id_, value in values.items() if leaf_key(value) in leaves}
    for node in graph.nodes():
        call = Call(
            op_type=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
            attributes=node.attributes,
            inputs=[None if id_ < 0 else computed[id_] for id_ in node.inputs],
            output_dims=[tuple(values[id_].dims or ()) for id_ in node.outputs],
            field=field,
            functions=functions,
        )
        computed.update(zip(node.outputs, evaluate_call(call), strict=True))
    return [computed[id_] for id_ in graph.outputs]


def find_difference(source: Graph, target: Graph, *, seed: int = 0) -> FieldMismatch | None:
    """The first element in which the two graphs differ at any of the random points, or None.

    Raises:
      UnsupportedOperatorError, NotInvertibleError: as `evaluate`; the latter only if it persists over several points.
    """
    for prime in PRIMES:
        for point in range(POINTS_PER_PRIME):
            mismatch = _differ_at_point(source, target, PrimeField(prime), f"{seed}/{point}")
            if mismatch is not None:
                return mismatch
    return None


def _differ_at_point(source: Graph, target: Graph, field: PrimeField, point: str) -> FieldMismatch | None:
    for attempt in range(_ATTEMPTS):
        seed = _seed(f"{point}/{attempt}")
        leaves = draw_leaves([source, target], field, seed)
        try:
            expected, got = (evaluate(graph, leaves, field, seed) for graph in (source, target))
        except NotInvertibleError:
            continue
        return _compare(expected, got, field)
    raise NotInvertibleError(f"a divisor is zero modulo {field.prime} at all of {_ATTEMPTS} random points")


def draw_leaves(graphs: Sequence[Graph], field: PrimeField, seed: int) -> dict[str, Array]:
    """Random elements for all inputs and weights of the graphs; a leaf that several of them have is drawn once."""
    leaves: dict[str, Array] = {}
    for graph in graphs:
        produced = {id_ for node in graph.nodes() for id_ in node.outputs}
        for id_, value in graph.values().items():
            if id_ not in produced:
                leaves.setdefault(leaf_key(value), _draw(value, field, seed))
    return leaves


def leaf_key(value: Value) -> str:
    """Weights are the same tensor if their handle is; inputs if their name is."""
    return value.name if value.handle is None else f"weight:{value.handle}"


def _draw(value: Value, field: PrimeField, seed: int) -> Array:
    return field.random(np.random.default_rng(_seed(f"{seed}/{leaf_key(value)}")), tuple(value.dims or ()))


def _compare(source: Sequence[Array], target: Sequence[Array], field: PrimeField) -> FieldMismatch | None:
    for output, (expected, got) in enumerate(zip(source, target, strict=True)):
        if expected.shape != got.shape:
            return FieldMismatch(output, (), expected.size, got.size, field.prime)
        differing = np.argwhere(expected != got)
        if differing.size:
            index = tuple(int(i) for i in differing[0])
            return FieldMismatch(output, index, int(expected[index]), int(got[index]), field.prime)
    return None


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
