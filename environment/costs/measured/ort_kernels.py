"""The kernels that ONNX Runtime makes of a model.

Its optimiser fuses operators, changes layouts and inserts reorders. `lower` has the optimised model written to a file.
The tensors in it are those of the model, or follow from them. If the types of some do not, as in blocked layouts, the
profile of one inference with zeros as weights shows them.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from environment.costs.measured.kernel import (
    LARGEST_FLOAT_LITERAL,
    LARGEST_LITERAL,
    Kernel,
    Operand,
    attributes_text,
    captured,
    untimeable,
)
from environment.inputs import Feeds, input_specs, random_feeds
from environment.runtimes import OnnxRuntime
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import UNKNOWN, CheckedModel, ValueType, value_type
from taso_ext.onnx_io.operators import all_nodes, bodies, captured_names, rename_captured
from taso_ext.onnx_io.session import can_share
from taso_ext.onnx_io.weights.handles import static_dims

_SHARED_FROM_BYTES = 1 << 12
"""Weights of at least this many bytes keep their names, by which operators are recognised, and need no values."""


@dataclass(frozen=True)
class Placed:
    """A kernel in a graph.

    Attributes:
      kernel: the kernel.
      value: first result of the operator of the model that the kernel stands for. This is the operator that alone reads
        its weights, or else the operator whose result it computes. Reorders and reshapes that the optimiser inserts
        belong to the kernel that reads them.
      nbytes: bytes that it reads and writes.
    """

    kernel: Kernel
    value: str
    nbytes: int


def lower(model: CheckedModel, runtime: OnnxRuntime, shared: Collection[str] = ()) -> list[Placed]:
    """Returns the kernels that ONNX Runtime runs for a model, in their order.

    Args:
      shared: names of weights that other operators read too, in a graph that the model is a part of.
    Raises:
      ModelError: ONNX Runtime cannot run the model, or an operator reads or writes something else than tensors.
      UnavailableError: the device is not here.
    """
    with scratch_folder(model.nbytes) as folder:
        options = runtime.options()
        options.optimized_model_filepath = str(folder / "optimised.onnx")
        (folder / _WEIGHTS).symlink_to(os.devnull)  # nobody reads the weights, which are most of the file
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        for key, value in _SETTINGS.items():
            options.add_session_config_entry(key, value)
        session = runtime.session(_without_values(model), options, shared_from_bytes=_SHARED_FROM_BYTES)
        optimised = onnx.load(folder / "optimised.onnx", load_external_data=False)
        types = _types_of_nodes(optimised, model.types)
        if types is None:
            try:
                session.run(None, _feeds(model))
            except Exception as error:  # ONNX Runtime's exceptions share no public base class
                raise ModelError(f"{runtime.label} cannot run the model: {one_paragraph(error)}") from error
            types = _profiles(optimised.graph, json.loads(Path(session.end_profiling()).read_text()))
    return _placed(optimised, types, _Origins(model, shared))


_WEIGHTS = "weights"
_BLOCKED = "com.microsoft.nchwc"
_INSIDE = "inside "
"""What the names of nodes begin with that are inside a graph of an operator, and no kernels of their own."""
_SETTINGS = {
    "session.disable_prepacking": "1",
    "session.optimized_model_external_initializers_file_name": _WEIGHTS,
    "session.optimized_model_external_initializers_min_size_in_bytes": str(_SHARED_FROM_BYTES),
}


def _without_values(model: CheckedModel) -> CheckedModel:
    """Returns the model with zeros for large weights, and with the names that the profile calls nodes by."""
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model.skeleton)
    numbers = itertools.count()
    for node in skeleton.graph.node:
        node.name = node.name or next(name for name in node.output if name)
    for body in (body for node in skeleton.graph.node for body in bodies(node)):
        for inner in all_nodes(body):  # which are no kernels of their own
            inner.name = f"{_INSIDE}{next(numbers)}"
    tensors, defaults = (
        {name: _without_value(tensor) for name, tensor in each.items()} for each in (model.tensors, model.defaults)
    )
    return CheckedModel(skeleton, tensors, defaults)


def _without_value(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Returns zeros that take no memory for a large weight whose type can be passed as an array; else the tensor."""
    if tensor.nbytes < _SHARED_FROM_BYTES or not can_share(tensor.dtype):
        return tensor
    return ir.tensor(_zeros(static_dims(tensor), tensor.dtype.numpy()))


