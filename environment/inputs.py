"""Inputs to run a model on: random ones and edge cases, within the range that the model's operators accept.

Which integers and strings a model accepts is found by following an input to the operators that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import AttributeProto, helper

from taso_ext.errors import ModelError, did_you_mean
from taso_ext.onnx_io.checked_model import CheckedModel, ValueType
from taso_ext.onnx_io.operators import all_nodes, bodies
from taso_ext.onnx_io.session import is_plain

Range = tuple[int, int]
"""Lowest and highest accepted integer."""

_KEEPS_VALUES = frozenset(
    {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Slice", "Split", "Tile"}
)
"""Operators whose first input comes out with the same values in another arrangement."""
_MOST_ITERATIONS = 3
"""Trip counts and repeats multiply run time and memory; a few show as much as many."""
Feeds = dict[str, np.ndarray]
"""Arrays by input name, as ONNX Runtime takes them."""

BFLOAT16 = np.dtype(helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))
"""The only type of floats beside NumPy's own that models compute in."""
TIMED_ON = "random inputs, nothing masked"
"""Description of `timing_feeds`; it changes whenever they change."""
_WIDE = 100
"""Integers that nothing restricts are usually masks, 0 or 1; one edge case also tries them up to this size."""
_OPEN_SIZE = 2
"""Size to try for an open dimension. A dimension may stay open if no operator's price depends on it."""
_WORDS = (b"", b"a", b"an example", b"\xc3\xa4 \xe2\x82\xac")


@dataclass(frozen=True)
class Reader:
    """An operator that reads a value at one of its inputs, with the types of the model's values."""

    node: onnx.NodeProto
    position: int
    types: Mapping[str, ValueType]

    def dims(self, position: int) -> tuple[int, ...] | None:
        """Returns the static dims of one of the operator's inputs."""
        names = self.node.input
        return self.types[names[position]].dims if position < len(names) and names[position] in self.types else None

    def axis_size(self, position: int, default_axis: int = 0) -> int | None:
        """Returns the size of an input along the operator's `axis`."""
        dims = self.dims(position)
        axis = next((each.i for each in self.node.attribute if each.name == "axis"), default_axis)
        return dims[axis] if dims and -len(dims) <= axis < len(dims) else None


class InputReaders:
    """The operators of a model that read a value, directly or rearranged, also in nested graphs."""

    def __init__(self, model: CheckedModel) -> None:
        self._types = model.types
        self._by_value: dict[str, list[Reader]] = {}
        for node in all_nodes(model.skeleton.graph):
            for position, name in enumerate(node.input):
                self._by_value.setdefault(name, []).append(Reader(node, position, self._types))

    def of(self, name: str) -> list[Reader]:
        """Returns the readers of a value and of its rearrangements."""
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
    """Returns the integers that all readers accept; None if none of them restricts them."""
    ranges = [found for reader in readers if (found := _range_of(reader)) is not None]
    return (max(low for low, _ in ranges), min(high for _, high in ranges)) if ranges else None


def accepted_strings(readers: list[Reader]) -> list[bytes]:
    """Returns strings that readers have in their attributes, such as the keys of a LabelEncoder."""
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
    """Returns a rule for a count along an axis of the first input: at least 1, at most the size of the axis."""

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
"""Rules for the accepted integers, by operator and input position."""


def reachable_outputs(model: CheckedModel, inputs: list[str]) -> set[str]:
    """Returns the outputs that depend on the values (not only on the shapes) of these inputs."""
    reached = set(inputs)
    for node in model.skeleton.graph.node:
        read = {*node.input, *(name for body in bodies(node) for inner in all_nodes(body) for name in inner.input)}
        if node.op_type not in ("Shape", "Size") and read & reached:
            reached.update(node.output)
    return {output.name for output in model.skeleton.graph.output} & reached


def default_range(dtype: np.dtype) -> Range:
    """Returns the integers to try if nothing restricts them: all of an 8-bit type, else 0 and 1, as in masks."""
    if dtype.itemsize == 1 and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min), int(limits.max)
    return 0, 1


