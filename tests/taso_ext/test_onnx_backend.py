"""ONNX's own operator tests, loaded into the engine and written back: equal outputs in ONNX Runtime.

A sample for speed; `RLFLOW_ALL_BACKEND_CASES=1` runs all of them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_cases import assert_round_trip, run

from taso_ext import ModelError

NEWEST_RUNNABLE_OPSET = 26
"""Of ONNX Runtime 1.31; later operators can be loaded but not run."""
STRIDE = 1 if os.environ.get("RLFLOW_ALL_BACKEND_CASES") else 9
"""Neighbouring cases are variations of one operator, so that a stride keeps nearly all operators."""
FEWEST_COMPARED = 100
"""Of a sample; far fewer would mean that the cases no longer run here, and the test would prove nothing."""

REFUSED = {"test_affine_grid_3d_expanded", "test_affine_grid_3d_align_corners_expanded"}
"""Cases that ONNX Runtime refuses after a round trip without clean-up: a branch that is never taken contradicts
constant sizes, which it notices only where these are initializers. Folding the shapes removes the branch."""

Case = tuple[str, onnx.ModelProto, list[object]]
Variant = Callable[[onnx.ModelProto, list[object]], tuple[onnx.ModelProto, dict[str, object]] | None]
"""A model with some inputs turned into weights, and what is left to feed; None where there is nothing to turn."""


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """(name, model, inputs) of the sampled cases that ONNX Runtime can run in principle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reference implementations divide by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return [
        (case.name, case.model, list(case.data_sets[0][0]))
        for case in found[::STRIDE]
        if case.data_sets and all(entry.version <= NEWEST_RUNNABLE_OPSET for entry in case.model.opset_import)
    ]


def as_it_is(model: onnx.ModelProto, inputs: list[object]) -> tuple[onnx.ModelProto, dict[str, object]]:
    names = [value.name for value in model.graph.input]
    return model, dict(zip(names, inputs, strict=False))


def structure_frozen(model: onnx.ModelProto, inputs: list[object]) -> tuple[onnx.ModelProto, dict[str, object]] | None:
    """Integer inputs behind the first (axes, sizes, pads, indices) as constants: what real models have there."""
    return frozen(model, inputs, lambda array: array.dtype.kind in "iub")


def all_but_first_frozen(
    model: onnx.ModelProto, inputs: list[object]
) -> tuple[onnx.ModelProto, dict[str, object]] | None:
    """Every input behind the first as a weight."""
    return frozen(model, inputs, lambda array: True)


def frozen(
    model: onnx.ModelProto, inputs: list[object], choose: Callable[[np.ndarray], bool]
) -> tuple[onnx.ModelProto, dict[str, object]] | None:
    values = list(model.graph.input)
    if len(values) != len(inputs) or model.ir_version < 4:
        return None
    pairs = list(zip(values, inputs, strict=True))
    constant = [
        (value, array)
        for value, array in pairs[1:]
        if isinstance(array, np.ndarray) and value.type.HasField("tensor_type") and choose(array)
    ]
    if not constant:
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = {value.name for value, _ in constant}
    del copy.graph.input[:]
    copy.graph.input.extend(value for value in values if value.name not in names)
    copy.graph.initializer.extend(numpy_helper.from_array(array, value.name) for value, array in constant)
    return copy, {value.name: array for value, array in pairs if value.name not in names}


@pytest.mark.parametrize("level", ["full", "basic", "none"])
@pytest.mark.parametrize("variant", [as_it_is, structure_frozen, all_but_first_frozen])
def test_operators_survive_the_round_trip(cases: list[Case], variant: Variant, level: str) -> None:
    """Except for operators with random outputs (Bernoulli, Dropout while training)."""
    compared = 0
    for name, original, inputs in cases:
        changed = variant(original, inputs)
        if changed is None or "bernoulli" in name or "training" in name or (level == "none" and name in REFUSED):
            continue
        model, feeds = changed
        try:
            run(model, feeds)
        except Exception:  # ONNX Runtime does not have the operator, or not for this type
            continue
        try:
            assert_round_trip(model, feeds, level, tolerance=1e-2 if "16" in name else 1e-4)
        except ModelError as error:
            assert "opset 1;" in str(error) or "symbolic dimensions" in str(error), f"{name}: {error}"
            continue
        except Exception as error:
            raise AssertionError(f"{name}: {error}") from error
        compared += 1
    assert compared >= FEWEST_COMPARED / (1 if variant is as_it_is else 2)