_memory = np.zeros(0, np.uint8)


def _zeros(dims: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Returns zeros that all callers share. Nobody writes to them, so that the system gives them hardly any memory."""
    global _memory
    count = math.prod(dims) * dtype.itemsize
    if len(_memory) < count:
        _memory = np.zeros(count, np.uint8)
    return _memory[:count].view(dtype).reshape(dims)


def _feeds(model: CheckedModel) -> Feeds:
    """Returns zeros for floats, which the types of results do not depend on, and random values for all others."""
    specs = input_specs(model)
    zeros = {each.name: _zeros(each.dims, each.dtype) for each in specs if each.is_float}
    return zeros | random_feeds([each for each in specs if not each.is_float], np.random.default_rng(0))


class _Origins:
    """The operators of a model, each named by its first result, to find the one that a kernel stands for."""

    def __init__(self, model: CheckedModel, shared: Collection[str]) -> None:
        nodes = [node for node in model.skeleton.graph.node if node.output]
        results = {name: node.output[0] for node in nodes for name in node.output if name}
        self._called = {node.name: node.output[0] for node in nodes if node.name} | results
        readers: dict[str, set[str]] = {}
        for node in nodes:
            for name in node.input:
                if name in model.tensors and model.tensors[name].nbytes >= _SHARED_FROM_BYTES:
                    readers.setdefault(name, set()).add(node.output[0])
        alone = {name: next(iter(found)) for name, found in readers.items() if len(found) == 1}
        self._only_readers = {name: reader for name, reader in alone.items() if name not in shared}

    def of(self, node: onnx.NodeProto, weights: Mapping[str, int]) -> str:
        """Returns the first result of a kernel's operator; "" if the optimiser has inserted the node."""
        largest = max(weights, key=lambda name: weights[name], default="")
        if largest in self._only_readers:
            return self._only_readers[largest]
        # A node keeps its name or the names of its results; a node with a blocked layout is named after its result.
        names = (*node.output, node.name.removesuffix("_nchwc"))
        return next((self._called[name] for name in names if name in self._called), "")


def _types_of_nodes(optimised: onnx.ModelProto, types: Mapping[str, ValueType]) -> list[Mapping[str, _Types]] | None:
    """Returns what the profile would say of each node, as far as it is read; None if that needs a run.

    Args:
      types: of the values of the model before it was optimised; most keep their names.
    """
    graph, constants = optimised.graph, {each.name: each for each in optimised.graph.initializer}
    if any(node.domain == _BLOCKED for node in graph.node):
        return None
    known = dict(types) | {value.name: value_type(value.type) for value in graph.input}
    known |= {name: ValueType(each.data_type, tuple(each.dims)) for name, each in constants.items()}
    told: list[Mapping[str, _Types]] = []
    for node in graph.node:
        if not all(name in known for name in node.output if name):
            for name, kind in _results_of(node, optimised.opset_import, known, constants).items():
                known.setdefault(name, kind)
        kinds = [[known.get(name, UNKNOWN) for name in names if name] for names in (node.input, node.output)]
        if any(dims is None for each in kinds for _, dims in each):
            return None
        read, made = ([{TensorProto.DataType.Name(d).lower(): list(dims or ())} for d, dims in each] for each in kinds)
        told.append({"input_type_shape": read, "output_type_shape": made})
    return told


def _results_of(
    node: onnx.NodeProto,
    imports: Sequence[onnx.OperatorSetIdProto],
    known: Mapping[str, ValueType],
    constants: Mapping[str, onnx.TensorProto],
) -> dict[str, ValueType]:
    """Returns the types of a node's results that follow from those of its inputs; nothing of an unknown operator."""
    version = next((each.version for each in imports if each.domain == node.domain), 0)
    if not onnx.defs.has(node.op_type, version, node.domain):
        return {}
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    read = {name: helper.make_tensor_type_proto(*known[name]) for name in node.input if name in known}
    numbers = {name: constants[name] for name in read if name in constants and _has_values(constants[name])}
    try:
        found = infer_node_outputs(schema, node, read, numbers, opset_imports=list(imports))
    except InferenceError:
        return {}
    return {name: value_type(kind) for name, kind in found.items()}


def _has_values(constant: onnx.TensorProto) -> bool:
    return constant.data_location != TensorProto.EXTERNAL


def _placed(optimised: onnx.ModelProto, profiles: Sequence[Mapping[str, _Types]], origins: _Origins) -> list[Placed]:
    graph, constants = optimised.graph, {each.name: each for each in optimised.graph.initializer}
    versions = {each.domain: each.version for each in optimised.opset_import}
    read = {name for node in graph.node for name in (*node.input, *captured_names(node))}
    read |= {output.name for output in graph.output}
    known = _known_operands(graph, profiles, constants)
    value_of_reader: dict[str, str] = {}
    placed = []
    for node, profile in zip(reversed(graph.node), reversed(profiles), strict=True):
        operands = _operands(node, profile["input_type_shape"], constants)
        outer = captured_names(node)
        if not known.keys() >= set(outer):
            raise untimeable(node.op_type, "runs a graph that reads something else than tensors")
        operands += [known[name] for name in outer]
        results = _results(node, profile["output_type_shape"])
        kernel = Kernel(
            node.domain,
            node.op_type,
            _since(node, versions.get(node.domain, 1)),
            attributes_text(_attributes(node, outer)),
            tuple(operands),
            tuple(name in read for name in node.output),
        )
        weights = {
            name: each.nbytes
            for name, each in zip((*node.input, *outer), operands, strict=True)
            if each and each.is_weight
        }
        helped = next((value_of_reader[name] for name in node.output if name in value_of_reader), "")
        value = origins.of(node, weights) or helped
        value_of_reader |= dict.fromkeys((*node.input, *outer), value)
        placed.append(Placed(kernel, value, sum(each.nbytes for each in (*operands, *results) if each)))
    return placed[::-1]


def _since(node: onnx.NodeProto, version: int) -> int:
    """Returns the domain version that introduced an operator's present form; later versions run the same kernel."""
    if not onnx.defs.has(node.op_type, version, node.domain) or any(bodies(node)):
        return version
    return int(onnx.defs.get_schema(node.op_type, version, node.domain).since_version)


_EVENT = "_kernel_time"


def _profiles(graph: onnx.GraphProto, events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, _Types]]:
    """Returns what the profile says of each node.

    Nodes that come from the definition of an operator without a kernel, such as HardSwish, have no name. The profile
    calls them by their operator and a number; nodes and profile are in the order of execution.
    """
    named = {node.name for node in graph.node if node.name}
    of_name: dict[str, Mapping[str, _Types]] = {}
    unnamed: dict[str, list[Mapping[str, _Types]]] = {}
    for event in filter(_is_kernel, events):
        name, said = event["name"].removesuffix(_EVENT), event["args"]
        if name in named and name not in of_name:
            of_name[name] = said
        elif not name.startswith(_INSIDE):
            unnamed.setdefault(said["op_name"], []).append(said)
    found = []
    for node in graph.node:
        rest = unnamed.get(node.op_type, [])
        profile = of_name.get(node.name) or (rest.pop(0) if rest and not node.name else None)
        if profile is None:
            raise untimeable(node.op_type, "does not appear in the profile of its model")
        found.append(profile)
    return found


