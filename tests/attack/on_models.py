"""Attacks `rlflow optimise` with random nasty models, and judges what it wrote.

A result is judged here, by running it and the model in ONNX Runtime without optimisations, or in onnx.reference. Models
of opsets that neither runs have an oracle. No part of the program takes part in the judgement.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from tests.attack.finding import Finding
from tests.attack.models import Nasty, nasty_model

CONTROLLERS = ("greedy", "taso", "random")
EQUAL, UNVERIFIED, REFUSED = "equal", "not verified, with a warning", "refused in a paragraph, since nothing runs it"
UNCHANGED = "returned as it is, and nothing runs it"
OLD = "of an old opset and refused in a paragraph"
UNEQUAL, TRACEBACK, LOST = "UNEQUAL", "TRACEBACK", "LOST"
GOOD = (EQUAL,)
FAULTS = (UNEQUAL, TRACEBACK, LOST)
_TOLERANCES = {"float16": 3e-2, "bfloat16": 0.2, "float32": 1e-3, "float64": 1e-9}
"""The largest difference that rounding explains, relative to the largest number of the output, by element type."""
_SETTINGS = ("measure.pairs=2", "measure.sessions=1", "measure.control=false", "evaluate.sampled_episodes=2")
_SETTINGS += ("environment.max_steps=20", "search.budget=60")


def attack(seed: int, controllers: Sequence[str] = CONTROLLERS) -> list[Finding]:
    """Optimises model number `seed` with each controller, in a folder of its own."""
    return attack_model(nasty_model(seed), seed, controllers)


def attack_model(nasty: Nasty, seed: int = -1, controllers: Sequence[str] = CONTROLLERS) -> list[Finding]:
    """Optimises a model with each controller, in a folder of its own."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            location = "weights.bin" if nasty.external else None
            stored = onnx.ModelProto()
            stored.CopyFrom(nasty.model)  # external data leave the model when it is saved
            onnx.save(stored, "model.onnx", save_as_external_data=nasty.external, location=location, size_threshold=0)
            return [_attacked(seed, nasty, controller) for controller in controllers]
        finally:
            os.chdir(here)


def _attacked(seed: int, nasty: Nasty, controller: str) -> Finding:
    status, text = _optimised(nasty, controller)
    outcome = (
        TRACEBACK if status is None or "Traceback" in text else _judged(nasty, status, text, Path(f"{controller}.onnx"))
    )
    return Finding(seed, controller, outcome, f"{', '.join(nasty.twists)}: status {status}, {text[:600]}…{text[-900:]}")


def _optimised(nasty: Nasty, controller: str) -> tuple[int | None, str]:
    """Returns the exit status, which is None after an exception, and everything that was printed."""
    from experiments.cli import main

    said = io.StringIO()
    command = ["optimise", "model.onnx", "-o", f"{controller}.onnx", "--controller", controller, "--force"]
    for setting in _SETTINGS:
        command += ["--set", setting]
    for name, size in nasty.dims.items():
        command += ["--dim", f"{name}={size}"]
    status = None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = main(command)
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:  # a fault of the program, whatever it is
            traceback.print_exc()
    return status, said.getvalue()


def _judged(nasty: Nasty, status: int, text: str, output: Path) -> str:
    """Returns the outcome of a command that ended with a status and may have written a model."""
    feeds = feeds_of(nasty.model, nasty.dims)
    original = nasty.oracle or nasty.model
    expected = outputs_of(original, feeds)
    if status == 2 and expected is None:
        return REFUSED
    if status == 2 and nasty.oracle is not None and not output.exists():
        return OLD
    if status not in (0, 3) or not output.exists():
        return LOST
    if expected is None or any("Random" in node.op_type for node in original.graph.node):  # nobody can compare these
        return UNVERIFIED if status == 3 else UNCHANGED if "the result equals the model" in text else LOST
    result = onnx.load(output)
    if is_alike(expected, outputs_of(result, feeds)) or _are_alike_by_definition(original, result, feeds):
        return EQUAL if status == 0 else UNVERIFIED
    return UNEQUAL


def feeds_of(model: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Returns random values of the inputs, without those that have defaults."""
    rng, given = np.random.default_rng(1), {each.name for each in model.graph.initializer}
    given |= {each.values.name for each in model.graph.sparse_initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in given:
            continue
        kind = value.type.tensor_type
        shape = [dim.dim_value or dims.get(dim.dim_param, 0) for dim in kind.shape.dim]
        array = rng.standard_normal(shape)
        feeds[value.name] = array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return feeds


def outputs_of(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """Returns the arrays in the outputs of a model, or None if nothing can run it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    wanted = {value.name for value in model.graph.input}
    read = {name: array for name, array in feeds.items() if name in wanted}
    try:
        return list(_arrays(ort.InferenceSession(model.SerializeToString(), options).run(None, read)))
    except Exception:  # ONNX Runtime's errors have no common class
        return _reference_outputs(model, read)


def _reference_outputs(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    try:
        return list(_arrays(ReferenceEvaluator(_with_dense_weights(model)).run(None, dict(feeds))))
    except Exception:  # onnx.reference raises what NumPy does
        return None


def _are_alike_by_definition(original: onnx.ModelProto, result: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> bool:
    """Returns whether the outputs agree in onnx.reference.

    It rounds where the model says so. ONNX Runtime drops the rounding between two Casts if it lacks the kernel between
    them, in one of two equal models and not in the other.
    """
    expected = _reference_outputs(original, feeds)
    return expected is not None and is_alike(expected, _reference_outputs(result, feeds))


def _with_dense_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with its sparse vectors written out, because onnx.reference fails on a sparse initializer."""
    if not model.graph.sparse_initializer:
        return model
    dense = onnx.ModelProto()
    dense.CopyFrom(model)
    for sparse in model.graph.sparse_initializer:
        values = onnx.numpy_helper.to_array(sparse.values)
        array = np.zeros(math.prod(sparse.dims), values.dtype)
        array[onnx.numpy_helper.to_array(sparse.indices)] = values
        dense.graph.initializer.append(onnx.numpy_helper.from_array(array.reshape(sparse.dims), sparse.values.name))
    del dense.graph.sparse_initializer[:]
    return dense


def _arrays(values: object) -> Iterator[np.ndarray]:
    """Yields the arrays in nested sequences; what is not there is an array without elements."""
    if isinstance(values, list | tuple):
        for each in values:
            yield from _arrays(each)
    else:
        yield np.empty(0) if values is None else np.asarray(values)


def is_alike(expected: Sequence[np.ndarray], found: Sequence[np.ndarray] | None) -> bool:
    """Returns whether outputs agree up to rounding; what is not finite in the first may be anything in the second."""
    if found is None or len(expected) != len(found):
        return False
    return all(_is_close(*pair) for pair in zip(expected, found, strict=True))


def _is_close(expected: np.ndarray, found: np.ndarray) -> bool:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if expected.dtype.name not in _TOLERANCES:
        return bool((expected == found).all())
    a, b = expected.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(a)
    if (~np.isfinite(b[finite])).any():
        return False
    largest = np.abs(a[finite]).max(initial=0.0)
    return bool((np.abs(a - b)[finite] <= _TOLERANCES[expected.dtype.name] * largest).all())
