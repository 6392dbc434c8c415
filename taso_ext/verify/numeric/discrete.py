"""Equality of two graphs on truth values and integers, element for element, in onnx.reference and in ONNX Runtime.

Integers wrap around at the ends of their type and quotients are cut, so an identity of real numbers says little about
them. The graphs are run on small numbers (which are often equal), on numbers from the whole range of the type, and on
its two ends. ONNX Runtime has no kernels for some operators on truth values, about which nothing is in doubt; on
integers, both have to agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from taso_ext._core import Graph, Value
from taso_ext.errors import one_paragraph
from taso_ext.onnx_io.weights.content import materialise
from taso_ext.verify.exact.evaluation import leaf_domains, leaf_key, leaves_of
from taso_ext.verify.numeric.float_session import RefusedGraphError, fed_keys, graph_model, plain_session
from taso_ext.verify.valued_operands import draw_valued

Tensors = Mapping[str, npt.NDArray[np.generic]]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
"""The integer types, by their names in ONNX's textual syntax."""
_TYPES = frozenset([TensorProto.BOOL, *(TensorProto.DataType.Value(name.upper()) for name in INTEGERS)])
_DRAWS = 8
_SMALL = 4  # small numbers lie below it in size


def is_discrete(graph: Graph) -> bool:
    """Returns whether all inputs and weights hold truth values or integers."""
    return all(value.dtype in _TYPES for value in leaves_of(graph).values())


def is_of_truths(graph: Graph) -> bool:
    """Returns whether all inputs and weights hold truth values."""
    return all(value.dtype == TensorProto.BOOL for value in leaves_of(graph).values())


def find_discrete_difference(source: Graph, target: Graph, *, seed: int = 0) -> str:
    """Returns where the results of two graphs differ, in a sentence; empty if they are equal on all inputs tried.

    Raises:
      RefusedGraphError: if a runtime that has to run the graphs does not.
    """
    generator = np.random.default_rng(seed)
    sides, domains = [_Side(source), _Side(target)], leaf_domains(source)
    leaves = {key: leaf for side in sides for key, leaf in side.leaves.items()}
    for draw in range(_DRAWS):
        feeds = {key: _draw(leaf, generator, draw) for key, leaf in leaves.items()}
        for key, domain in domains.items():
            feeds[key] = draw_valued(leaves[key], domain, generator).astype(feeds[key].dtype)
        expected, got = (side.run(feeds) for side in sides)
        for runtime, a, b in zip(("onnx.reference", "ONNX Runtime"), expected, got, strict=False):
            difference = _first_difference(a, b)
            if difference:
                return f"{difference}, in {runtime}"
    return ""


def _first_difference(source: Sequence[npt.NDArray[np.generic]], target: Sequence[npt.NDArray[np.generic]]) -> str:
    for output, (a, b) in enumerate(zip(source, target, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            types = [f"{each.dtype}{list(each.shape)}" for each in (a, b)]
            return f"output {output} is {types[0]} in the source and {types[1]} in the target"
        differing = np.argwhere(~((a == b) | ((a != a) & (b != b))))
        if len(differing):
            index = tuple(int(i) for i in differing[0])
            return f"output {output} at {list(index)} is {a[index]} in the source and {b[index]} in the target"
    return ""


class _Side:
    """One graph in both runtimes."""

    def __init__(self, graph: Graph) -> None:
        found = leaves_of(graph)
        self.leaves = {leaf_key(value): value for value in found.values()}
        self._keys = fed_keys(found)
        model = graph_model(graph, list(found))
        self._reference = ReferenceEvaluator(model)
        self._session = None if is_of_truths(graph) else plain_session(model)

    def run(self, feeds: Tensors) -> list[list[npt.NDArray[np.generic]]]:
        """Returns the outputs by onnx.reference, and by ONNX Runtime if it has to run the graph."""
        named, results = {name: feeds[key] for name, key in self._keys.items()}, []
        for session in filter(None, (self._reference, self._session)):
            try:
                with np.errstate(all="ignore"):
                    results.append([np.asarray(output) for output in session.run(None, named)])
            except Exception as error:
                raise RefusedGraphError(f"a runtime fails on the graph: {one_paragraph(error, limit=300)}") from error
        return results


def _draw(leaf: Value, generator: np.random.Generator, draw: int) -> npt.NDArray[np.generic]:
    """Returns small numbers in the first draws, then numbers of the whole range, its ends among them."""
    dims, dtype = tuple(leaf.dims or ()), helper.tensor_dtype_to_np_dtype(leaf.dtype)
    if leaf.content is not None:
        return materialise(leaf.content, dims).astype(dtype)
    if dtype == np.bool_:
        return np.asarray(generator.integers(0, 2, dims).astype(np.bool_))
    info = np.iinfo(dtype)
    if draw < _DRAWS // 2:
        return np.asarray(generator.integers(max(info.min, 1 - _SMALL), _SMALL, dims).astype(dtype))
    wide = generator.integers(info.min, info.max, dims, dtype=dtype, endpoint=True)
    ends = generator.choice(np.asarray([info.min, info.max], dtype), dims)
    return np.asarray(np.where(generator.random(dims) < 0.3, ends, wide).astype(dtype))