def _is_kernel(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "Node" and event["name"].endswith(_EVENT)


def _operands(node: onnx.NodeProto, listed: _Types, constants: Mapping[str, onnx.TensorProto]) -> list[Operand | None]:
    """Returns a node's inputs, None for omitted ones. The profile lists neither omitted inputs nor sequences."""
    if len(listed) != sum(bool(name) for name in node.input):
        raise untimeable(node.op_type, "reads something else than tensors")
    rest = iter(listed)
    return [_operand(node, next(rest), constants.get(name)) if name else None for name in node.input]


def _known_operands(
    graph: onnx.GraphProto, profiles: Sequence[Mapping[str, _Types]], constants: Mapping[str, onnx.TensorProto]
) -> dict[str, Operand]:
    """Returns the values of a graph that a graph inside one of its nodes may read, by name, as operands of that."""
    known: dict[str, Operand] = {}
    for value in graph.input:
        dtype, dims = value_type(value.type)
        if dims is not None:
            known[value.name] = Operand(dtype, dims)
    for node, profile in zip(graph.node, profiles, strict=True):
        listed, names = profile["output_type_shape"], [name for name in node.output if name]
        if len(listed) == len(names):
            known |= {name: _operand(node, each, None) for name, each in zip(names, listed, strict=True)}
    return known | {
        name: Operand(each.data_type, tuple(each.dims), True, _values(each)) for name, each in constants.items()
    }


def _attributes(node: onnx.NodeProto, outer: Sequence[str]) -> Sequence[onnx.AttributeProto]:
    """Returns a node's attributes; in its graphs, outer values have the names that `Kernel` gives them."""
    if not any(bodies(node)):
        return node.attribute
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for body in bodies(copy):
        rename_captured(body, {name: captured(index) for index, name in enumerate(outer)})
        _anonymise(body)
    return copy.attribute


def _anonymise(graph: onnx.GraphProto) -> None:
    """Takes away what run time does not depend on: names of nodes, and the values of large weights."""
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            zeros = np.zeros(tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type))
            tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))
    for node in graph.node:
        node.name = ""
        for body in bodies(node):
            _anonymise(body)


