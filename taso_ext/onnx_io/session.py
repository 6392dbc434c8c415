"""ONNX Runtime sessions of models in memory or in files, whatever their size."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper

from taso_ext.errors import CrashError, ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.weights.handles import static_dims, tensor_proto

Level = Literal["disabled", "basic", "extended", "layout", "all"]
"""How much ONNX Runtime optimises a graph when it loads it; each level includes the levels before it."""

LEVELS: dict[Level, ort.GraphOptimizationLevel] = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": ort.GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}

SHARED_FROM_BYTES = 1 << 16
"""The smallest size, in bytes, of a weight that is passed as an array; this then costs less than serialising it."""
_FATAL_SEVERITY = 4  # errors arrive as exceptions, and warnings are not for the user
_NAMED_CHARACTERS = 60
"""Largest number of characters of a graph's name in a message."""


class Watch(Protocol):
    """Knows what ONNX Runtime was doing when it killed a process, even then; see `set_watch`."""

    def record(self, key: str, doing: str) -> bytes:
        """Returns what `begin` takes: the key of a model, and a sentence that has {} for what has happened."""

    def begin(self, record: bytes) -> None:
        """Notes that ONNX Runtime begins to do something."""

    def end(self) -> None:
        """Notes that it has ended, with or without an exception."""

    def refusal(self, key: str) -> str:
        """Returns why a model is not to be opened, in a sentence; empty if it may be."""


_watch: Watch | None = None


def set_watch(watch: Watch | None) -> None:
    """Lets all sessions that are opened from now on say what they do; None for nobody, as at the beginning."""
    global _watch
    _watch = watch


def session_options(level: Level, *, threads: int = 1, settings: Mapping[str, str] | None = None) -> ort.SessionOptions:
    """Returns the options of a session that runs operators one after the other.

    Args:
      settings: ONNX Runtime's own configuration entries, such as `session.disable_prepacking`.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_SEVERITY
    for key, value in (settings or {}).items():
        options.add_session_config_entry(key, value)
    return options


def create_session(
    model: CheckedModel | Path,
    level: Level,
    *,
    providers: Sequence[str] = ("CPUExecutionProvider",),
    once: bool = False,
) -> ort.InferenceSession:
    """Opens a session of a model in memory or in a file: see `open_session`.

    Args:
      providers: the execution providers that may run the model's nodes, the preferred one first.
      once: whether the session runs only once; it then spends no memory and time on later runs.
    Raises:
      ModelError: ONNX Runtime refuses the model; the message names the operator if one is at fault.
    """
    options = session_options(level)
    if once:
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.disable_prepacking", "1")
    return open_session(model, options, providers)


def open_session(
    model: CheckedModel | Path,
    options: ort.SessionOptions,
    providers: Sequence[str],
    *,
    shared_from_bytes: int = SHARED_FROM_BYTES,
) -> ort.InferenceSession:
    """Opens a session of a model in memory or in a file.

    Large weights in memory are not serialised, so that models over 2 GB work too; ONNX Runtime takes one copy of them.

    Args:
      options: the options of this session alone, because the large weights are put into them.
      providers: the execution providers that may run the model's nodes, the preferred one first.
      shared_from_bytes: the smallest size, in bytes, of a weight that is passed as an array, if its type allows it.
    Raises:
      ModelError: ONNX Runtime refuses the model, or has crashed on it; the message names the operator if one is at
        fault.
    """
    source: str | bytes
    if isinstance(model, Path):
        source = str(model)
    else:
        source, shared = _without_large_weights(model, shared_from_bytes)
        # ONNX Runtime does not keep the arrays alive: `shared` must, until the session has its own copy of them.
        options.add_external_initializers(list(shared), list(shared.values()))
    # Without enable_fallback=0, ONNX Runtime prints that a provider fails, and replaces it.
    settings = {"sess_options": options, "providers": list(providers), "enable_fallback": 0}
    try:
        if _watch is None:
            return ort.InferenceSession(source, **settings)
        return _WatchedSession(_watch, _key(source, options, providers), _described(model, options), source, **settings)
    except ModelError:
        raise
    except Exception as error:  # ONNX Runtime's exceptions share no public base class
        raise ModelError(f"ONNX Runtime {ort.__version__} cannot load the model: {one_paragraph(error)}") from error


class _WatchedSession(ort.InferenceSession):
    """A session that tells a watch what it does."""

    def __init__(self, watch: Watch, key: str, what: str, source: str | bytes, **settings: Any) -> None:
        if reason := watch.refusal(key):
            raise CrashError(reason)
        self._told, self._running = watch, watch.record(key, f"ONNX Runtime {ort.__version__} {{}} when it runs {what}")
        watch.begin(watch.record(key, f"ONNX Runtime {ort.__version__} {{}} when it opens {what}"))
        try:
            super().__init__(source, **settings)
        finally:
            watch.end()

    def run(self, *arguments: Any, **named: Any) -> Any:
        self._told.begin(self._running)
        try:
            return super().run(*arguments, **named)
        finally:
            self._told.end()

    def run_with_iobinding(self, *arguments: Any, **named: Any) -> None:
        self._told.begin(self._running)
        try:
            super().run_with_iobinding(*arguments, **named)
        finally:
            self._told.end()


def _key(source: str | bytes, options: ort.SessionOptions, providers: Sequence[str]) -> str:
    """Returns a name of a model with a level and a device that another process gives it as well."""
    digest = hashlib.blake2b(source if isinstance(source, bytes) else source.encode(), digest_size=16)
    digest.update(f"{options.graph_optimization_level} {' '.join(providers)}".encode())
    return digest.hexdigest()


def _described(model: CheckedModel | Path, options: ort.SessionOptions) -> str:
    level = next(name for name, value in LEVELS.items() if value == options.graph_optimization_level)
    how = f"at optimisation level {level}" if level != "disabled" else "without optimisations"
    if isinstance(model, Path):
        return f"the file {model.name[-_NAMED_CHARACTERS:]} {how}"
    graph = model.skeleton.graph
    return f"the graph '{graph.name[:_NAMED_CHARACTERS]}' of {len(graph.node)} operators {how}"


def _without_large_weights(model: CheckedModel, shared_from_bytes: int) -> tuple[bytes, dict[str, ort.OrtValue]]:
    """Returns the serialised model without its large weights, and the large weights by name."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.skeleton)
    proto.ir_version = min(proto.ir_version, newest_runnable_ir())
    shared: dict[str, ort.OrtValue] = {}
    for name, tensor in (model.tensors | model.defaults).items():
        if tensor.nbytes < shared_from_bytes or name in model.defaults or not can_share(tensor.dtype):
            proto.graph.initializer.append(tensor_proto(tensor, name))
            continue
        place = proto.graph.initializer.add(name=name, data_type=tensor.dtype.value, dims=static_dims(tensor))
        place.data_location = onnx.TensorProto.EXTERNAL
        place.external_data.add(key="location", value=name)
        shared[name] = _ort_value(tensor)
    return proto.SerializeToString(), shared


