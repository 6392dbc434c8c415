"""The kernels that ONNX Runtime makes of a model.

Its optimiser fuses operators, changes layouts and inserts reorders. What it makes is written to a file, and
one inference with zeros for weights tells the types of everything in it.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from environment.costs.kernel import LARGEST_FLOAT_LITERAL, LARGEST_LITERAL, Kernel, Operand, attributes_text
from environment.model_inputs import Feeds, input_specs, random_feeds
from environment.runtimes import OnnxRuntime
from taso_ext.detached import DetachedModel
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_session import session_options
from taso_ext.weights import static_dims, tensor_proto

_SHARED_FROM_BYTES = 1 << 12
_ROOM = 4  # times the weights: folding may add to them, and other processes write there too


@dataclass(frozen=True)
class Placed:
    """A kernel in a graph.

    Attributes:
      kernel: what is run.
      value: the result of the operator of the model that it stands for: of the one that reads its weights, if just one
        does, or of the one whose result it computes. Reorders and reshapes that the optimiser inserts go with the
        kernel that reads them.
      weights: names of the weights that it reads, with their bytes.
      nbytes: of all that it reads and writes.
    """

    kernel: Kernel
    value: str
    weights: Mapping[str, int]
    nbytes: int


def lower(model: DetachedModel, runtime: OnnxRuntime, whole: DetachedModel | None = None) -> list[Placed]:
    """The kernels that ONNX Runtime runs for a model, in their order.

    Args:
      whole: what the model is a part of, if it is: it tells which operators share weights.
    Raises:
      ModelError: ONNX Runtime cannot run the model.
    """
    with tempfile.TemporaryDirectory(prefix="rlflow-kernels-", dir=_folder_for(model)) as folder:
        options = session_options(runtime.level, threads=runtime.threads)
        options.optimized_model_filepath = f"{folder}/optimised.onnx"
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/profile"
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_min_size_in_bytes", str(_SHARED_FROM_BYTES)
        )
        proto, zeros = _skeleton(model)
        options.add_external_initializers(
            list(zeros), list(zeros.values())
        )  # which have to outlive the session's start
        try:
            session = ort.InferenceSession(proto.SerializeToString(), options, providers=list(runtime.providers))
            session.run(None, _feeds(model))
        except Exception as error:  # ONNX Runtime's exceptions share no public base class
            raise ModelError(f"{runtime.label} cannot run the model: {one_paragraph(error)}") from error
        events = json.loads(Path(session.end_profiling()).read_text())
        optimised = onnx.load(f"{folder}/optimised.onnx", load_external_data=False)
    return _placed(optimised, events, _Origins(whole or model))


def _folder_for(model: DetachedModel) -> str | None:
    """A folder in memory, where the system has one with room: the optimiser writes all weights beside its graph."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > _ROOM * model.nbytes else None


def _skeleton(model: DetachedModel) -> tuple[onnx.ModelProto, dict[str, ort.OrtValue]]:
    """The model without its large weights, and zeros in their place."""
    proto, zeros = onnx.ModelProto(), {}
    proto.CopyFrom(model.skeleton)
    for node in proto.graph.node:
        node.name = node.name or next(name for name in node.output if name)  # by which the profile calls it
    for name, tensor in (model.tensors | model.defaults).items():
        if tensor.nbytes < _SHARED_FROM_BYTES:
            proto.graph.initializer.append(tensor_proto(tensor, name))
            continue
        dims = static_dims(tensor)
        place = proto.graph.initializer.add(name=name, data_type=tensor.dtype.value, dims=dims)
        place.data_location = onnx.TensorProto.EXTERNAL
        place.external_data.add(key="location", value=name)
        zeros[name] = ort.OrtValue.ortvalue_from_numpy(np.zeros(dims, tensor.dtype.numpy()))
    return proto, zeros


def _feeds(model: DetachedModel) -> Feeds:
    return random_feeds(input_specs(model), np.random.default_rng(0))


