"""The judgement of test cases that are loaded and exported again."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from taso_ext import ModelError, ModelWarning, OnnxModel
from taso_ext.onnx_io.cleanup.passes import LEVELS
from taso_ext.onnx_io.dimensions import open_dims
from tests.conformance.cases import Case
from tests.conformance.runtimes import run_in_onnx_runtime, run_in_reference
from tests.taso_ext.samples.onnx_cases import assert_same

EQUAL, DIFFERENT, REFUSED, NOT_RUN = "equal", "different", "refused", "runs nowhere"
"""Outcomes: equal at every clean-up level; different or invalid; refused when it is loaded; no runtime runs it."""

RUNTIME, EXPECTED, REFERENCE = "ONNX Runtime", "expected outputs", "onnx.reference"
"""Judges: ONNX Runtime runs both models; it runs only the exported ones, which are compared with the test's data; the
reference implementation runs both models."""


@dataclass(frozen=True)
class Verdict:
    """The judgement of one case.

    Attributes:
      outcome: one of the four outcomes.
      judge: one of the three judges; empty if there is none.
      runtime_error: why ONNX Runtime does not run the original model; empty if it does.
      reason: what is wrong; empty if nothing is.
    """

    outcome: str
    judge: str = ""
    runtime_error: str = ""
    reason: str = ""


def judge(case: Case) -> Verdict:
    """Loads and exports a case at every clean-up level and compares the outputs."""
    by, expected, runtime_error = _outputs_before(case)
    try:
        exported = {level: _exported(case, level) for level in LEVELS}
    except (ModelError, ModelWarning) as error:
        return Verdict(REFUSED, by, runtime_error, str(error))
    except Exception as error:
        return Verdict(DIFFERENT, by, runtime_error, _short(error))
    if by == EXPECTED and not all(_runs(model, case) for model in exported.values()):
        by, expected = _reference_outputs(case)
    if not by:
        return Verdict(NOT_RUN, "", runtime_error)
    run = run_in_reference if by == REFERENCE else run_in_onnx_runtime
    for level, model in exported.items():
        try:
            compare(case, expected, run(model, case.inputs))
        except Exception as error:
            return Verdict(DIFFERENT, by, runtime_error, f"{level}: {_short(error)}")
    return Verdict(EQUAL, by, runtime_error)


def compare(case: Case, expected: Sequence[object], found: Sequence[object]) -> None:
    """Raises AssertionError unless the outputs agree; random outputs have to agree in type and shape only."""
    if case.is_random:
        expected, found = ([np.zeros_like(each) for each in outputs] for outputs in (expected, found))
    tolerance = 1e-2 if re.search("f(loat|p)?16|f(loat)?8", case.name.lower()) else 1e-4
    assert_same(list(expected), list(found), tolerance)


def _exported(case: Case, level: str) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the clean-up", ModelWarning)  # a lower level must not stand in for this one
        try:
            model = OnnxModel.load(case.model, clean=level)
        except ModelError as error:
            if "symbolic dimensions" not in str(error):
                raise
            model = OnnxModel.load(case.model, clean=level, dims=_sizes(case))
    exported = model.export(model.graph)
    onnx.checker.check_model(exported)
    return exported


def _sizes(case: Case) -> dict[str, int]:
    """Returns the sizes of symbolic dimensions in the case's inputs."""
    return {dim.name: np.shape(case.inputs[dim.input])[dim.axis] for dim in open_dims(case.model.graph)}


def _outputs_before(case: Case) -> tuple[str, Sequence[object], str]:
    """Returns the judge, the outputs of the original model, and why ONNX Runtime cannot run it."""
    try:
        return RUNTIME, run_in_onnx_runtime(case.model, case.inputs), ""
    except Exception as error:  # its exceptions share no public base class
        return EXPECTED, case.expected, _short(error)


def _reference_outputs(case: Case) -> tuple[str, Sequence[object]]:
    try:
        return REFERENCE, run_in_reference(case.model, case.inputs)
    except Exception:  # the reference implementation also lacks operators, and raises any exception
        return "", []


def _runs(model: onnx.ModelProto, case: Case) -> bool:
    try:
        run_in_onnx_runtime(model, case.inputs)
    except Exception:
        return False
    return True


def _short(error: Exception) -> str:
    text = re.sub(r"/\S+/onnxruntime/\S+ ", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:300]
