"""Equality of two graphs in element types other than float32, by onnx.reference.

ONNX Runtime computes many operators of float16 in float32, so it would not see that an intermediate result overflows.
onnx.reference computes in the type of the tensors. A rule that differs here is not wrong everywhere; its proof says in
which types it holds, and it matches no others.

Numbers near the largest of a type are planted into one input at a time: into one element of graphs that compute each
element by itself, and in float16, of which models do come near the largest number, into all elements with one sign. In
other types, the order alone would decide which sums of many elements overflow.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from taso_ext._core import Graph, Value
from taso_ext.onnx_io.weights.content import NONZERO, known, materialise
from taso_ext.verify.exact.evaluation import element_count, leaf_domains, leaf_key, leaves_of
from taso_ext.verify.exact.linear import WindowGeometry
from taso_ext.verify.numeric.float_cases import SMALL, Facts, without_zeros
from taso_ext.verify.numeric.float_session import POINTWISE, fed_keys, graph_model
from taso_ext.verify.valued_operands import draw_valued

Array = npt.NDArray[np.generic]

DTYPES: Mapping[str, int] = {
    "float16": TensorProto.FLOAT16,
    "double": TensorProto.DOUBLE,
    "bfloat16": TensorProto.BFLOAT16,
}
"""The element types by the names that rules use."""
_NUMPY: Mapping[str, type] = {
    "float": np.float32,
    "float16": np.float16,
    "double": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
}
_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_HALF_LIMIT = 65504.0
_HALF_TIE = 65520.0 * (1 - 2.0**-40)  # rounds to the largest number of float16, and to infinity by way of float32
_UNITS = 32.0
"""The error that rounding explains, in units of the last place of the largest result, besides that of perturbations."""
_PERTURBATIONS = 2
_SAFETY = 4.0
_SHARE = 0.25
SATURATING = (-100.0, -25.0, 25.0, 100.0, 1.0, 0.5)
"""Numbers of ordinary size at which Sigmoid, Tanh and exponentials saturate."""
_ELEMENTS, _MOST_ROUNDS = 64, 8
"""Small graphs are compared on several draws of each case: on as many elements as this, or in as many rounds."""
_ORDINARY_CASES = 2
"""How many of the cases, the first ones, hold numbers of ordinary size."""


class GlobalMaxPool(OpRun):
    """The operator, because that of onnx.reference is wrong for one spatial axis."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(OpRun):
    """The operator with one result, because that of onnx.reference gives wrong shapes in ceil mode."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: list[int] | None = None,
        kernel_shape: list[int] | None = None,
        pads: list[int] | None = None,
        storage_order: int | None = None,
        strides: list[int] | None = None,
    ) -> tuple[Array]:
        spatial = x.ndim - 2
        kernel, ones = kernel_shape or [], [1] * spatial
        steps, spread, around = strides or ones, dilations or ones, pads or [0] * 2 * spatial
        outputs = []
        for axis, (size, step, dilation) in enumerate(zip(kernel, steps, spread, strict=True)):
            before, after = around[axis], around[axis + spatial]
            room = x.shape[2 + axis] + before + after - (size - 1) * dilation - 1
            begins_inside = (room // step + 1) * step < x.shape[2 + axis] + before
            outputs.append(room // step + 1 + bool(ceil_mode and room % step and begins_inside))
        geometry = WindowGeometry(kernel, steps, spread, around, outputs)
        least: Any = np.asarray(-np.inf if x.dtype.kind not in "iu" else np.iinfo(str(x.dtype)).min, x.dtype)[()]
        windows: npt.NDArray[Any] = geometry.gather(geometry.pad(x, least), least)
        return (np.asarray(windows.max(axis=tuple(range(-spatial, 0)))),)


class Softsign(OpRun):
    """The operator, because that of onnx.reference fails on scalars."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.asarray(x / (np.abs(x) + np.ones((), x.dtype))),)


def agree_in(dtype: str, source: Graph, target: Graph, *, seed: int, facts: Facts) -> bool:
    """Returns whether two graphs whose variables have an element type compute the same, up to rounding.

    Args:
      dtype: a name of `DTYPES`.
      facts: what is known of the weights.
    Returns:
      Whether each finite result of the source is finite in the target and close, and each NaN or infinity on small
      equal numbers is the same; False if onnx.reference cannot run the graphs.
    """
    return bool(_agree_on(None, dtype, source, target, seed, facts))


