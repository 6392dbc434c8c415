"""Training graphs: a model with a loss, its gradients, and the step of an optimiser, in ONNX's own operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from environment.gradients.backward import write_backward, write_forward
from environment.gradients.expressions import Expressions
from environment.gradients.losses import LOSSES, MakeLoss
from environment.gradients.node_writer import NodeWriter
from environment.gradients.operation import Values
from environment.gradients.optimisers import OPTIMISERS, Optimiser
from environment.gradients.recurrent import unrolled
from environment.gradients.selection import chosen_outputs, chosen_weights, raised, statistics_of
from taso_ext.errors import ModelError, did_you_mean, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.cleanup.passes import prepared
from taso_ext.onnx_io.operators import bodies, captured_names, rename_captured, value_names
from taso_ext.onnx_io.reading import Source, name_of, read_model
from taso_ext.onnx_io.weights.handles import static_dims

_IR_VERSION = 8
"""The IR version of opset 18's release."""
T = TypeVar("T")


def training_graph(source: Source, **settings: object) -> onnx.ModelProto:
    """Returns the training graph of a model as one message; see `training_model` for arguments and errors.

    Raises:
      ValueError: it takes more than the 2 GB that protobuf can hold; write `training_model` to a file.
    """
    return training_model(source, **settings).to_proto()  # type: ignore[arg-type]


def training_model(
    source: Source,
    *,
    loss: str = "mean-square",
    optimiser: str | Optimiser | None = None,
    outputs: Sequence[str] | None = None,
    train: Sequence[str] | None = None,
    axis: int = -1,
    dims: Mapping[str, int] | None = None,
    accumulate: bool = False,
) -> CheckedModel:
    """Returns a graph of the forward pass, a loss, and the backward pass to every weight that is trained.

        graph = training_model("model.onnx", loss="cross-entropy", optimiser="adam")

    Weights are inputs whose default values are those of the model. So the graph can be run as it is, and nothing folds
    a weight that changes. An output `NAME.updated` is the next value of the input `NAME`.

    | output | is there |
    |---|---|
    | `loss` | always: float scalar |
    | `W.gradient` | without an optimiser: the derivative of the loss by the weight W, of its shape |
    | `W.updated` | with one: the weight after the step |
    | `W.first_moment.updated` and the like | with one that remembers something of W; the input starts at zeros |
    | `step.updated` | with Adam: the number of steps done |
    | `M.updated` | with one: the running mean or variance M of a batch norm |

    The learning rate is the input `learning_rate`, with the optimiser's default. Batch norms use the statistics of the
    batch, and dropout draws (`environment.gradients.entries.normalisation`).

    Args:
      source: a model, the bytes of a file or its path; it is not changed, and its weights are not copied.
      loss: a name of `environment.gradients.losses`, of each output; the loss is the sum over the outputs.
      optimiser: "sgd", "adam", "rmsprop", or an object of `environment.gradients.optimisers`; None: gradients only.
      outputs: the outputs that have a loss; None: all outputs of floats.
      train: patterns of the weights that are trained, such as `layer4.*`; None: all initializers of floats that have an
        axis, but for the statistics of batch norms. Weights that no loss depends on are left out.
      axis: the axis of the classes, for `cross-entropy`.
      dims: sizes of symbolic dimensions by name.
      accumulate: how to add up the gradients of a weight that several operators read, such as that of an unrolled
        LSTM. True: one after the other as they are computed, so that two are in memory at a time. False: by one Sum.
    Raises:
      ModelError: the model cannot be read or raised to opset 18, an operator has no gradient, a shape is not static, or
        an argument names something that is not there.
    """
    name = name_of(source)
    model = unrolled(raised(prepared(read_model(source, dims)), name))
    weights, statistics = chosen_weights(model, train, name), statistics_of(model)
    values = Values(model, frozenset(weights) | statistics)
    graph = _TrainingGraph(model, values)
    seeds = graph.write_losses(_known(loss, LOSSES, "loss"), chosen_outputs(model, outputs, name), axis)
    gradients = write_backward(graph.forward, seeds, weights, graph.writer, accumulate=accumulate)
    if not gradients:
        raise ModelError(f"the loss of {name} depends on none of the weights to train; train others, or other outputs.")
    if isinstance(optimiser, str):
        optimiser = _known(optimiser, OPTIMISERS, "optimiser")
    if optimiser is not None:
        graph.write_steps(optimiser, gradients)
    else:
        for weight, gradient in gradients.items():
            graph.returns(f"{weight}.gradient", gradient, values.dtype(weight), values.dims(weight))
    about = {"loss": loss, "optimiser": "none" if optimiser is None else type(optimiser).__name__}
    return graph.finished([*gradients, *statistics], {"rlflow.training": str(about)})


