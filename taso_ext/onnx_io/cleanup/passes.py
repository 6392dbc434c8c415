"""The import clean-up: simplifications that any runtime makes at load, made by onnxscript before the engine's import.

`full` folds constants and shapes and applies onnxscript's rewrite rules, which also fold batch norms into convolutions;
`basic` folds constants and shapes and removes nodes that do nothing; `none` only inlines local functions. Shape
computations are folded if the shapes are static.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import onnx
import onnx.inliner
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer

from taso_ext.errors import ModelError, ModelWarning, one_paragraph, root_cause
from taso_ext.onnx_io.checked_model import CheckedModel, ValueType
from taso_ext.onnx_io.cleanup.library import (
    fit_to_opset,
    from_ir,
    has_graphs,
    hidden,
    learn_shapes,
    nodes,
    replace_old_dropouts,
    rewrite_once,
    to_ir,
)
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, all_nodes, inner_nodes
from taso_ext.onnx_io.shape_inference import infer_shapes, without_inferable_shapes

LEVELS = ("full", "basic", "none")

_MOST_REPLACEMENTS = 10**8
"""Equal nodes are merged only if nodes times (most operands of a node + outputs of the graph) is at most this.

Merging two equal nodes takes time in proportion to the operands of their readers and to the graph's outputs. With a
Concat of 100,000 tensors this would take hours.
"""
_ROUNDS = 4
"""The most rounds of folding: folding one shape can make the next one static. Real models need two rounds."""
_LARGEST_FOLDED = 1 << 18
"""The most elements of a constant that is computed at load; larger ones are computed only at export."""

_SIZED_BY_VALUES = frozenset(
    {
        "AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "ConvTranspose", "Expand",
        "HammingWindow", "HannWindow", "MaxUnpool", "MelWeightMatrix", "OneHot", "Pad", "Range", "Resize", "Tile",
        "Upsample",
    }
)  # fmt: skip
"""Operators that can make a large tensor from a few numbers."""


def clean_up(model: CheckedModel, level: str = "full") -> CheckedModel:
    """Returns the model after a clean-up, with local functions inlined; the given one is not changed.

    If the library fails on the model, the next lower level is used, and a warning says so.

    Args:
      level: "full", "basic" or "none".
    Raises:
      ModelError: an unknown level, or a model whose local functions cannot be inlined.
    """
    if level not in LEVELS:
        raise ModelError(f"unknown clean-up level '{level}': expected one of {', '.join(LEVELS)}.")
    lower = LEVELS[LEVELS.index(level) + 1 :]
    try:
        return _cleaned_up(model, level)
    except Exception as error:  # onnxscript's passes raise many kinds of errors for unusual models
        reason = f"the clean-up '{level}' of the model failed: {one_paragraph(root_cause(error))}"
        if not lower:
            raise ModelError(f"{reason} Correct the model.") from error
    warnings.warn(f"{reason} The clean-up '{lower[0]}' is used instead.", ModelWarning, stacklevel=2)
    return clean_up(model, lower[0])


def _cleaned_up(model: CheckedModel, level: str) -> CheckedModel:
    with _quiet():
        cleaned = prepared(model)
        if level != "none":
            library_form = to_ir(cleaned)
            cleaned = from_ir(library_form, cleaned, _run(library_form, level))
    onnx.checker.check_model(cleaned.for_onnx())
    return cleaned


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


def _run(model: ir.Model, level: str) -> dict[str, ValueType]:
    """Cleans up the model in place; returns the types of its values, or nothing if the last round changed something."""
    replace_old_dropouts(model)
    for _ in range(_ROUNDS):
        types = learn_shapes(model)
        with hidden(model):
            changed = _fold_constants(model)
            if level == "full":
                changed |= rewrite_once(model)
        common.RemoveUnusedNodesPass()(model)
        if not changed:
            break
        types = {}
    if all(node.domain in DEFAULT_DOMAINS for node in nodes(model) if has_graphs(node)):
        # Operators of other domains need not let a graph capture what is lifted out of it.
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        common.LiftSubgraphInitializersToMainGraphPass()(model)
    if level == "full":
        with hidden(model):
            _merge_equals(model)
    fit_to_opset(model)
    return types


def _merge_equals(model: ir.Model) -> None:
    common.DeduplicateInitializersPass()(model)
    widest = max((len(node.inputs) for node in nodes(model)), default=0) + len(model.graph.outputs)
    if model.graph.num_nodes() * widest <= _MOST_REPLACEMENTS:
        common.CommonSubexpressionEliminationPass()(model)
    common.OutputFixPass()(model)
    common.NameFixPass()(model)


def prepared(model: CheckedModel) -> CheckedModel:
    """Returns a copy without local functions, and without declared shapes that inference finds by itself."""
    model = _inline_functions(model)
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model.skeleton)
    return CheckedModel(without_inferable_shapes(skeleton, set(model.tensors)), model.tensors, model.defaults)


def _inline_functions(model: CheckedModel) -> CheckedModel:
    """Returns the model with its local functions inlined; the model itself if it has none."""
    if not model.skeleton.functions:
        return model
    # onnxscript's own inliner refuses functions of another opset than the model's; converting those needs types.
    typed = infer_shapes(_with_defaults(model.for_onnx()))
    inlined = onnx.inliner.inline_local_functions(typed, convert_version=True)
    graph, before = inlined.graph, model.skeleton.graph
    del graph.initializer[:]
    del graph.input[len(before.input) :]  # large tensors, which were inputs only for shape inference
    del graph.value_info[:]
    graph.value_info.extend(before.value_info)
    return CheckedModel(inlined, model.tensors, model.defaults)


def _with_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """Gives every call in the model all attributes, because the inliner forgets the defaults of functions."""
    defaults = {
        (function.domain, function.name, function.overload): function.attribute_proto for function in model.functions
    }
    nodes = chain(all_nodes(model.graph), *(inner_nodes(function.node) for function in model.functions))
    for node in nodes:
        given = {attribute.name for attribute in node.attribute}
        called = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(attribute for attribute in called if attribute.name not in given)
    return model


def _fold_constants(model: ir.Model) -> bool:
    """Folds nodes that depend on constants alone; returns whether anything changed."""
    return bool(optimizer.fold_constants_ir(model, should_fold=_should_fold).modified)


def _should_fold(node: ir.Node) -> bool | None:
    """Returns False if a result might be too large, and None if the library may decide."""
    return None if all(_is_small(value, node) for value in node.outputs) else False


def _is_small(value: ir.Value, node: ir.Node) -> bool:
    """Returns whether a result is small; an unknown shape counts as small, unless the operator can make it large."""
    if value.shape is not None and value.shape.is_static():
        return math.prod(value.shape.numpy()) <= _LARGEST_FOLDED
    return _is_short_range(node) if node.op_type == "Range" else node.op_type not in _SIZED_BY_VALUES


def _is_short_range(node: ir.Node) -> bool:
    """Returns whether a Range is short, given its bounds.

    Runtimes accept bounds of shape [1], but shape inference finds no length for them.
    """
    bounds = [ir.convenience.get_const_tensor(value) for value in node.inputs if value is not None]
    if len(bounds) != 3 or any(tensor is None or tensor.size != 1 for tensor in bounds):
        return False
    start, limit, delta = (float(tensor.numpy().item()) for tensor in bounds if tensor is not None)
    return abs(limit - start) <= _LARGEST_FOLDED * abs(delta)