@cache
def newest_runnable_ir() -> int:
    """Returns the newest IR version that the installed ONNX Runtime reads; others differ only in what they may contain.

    It is 13 for ONNX Runtime 1.31 and 14 for 1.32.
    """
    return next(version for version in range(onnx.IR_VERSION, 0, -1) if _reads(version, opset=OLD_OPSET))


def newest_runnable_opset() -> int:
    """Returns the newest opset that the installed ONNX Runtime reads: 26 for ONNX Runtime 1.31, 28 for 1.32."""
    newest, ir_version = onnx.defs.onnx_opset_version(), newest_runnable_ir()
    return next(opset for opset in range(newest, 0, -1) if _reads(ir_version, opset=opset))


OLD_OPSET = 14
"""An opset that every ONNX Runtime reads."""


def _reads(ir_version: int, opset: int) -> bool:
    """Returns whether ONNX Runtime opens a model of one operator of these versions."""
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", values[:1], values[1:])
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    try:
        ort.InferenceSession(model.SerializeToString(), session_options("disabled"), providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime's exceptions share no public base class
        return False
    return True


def can_share(dtype: ir.DataType) -> bool:
    """Returns whether arrays of a type can be passed to a session.

    NumPy lacks the small floats, but arrays of unsigned integers can hold their bits.
    """
    return is_plain(dtype.value) or (dtype.is_floating_point() and dtype.bitwidth in (8, 16))


def _ort_value(tensor: ir.TensorProtocol) -> ort.OrtValue:
    """Returns the tensor as ONNX Runtime takes it; its data are copied only if they are not aligned in their file."""
    array = np.require(tensor.numpy(), requirements=["C_CONTIGUOUS", "ALIGNED"])
    if is_plain(tensor.dtype.value):
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(np.uint16 if tensor.dtype.bitwidth == 16 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, tensor.dtype.value)


def is_plain(dtype: int) -> bool:
    """Returns whether NumPy itself has this element type, so that arrays of it pass in and out of ONNX Runtime."""
    return dtype in _PLAIN


_PLAIN = frozenset(
    {
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.BOOL,
        onnx.TensorProto.INT8,
        onnx.TensorProto.INT16,
        onnx.TensorProto.INT32,
        onnx.TensorProto.INT64,
        onnx.TensorProto.UINT8,
        onnx.TensorProto.UINT16,
        onnx.TensorProto.UINT32,
        onnx.TensorProto.UINT64,
    }
)