class _Origins:
    """Which operator of the model a kernel stands for; operators are called by their first results."""

    def __init__(self, model: DetachedModel) -> None:
        nodes = [node for node in model.skeleton.graph.node if node.output]
        results = {name: node.output[0] for node in nodes for name in node.output if name}
        self._called = {node.name: node.output[0] for node in nodes} | results
        readers: dict[str, set[str]] = {}
        for node in nodes:
            for name in node.input:
                if name in model.tensors and model.tensors[name].nbytes >= _SHARED_FROM_BYTES:
                    readers.setdefault(name, set()).add(node.output[0])
        self._only_readers = {name: next(iter(found)) for name, found in readers.items() if len(found) == 1}

    def of(self, node: onnx.NodeProto, weights: Mapping[str, int]) -> str:
        """The operator's first result; "" where the optimiser has inserted the node."""
        largest = max(weights, key=lambda name: weights[name], default="")
        if largest in self._only_readers:
            return self._only_readers[largest]
        # Nodes keep their names or those of their results; nodes with blocked results are called after the value.
        names = (*node.output, node.name.removesuffix("_nchwc"))
        return next((self._called[name] for name in names if name in self._called), "")


def _placed(optimised: onnx.ModelProto, events: Sequence[Mapping[str, Any]], origins: _Origins) -> list[Placed]:
    graph, constants = optimised.graph, {each.name: each for each in optimised.graph.initializer}
    versions = {each.domain: each.version for each in optimised.opset_import}
    read = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    types = {event["name"].removesuffix(_EVENT): event["args"] for event in events if _is_kernel(event)}
    value_of_reader: dict[str, str] = {}
    placed = []
    for node in reversed(graph.node):
        operands = _operands(node, types[node.name]["input_type_shape"], constants)
        results = [_operand(each, None) for each in types[node.name]["output_type_shape"]]
        kernel = Kernel(
            node.domain,
            node.op_type,
            _since(node, versions.get(node.domain, 1)),
            attributes_text(node.attribute),
            tuple(operands),
            tuple(name in read for name in node.output),
        )
        weights = {
            name: each.nbytes for name, each in zip(node.input, operands, strict=True) if each and each.is_weight
        }
        helped = next((value_of_reader[name] for name in node.output if name in value_of_reader), "")
        value = origins.of(node, weights) or helped
        value_of_reader |= dict.fromkeys(node.input, value)
        placed.append(Placed(kernel, value, weights, sum(each.nbytes for each in (*operands, *results) if each)))
    return placed[::-1]


def _since(node: onnx.NodeProto, version: int) -> int:
    """The version of its domain that brought an operator in its present form: later ones run the same kernel."""
    if not onnx.defs.has(node.op_type, version, node.domain):
        return version
    return int(onnx.defs.get_schema(node.op_type, version, node.domain).since_version)


_EVENT = "_kernel_time"


def _is_kernel(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "Node" and event["name"].endswith(_EVENT)


def _operands(
    node: onnx.NodeProto, types: Sequence[Mapping[str, list[int]]], constants: Mapping[str, onnx.TensorProto]
) -> list[Operand | None]:
    rest = iter(types)  # only of the inputs that are there
    return [_operand(next(rest), constants.get(name)) if name else None for name in node.input]


def _operand(kind: Mapping[str, list[int]], constant: onnx.TensorProto | None) -> Operand:
    ((dtype, dims),) = kind.items()
    if constant is None:
        return Operand(_DTYPES[dtype], tuple(dims))
    largest = LARGEST_LITERAL if constant.data_type in _INTEGERS else LARGEST_FLOAT_LITERAL
    is_literal = math.prod(dims) <= largest and constant.data_location != onnx.TensorProto.EXTERNAL
    values = tuple(numpy_helper.to_array(constant).ravel().tolist()) if is_literal else None
    return Operand(_DTYPES[dtype], tuple(dims), True, values)


_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
_DTYPES = {
    "float": onnx.TensorProto.FLOAT,
    "double": onnx.TensorProto.DOUBLE,
    "float16": onnx.TensorProto.FLOAT16,
    "bfloat16": onnx.TensorProto.BFLOAT16,
    "int8": onnx.TensorProto.INT8,
    "int16": onnx.TensorProto.INT16,
    "int32": onnx.TensorProto.INT32,
    "int64": onnx.TensorProto.INT64,
    "uint8": onnx.TensorProto.UINT8,
    "uint16": onnx.TensorProto.UINT16,
    "uint32": onnx.TensorProto.UINT32,
    "uint64": onnx.TensorProto.UINT64,
    "bool": onnx.TensorProto.BOOL,
    "string": onnx.TensorProto.STRING,
}
"""Element types as ONNX Runtime's profiles name them."""