def _known(name: str, table: Mapping[str, T], what: str) -> T:
    if name not in table:
        hint = did_you_mean(name, list(table))
        raise ModelError(f"no {what} is called '{name}'{hint}; there are {', '.join(table)}.")
    return table[name]


@dataclass
class _TrainingGraph:
    """A training graph while it is written.

    Attributes:
      inputs: the inputs that are no inputs of the model.
      outputs: for each output, the value that it is, and its type.
      starts: the default values of inputs that are no weights of the model.
    """

    model: CheckedModel
    values: Values
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[tuple[str, onnx.ValueInfoProto]] = field(default_factory=list)
    starts: dict[str, ir.TensorProtocol] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.model.skeleton.graph
        used = value_names(graph) | self.model.tensors.keys() | self.model.defaults.keys()
        self.writer = NodeWriter(used, self.model.opset)
        self.forward = write_forward(graph.node, self.values, self.writer)

    def write_losses(self, make: MakeLoss, outputs: Sequence[str], axis: int) -> dict[str, str]:
        """Writes the sum of the losses of some outputs; returns its derivatives by these outputs.

        Raises:
          ModelError: an output has no such axis.
        """
        losses, seeds = [], {}
        for name in outputs:
            value = self.forward.names.get(name, name)
            at = Expressions(self.writer, f"/loss/{name}", self.values.dtype(name))
            dims = self.values.dims(name)
            try:
                made = make(at, value, dims, name, axis)
            except ValueError as error:
                raise ModelError(
                    f"{one_paragraph(error)}. Give another axis (--axis) or another loss (--loss)."
                ) from error
            self.inputs += made.inputs
            seeds[value] = made.seed
            losses.append(made.value)
        loss = losses[0] if len(losses) == 1 else at.write("Sum", *losses)
        self.returns("loss", loss, at.dtype, [])
        return seeds

    def write_steps(self, optimiser: Optimiser, gradients: Mapping[str, str]) -> None:
        """Writes a step of the optimiser for each weight, and the new statistics of batch norms."""
        at = Expressions(self.writer, "/optimiser", np.dtype(np.float32))
        rate = self.starting("learning_rate", np.float32(optimiser.learning_rate))
        count = self.counted(at) if optimiser.counts_steps else None
        for weight, gradient in gradients.items():
            dtype, dims = self.values.dtype(weight), self.values.dims(weight)
            place = Expressions(self.writer, f"/optimiser/{weight}", dtype)
            zeros = np.broadcast_to(np.zeros([], dtype), dims)  # takes no memory
            state = [self.starting(f"{weight}.{name}", zeros) for name in optimiser.remembers]
            scalars = [value and _as_type(place, value) for value in (rate, count)]
            new, remembered = optimiser.step(place, weight, gradient, state, scalars[0] or rate, scalars[1])
            for name, value in zip([weight, *state], [new, *remembered], strict=True):
                self.returns(f"{name}.updated", value, dtype, dims)
        for name, value in self.forward.updated.items():
            self.returns(f"{name}.updated", value, self.values.dtype(name), self.values.dims(name))

    def counted(self, at: Expressions) -> str:
        """Adds the number of steps done, an input and an output; returns the number of this step, a float."""
        done = self.starting("step", np.int64(0))
        number = at.write("Add", done, at.writer.constant(1, np.int64))
        self.returns("step.updated", number, np.dtype(np.int64), [])
        return at.write("Cast", number, to=onnx.TensorProto.FLOAT)

    def starting(self, wanted: str, values: np.ndarray | np.generic) -> str:
        """Adds an input with a default value, and returns its name."""
        name = self.writer.fresh(wanted)
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, values.shape))
        self.starts[name] = ir.tensor(np.asarray(values))
        return name

    def returns(self, wanted: str, value: str, dtype: np.dtype, dims: Sequence[int]) -> None:
        """Adds an output."""
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        self.outputs.append((value, helper.make_tensor_value_info(self.writer.fresh(wanted), kind, list(dims))))

    def finished(self, variables: Iterable[str], about: Mapping[str, str]) -> CheckedModel:
        """Returns the graph, without nodes and constants that no output depends on.

        Args:
          variables: initializers that become inputs.
          about: what to note in the metadata of the model.
        """
        given, model = self.model.skeleton, self.model
        names = _result_names(self.outputs, given.graph)
        nodes = _live(self.writer.nodes, {value for value, _ in self.outputs})
        _rename(nodes, names)
        for value, kind in self.outputs:
            if names.get(value) != kind.name:
                node = helper.make_node(
                    "Identity", [names.get(value, value)], [kind.name], name=f"/results/{kind.name}"
                )
                nodes.append(node)
        read = {name for node in nodes for name in (*node.input, *captured_names(node))}
        tensors = model.tensors | model.defaults
        starts = {name: tensors[name] for name in variables if name in read} | self.starts
        starts |= {name: tensor for name, tensor in model.defaults.items() if name in read}
        proto = onnx.ModelProto(ir_version=max(given.ir_version, _IR_VERSION), producer_name="rlflow")
        proto.opset_import.extend(given.opset_import)
        proto.graph.name = f"{given.graph.name}-training"
        proto.graph.node.extend(nodes)
        proto.graph.input.extend(value for value in given.graph.input if value.name not in starts)
        proto.graph.input.extend(self.inputs)
        declared = {value.name for value in proto.graph.input}
        for name, tensor in starts.items():
            if name not in declared:
                kind = helper.make_tensor_value_info(name, tensor.dtype.value, static_dims(tensor))
                proto.graph.input.append(kind)
        proto.graph.output.extend(kind for _, kind in self.outputs)
        helper.set_model_props(proto, dict(about))
        constants = {name: tensor for name, tensor in model.tensors.items() if name in read and name not in starts}
        return CheckedModel(proto, constants, starts)


def _as_type(at: Expressions, scalar: str) -> str:
    """Returns a scalar of type float as one of the usual type."""
    if at.dtype == np.float32:
        return scalar
    return at.write("Cast", scalar, to=helper.np_dtype_to_tensor_dtype(at.dtype))


def _result_names(outputs: Sequence[tuple[str, onnx.ValueInfoProto]], graph: onnx.GraphProto) -> dict[str, str]:
    """Returns the names of outputs for the values that they are, as far as a value can have another name.

    Values of the model keep theirs, and a value that is returned twice has the name of the first output.
    """
    kept = value_names(graph)
    names: dict[str, str] = {}
    for value, kind in outputs:
        if value not in kept:
            names.setdefault(value, kind.name)
    return names


def _rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for body in bodies(node):
            rename_captured(body, names)


def _live(nodes: Sequence[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """Returns the nodes that the wanted values depend on, producers first."""
    found = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            found.append(node)
            wanted.update(node.input, captured_names(node))
    return found[::-1]
