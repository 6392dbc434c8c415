"""What a training graph is made of: the model in an opset that it can be written in, its weights and its outputs."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import onnx
import onnx.version_converter

from taso_ext.errors import ModelError, did_you_mean, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS
from taso_ext.onnx_io.weights.handles import static_dims

OPSET = 18
"""The oldest opset of training graphs: since 18 ScatterElements adds, and the axes of ReduceMean are an input."""
_STATISTICS = {"BatchNormalization": (3, 4)}
"""Inputs of operators that training sets by itself, and that have no gradient."""
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)


def raised(model: CheckedModel, name: str) -> CheckedModel:
    """Returns a model of at least opset 18.

    Raises:
      ModelError: onnx's version converter cannot convert it.
    """
    if model.opset >= OPSET:
        return model
    try:
        converted = onnx.version_converter.convert_version(model.for_onnx(), OPSET)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"{name} uses opset {model.opset}; a training graph needs {OPSET}, and onnx.version_converter cannot "
            f"convert it: {one_paragraph(error)} Export the model with opset {OPSET}."
        ) from error
    again = CheckedModel.from_proto(converted)
    inputs = [value for value in again.skeleton.graph.input if value.name not in model.tensors]
    del again.skeleton.graph.input[:], again.skeleton.graph.value_info[:]
    again.skeleton.graph.input.extend(inputs)
    return CheckedModel(again.skeleton, again.tensors | model.tensors, model.defaults)


def statistics_of(model: CheckedModel) -> frozenset[str]:
    """Returns the initializers that the forward pass sets, such as running means."""
    read = {
        node.input[position]
        for node in model.skeleton.graph.node
        if node.domain in DEFAULT_DOMAINS
        for position in _STATISTICS.get(node.op_type, ())
    }
    return frozenset(read & (model.tensors.keys() | model.defaults.keys()))


def chosen_weights(model: CheckedModel, patterns: Sequence[str] | None, name: str) -> list[str]:
    """Returns the names of the weights to train.

    Raises:
      ModelError: a pattern fits none, or there is none.
    """
    tensors = model.tensors | model.defaults
    fixed = statistics_of(model)
    known = [key for key, tensor in tensors.items() if tensor.dtype.value in _FLOATS and key not in fixed]
    if patterns is None:
        chosen = [key for key in known if static_dims(tensors[key])]
        if not chosen:
            raise ModelError(f"{name} has no weights to train: none of its initializers is a tensor of floats.")
        return chosen
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            listed = ", ".join(known[:8]) + ", …" * (len(known) > 8)
            raise ModelError(
                f"{name} has no weight called '{pattern}'{did_you_mean(pattern, known)}; give the name of an "
                f"initializer of floats, or a pattern with *. It has {listed}."
            )
    return [key for key in known if any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)]


def chosen_outputs(model: CheckedModel, wanted: Sequence[str] | None, name: str) -> list[str]:
    """Returns the outputs that have a loss.

    Raises:
      ModelError: an output is not there or is no tensor of floats.
    """
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.skeleton.graph.output}
    known = [key for key, kind in kinds.items() if kind in _FLOATS]
    for each in wanted or ():
        if each not in known:
            raise ModelError(
                f"{name} has no output of floats called '{each}'{did_you_mean(each, known)}; it has {', '.join(known)}."
            )
    if not known:
        raise ModelError(f"{name} has no output of floats, so no loss can be made of its outputs.")
    return list(dict.fromkeys(wanted)) if wanted else known