def differ_in_reference(source: Graph, target: Graph, *, seed: int, facts: Facts) -> bool:
    """Returns whether onnx.reference gives other results of two graphs of float32 on numbers of ordinary size.

    Kernels of ONNX Runtime saturate early: its Sigmoid of -30 is 0, and log σ(x) as inexact as log(1 - σ(-x)). Other
    runtimes are more exact, and would show the difference. What onnx.reference cannot run does not differ.
    """
    return _agree_on(_ORDINARY_CASES, "float", source, target, seed, facts) is False


def _agree_on(most_cases: int | None, dtype: str, source: Graph, target: Graph, seed: int, facts: Facts) -> bool | None:
    """Returns whether two graphs agree on the first cases, or on all; None if onnx.reference cannot run them."""
    generator = np.random.default_rng([seed, 5])
    graphs = (source, target)
    leaves = {leaf_key(value): value for graph in graphs for value in leaves_of(graph).values()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            before, after = _Evaluator(source), _Evaluator(target)
            truth = _Evaluator(source, dtype) if dtype != "double" else None
            rounds = 1 if most_cases is not None else max(1, min(_MOST_ROUNDS, _ELEMENTS // element_count(source)))
            drawn = (_cases(dtype, graphs, leaves, facts, generator) for _ in range(rounds))
            cases = itertools.islice(itertools.chain.from_iterable(drawn), most_cases)
            return all(_agree(dtype, before, after, truth, feeds, exact, generator) for exact, feeds in cases)
    except Exception:  # whatever NumPy or the implementation of an operator raises
        return None


class _Evaluator:
    """A graph in onnx.reference, in its own element types; in float64 instead of one of them if `widened` names it."""

    def __init__(self, graph: Graph, widened: str | None = None) -> None:
        leaves = leaves_of(graph)
        self._keys = fed_keys(leaves)
        self._widens = widened is not None
        self.domains = leaf_domains(graph)
        model = graph_model(graph, list(leaves))
        if widened is not None:
            _widen(model, DTYPES.get(widened, TensorProto.FLOAT))
        self._evaluator = ReferenceEvaluator(model, new_ops=[GlobalMaxPool, MaxPool, Softsign])

    def __call__(self, feeds: Mapping[str, Array]) -> list[Array]:
        given = {name: feeds[key] for name, key in self._keys.items()}
        if self._widens:
            given = {name: t if t.dtype.kind in "iub" else t.astype(np.float64) for name, t in given.items()}
        return [np.asarray(each) for each in self._evaluator.run(None, given)]


def _widen(model: onnx.ModelProto, dtype: int) -> None:
    """Changes an element type of a model to float64: of inputs and outputs, constants and casts."""
    tensors = list(model.graph.initializer)
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type == dtype:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in model.graph.node:
        tensors += [attribute.t for attribute in node.attribute if attribute.type == onnx.AttributeProto.TENSOR]
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == dtype:
                attribute.i = TensorProto.DOUBLE
    for tensor in tensors:
        if tensor.data_type == dtype:
            wide = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def _cases(
    dtype: str,
    graphs: tuple[Graph, Graph],
    leaves: Mapping[str, Value],
    facts: Facts,
    generator: np.random.Generator,
) -> Iterator[tuple[bool, dict[str, Array]]]:
    """Yields inputs and weights, and whether infinities and NaN have to be at the same places."""
    limits = ml_dtypes.finfo(_NUMPY[dtype])
    variables = {id_: value.name.removesuffix(str(id_)) for graph in graphs for id_, value in leaves_of(graph).items()}
    nonzero = {
        leaf_key(value)
        for graph in graphs
        for id_, value in leaves_of(graph).items()
        if value.content == NONZERO or (value.handle is not None and variables[id_] in facts.nonzero)
    }

    domains = leaf_domains(graphs[0])

    def cast(drawn: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, Array]:
        feeds = {}
        for key, leaf in leaves.items():
            content = known(leaf.content)
            dims = tuple(leaf.dims or ())
            if key in domains:
                valued = draw_valued(leaf, domains[key], generator)
                feeds[key] = valued.astype(helper.tensor_dtype_to_np_dtype(leaf.dtype))
                continue
            tensor = drawn[key] if content is None else materialise(content, dims)
            typed: Array = np.asarray(tensor) > 0 if leaf.dtype == TensorProto.BOOL else tensor.astype(_NUMPY[dtype])
            feeds[key] = without_zeros(typed) if key in nonzero else typed
        return feeds

    def normal() -> dict[str, npt.NDArray[np.float64]]:
        return {key: generator.standard_normal(tuple(leaf.dims or ())) for key, leaf in leaves.items()}

    pointwise = all(node.op_type in POINTWISE for graph in graphs for node in graph.nodes())
    if pointwise:
        yield False, cast({key: generator.choice(SATURATING, tuple(leaf.dims or ())) for key, leaf in leaves.items()})
    yield False, cast(normal())
    yield (
        False,
        cast(
            {key: 10.0 ** generator.uniform(-1, 1, tensor.shape) * np.sign(tensor) for key, tensor in normal().items()}
        ),
    )
    yield True, cast({key: generator.choice(SMALL, tuple(leaf.dims or ())) for key, leaf in leaves.items()})
    for size in (limits_root := float(limits.max) ** 0.49, 1.0 / limits_root):
        yield False, cast({key: size * tensor for key, tensor in normal().items()})
    halves = any(value.dtype in _HALVES for graph in graphs for value in graph.values().values())
    if halves:
        yield False, cast({key: _HALF_LIMIT * tensor for key, tensor in normal().items()})
    largest, least = float(limits.max), float(limits.tiny)
    extremes = {
        "zero": 0.0,
        "large": 100.0,
        "vast": largest**0.8,
        "small": min(8 * least, 1e-3),
        "largest": 0.7 * largest,
    }
    if halves:
        extremes |= {"beyond half": 2 * _HALF_LIMIT, "below half": 4e-8, "tie of half": _HALF_TIE}
    for key, leaf in leaves.items():
        if known(leaf.content) is not None or key in domains:
            continue
        for label, extreme in extremes.items():
            if label == "largest" and (leaf.handle is not None or not (pointwise or dtype == "float16")):
                continue
            drawn = normal()
            flat = drawn[key].reshape(-1)
            count = flat.size if dtype == "float16" else 1
            count = count if label == "largest" else max(1, int(_SHARE * flat.size))
            places = generator.choice(flat.size, min(count, flat.size), replace=False)
            signs = generator.choice([-1.0, 1.0], 1 if label == "largest" else len(places))
            flat[places] = extreme * signs
            if label != "tie of half":
                flat[places] *= generator.uniform(0.5, 1.0, len(places))
            drawn[key] = flat.reshape(drawn[key].shape)
            yield False, cast(drawn)


def _perturbed(tensor: Array, error: float, generator: np.random.Generator) -> Array:
    if tensor.dtype.kind in "iub":
        return tensor
    factors = (1 + error * generator.uniform(-1, 1, tensor.shape)).astype(tensor.dtype)
    return np.asarray(tensor * factors).astype(tensor.dtype)  # type: ignore[operator]


def _agree(
    dtype: str,
    source: _Evaluator,
    target: _Evaluator,
    truth: _Evaluator | None,
    feeds: Mapping[str, Array],
    exact: bool,
    generator: np.random.Generator,
) -> bool:
    unit = float(ml_dtypes.finfo(_NUMPY[dtype]).eps)
    expected, got = source(feeds), target(feeds)
    numbers = [each.astype(np.float64) for each in expected]
    moved = [np.zeros(each.shape) for each in numbers]
    for _ in range(_PERTURBATIONS):
        perturbed = {
            key: tensor if key in source.domains else _perturbed(tensor, 4 * unit, generator)
            for key, tensor in feeds.items()
        }
        distances = [np.abs(a - b.astype(np.float64)) for a, b in zip(numbers, source(perturbed), strict=True)]
        moved = [np.maximum(m, np.nan_to_num(d, nan=np.inf)) for m, d in zip(moved, distances, strict=True)]
    if truth is not None:  # the target may be as far from the truth as the source is
        exact_numbers = [each.astype(np.float64) for each in truth(feeds)]
        errors = [np.nan_to_num(np.abs(a - b), nan=np.inf) for a, b in zip(numbers, exact_numbers, strict=True)]
        moved = [np.maximum(m, e) for m, e in zip(moved, errors, strict=True)]
    for a, found, moves in zip(numbers, got, moved, strict=True):
        b = found.astype(np.float64)
        if a.shape != b.shape:
            return False
        finite = np.isfinite(a)
        coarse = max(unit, float(ml_dtypes.finfo(found.dtype).eps)) if found.dtype.kind not in "iub" else unit
        tolerance = _SAFETY * moves + _UNITS * coarse * float(np.abs(a[finite]).max(initial=0.0))
        wrong = finite & np.isfinite(b) & (np.abs(a - b) > tolerance)
        wrong |= finite & ~np.isfinite(b) & (np.isfinite(tolerance) | exact)
        wrong |= np.isinf(a) & np.isinf(b) & (a != b)
        if exact:
            wrong |= (np.isinf(a) & np.isnan(b)) | (~finite & np.isfinite(b))
        if wrong.any():
            return False
    return True