@dataclass(frozen=True)
class InputSpec:
    """The arrays that may be fed to one input.

    Attributes:
      dims: the shape; a dimension that the model leaves open has the size to try.
      open_axes: the axes of open dimensions.
      limits: lowest and highest value, for integers and booleans.
      restricted: whether some operator fails or misbehaves outside `limits`.
      strings: the texts to choose from, for strings.
    """

    name: str
    dtype: np.dtype
    dims: tuple[int, ...]
    limits: Range = (0, 1)
    restricted: bool = False
    strings: tuple[bytes, ...] = _WORDS
    open_axes: frozenset[int] = frozenset()

    @property
    def is_float(self) -> bool:
        return is_floating(self.dtype)

    @property
    def is_string(self) -> bool:
        return self.dtype.kind == "O"

    def takes(self, dims: tuple[int, ...]) -> bool:
        """Returns whether arrays of a shape can be fed."""
        pairs = enumerate(zip(dims, self.dims, strict=False))
        return len(dims) == len(self.dims) and all(axis in self.open_axes or a == b for axis, (a, b) in pairs)

    def integers(self, rng: np.random.Generator, low: int, high: int) -> np.ndarray:
        if low > high:
            raise ModelError(
                f"inputs for '{self.name}' cannot be made up: one of the operators that read it needs at least {low}, "
                f"another at most {high}."
            )
        return rng.integers(low, high, self.dims, dtype=np.int64, endpoint=True).astype(self.dtype)

    def choose(self, rng: np.random.Generator) -> np.ndarray:
        """Draws random strings."""
        texts = np.array([text.decode() for text in self.strings], dtype=object)
        return texts[rng.integers(0, len(texts), self.dims)].reshape(self.dims)

    def random(self, rng: np.random.Generator) -> np.ndarray:
        """Draws standard normal numbers, integers over the whole range, or strings."""
        if self.is_float:
            return rng.standard_normal(self.dims).astype(self.dtype)
        return self.choose(rng) if self.is_string else self.integers(rng, *self.limits)

    def usual(self, rng: np.random.Generator) -> np.ndarray:
        """Draws like `random` but masks nothing: integers that nothing restricts are taken for masks, and are 1."""
        is_mask = self.dtype.kind in "iu" and not self.restricted and self.limits == (0, 1)
        return self.constant(1.0, 1) if is_mask else self.random(rng)

    def constant(self, number: float, integer: int) -> np.ndarray:
        """Returns an array of one value: `number` for floats, `integer` for others, the first text for strings."""
        if self.is_string:
            return np.full(self.dims, self.strings[0].decode(), object)
        return np.full(self.dims, number if self.is_float else integer).astype(self.dtype)


def is_floating(dtype: np.dtype) -> bool:
    """Returns whether the numbers of a type are floats that arithmetic takes: NumPy's own, and bfloat16."""
    return dtype.kind == "f" or dtype == BFLOAT16


def input_specs(model: CheckedModel) -> list[InputSpec]:
    """Returns what may be fed to each input that has no default value.

    Raises:
      ModelError: no values can be made up for an input, which is no tensor or has a type that hardly anything reads.
    """
    readers = InputReaders(model)
    values = [value for value in model.skeleton.graph.input if value.name not in model.defaults]
    return [_input_spec(value, readers) for value in values]


def _input_spec(value: onnx.ValueInfoProto, readers: InputReaders) -> InputSpec:
    tensor = value.type.tensor_type
    is_string = tensor.elem_type == onnx.TensorProto.STRING
    known = is_string or is_plain(tensor.elem_type) or tensor.elem_type == onnx.TensorProto.BFLOAT16
    if not value.type.HasField("tensor_type") or not known:
        raise ModelError(
            f"inputs for '{value.name}' cannot be made up: expected a tensor of numbers, booleans or strings, got "
            f"{helper.printable_type(value.type)}"
        )
    open_axes = frozenset(axis for axis, dim in enumerate(tensor.shape.dim) if not dim.HasField("dim_value"))
    dims = tuple(_OPEN_SIZE if axis in open_axes else dim.dim_value for axis, dim in enumerate(tensor.shape.dim))
    found = readers.of(value.name)
    if is_string:
        words = tuple(accepted_strings(found)) or _WORDS
        return InputSpec(value.name, np.dtype(object), dims, strings=words, open_axes=open_axes)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    accepted = accepted_range(found) if dtype.kind in "iu" else None
    restricted = accepted is not None or dtype.kind == "b"
    return InputSpec(value.name, dtype, dims, accepted or default_range(dtype), restricted, open_axes=open_axes)


def random_feeds(specs: list[InputSpec], rng: np.random.Generator) -> Feeds:
    """Makes one random input set."""
    return {spec.name: spec.random(rng) for spec in specs}


