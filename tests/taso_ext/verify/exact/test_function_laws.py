"""The operators have the properties that exact/functions.py declares, in two implementations.

Among residues these functions are random apart from the declared properties, so a property that an operator lacks would
let false rules pass. Each property is tested on many numbers, in ONNX Runtime and in onnx.reference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from taso_ext.verify.exact import functions
from taso_ext.verify.exact.fields import KNOWN

Function = Callable[[np.ndarray], np.ndarray]
RUNTIMES = ("onnxruntime", "onnx.reference")

_SIZES = np.logspace(-3, 1.3, 60).astype(np.float32)
NUMBERS = np.concatenate([-_SIZES, [np.float32(0)], _SIZES])
HALVES = np.arange(-6, 6, 0.5, dtype=np.float32)
"""Integers and halves, where rounding has to decide."""
INSIDE_ONE = frozenset(["Asin", "Acos", "Atanh"])
BELOW = {"Sinh": 5.0, "Cosh": 5.0, "Tan": 1.5}
"""The largest arguments of steep functions; beyond them, rounding errors hide the properties."""
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def function_of(op_type: str, runtime: str, **attributes: object) -> Function:
    """Returns the operator as a function of vectors, computed by one of `RUNTIMES`."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    if op_type == "Cast":
        y = helper.make_tensor_value_info("y", int(attributes["to"]), ["n"])  # type: ignore[call-overload]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], **attributes)], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    if runtime == "onnx.reference":
        evaluator = ReferenceEvaluator(model)
        return lambda numbers: np.asarray(evaluator.run(None, {"x": numbers})[0])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda numbers: np.asarray(session.run(None, {"x": numbers})[0])


def numbers_for(op_type: str) -> np.ndarray:
    size = np.abs(NUMBERS)
    return NUMBERS[(size < 1) if op_type in INSIDE_ONE else size <= BELOW.get(op_type, np.inf)]


def is_odd(function: Function, numbers: np.ndarray) -> bool:
    return bool(np.allclose(function(-numbers), -function(numbers), **CLOSE)) and function(np.zeros(1, "f"))[0] == 0


def is_even(function: Function, numbers: np.ndarray) -> bool:
    return bool(np.allclose(function(-numbers), function(numbers), **CLOSE))


def is_rounding(function: Function, numbers: np.ndarray) -> bool:
    """Returns whether a function is idempotent and 0 at 0."""
    once = function(numbers)
    return bool(np.array_equal(function(once), once)) and function(np.zeros(1, "f"))[0] == 0


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("op_type", sorted(functions.ODD))
def test_functions_declared_odd_are(op_type: str, runtime: str) -> None:
    assert is_odd(function_of(op_type, runtime), numbers_for(op_type))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("op_type", sorted(functions.EVEN))
def test_functions_declared_even_are(op_type: str, runtime: str) -> None:
    assert is_even(function_of(op_type, runtime), numbers_for(op_type))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("op_type", sorted(functions.ROUNDINGS))
def test_roundings_are_idempotent_and_fix_zero(op_type: str, runtime: str) -> None:
    assert is_rounding(function_of(op_type, runtime), np.concatenate([NUMBERS, HALVES]))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("to", [TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8])
def test_casts_to_other_kinds_of_number_fix_zero(to: int, runtime: str) -> None:
    assert function_of("Cast", runtime, to=to)(np.zeros(3, np.float32)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_casts_between_floats_keep_numbers(runtime: str) -> None:
    """The verifier takes these casts for the identity, so they may lose no more than rounding."""
    for to, error in ((TensorProto.DOUBLE, 0.0), (TensorProto.FLOAT16, 2.0**-10)):
        cast = function_of("Cast", runtime, to=to)(NUMBERS).astype(np.float64)
        np.testing.assert_allclose(cast, NUMBERS, rtol=error, atol=1e-7)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_exponentials_turn_sums_into_products(runtime: str) -> None:
    """In the verifier, powers of a root of unity stand for exponentials."""
    exp = function_of("Exp", runtime)
    a, b = (each.ravel() for each in np.meshgrid(NUMBERS[::5], NUMBERS[::5]))
    np.testing.assert_allclose(exp(a + b), exp(a) * exp(b), rtol=1e-4)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_roots_of_squares_are_sizes_and_roots_multiply(runtime: str) -> None:
    """In the verifier, square roots modulo a prime stand for roots, with the sign that gives both properties."""
    sqrt = function_of("Sqrt", runtime)
    np.testing.assert_allclose(sqrt(NUMBERS * NUMBERS), np.abs(NUMBERS), **CLOSE)
    a, b = (np.abs(each.ravel()) for each in np.meshgrid(NUMBERS[::5], NUMBERS[::5]))
    np.testing.assert_allclose(sqrt(a * b), sqrt(a) * sqrt(b), **CLOSE)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("op_type", sorted({*functions.ODD, *functions.EVEN, *functions.ROUNDINGS, "Log", "Acos"}))
def test_what_decides_branches_is_the_function_itself(op_type: str, runtime: str) -> None:
    numbers = numbers_for(op_type)
    numbers = numbers[numbers > 0] if op_type == "Log" else numbers
    np.testing.assert_allclose(function_of(op_type, runtime)(numbers), KNOWN[op_type](numbers), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "holds"), [("Exp", is_odd), ("Relu", is_odd), ("Tanh", is_even), ("Tanh", is_rounding)]
)
def test_the_tests_of_properties_can_fail(op_type: str, holds: Callable[[Function, np.ndarray], bool]) -> None:
    assert not any(holds(function_of(op_type, runtime), NUMBERS) for runtime in RUNTIMES)


def test_every_random_function_has_been_looked_at() -> None:
    """No function is in two tables, and every function in a table has a kernel."""
    tables = (functions.ODD, functions.EVEN, functions.ROUNDINGS, functions.FREE)
    assert sum(map(len, tables)) == len(frozenset.union(*tables)), "in two tables"
    assert frozenset.union(*tables) <= set(functions.FUNCTION_KERNELS)
