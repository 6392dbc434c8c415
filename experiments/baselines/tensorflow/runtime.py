"""TensorFlow as a runtime, with Grappler or XLA, and the conversion of an ONNX model into a TensorFlow function.

The conversion is our own because no maintained converter works with the TensorFlow and NumPy of this project. onnx2tf
1.29 requires exactly tensorflow 2.19.0, numpy 1.26.4 and onnx 1.19.1. Installed without these requirements, it converts
SqueezeNet1.1 (largest difference 1.1e-6 of an output's spread). On BERT-Base it fails at a quotient of constants; with
its checks switched off, it had not finished after 15 minutes. It also downloads sample images while it converts.
onnx-tf has had no release since 2022.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from onnx import helper

from environment.inputs import Feeds
from environment.measurement.effort import PROCESS_CPU, WALL, Clock
from environment.runtimes import UnavailableError
from environment.runtimes.interface import require_threads, threads_text
from experiments.baselines.tensorflow.arithmetic import ELEMENTWISE, PRODUCTS
from experiments.baselines.tensorflow.rearrangements import REARRANGEMENTS
from experiments.baselines.tensorflow.values import Laid, Node, Operator
from experiments.baselines.tensorflow.windows import WINDOWS
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.reading import read_model


@dataclass(frozen=True)
class TensorFlow:
    """TensorFlow on the CPU, in single precision.

    Attributes:
      xla: whether XLA compiles the graph; otherwise Grappler optimises it and it runs operator by operator.
      threads: number of threads of one operator, for the whole process: TensorFlow fixes it at its first computation.
    Raises:
      UnavailableError: TensorFlow has already started with another number of threads.
      ValueError: the number of threads is less than 1.
    """

    xla: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        require_threads(self.threads)
        _set_threads(self.threads)

    @property
    def label(self) -> str:
        return (
            f"TensorFlow {tf.__version__} with {'XLA' if self.xla else 'Grappler'}, cpu, {threads_text(self.threads)}"
        )

    @property
    def clock(self) -> Clock:
        """The CPU clock of the process if there is one thread, else the wall clock.

        Operators run in TensorFlow's own threads; if there is one thread, they run one at a time.
        """
        return PROCESS_CPU if self.threads == 1 else WALL

    def open(self, model: CheckedModel | Path, feeds: Feeds) -> TensorFlowSession:
        _set_threads(self.threads)  # a process that received this runtime by pickling has not set them
        return TensorFlowSession(read_model(model) if isinstance(model, Path) else model, feeds, xla=self.xla)


class TensorFlowSession:
    """A session: a concrete function with its inputs in place."""

    def __init__(self, model: CheckedModel, feeds: Feeds, *, xla: bool) -> None:
        names = input_names(model)
        if set(names) != set(feeds):
            raise ModelError(
                f"the model's inputs are {', '.join(names) or 'none'}, and values are given for "
                f"{', '.join(feeds) or 'none'}. Models that are compared have to have the same inputs."
            )
        self._function = tensorflow_function(model, xla=xla)
        self._inputs = [tf.constant(feeds[name]) for name in names]
        self._outputs: list[tf.Tensor] = []

    def run(self) -> None:
        try:
            self._outputs = self._function(*self._inputs)
        except tf.errors.OpError as error:  # its message names the node: operators are named after the nodes
            raise ModelError(f"TensorFlow {tf.__version__} cannot run the model: {one_paragraph(error)}") from error

    def outputs(self) -> list[np.ndarray]:
        return [output.numpy() for output in self._outputs]


def _set_threads(threads: int) -> None:
    """Sets TensorFlow's number of threads; does nothing if it is set already.

    Raises:
      UnavailableError: TensorFlow has already started with another number of threads.
    """
    settings = tf.config.threading
    if (settings.get_intra_op_parallelism_threads(), settings.get_inter_op_parallelism_threads()) == (threads, 1):
        return
    try:
        settings.set_intra_op_parallelism_threads(threads)
        settings.set_inter_op_parallelism_threads(1)
    except RuntimeError:  # TensorFlow has computed already: the environment variables decided
        asked = [os.environ.get(name, "0") for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")]
        if asked != [str(threads), "1"]:
            raise UnavailableError(
                f"TensorFlow has already started in this process, with other threads than the {threads} asked for. "
                f"Measure in a new process, or set TF_NUM_INTRAOP_THREADS={threads} and TF_NUM_INTEROP_THREADS=1."
            ) from None


OPERATORS: dict[str, Operator] = {**ELEMENTWISE, **PRODUCTS, **REARRANGEMENTS, **WINDOWS}
_NO_SCOPE = re.compile(r"[^A-Za-z0-9_.\-]")
OLDEST_OPSET = 13
"""In older opsets, Softmax worked on a flattened matrix and many parameters were attributes."""
LARGEST_GRAPH = 2**31 - 2**24
"""Most bytes of kernels: TensorFlow keeps a function as a protobuf message below 2 GiB, with a margin for the rest."""


def tensorflow_function(model: CheckedModel, *, xla: bool) -> Any:
    """Returns a concrete function that takes the model's inputs in their order and returns a list of its outputs.

    Args:
      xla: whether XLA compiles the function at the first call; else Grappler optimises it then.
    Raises:
      ModelError: an operator is not supported (the message names it), a dimension is open, the opset is too old, or the
        kernels have more than 2 GiB.
    """
    _require_convertible(model)
    embedded = set() if xla else _kernels(model)
    function = tf.function(lambda *inputs: _build(model, inputs, embedded), autograph=False, jit_compile=xla or None)
    return function.get_concrete_function(*(_signature(value) for value in _inputs(model)))


def _require_convertible(model: CheckedModel) -> None:
    for node in model.skeleton.graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
            domain = f" of the domain {node.domain}" if node.domain not in ("", "ai.onnx") else ""
            raise ModelError(
                f"TensorFlow as a baseline knows the operators of the zoo, and {Node(node)}{domain} is none of them. "
                f"Leave TensorFlow out for this model, or extend experiments/baselines."
            )
    opset = next(each.version for each in model.skeleton.opset_import if each.domain in ("", "ai.onnx"))
    if opset < OLDEST_OPSET:
        raise ModelError(
            f"TensorFlow as a baseline needs a model of opset {OLDEST_OPSET} or newer, and this one has {opset}. "
            f"Export it again, or raise it with onnx.version_converter."
        )


def _kernels(model: CheckedModel) -> set[str]:
    """Returns the names of the weights of convolutions, which become constants of the function.

    TensorFlow converts constants into oneDNN's layout once instead of at each run, which makes ResNet-50 12 % faster.
    XLA does not, and would keep them in memory for good.

    Raises:
      ModelError: these weights have more than 2 GiB.
    """
    nodes = (node for node in model.skeleton.graph.node if node.op_type == "Conv")
    names = {node.input[1] for node in nodes} & set(model.tensors)
    size = sum(model.tensors[name].nbytes for name in names)
    if size > LARGEST_GRAPH:
        raise ModelError(
            f"TensorFlow's graphs end at 2 GiB, and the convolutions of this model have {size / 2**30:.1f} GiB of "
            f"weights. Leave TensorFlow with Grappler out for this model."
        )
    return names


def input_names(model: CheckedModel) -> list[str]:
    """Returns the names of the inputs in the order in which the function takes them."""
    return [value.name for value in _inputs(model)]


def _inputs(model: CheckedModel) -> list[Any]:
    return [value for value in model.skeleton.graph.input if value.name not in model.defaults]


def _signature(value: Any) -> tf.TensorSpec:
    kind = value.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in kind.shape.dim]
    if any(isinstance(dim, str) for dim in dims):
        raise ModelError(
            f"TensorFlow as a baseline needs static shapes, and the input '{value.name}' has {dims}. Bind its open "
            f"dimensions first."
        )
    return tf.TensorSpec(dims, helper.tensor_dtype_to_np_dtype(kind.elem_type), name=None)


def _build(model: CheckedModel, inputs: tuple[tf.Tensor, ...], embedded: set[str]) -> list[tf.Tensor]:
    """Builds all operators in a function that is being traced, and returns its outputs.

    Args:
      embedded: names of the large weights that become constants of the function.
    """
    graph = model.skeleton.graph
    values: dict[str, Laid | None] = {"": None}
    values |= {value.name: Laid(tensor) for value, tensor in zip(_inputs(model), inputs, strict=True)}
    for name, tensor in (model.tensors | model.defaults).items():
        values[name] = Laid(tensor.numpy(), embedded=name in embedded)
    for proto in graph.node:
        with tf.name_scope(_scope(proto)):
            found = _apply(Node(proto), [values[name] for name in proto.input])
        values |= dict(zip(proto.output, found, strict=False))
    outputs = [values[output.name] for output in graph.output]
    return [tf.identity(value.plain()) for value in outputs if value is not None]


def _scope(node: onnx.NodeProto) -> str:
    """Returns the name of an operator in TensorFlow, which its errors show too."""
    return _NO_SCOPE.sub("_", f"{node.op_type}.{node.name or node.output[0]}")


def _apply(node: Node, inputs: list[Laid | None]) -> list[Laid]:
    """Builds an operator and returns its outputs; if all inputs are constants, it is computed at once."""
    operator = OPERATORS[node.proto.op_type]
    try:
        if any(value is not None and not value.is_constant for value in inputs):
            return list(operator(node, inputs))
        with tf.init_scope():
            return [Laid(np.asarray(value.data), value.order) for value in operator(node, inputs)]
    except (ValueError, TypeError, tf.errors.OpError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"TensorFlow cannot build {node}: {one_paragraph(error)}") from error
