"""A judge of rules that does not use the verifier: it runs onnx.reference in float64 on graphs of its own.

Shapes are larger than any that the verifier draws (every extent above 1 that nothing forces is at least 7), and seeds
are others. Magnitudes lie in [0.5, 2], once with positive and once with both signs: away from zero, so that rounding
can neither hide nor fake a difference.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from taso_ext._core import CostModel, Graph, RuleSet, State, Value
from taso_ext.onnx_io.weights.content import known, materialise
from taso_ext.verify.numeric.float_session import graph_model

STRETCH = 5
FIRST_SEED = 1 << 40
MOST_LOCATIONS = 2
_SAME, _DIFFERENT = 1e-9, 1e-6

Rewrite = tuple[Graph, Graph]


class GlobalMaxPool(OpRun):
    """The operator, because that of onnx.reference is wrong for one spatial axis."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class AveragePool(OpRun):
    """The operator, because that of onnx.reference pads at the front if `ceil_mode` adds a window at the end."""

    op_domain = ""

    def _run(  # type: ignore[no-untyped-def]
        self,
        x,
        auto_pad=None,
        ceil_mode=0,
        count_include_pad=0,
        dilations=None,
        kernel_shape=None,
        pads=None,
        strides=None,
    ):
        if auto_pad not in (None, "", "NOTSET"):
            raise NotImplementedError(f"auto_pad={auto_pad}")
        axes = len(kernel_shape)
        pads, strides, dilations = pads or [0] * 2 * axes, strides or [1] * axes, dilations or [1] * axes
        total, counts = x, np.ones((), x.dtype)
        for axis in range(axes):
            extent, before, after = x.shape[2 + axis], pads[axis], pads[axes + axis]
            taps = np.arange(kernel_shape[axis]) * dilations[axis]
            room = extent + before + after - taps[-1] - 1
            last = -(-room // strides[axis]) if ceil_mode else room // strides[axis]
            starts = np.arange(last + 1) * strides[axis] - before
            places = starts[starts < extent][:, None] + taps
            inside = (places >= 0) & (places < extent)
            counted = (places >= -before) & (places < extent + after) if count_include_pad else inside
            rows = (places[:, :, None] == np.arange(extent)).any(axis=1).astype(x.dtype)  # windows by elements
            total = np.moveaxis(np.tensordot(total, rows, axes=([2 + axis], [1])), -1, 2 + axis)
            counts = np.multiply.outer(counts, counted.sum(axis=1).astype(x.dtype))
        return ((total / counts).astype(x.dtype),)


MENDED = [AveragePool, GlobalMaxPool]
"""Operators of which onnx.reference has a wrong implementation."""


class UnclearError(Exception):
    """Two results differ by more than rounding and less than a mistake would make them."""


class NotRunnableError(Exception):
    """onnx.reference cannot run a graph, mostly because it is no valid model."""


def rewrites(rules: RuleSet, seed: int, graphs: int) -> Iterator[Rewrite]:
    """Yields fresh graphs before and after rewrites by the only rule of a set."""
    for number in range(graphs):
        source = rules.instance(0, FIRST_SEED + seed * graphs + number, STRETCH)
        if source is None:
            return
        state = State(source, rules, CostModel.roofline("xeon"))
        for location in np.flatnonzero(state.location_mask()[0])[:MOST_LOCATIONS]:
            stepped = state.copy()
            stepped.step(0, int(location))
            yield source, stepped.graph


def differs(rewrite: Rewrite, seed: int) -> bool:
    """Returns whether the two graphs compute different numbers where the first computes finite ones.

    Raises:
      UnclearError: if results differ by more than rounding and less than a mistake would make them.
      NotRunnableError: if onnx.reference cannot run one of the graphs.
    """
    generator = np.random.default_rng([seed, 77])
    unclear = False
    pairs = []
    for signed in (False, True):
        feeds: dict[str, np.ndarray] = {}
        pairs += zip(*(_run(graph, feeds, generator, signed) for graph in rewrite), strict=True)
    for a, b in pairs:
        if a.shape != b.shape:
            return True
        finite = np.isfinite(a)
        with np.errstate(invalid="ignore"):
            error = np.asarray(np.abs(np.where(finite, a - b, 0.0)))
        error = np.where(finite & ~np.isfinite(b), np.inf, error)
        scale = max(1.0, float(np.abs(a[finite]).max(initial=0.0)))
        if (error > _DIFFERENT * scale).any():
            return True
        unclear |= bool((error > _SAME * scale).any())
    if unclear:
        raise UnclearError
    return False


def _run(graph: Graph, feeds: dict[str, np.ndarray], generator: np.random.Generator, signed: bool) -> list[np.ndarray]:
    values, produced = graph.values(), {id_ for node in graph.nodes() for id_ in node.outputs}
    leaves = {id_: value for id_, value in values.items() if id_ not in produced}
    for value in leaves.values():
        if _key(value) not in feeds:
            feeds[_key(value)] = _draw(value, generator, signed)
    model = _in_double(graph_model(graph, list(leaves)))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            evaluator = ReferenceEvaluator(model, new_ops=MENDED)
            results = evaluator.run(None, {f"v{id_}": feeds[_key(value)] for id_, value in leaves.items()})
        except Exception as error:  # whatever NumPy or the implementation of an operator raises
            raise NotRunnableError(str(error)) from error
    return [np.asarray(result) for result in results]


def _key(value: Value) -> str:
    return value.name if value.handle is None else f"weight:{value.handle}"


def _draw(value: Value, generator: np.random.Generator, signed: bool) -> np.ndarray:
    dims = tuple(value.dims or ())
    content = known(value.content)
    if content is not None:
        return materialise(content, dims)
    return generator.uniform(0.5, 2.0, dims) * (generator.choice([-1.0, 1.0], dims) if signed else 1.0)


def _in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """Changes declared types, constants and casts of a model to float64 and returns it."""
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in model.graph.initializer:
        _widen(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            elif attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return model


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
