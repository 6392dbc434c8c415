"""The import clean-up: what any runtime does at load anyway, done by onnxscript before the engine sees the model.

`full` runs onnxscript's optimizer (it also folds batch norms into convolutions), `basic` folds constants and shapes and
removes what does nothing, `none` only inlines local functions. Where shapes are static, shape computations are folded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer

from taso_ext.detached import DetachedModel, for_inference, static_dims
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.shapes import infer_shapes

LEVELS = ("full", "basic", "none")
DEFAULT_DOMAINS = ("", "ai.onnx")
"""Both name the domain of ONNX's own operators."""

RANDOM_OPERATORS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Operators that give other values each time: they are neither folded nor merged with their equals."""

_SHAPE_READERS = frozenset({"Shape", "Size"})
_ROUNDS = 4
"""Folding one shape can make the next one static; real models settle in two rounds."""
_HIDDEN_DOMAIN = "rlflow.hidden"


def clean_up(detached: DetachedModel, level: str = "full") -> DetachedModel:
    """The model after clean-up `level`, with local functions inlined; the given one is not changed.

    Raises:
      ModelError: an unknown level, or a model that the clean-up cannot process.
    """
    if level not in LEVELS:
        raise ModelError(f"unknown clean-up level '{level}': expected one of {', '.join(LEVELS)}.")
    try:
        with _quiet():
            model = _to_ir(detached)
            _forget_inferable_shapes(model)
            _run(model, level)
            cleaned = _from_ir(model, detached)
        onnx.checker.check_model(for_inference(cleaned))
    except Exception as error:  # onnxscript's passes let through whatever an unusual model makes them raise
        advice = "Correct the model" if level == "none" else "Use --clean basic or --clean none, or correct the model"
        raise ModelError(
            f"the clean-up '{level}' of the model failed: {one_paragraph(_root_cause(error))} {advice}."
        ) from error
    return cleaned


def is_random(op_type: str, domain: str, inputs: int) -> bool:
    """Whether an operator draws random numbers; Dropout does where it is given a training flag (third input)."""
    return domain in DEFAULT_DOMAINS and (op_type in RANDOM_OPERATORS or (op_type == "Dropout" and inputs > 2))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences onnxscript's warnings: they tell its developers what it left as it was."""
    loggers = [logging.getLogger(name) for name in ("onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _run(model: ir.Model, level: str) -> None:
    if level == "none":
        return
    _replace_old_dropouts(model)
    _learn_shapes(model)
    hidden = _hide(model)
    if level == "full":
        optimizer.optimize_ir(model)
    else:
        _fold_constants(model)
    _fold_shapes(model)
    common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.LiftSubgraphInitializersToMainGraphPass()(model)
    for node in hidden:
        node.domain = ""
    _fit_to_opset(model)


def _fold_shapes(model: ir.Model) -> None:
    """Folds computations on static shapes until no more shapes become known."""
    for _ in range(_ROUNDS):
        if not any(node.op_type in _SHAPE_READERS for node in model.graph):
            return
        _learn_shapes(model)
        if not _fold_constants(model):
            return


def _fold_constants(model: ir.Model) -> bool:
    return bool(optimizer.fold_constants_ir(model).modified)


def _fit_to_opset(model: ir.Model) -> None:
    """Takes back what the optimizer writes in the form of a newer opset: it is made for 18 and later."""
    opset = model.opset_imports.get("", 0)
    for node in _nodes(model, "Reshape") if opset < 14 else ():
        node.attributes.pop("allowzero", None)  # it only sets it where the shape holds no zero
    for node in _nodes(model, "Split") if opset < 18 else ():
        node.attributes.pop("num_outputs", None)  # equal parts are what older opsets assume
    for node in list(_nodes(model, "Gemm")) if opset < 11 else ():
        weight = node.inputs[1]
        if len(node.inputs) == 2 and weight is not None and weight.dtype is not None:
            node.resize_inputs(3)
            node.replace_input_with(2, _zero(model.graph, f"{node.outputs[0].name}_zero", weight.dtype))


def _zero(graph: ir.Graph, name: str, dtype: ir.DataType) -> ir.Value:
    tensor = ir.tensor(np.zeros(1, dtype=dtype.numpy()), name=name)
    value = ir.Value(name=name, const_value=tensor, shape=ir.Shape((1,)), type=ir.TensorType(dtype))
    graph.register_initializer(value)
    return value


def _learn_shapes(model: ir.Model) -> None:
    """Runs ONNX shape inference over the whole model, which propagates more than the optimizer's node by node."""
    inferred = infer_shapes(for_inference(_from_ir(model, None)))
    shapes = {value.name: value.type for value in (*inferred.graph.value_info, *inferred.graph.output)}
    for node in model.graph:
        for value in node.outputs:
            if value.name in shapes and shapes[value.name].HasField("tensor_type"):
                value.shape = ir.serde.deserialize_type_proto_for_shape(shapes[value.name]) or value.shape
                value.type = value.type or ir.serde.deserialize_type_proto_for_type(shapes[value.name])


def _to_ir(detached: DetachedModel) -> ir.Model:
    """The model in onnxscript's form, local functions inlined.

    Overridable inputs come without their defaults, so that nothing folds them.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(detached.skeleton)
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if _has_map(value.type):
            value.ClearField("type")  # onnxscript has no map type; the name alone is enough for it
    for name, tensor in detached.tensors.items():
        place = proto.graph.initializer.add(name=name, data_type=tensor.dtype.value, dims=static_dims(tensor))
        place.data_location = onnx.TensorProto.EXTERNAL
    if proto.functions:  # onnxscript's own inliner refuses functions of another opset; converting those needs types
        proto = onnx.inliner.inline_local_functions(infer_shapes(proto), convert_version=True)
    model = ir.serde.deserialize_model(proto)
    for name, tensor in detached.tensors.items():
        model.graph.initializers[name].const_value = tensor
    return model


def _from_ir(model: ir.Model, source: DetachedModel | None) -> DetachedModel:
    tensors = {name: value.const_value for name, value in model.graph.initializers.items()}
    held = dict(model.graph.initializers)
    model.graph.initializers.clear()
    try:
        skeleton = ir.serde.serialize_model(model)
    finally:
        model.graph.initializers.update(held)
    defaults = {}
    if source is not None:
        for before, after in zip(source.skeleton.graph.output, skeleton.graph.output, strict=True):
            after.type.CopyFrom(before.type)
        for before, after in zip(source.skeleton.graph.input, skeleton.graph.input, strict=True):
            after.type.CopyFrom(before.type)
            if before.name in source.defaults:
                defaults[after.name] = source.defaults[before.name]
    return DetachedModel(skeleton, {name: tensor for name, tensor in tensors.items() if tensor is not None}, defaults)


def _has_map(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        return _has_map(getattr(kind, which).elem_type)
    return which == "map_type"


def _forget_inferable_shapes(model: ir.Model) -> None:
    """Drops declared shapes that inference finds by itself: files often declare stale ones, and those would win."""
    for node in model.graph.all_nodes():
        if node.domain == "" and not any(attribute.type in _GRAPHS for attribute in node.attributes.values()):
            for value in node.outputs:
                value.shape = None


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _replace_old_dropouts(model: ir.Model) -> None:
    """Before opset 12 Dropout does nothing at inference; onnxscript only knows the newer one."""
    if model.opset_imports.get("", 0) >= 12:
        return
    for node in list(_nodes(model, "Dropout")):
        if len(node.outputs) == 1 or (not node.outputs[1].uses() and not node.outputs[1].is_graph_output()):
            identity = ir.node("Identity", inputs=[node.inputs[0]], name=node.name)
            assert node.graph is not None, "nodes found in a graph belong to it"
            ir.convenience.replace_nodes_and_values(
                node.graph, node, [node], [identity], node.outputs[:1], identity.outputs
            )


def _hide(model: ir.Model) -> list[ir.Node]:
    """Hides operators that onnxscript mistreats, each under a domain of its own, until the clean-up is done."""
    opset = model.opset_imports.get("", 0)
    hidden = [node for node in _nodes(model) if _is_mistreated(node, opset)]
    for index, node in enumerate(hidden):
        node.domain = f"{_HIDDEN_DOMAIN}.{index}"
    return hidden


def _is_mistreated(node: ir.Node, opset: int) -> bool:
    """Whether the optimizer (onnxscript 0.7) would fold, merge, misread or crash on an operator."""
    if node.domain != "":
        return False
    if is_random(node.op_type, node.domain, len(node.inputs)):
        return True  # it merges two equal Bernoulli, or Dropout while training
    if node.op_type in ("Clip", "Min", "Max", "Pad"):
        return opset < 11  # it looks for bounds and pads among the inputs, where older opsets have attributes
    if node.op_type == "ConcatFromSequence":
        return opset < 13  # it writes Unsqueeze as opset 13 does
    if node.op_type == "SplitToSequence":
        return opset < 13 or not _is_constant(node.inputs[1:])  # the same for Split; it fails where sizes are computed
    return False


def _is_constant(values: Sequence[ir.Value | None]) -> bool:
    return all(ir.convenience.get_const_tensor(value) is not None for value in values if value is not None)


def _nodes(model: ir.Model, op_type: str | None = None) -> Iterator[ir.Node]:
    return (node for node in model.graph.all_nodes() if op_type in (None, node.op_type))


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