def timing_feeds(specs: list[InputSpec], rng: np.random.Generator) -> Feeds:
    """Makes one random input set to time a model on, with nothing masked, as in most real inputs.

    Masks cost time of their own: for a softmax that is partly masked, ONNX Runtime computes denormal numbers, which are
    too small for a CPU's usual arithmetic, and takes many times as long.
    """
    return {spec.name: spec.usual(rng) for spec in specs}


def edge_feeds(specs: list[InputSpec], rng: np.random.Generator) -> list[Feeds]:
    """Makes input sets of edge cases: zeros, ones, minus ones, very large, very small, half empty, wide integers."""
    return [{spec.name: make(spec, rng) for spec in specs} for make in _EDGES]


def _scaled(factor: float) -> Callable[[InputSpec, np.random.Generator], np.ndarray]:
    def make(spec: InputSpec, rng: np.random.Generator) -> np.ndarray:
        values = spec.random(rng)
        return (values * factor).astype(spec.dtype) if spec.is_float else values

    return make


def _half_empty(spec: InputSpec, rng: np.random.Generator) -> np.ndarray:
    values, empty = spec.random(rng), spec.constant(0.0, spec.limits[0])
    return np.where(rng.random(spec.dims) < 0.5, values, empty)


def _wide(spec: InputSpec, rng: np.random.Generator) -> np.ndarray:
    if spec.restricted or spec.is_float or spec.is_string:
        return spec.random(rng)
    return spec.integers(rng, -_WIDE if spec.dtype.kind == "i" else 0, _WIDE)


_EDGES: tuple[Callable[[InputSpec, np.random.Generator], np.ndarray], ...] = (
    lambda spec, rng: spec.constant(0.0, spec.limits[0]),
    lambda spec, rng: spec.constant(1.0, spec.limits[1]),
    lambda spec, rng: spec.constant(-1.0, spec.limits[0]),
    _scaled(100.0),
    _scaled(1e-4),
    _half_empty,
    _wide,
)


def check_given(specs: list[InputSpec], given: Mapping[str, np.ndarray]) -> list[Feeds]:
    """Makes input sets from arrays that a user gave: one set, or several along an additional first axis.

    Raises:
      ModelError: a name is missing or unknown, a shape does not fit, or a type cannot be converted.
    """
    names = [spec.name for spec in specs]
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names)
            raise ModelError(
                f"the given inputs hold '{name}'{hint}, which the model does not read: it reads {', '.join(names)}. "
                "Give one array each of these names."
            )
    missing = [name for name in names if name not in given]
    if missing:
        raise ModelError(f"the given inputs lack {', '.join(missing)}; expected one array each of {', '.join(names)}.")
    stacked = bool(specs) and all(given[spec.name].ndim == len(spec.dims) + 1 for spec in specs)
    lengths = {len(given[name]) for name in names} if stacked else {1}
    if len(lengths) > 1 or 0 in lengths:
        counts = ", ".join(f"'{name}' has {len(given[name])}" for name in names)
        raise ModelError(f"the given arrays are stacked: expected equally many in each, at least 1, but {counts}.")
    (count,) = lengths
    arrays = {spec.name: _converted(spec, given[spec.name], stacked) for spec in specs}
    return [{name: array[i] if stacked else array for name, array in arrays.items()} for i in range(count)]


def _converted(spec: InputSpec, array: np.ndarray, stacked: bool) -> np.ndarray:
    dims = array.shape[1:] if stacked else array.shape
    if not spec.takes(dims):
        expected = ["any size" if axis in spec.open_axes else size for axis, size in enumerate(spec.dims)]
        raise ModelError(
            f"the given array '{spec.name}' has shape {list(array.shape)}; expected {expected}, or several such arrays "
            f"along an additional first axis."
        )
    if spec.is_string:
        return array.astype(object)
    if np.issubdtype(array.dtype, np.floating) and np.isnan(array).any():
        raise ModelError(
            f"the given array '{spec.name}' holds NaN, which makes outputs NaN whatever a model computes, so that none "
            "could be compared. Give numbers."
        )
    if not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        raise ModelError(f"the given array '{spec.name}' holds {array.dtype}; expected {spec.dtype}.")
    return array.astype(spec.dtype)


def vary(feeds: Feeds, rng: np.random.Generator) -> Feeds:
    """Makes another input set like a given one: floats with some noise, all other values in another order."""
    return {name: _varied(array, rng) for name, array in feeds.items()}


def _varied(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if is_floating(array.dtype):
        spread = float(array.astype(np.float64).std()) or 1.0
        return (array + 0.5 * spread * rng.standard_normal(array.shape)).astype(array.dtype)
    return rng.permutation(array.reshape(-1)).reshape(array.shape)