def _results(node: onnx.NodeProto, listed: _Types) -> list[Operand]:
    if not listed and any(node.output):
        raise untimeable(node.op_type, "makes something else than tensors")
    return [_operand(node, each, None) for each in listed]


def _operand(node: onnx.NodeProto, kind: Mapping[str, list[int]], constant: onnx.TensorProto | None) -> Operand:
    if constant is not None:
        return Operand(constant.data_type, tuple(constant.dims), True, _values(constant))
    ((text, dims),) = kind.items()
    name = text.lower().removesuffix("x2").removesuffix("x4")  # small types share bytes: UInt4x2
    if name not in _DTYPES:
        raise untimeable(node.op_type, f"reads or makes tensors of {text}")
    return Operand(_DTYPES[name], tuple(dims))


def _values(constant: onnx.TensorProto) -> tuple[float, ...] | None:
    """Returns the values of a constant if they belong to the kernel."""
    largest = LARGEST_LITERAL if constant.data_type in _INTEGERS else LARGEST_FLOAT_LITERAL
    if math.prod(constant.dims) > largest or not _has_values(constant):
        return None
    array = numpy_helper.to_array(constant).ravel()
    is_numpys_own = array.dtype.isbuiltin != _ADDED
    return tuple((array if is_numpys_own else array.astype(np.float32)).tolist())


_Types = Sequence[Mapping[str, list[int]]]
"""One entry for each tensor that a node reads or writes: its dims by element type."""
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_DTYPES = {name.lower(): number for name, number in TensorProto.DataType.items()}
_ADDED = 2  # NumPy's mark of types that other libraries add, bfloat16 for one


_PREFIX = "rlflow-kernels-"
_MEMORY = Path("/dev/shm")
_ROOM = 4
"""Memory is used if it has room for this multiple of the expected bytes, because other processes write there too."""


@contextmanager
def scratch_folder(nbytes: int) -> Iterator[Path]:
    """Makes a temporary folder, in memory if there is enough room.

    A killed process leaves its folder behind; the next process removes it before it makes its first one.

    Args:
      nbytes: expected number of bytes in the folder.
    """
    disk = Path(tempfile.gettempdir())
    for place in (_MEMORY, disk):
        remove_abandoned(place)
    fits = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM * nbytes
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=_MEMORY if fits else disk) as folder:
        yield Path(folder)


@cache
def remove_abandoned(place: Path) -> None:
    """Removes the folders of processes that have ended."""
    for folder in place.glob(f"{_PREFIX}*-*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # the process of another user
        return True
    return True
