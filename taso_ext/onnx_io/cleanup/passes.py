"""The import clean-up: what any runtime does at load anyway, done by onnxscript before the engine sees the model.

`full` folds constants and shapes and applies onnxscript's rewrite rules, which also fold batch norms into convolutions;
`basic` folds constants and shapes and removes what does nothing; `none` only inlines local functions. Where shapes are
static, shape computations are folded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from taso_ext.errors import ModelError, one_paragraph, root_cause
from taso_ext.onnx_io.cleanup.constant_folding import fold_constants
from taso_ext.onnx_io.cleanup.inlining import inline_functions
from taso_ext.onnx_io.cleanup.ir_form import from_ir, has_graphs, learn_shapes, nodes, to_ir
from taso_ext.onnx_io.cleanup.protected_operators import hidden
from taso_ext.onnx_io.cleanup.rewriting_rules import rewrite_once
from taso_ext.onnx_io.detached import DetachedModel, for_inference
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS
from taso_ext.onnx_io.opsets.onnxscript_range import fit_to_opset, replace_old_dropouts
from taso_ext.onnx_io.shapes import forget_inferable_shapes

LEVELS = ("full", "basic", "none")

_MOST_REPLACEMENTS = 10**8
"""Merging two equal nodes takes time in proportion to the operands of their readers and to the graph's outputs; where a
Concat of 100,000 tensors makes that hours, equal nodes stay apart."""
_ROUNDS = 4
"""Folding one shape can make the next one static; real models settle in two rounds."""


def clean_up(detached: DetachedModel, level: str = "full") -> DetachedModel:
    """The model after clean-up `level`, with local functions inlined; the given one is not changed.

    Raises:
      ModelError: an unknown level, or a model that the clean-up cannot process.
    """
    if level not in LEVELS:
        raise ModelError(f"unknown clean-up level '{level}': expected one of {', '.join(LEVELS)}.")
    try:
        with _quiet():
            cleaned = forget_inferable_shapes(inline_functions(detached))
            if level != "none":
                model = to_ir(cleaned)
                _run(model, level)
                cleaned = from_ir(model, cleaned)
        onnx.checker.check_model(for_inference(cleaned))
    except Exception as error:  # onnxscript's passes let through whatever an unusual model makes them raise
        advice = "Correct the model" if level == "none" else "Use --clean basic or --clean none, or correct the model"
        raise ModelError(
            f"the clean-up '{level}' of the model failed: {one_paragraph(root_cause(error))} {advice}."
        ) from error
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


def _run(model: ir.Model, level: str) -> None:
    replace_old_dropouts(model)
    for _ in range(_ROUNDS):
        learn_shapes(model)
        with hidden(model):
            changed = fold_constants(model)
            if level == "full":
                changed |= rewrite_once(model)
        common.RemoveUnusedNodesPass()(model)
        if not changed:
            break
    if all(node.domain in DEFAULT_DOMAINS for node in nodes(model) if has_graphs(node)):
        # Elsewhere a graph inside a node need not be able to capture what is lifted out of it.
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        common.LiftSubgraphInitializersToMainGraphPass()(model)
    if level == "full":
        with hidden(model):
            _merge_equals(model)
    fit_to_opset(model)


def _merge_equals(model: ir.Model) -> None:
    common.DeduplicateInitializersPass()(model)
    widest = max((len(node.inputs) for node in nodes(model)), default=0) + len(model.graph.outputs)
    if model.graph.num_nodes() * widest <= _MOST_REPLACEMENTS:
        common.CommonSubexpressionEliminationPass()(model)
    common.OutputFixPass()(model)
    common.NameFixPass()(model)
