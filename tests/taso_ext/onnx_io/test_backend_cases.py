"""ONNX's own test models keep their outputs when they are loaded into the engine and written back.

By default a sample is tested, and all models under the marker `full`. `python -m tests.conformance.onnx_backend`
counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.conformance.cases import KINDS, Case, aged, model_cases, node_cases
from tests.conformance.judging import EQUAL, NOT_RUN, judge

STRIDE = 9
"""Neighbouring node cases are variations of one operator, so that a stride keeps nearly all operators."""
RUNS_NOWHERE = {"test_gradient_of_add", "test_gradient_of_add_and_mul"}
"""Training operators of a preview domain."""

CONTRADICTORY = {"test_affine_grid_3d_expanded", "test_affine_grid_3d_align_corners_expanded"}
"""Cases that ONNX Runtime refuses if they are frozen and not cleaned up: a branch that is never taken contradicts
constant sizes, which ONNX Runtime notices only if they are initializers. Folding the shapes removes the branch."""

Freeze = Callable[[Case], Case | None]


@pytest.fixture(scope="module")
def nodes() -> list[Case]:
    return node_cases()


def assert_passes(case: Case) -> None:
    verdict = judge(case)
    expected = NOT_RUN if case.name in RUNS_NOWHERE else EQUAL
    assert verdict.outcome == expected, f"{case.kind} {case.name}: {verdict}"


def test_sampled_operators_survive_the_round_trip(nodes: list[Case]) -> None:
    for case in nodes[::STRIDE]:
        assert_passes(case)


@pytest.mark.full
def test_operators_survive_the_round_trip(nodes: list[Case]) -> None:
    for case in nodes:
        assert_passes(case)


@pytest.mark.parametrize("stride", [4 * STRIDE, pytest.param(1, marks=pytest.mark.full)])
def test_older_versions_of_operators_survive_the_round_trip(nodes: list[Case], stride: int) -> None:
    """Each case runs as a model of every older opset that has another version of its operator."""
    found = {older.name: judge(older) for case in nodes[::stride] for older in aged(case)}
    wrong = {name: verdict for name, verdict in found.items() if verdict.outcome not in (EQUAL, NOT_RUN)}
    assert not wrong, wrong
    assert sum(verdict.outcome == EQUAL for verdict in found.values()) >= 1800 / stride


@pytest.mark.parametrize("kind", ["simple", "pytorch-operator"])
def test_small_models_survive_the_round_trip(kind: str) -> None:
    for case in model_cases(kind):
        assert_passes(case)


@pytest.mark.full
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("node", "older")])
def test_models_survive_the_round_trip(kind: str) -> None:
    for case in model_cases(kind):
        assert_passes(case)


def structure_frozen(case: Case) -> Case | None:
    """Returns a case whose integer inputs but the first (axes, sizes, pads, indices) are weights, as in real models."""
    return frozen(case, lambda array: array.dtype.kind in "iub")


def all_but_first_frozen(case: Case) -> Case | None:
    """Returns a case whose inputs after the first are all weights."""
    return frozen(case, lambda array: True)


def frozen(case: Case, choose: Callable[[np.ndarray], bool]) -> Case | None:
    """Returns a case with the chosen inputs as weights, or None if no input can become one."""
    values = list(case.model.graph.input)
    if len(values) != len(case.inputs) or case.model.ir_version < 4:
        return None
    constant = {
        value.name: array
        for value, array in zip(values[1:], list(case.inputs.values())[1:], strict=True)
        if isinstance(array, np.ndarray) and value.type.HasField("tensor_type") and choose(array)
    }
    if not constant:
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(case.model)
    del copy.graph.input[:]
    copy.graph.input.extend(value for value in values if value.name not in constant)
    copy.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constant.items())
    return replace(case, model=copy, inputs={name: case.inputs[name] for name in case.inputs if name not in constant})


@pytest.mark.parametrize("freeze", [structure_frozen, pytest.param(all_but_first_frozen, marks=pytest.mark.full)])
def test_sampled_operators_on_weights_survive_the_round_trip(nodes: list[Case], freeze: Freeze) -> None:
    assert count_equal(nodes[::STRIDE], freeze) >= 50  # far fewer would mean that the cases no longer run here


@pytest.mark.full
@pytest.mark.parametrize("freeze", [structure_frozen, all_but_first_frozen])
def test_operators_on_weights_survive_the_round_trip(nodes: list[Case], freeze: Freeze) -> None:
    assert count_equal(nodes, freeze) >= 450


def count_equal(cases: list[Case], freeze: Freeze) -> int:
    """Returns how many frozen cases ran and were equal, and asserts that none of the others differs."""
    changed = [frozen for case in cases if (frozen := freeze(case)) is not None]
    found = {case.name: judge(case) for case in changed if not case.is_random and case.name not in CONTRADICTORY}
    wrong = {name: verdict for name, verdict in found.items() if verdict.outcome not in (EQUAL, NOT_RUN)}
    assert not wrong, wrong
    return sum(verdict.outcome == EQUAL for verdict in found.values())
